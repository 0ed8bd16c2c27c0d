package boundary

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	files := map[string]string{
		top + "/cgroup.controllers": above, top + "/cgroup.subtree_control": "", filepath.Dir(path) + "/cgroup.subtree_control": "",
		path + "/cgroup.controllers": have, path + "/cpu.max": "max 100000\n", path + "/memory.max": "max\n",
		path + "/memory.oom.group": "0\n", path + "/pids.max": "max\n",
	}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cgroup{place: Place{Path: path}, dir: dir, events: -1}
	t.Cleanup(func() { c.Close() })
	return c
}

func (c *Cgroup) content(t *testing.T, name string) string {
	t.Helper()
	data, err := c.read(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLimitsAreWrittenInAStandInFolder(t *testing.T) {
	t.Parallel()
	c := standIn(t, "cpu memory pids\n", "cpu memory pids\n")
	if err := c.Limit(CgroupLimits{CPUs: 1.5, MemoryBytes: 64 << 20, Tasks: 20}); err != nil {
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
	if err := c.Limit(CgroupLimits{}); err != nil || c.content(t, "memory.max") != "max\n" {
		t.Errorf("without limits: %v", err)
	}
}

func TestLimitsAreRefusedInAStandInFolder(t *testing.T) {
	t.Parallel()
	for _, missing := range []struct {
		controller string
		limits     CgroupLimits
	}{{"cpu", CgroupLimits{CPUs: 1}}, {"memory", CgroupLimits{MemoryBytes: 1 << 20}}, {"pids", CgroupLimits{Tasks: 1}}} {
		c := standIn(t, "hugetlb\n", "hugetlb io\n")
		err := c.Limit(missing.limits)
		if !errors.Is(err, ErrCannotLimit) || !strings.Contains(err.Error(), `no controller "`+missing.controller+`" (it has: hugetlb io)`) {
			t.Errorf("%s: %v", missing.controller, err)
		}
		// It is above, and asked for, and the stand-in does not hand it on.
		c = standIn(t, "", "cpu memory pids\n")
		err = c.Limit(missing.limits)
		if !errors.Is(err, ErrCannotLimit) || !strings.Contains(err.Error(), "was not handed on") {
			t.Errorf("%s: %v", missing.controller, err)
		}
		for _, dir := range []string{"..", "../.."} {
			if got := c.content(t, dir+"/cgroup.subtree_control"); got != "+"+missing.controller {
				t.Errorf("%s: asked %s for %q", missing.controller, dir, got)
			}
		}
	}
	c := standIn(t, "memory\n", "memory\n")
	os.Remove(c.place.Path + "/memory.oom.group")
	if err := c.Limit(CgroupLimits{MemoryBytes: 1}); !errors.Is(err, ErrCannotLimit) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without memory.oom.group: %v", err)
	}
}

func TestOOMIsReadFromAStandInFolder(t *testing.T) {
	t.Parallel()
	c := standIn(t, "memory\n", "memory\n")
	if _, err := c.OOM(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without memory.events: %v", err)
	}
	for events, want := range map[string]OOM{
		"low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n": {},
		"low 0\nhigh 0\nmax 12\noom 2\noom_kill 5\noom_group_kill 1\n": {Kills: 5, AtLimit: true},
		"low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n":                    {Kills: 1}, // the machine's memory
	} {
		if err := os.WriteFile(c.place.Path+"/memory.events", []byte(events), 0600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.OOM(); err != nil || got != want {
			t.Errorf("OOM of %q = %+v, %v", events, got, err)
		}
	}
	for _, bad := range []string{"", "oom 1\n", "oom_kill\n", "oom_kill x\n"} {
		if got, err := parseOOM(bad); err == nil {
			t.Errorf("parseOOM(%q) = %+v", bad, got)
		}
	}
}

// Where the kernel has the controllers the limits hold; where it lacks one they are refused.
func TestLimitsOfThisKernel(t *testing.T) {
	t.Parallel()
	c, _ := made(t, testHome(t))
	above, err := c.controllers("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Limit(CgroupLimits{CPUs: 1, MemoryBytes: 32 << 20, Tasks: 20})
	for _, controller := range []string{"cpu", "memory", "pids"} {
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
	c.Kill()
	if err := c.WaitEmpty(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	within(t, c, "exec tail /dev/zero").Wait()
	if oom, err := c.OOM(); err != nil || oom.Kills == 0 || !oom.AtLimit {
		t.Errorf("OOM = %+v, %v", oom, err)
	}
}
