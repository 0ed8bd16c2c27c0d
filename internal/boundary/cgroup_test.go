package boundary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// testHome is a home for the cgroups of one test. Its owners remove what they made.
func testHome(t testing.TB) Home {
	t.Helper()
	found, err := FindHome()
	if err != nil {
		t.Skipf("skipped: cgroups cannot be made and entered here (they can as root): %v", err)
	}
	home := Home{Dir: found.Dir + "-" + strings.TrimPrefix(string(longstop.NewRunID()), "run_")}
	t.Cleanup(func() {
		if _, err := os.Stat(home.Dir); !os.IsNotExist(err) {
			left, _ := os.ReadDir(home.Dir)
			t.Errorf("left in %s: %v (%v)", home.Dir, left, err)
		}
	})
	return home
}

// made is a cgroup that is removed at the test's end.
func made(t testing.TB, home Home) (*Cgroup, longstop.RunID) {
	t.Helper()
	run := longstop.NewRunID()
	c, err := home.Create(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		c.WaitEmpty(time.Now().Add(10 * time.Second))
		if err := c.Remove(5 * time.Second); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	return c, run
}

// within starts a shell script in a cgroup; it is this process's child.
func within(t testing.TB, c *Cgroup, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: c.FD()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// opened is the cgroup of an owner under test.
func opened(t testing.TB, at Place) *Cgroup {
	t.Helper()
	c, err := OpenCgroup(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (c *Cgroup) full(t testing.TB) bool {
	t.Helper()
	full, err := c.Populated()
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// A workload that may write to another cgroup leaves its own: populated 0 says nothing of it then, and
// only its parent knows.
func TestCgroupThatItsProcessLeft(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	other, _ := made(t, home)
	o := own(t, job{Home: home.Dir, Script: "echo $$ >" + other.Place().Path + "/cgroup.procs; exec sleep 600"})
	s := o.until("look", "the escape", func(s sight) bool { return len(s.Seen) == 1 && s.Seen[0].Name == "sleep" })
	c := opened(t, s.Place)
	if c.full(t) {
		t.Error("the premise is wrong: the cgroup is populated")
	}
	if s := o.do("look"); s.Empty || len(s.Seen) != 1 || s.Seen[0].Identity != s.Main {
		t.Errorf("saw %+v", s)
	}
	o.killed()
	o.end()
}

// One that came to the cgroup without being the owner's descendant is the run's too: ECHILD says
// nothing of it.
func TestCgroupThatAnotherCameTo(t *testing.T) {
	t.Parallel()
	o := own(t, job{Home: testHome(t).Dir, Script: "exec sleep 600"})
	s := o.do("look")
	c := opened(t, s.Place)
	stranger := within(t, c, "exec sleep 600")
	Signal(s.Main, unix.SIGKILL)
	s = o.until("look", "the main process's end", func(s sight) bool { return len(s.Exits) == 1 })
	if s.Empty || len(s.Seen) != 1 || s.Seen[0].PID != stranger.Process.Pid {
		t.Errorf("saw %+v", s)
	}
	o.killed()
	o.end()
}

// C053: freeze is always undone.
func TestC053FrozenCgroupHearsTerm(t *testing.T) {
	t.Parallel()
	o := own(t, job{Home: testHome(t).Dir, Script: "trap 'exit 3' TERM; sleep 600 & while :; do wait; done"})
	s := o.until("look", "a sleeper below a shell", func(s sight) bool { return len(s.Seen) == 2 && s.Seen[1].Name == "sleep" })
	if err := os.WriteFile(s.Place.Path+"/cgroup.freeze", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "frozen", func() bool {
		events, _ := os.ReadFile(s.Place.Path + "/cgroup.events")
		return strings.Contains(string(events), "frozen 1")
	})
	o.do("term")
	o.until("look", "the end of all by TERM", isEmpty)
	o.end()
}

func TestC053KillLeavesNothingFrozen(t *testing.T) {
	t.Parallel()
	c, _ := made(t, testHome(t))
	c.old = true
	within(t, c, "exec sleep 600")
	if err := errors.Join(c.Kill(), c.WaitEmpty(time.Now().Add(10*time.Second))); err != nil {
		t.Fatal(err)
	}
	if data, err := c.read("cgroup.freeze"); string(data) != "0\n" {
		t.Errorf("cgroup.freeze is %q, %v", data, err)
	}
}

// belowSelf is a script's beginning: $me is the folder of its cgroup.
const belowSelf = `me=$(sed -n 's/.* \/ \(\/[^ ]*\) .* - cgroup2 .*/\1/p' /proc/self/mountinfo | head -1)$(sed -n 's/^0:://p' /proc/self/cgroup)
`

func TestCgroupsThatTheWorkMadeBelow(t *testing.T) {
	for name, c := range map[string]struct {
		script    string
		processes int
	}{
		"nested": {`mkdir -p $me/a/b $me/c
			(echo 0 >$me/a/b/cgroup.procs; setsid sleep 600 & exec sleep 600) &
			exec sleep 600`, 3},
		// Whose processes are in the list of the one above alone, cgroups(7).
		"threaded": {`mkdir $me/c; echo threaded >$me/c/cgroup.type
			(echo 0 >$me/c/cgroup.procs; exec sleep 600) &
			exec sleep 600`, 2},
	} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, without cgroup.kill: %v", name, old), func(t *testing.T) {
				t.Parallel()
				o := own(t, job{Home: testHome(t).Dir, Old: old, Script: belowSelf + c.script})
				s := o.until("look", "all asleep", func(s sight) bool {
					return len(s.Seen) == c.processes && !slices.ContainsFunc(s.Seen, func(p Stat) bool { return p.Name != "sleep" })
				})
				procs, unseen, err := opened(t, s.Place).Procs()
				if len(procs) != c.processes || procs[0].Identity != s.Main || unseen != 0 || err != nil {
					t.Errorf("Procs = %v, %d, %v", procs, unseen, err)
				}
				o.killed()
				o.end()
			})
		}
	}
}

// C053: a cgroup that is busy is not removed, and what is left is named.
func TestC053BusyCgroupIsNamed(t *testing.T) {
	t.Parallel()
	c, _ := made(t, testHome(t))
	inner := filepath.Join(c.Place().Path, "inner")
	if err := os.Mkdir(inner, 0755); err != nil {
		t.Fatal(err)
	}
	cmd := within(t, c, "echo $$ >"+inner+"/cgroup.procs; exec sleep 600")
	eventually(t, "the move", func() bool {
		data, _ := os.ReadFile(inner + "/cgroup.procs")
		return len(data) > 0
	})
	begun := time.Now()
	err := c.Remove(30 * time.Millisecond)
	if took := time.Since(begun); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), inner) || took < 5*time.Millisecond {
		t.Errorf("Remove of a busy one: %v, after %v", err, took)
	}
	c.Kill()
	cmd.Wait()
	// EBUSY may last a moment longer than the process: Remove waits for it.
	if err := c.Remove(5 * time.Second); err != nil {
		t.Error(err)
	}
}

func TestCgroupSaysWhenItIsEmpty(t *testing.T) {
	t.Parallel()
	c, _ := made(t, testHome(t))
	changed := make(chan bool, 100)
	stop, err := c.Watch(func() {
		full, _ := c.Populated()
		changed <- full
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := c.WaitEmpty(time.Now().Add(time.Minute)); err != nil {
		t.Errorf("WaitEmpty of an empty one: %v", err)
	}
	cmd := within(t, c, "exec sleep 600")
	await(t, changed, true)
	if err := c.WaitEmpty(time.Now().Add(20 * time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("WaitEmpty of a full one: %v", err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitEmpty(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
	await(t, changed, false)
	cmd.Wait()
}

func await(t *testing.T, said <-chan bool, want bool) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case full := <-said:
			if full == want {
				return
			}
		case <-late:
			t.Fatalf("nobody said within ten seconds that populated is %v", want)
		}
	}
}

// A process that was freshly started finds a run's cgroup by its place, and only that one.
func TestCgroupIsFoundAgain(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	c, run := made(t, home)
	if info, err := os.Stat(c.Place().Path); err != nil || info.Mode().Perm() != 0711 {
		t.Errorf("who may open it: %v, %v", info, err)
	}
	if _, err := home.Create(run); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if again, err := OpenCgroup(c.Place()); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	for _, wrong := range []struct {
		change func(*Place)
		gone   bool
	}{
		{func(p *Place) { p.Number++ }, true},
		{func(p *Place) { p.Path = filepath.Join(home.Dir, string(longstop.NewRunID())) }, true},
		{func(p *Place) { p.Top++ }, false},
		{func(p *Place) { p.Path = "/nowhere" }, false},
	} {
		p := c.Place()
		wrong.change(&p)
		if got, err := OpenCgroup(p); err == nil || errors.Is(err, ErrCgroupGone) != wrong.gone {
			t.Errorf("OpenCgroup(%+v) = %v, %v", p, got, err)
		}
	}
	if err := c.Remove(time.Second); err != nil {
		t.Fatal(err)
	}
	if c.full(t) {
		t.Error("a removed one is populated")
	}
	if procs, _, err := c.Procs(); len(procs) > 0 || err != nil {
		t.Errorf("Procs of a removed one = %v, %v", procs, err)
	}
	if err := errors.Join(c.Kill(), c.WaitEmpty(time.Now().Add(time.Second)), c.Remove(0)); err != nil && !errors.Is(err, ErrCgroupGone) {
		t.Error(err)
	}
	// Made again under the same name, it is another one.
	second, err := home.Create(run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := second.Remove(time.Second)
		second.Close()
		for range 3 { // whose descriptors may have its numbers
			file, err := os.Open("/")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
		}
		if after := second.Kill(); err != nil || !errors.Is(after, unix.EBADF) {
			t.Errorf("Remove: %v; Kill of a closed one: %v", err, after)
		}
	}()
	if _, err := OpenCgroup(c.Place()); !errors.Is(err, ErrCgroupGone) {
		t.Errorf("another one of the same name: %v", err)
	}
	if err := c.hold(unix.LOCK_SH); !errors.Is(err, ErrCgroupGone) {
		t.Errorf("one whose name another has is held: %v", err)
	}
	if err := c.Remove(0); err != nil || second.Place().Number == c.Place().Number {
		t.Error(err)
	}
	if _, err := os.Stat(second.Place().Path); err != nil {
		t.Errorf("the first one's Remove took the second: %v", err)
	}
}

// Law 7: nothing is sent to what is not ours.
func TestLaw7CgroupOfAnotherUserAndLinks(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	c, _ := made(t, home)
	tmp := t.TempDir()
	run := longstop.NewRunID()
	if err := os.Symlink(c.Place().Path, filepath.Join(tmp, string(run))); err != nil {
		t.Fatal(err)
	}
	if _, err := openCgroup(filepath.Join(tmp, string(run))); !errors.Is(err, ErrCgroupForeign) {
		t.Errorf("a link: %v", err)
	}
	if err := os.Mkdir(filepath.Join(tmp, "plain"), 0755); err != nil {
		t.Fatal(err)
	}
	if _, err := openCgroup(filepath.Join(tmp, "plain")); !errors.Is(err, ErrCgroupForeign) {
		t.Errorf("a plain folder: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can make a cgroup another user's")
	}
	if err := os.Chown(c.Place().Path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCgroup(c.Place()); !errors.Is(err, ErrCgroupForeign) {
		t.Errorf("another user's: %v", err)
	}
	os.Chown(c.Place().Path, 0, 0)
}

func TestPopulatedIsReadStrictly(t *testing.T) {
	for data, want := range map[string]string{
		"populated 1\nfrozen 0\n": "true", "populated 0\nfrozen 0\n": "false", "frozen 1\npopulated 0": "false",
		"": "error", "frozen 0\n": "error", "populated 01\n": "error", "unpopulated 0\n": "error",
	} {
		full, err := parsePopulated([]byte(data))
		got := map[bool]string{true: "true", false: "false"}[full]
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("parsePopulated(%q) = %s", data, got)
		}
	}
}

// killPlace is a process that kills one cgroup and says whom it could signal one by one.
func killPlace() {
	var at Place
	json.Unmarshal([]byte(os.Getenv("BOUNDARY_TEST_PLACE")), &at)
	c, err := OpenCgroup(at)
	if err != nil {
		fmt.Println(err)
		return
	}
	procs, _, _ := c.Procs()
	for _, s := range procs {
		fmt.Println(Signal(s.Identity, unix.SIGKILL))
	}
	fmt.Println(c.Kill())
}

// A process that became another user's (sudo) may not be signalled, and goes with its cgroup all the same.
func TestCgroupKillReachesWhoMayNotBeSignalled(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can put its process into another user's cgroup")
	}
	c, _ := made(t, testHome(t))
	within(t, c, "exec sleep 600")
	const uid = 65534
	for _, name := range []string{"", "cgroup.kill"} {
		if err := os.Chown(filepath.Join(c.Place().Path, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	cmd := helper(t, "killer")
	at, _ := json.Marshal(c.Place())
	cmd.Env = append(cmd.Env, "BOUNDARY_TEST_PLACE="+string(at))
	cmd.Path, cmd.Dir = openToAll(t, cmd.Path), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	if want := "operation not permitted\n<nil>\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
	if err := c.WaitEmpty(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
}

func TestParentsComeFirst(t *testing.T) {
	var order []int
	for _, s := range parentsFirst([]Stat{
		{Identity: Identity{PID: 7}, PPID: 9}, {Identity: Identity{PID: 9}, PPID: 8}, {Identity: Identity{PID: 8}, PPID: 1},
		{Identity: Identity{PID: 3}, PPID: 7}, {Identity: Identity{PID: 5}, PPID: 1},
	}) {
		order = append(order, s.PID)
	}
	if !slices.Equal(order, []int{5, 8, 9, 7, 3}) {
		t.Errorf("%v", order)
	}
}
