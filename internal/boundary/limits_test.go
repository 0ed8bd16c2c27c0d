package boundary

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/longstop/longstop"
)

// standIn is a cgroup whose files are plain ones in a folder of the test's: what is written to them
// is to be seen, and nothing holds any limit. have are the controllers of the cgroup itself, above of
// the one that its home is in.
func standIn(t *testing.T, have, above string) *Cgroup {
	t.Helper()
	top := t.TempDir()
	path := filepath.Join(top, homeName, string(longstop.NewRunID()))
	if err := os.MkdirAll(path, 0700); err != nil {
		t.Fatal(err)
	}
	home := filepath.Dir(path)
	files := map[string]string{
		top + "/cgroup.controllers": above, top + "/cgroup.subtree_control": "",
		home + "/cgroup.controllers": have, home + "/cgroup.subtree_control": "",
		path + "/cgroup.controllers": have, path + "/cpu.max": "max 100000\n", path + "/memory.max": "max\n",
		path + "/memory.oom.group": "0\n", path + "/pids.max": "max\n",
	}
	for name, content := range files {
		put(t, name, content)
	}
	return &Cgroup{place: Place{Path: path}, dir: -1, events: -1}
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0600); err != nil {
		t.Fatal(err)
	}
}

func (c *Cgroup) content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.place.Path, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLimitsAreWrittenInAStandInFolder(t *testing.T) {
	t.Parallel()
	c := standIn(t, "cpu memory pids\n", "cpu memory pids\n")
	if err := c.Limit(&longstop.Limits{CPUPercent: 150, MemoryBytes: 64 << 20, Tasks: 20, OpenFiles: 7}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cpu.max": "150000 100000", "memory.max": "67108864", "memory.oom.group": "1", "pids.max": "20",
		"../cgroup.subtree_control": "", // it had them
	} {
		if got := c.content(t, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c = standIn(t, "cpu memory pids\n", "")
	if err := c.Limit(&longstop.Limits{OpenFiles: 7}); err != nil || c.content(t, "memory.max") != "max\n" {
		t.Errorf("without limits: %v", err)
	}
}

func TestLimitsAreRefusedInAStandInFolder(t *testing.T) {
	t.Parallel()
	for _, missing := range []struct {
		controller string
		limits     longstop.Limits
	}{{"cpu", longstop.Limits{CPUPercent: 100}}, {"memory", longstop.Limits{MemoryBytes: 1 << 20}}, {"pids", longstop.Limits{Tasks: 1}}} {
		c := standIn(t, "hugetlb\n", "hugetlb io\n")
		err := c.Limit(&missing.limits)
		if !errors.Is(err, ErrCannotLimit) || !strings.Contains(err.Error(), `no controller "`+missing.controller+`" (it has: hugetlb io)`) {
			t.Errorf("%s: %v", missing.controller, err)
		}
		// It is above, and asked for, and the stand-in does not hand it on.
		c = standIn(t, "", "cpu memory pids\n")
		err = c.Limit(&missing.limits)
		if got := c.content(t, "../../cgroup.subtree_control"); !errors.Is(err, ErrCannotLimit) || got != "+"+missing.controller {
			t.Errorf("%s: %v; asked for %q", missing.controller, err, got)
		}
		// What is above a unit is nobody's to ask.
		c = standIn(t, "", "cpu memory pids\n")
		c.inUnit = true
		err = c.Limit(&missing.limits)
		if got := c.content(t, "../../cgroup.subtree_control"); !errors.Is(err, ErrCannotLimit) || got != "" {
			t.Errorf("%s, in a unit: %v; asked for %q", missing.controller, err, got)
		}
	}
	c := standIn(t, "memory\n", "memory\n")
	os.Remove(c.place.Path + "/memory.oom.group")
	if err := c.Limit(&longstop.Limits{MemoryBytes: 1}); !errors.Is(err, ErrCannotLimit) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without memory.oom.group: %v", err)
	}
}

func TestWhatCanBeHeldIsSaidOfAStandInFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		can   int
		why   string
	}{
		"all":                       {map[string]string{"controllers": "cpu memory pids"}, 3, ""},
		"none":                      {map[string]string{"controllers": "hugetlb"}, 0, `has no controller "memory" (it has: hugetlb)`},
		"two":                       {map[string]string{"controllers": "cpu pids"}, 2, `has no controller "memory"`},
		"the top, with processes":   {map[string]string{"controllers": "cpu memory pids", "procs": "1\n"}, 3, ""},
		"with processes":            {map[string]string{"controllers": "cpu memory pids", "type": "domain", "procs": "1\n"}, 0, "holds processes itself"},
		"with them, and handing on": {map[string]string{"controllers": "cpu memory pids", "type": "domain", "procs": "1\n", "subtree_control": "cpu memory pids"}, 3, ""},
		"nothing":                   {nil, 0, "could not be found out"},
	} {
		dir := t.TempDir()
		for file, content := range c.files {
			put(t, dir+"/cgroup."+file, content)
		}
		can, why := 0, ""
		for _, o := range Holdable(dir) {
			if o.Can {
				can++
			}
			if o.Name == "memory_bytes" {
				why = o.Because
			}
		}
		if can != c.can || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %d, %q", name, can, why)
		}
	}
}

func TestOOMIsReadFromAStandInFolder(t *testing.T) {
	t.Parallel()
	c := standIn(t, "memory\n", "memory\n")
	if _, err := c.OOM(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without memory.events: %v", err)
	}
	for events, want := range map[string]longstop.OOM{
		"low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n": {},
		"low 0\nhigh 0\nmax 12\noom 2\noom_kill 5\noom_group_kill 1\n": {Kills: 5, AtLimit: true},
		"low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n":                    {Kills: 1}, // the machine's memory
	} {
		put(t, c.place.Path+"/memory.events", events)
		if got, err := c.OOM(); err != nil || (got == nil) != (want.Kills == 0) || got != nil && *got != want {
			t.Errorf("OOM of %q = %+v, %v", events, got, err)
		}
	}
	os.Remove(c.place.Path + "/memory.events")
	put(t, filepath.Dir(c.place.Path)+"/memory.events", "oom 0\noom_kill 1\n")
	if _, err := c.OOM(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its home's: %v", err)
	}
	c.inUnit = true
	if got, err := c.OOM(); err != nil || got == nil || *got != (longstop.OOM{Kills: 1}) {
		t.Errorf("its unit's: %+v, %v", got, err)
	}
	for _, bad := range []string{"", "oom 1\n", "oom_kill\n", "oom_kill x\n"} {
		if got, err := parseOOM(bad); err == nil {
			t.Errorf("parseOOM(%q) = %+v", bad, got)
		}
	}
}

// harmless is a controller that holds none of the limits, as hugetlb, which is v2's also where the others are
// v1's. Where nobody had handed it on it is taken back. Its tests are not parallel.
func harmless(t *testing.T, home Home) (controller string) {
	t.Helper()
	above := filepath.Dir(home.Dir)
	has, _ := controllersOf(above)
	i := slices.IndexFunc(has, func(name string) bool { return !slices.Contains([]string{"memory", "cpu", "pids"}, name) })
	if i < 0 {
		t.Skipf("skipped: of controllers v2 has %v here", has)
	}
	controller = has[i]
	handed, _ := os.ReadFile(above + "/cgroup.subtree_control")
	if !slices.Contains(strings.Fields(string(handed)), controller) {
		t.Cleanup(func() {
			if err := writeFile(above+"/cgroup.subtree_control", "-"+controller); err != nil {
				t.Error(err)
			}
		})
	}
	return controller
}

// A controller is handed down as the kernel has it.
func TestAControllerIsHandedDown(t *testing.T) {
	home := testHome(t)
	controller := harmless(t, home)
	c, _ := made(t, home)
	if err := c.enable(controller); err != nil {
		t.Fatal(err)
	}
	if has, _ := controllersOf(c.place.Path); !slices.Contains(has, controller) {
		t.Errorf("it has %v", has)
	}
	for _, o := range Holdable(filepath.Dir(home.Dir)) {
		if has, _ := controllersOf(filepath.Dir(home.Dir)); o.Can != slices.Contains(has, controllers[o.Name]) {
			t.Errorf("%+v, of %v", o, has)
		}
	}
}

// What has processes itself hands nothing on: the main process of a unit steps aside.
func TestWhoIsInTheWayOfAControllerStepsAside(t *testing.T) {
	if dir := os.Getenv("BOUNDARY_TEST_STEP_ASIDE"); dir != "" {
		io.ReadFull(os.Stdin, make([]byte, 1))
		if err := (Home{Dir: dir, Unit: true}).StepAside(); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("aside\n")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	home := testHome(t)
	controller := harmless(t, home)
	unit, _ := made(t, home)
	if err := unit.enable(controller); err != nil {
		t.Fatal(err)
	}
	main := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	main.Env = append(os.Environ(), "BOUNDARY_TEST_STEP_ASIDE="+unit.place.Path)
	main.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: unit.FD()}
	stdin, _ := main.StdinPipe()
	stdout, _ := main.StdoutPipe()
	if err := main.Start(); err != nil {
		t.Fatal(err)
	}
	defer main.Wait()
	defer stdin.Close()

	run, err := Home{Dir: unit.place.Path, Unit: true}.Create(longstop.NewRunID())
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.enable(controller); err == nil || !strings.Contains(err.Error(), "holds processes itself") {
		t.Errorf("with its main process in the way: %v", err)
	}
	stdin.Write([]byte{1})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "aside\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := run.enable(controller); err != nil {
		t.Error(err)
	}
	if within, err := unit.Has(main.Process.Pid); within || err != nil {
		t.Errorf("it is still in the unit's own: %v", err)
	}
	if procs, _, _ := unit.Procs(); len(procs) != 1 || procs[0].PID != main.Process.Pid {
		t.Errorf("in the unit: %+v", procs)
	}
}

// Where the kernel has the controllers the limits hold; where it lacks one they are refused.
func TestLimitsOfThisKernel(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	c, _ := made(t, home)
	above, err := controllersOf(filepath.Dir(filepath.Dir(c.place.Path)))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Limit(&longstop.Limits{CPUPercent: 100, MemoryBytes: 32 << 20, Tasks: 20})
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if slices.Contains(above, controller) {
			continue
		}
		if !errors.Is(err, ErrCannotLimit) || !strings.Contains(err.Error(), controller) {
			t.Errorf("%s, which is not there: %v", controller, err)
		}
		t.Skipf("skipped: that the limits hold; %v", err)
	}
	if err != nil {
		t.Skipf("skipped: that the limits hold; %v", err)
	}
	cmd := within(t, c, `i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done; exec sleep 600`)
	cmd.Wait() // a shell that cannot fork ends
	if procs, _, _ := c.Procs(); len(procs) > 20 {
		t.Errorf("%d tasks, of 20", len(procs))
	}
	// Another one: a child that is born into a cgroup that was killed once is killed too, by Linux 6.1.176.
	c, _ = made(t, home)
	if err := c.Limit(&longstop.Limits{MemoryBytes: 32 << 20}); err != nil {
		t.Fatal(err)
	}
	within(t, c, "exec tail /dev/zero").Wait()
	if oom, err := c.OOM(); err != nil || oom == nil || !oom.AtLimit {
		t.Errorf("OOM = %+v, %v", oom, err)
	}
}
