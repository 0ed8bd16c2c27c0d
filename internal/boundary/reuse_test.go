package boundary

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// reuse is a process in a PID namespace of its own, in which numbers can be had again at once.
func reuse() {
	if err := reuseNumbers(); err != nil {
		os.Stdout.WriteString(err.Error())
	}
}

func reuseNumbers() error {
	h, err := FindHierarchy()
	if err != nil {
		return err
	}
	c, err := Home{Dir: filepath.Join(h.Mount, os.Getenv("BOUNDARY_TEST_HOME"))}.Create(longstop.NewRunID())
	if err != nil {
		return err
	}
	defer c.Close()
	defer c.Remove(5 * time.Second)
	for range 20 {
		if err := reuseOne(c); err != nil {
			return err
		}
	}
	return nil
}

// reuseOne lets a process of the cgroup die after it was listed, and a stranger have its number.
func reuseOne(c *Cgroup) error {
	var r Reaper
	sleeper := func(sys *syscall.SysProcAttr) (Identity, error) {
		return r.Start(func() (int, error) {
			return syscall.ForkExec("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Sys: sys})
		})
	}
	member, err := sleeper(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: c.FD()})
	if err != nil {
		return err
	}
	listed, _, err := c.pids()
	if err != nil || !listed[member.PID] {
		return errors.Join(errors.New("the member is not listed"), err)
	}
	end := func(id Identity) {
		for r.Signal(id, unix.SIGKILL); !r.Reap(nil); {
		}
	}
	end(member)
	for Ticks(BootNow()) <= member.Start { // two that start in one tick cannot be told apart
	}
	last := []byte(strconv.Itoa(member.PID - 1))
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", last, 0); err != nil {
		return err
	}
	stranger, err := sleeper(nil)
	if err != nil {
		return err
	}
	defer end(stranger)
	if stranger.PID != member.PID {
		return errors.New("the premise is wrong: the number was not used again")
	}
	if taken, _, err := c.Among(listed); len(taken) != 0 || err != nil {
		return errors.Join(errors.New("a stranger was taken for the member whose number it has"), err)
	}
	for _, signal := range []func(Identity, unix.Signal, ...unix.Signal) error{Signal, r.Signal} {
		if err := signal(member, unix.SIGKILL); !errors.Is(err, ErrGone) {
			return errors.Join(errors.New("a stranger was signalled"), err)
		}
	}
	if !Is(stranger) {
		return errors.New("the stranger did not survive")
	}
	return nil
}

// Law 7: never signal a stranger, though it has the number of one that was in the list.
func TestLaw7CgroupWhoseNumberWasUsedAgain(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can make a PID namespace and choose its numbers")
	}
	home := testHome(t)
	cmd := helper(t, "reuser")
	cmd.Env = append(cmd.Env, "BOUNDARY_TEST_HOME="+filepath.Base(home.Dir))
	// A shell is the namespace's first process, which gets no signals but its own.
	sh := exec.Command("/bin/sh", "-c", `mount -t proc proc /proc && "$1"; exit $?`, "sh", cmd.Path)
	sh.Env = cmd.Env
	sh.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if out, err := sh.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
