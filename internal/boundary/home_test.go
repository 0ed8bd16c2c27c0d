package boundary

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

func TestSweepTakesWhatIsEmptyAndNobodys(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	held, _ := made(t, home)
	full, fullRun := made(t, home)
	within(t, full, "exec sleep 600")
	left, leftRun := made(t, home)
	if err := os.MkdirAll(left.Place().Path+"/a/b", 0755); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(home.Dir, "not-ours")
	if err := os.Mkdir(foreign, 0755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(home.Dir)
	defer os.Remove(foreign)
	// Their owners die: the descriptors that held the locks are closed.
	for _, c := range []*Cgroup{full, left} {
		if err := unix.Flock(c.dir, unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
	}
	swept, err := home.Sweep()
	if err != nil || len(swept) != 1 || swept[0] != leftRun {
		t.Errorf("Sweep = %v, %v; want %v", swept, err, leftRun)
	}
	for _, path := range []string{held.Place().Path, full.Place().Path, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("swept too: %v", err)
		}
	}
	if c, err := openCgroup(filepath.Join(home.Dir, string(fullRun))); err != nil || !c.full(t) {
		t.Errorf("the full one: %v", err)
	} else {
		c.Close()
	}
	if swept, err := (Home{Dir: filepath.Join(home.Dir, "none")}).Sweep(); swept != nil || err != nil {
		t.Errorf("Sweep where no home is: %v, %v", swept, err)
	}
}

// Whoever answers for runs comes, from whatever session, to one cgroup, which is there while it is used.
func TestServantsHaveACgroupBesideTheRuns(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	first, err := home.Servants()
	if err != nil {
		t.Fatal(err)
	}
	second, err := home.Servants()
	if err != nil || second.Place() != first.Place() {
		t.Fatalf("%+v, %v; want %+v", second, err, first)
	}
	cmd := within(t, first, "exec sleep 600")
	for pid, want := range map[int]bool{cmd.Process.Pid: true, os.Getpid(): false, 1: false} {
		if has, err := second.Has(pid); has != want || err != nil {
			t.Errorf("Has(%d) = %v, %v", pid, has, err)
		}
	}
	there := func() bool {
		if runs, err := home.Sweep(); runs != nil || err != nil {
			t.Errorf("Sweep = %v, %v", runs, err)
		}
		_, err := os.Stat(first.Place().Path)
		return err == nil
	}
	first.Close()
	second.Close()
	if !there() {
		t.Error("swept with a process in it")
	}
	third, err := home.Servants()
	if err != nil {
		t.Fatal(err)
	}
	third.Kill()
	cmd.Wait()
	if err := third.WaitEmpty(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
	if !there() {
		t.Error("swept while somebody has it open")
	}
	third.Close()
	eventually(t, "the sweep of the one that nobody uses", func() bool { return !there() })
}

// While others sweep, and remove the home each time it is empty, whoever makes a cgroup has it.
func TestSweepTakesNoneThatIsJustMade(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	done := make(chan struct{})
	swept := make(chan []longstop.RunID)
	go func() {
		var all []longstop.RunID
		for {
			select {
			case <-done:
				swept <- all
				return
			default:
				runs, _ := home.Sweep()
				all = append(all, runs...)
			}
		}
	}()
	for range 200 {
		run := longstop.NewRunID()
		c, err := home.Create(run)
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := os.Stat(c.Place().Path + "/cgroup.procs"); err != nil {
			t.Error(err)
		}
		if err := c.Remove(time.Second); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	close(done)
	<-swept
	home.Sweep()
}

// findHome is a process that looks for a home and tells.
func findHome() {
	home, err := FindHome()
	said := struct{ Dir, Error string }{Dir: home.Dir}
	if err != nil {
		said.Error = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(said)
}

// What a user who is not root may do is tried: in a part of the hierarchy that was given to it; in a
// login session beside the user's own service manager; in a session alone.
func TestHomeOfAPlainUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can give another user a part of the hierarchy")
	}
	h, err := FindHierarchy()
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	uid := 1_000_000 + os.Getpid() // nobody's
	top := filepath.Join(h.Mount, fmt.Sprintf("user-%d.slice", uid))
	session, manager := filepath.Join(top, "session-1.scope"), filepath.Join(top, fmt.Sprintf("user@%d.service", uid))
	unit := filepath.Join(manager, "app.slice")
	for _, dir := range []string{top, session, manager, unit} {
		if err := os.Mkdir(dir, 0755); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}()
	}
	delegate := func(dir string, uid int) {
		for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, says := foundIn(t, uid, session)
	if dir != "" || !strings.Contains(says, "no cgroup can be made in "+session) {
		t.Errorf("in a session alone: %q, %q", dir, says)
	}
	delegate(manager, uid)
	dir, says = foundIn(t, uid, session)
	if dir != "" || !strings.Contains(says, "can be made in "+manager+", but not entered") {
		t.Errorf("beside the user's manager: %q, %q", dir, says)
	}
	delegate(unit, uid)
	if dir, says = foundIn(t, uid, unit); dir != filepath.Join(unit, homeName) {
		t.Errorf("where it was delegated: %q, %q", dir, says)
	}
	delegate(unit, 0) // what is above is this user's yet
	if dir, says = foundIn(t, uid, unit); dir != filepath.Join(manager, homeName) {
		t.Errorf("below what was delegated: %q, %q", dir, says)
	}
}

// foundIn is what a process of that user's finds that is in that cgroup.
func foundIn(t *testing.T, uid int, cgroup string) (dir, says string) {
	t.Helper()
	fd, err := unix.Open(cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cmd := helper(t, "finder")
	cmd.Path = openToAll(t, cmd.Path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Dir, Error string }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return said.Dir, said.Error
}

// openToAll is a copy of a program where any user may start it.
func openToAll(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "boundary")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0755)
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, data, 0755); err != nil {
		t.Fatal(err)
	}
	os.Chmod(copied, 0755)
	return copied
}

func TestReadOnlyHierarchyIsSaid(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	cmd := helper(t, "finder")
	cmd.Env = append(cmd.Env, "BOUNDARY_TEST_READONLY=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	h, err := FindHierarchy()
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	sh := exec.Command("/bin/sh", "-c", `mount -o remount,bind,ro "$1" && exec "$2"`, "sh", h.Mount, cmd.Path)
	sh.Env, sh.SysProcAttr = cmd.Env, cmd.SysProcAttr
	out, err := sh.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "mounted read-only") {
		t.Errorf("%v: %s", err, out)
	}
}

// A unit's own cgroup stays its service manager's, who waits to be told that it is empty.
func TestUnitsCgroupIsNotRemoved(t *testing.T) {
	t.Parallel()
	home := testHome(t)
	keep, err := home.Servants()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep.Remove(time.Second); keep.Close() })
	unit := Home{Dir: filepath.Join(home.Dir, "longstop-run.service"), Unit: true}
	t.Cleanup(func() { os.Remove(unit.Dir) })
	run, err := unit.Create(longstop.NewRunID())
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.Remove(time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := unit.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(unit.Dir); err != nil {
		t.Error(err)
	}
}
