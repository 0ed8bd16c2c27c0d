package boundary

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { helpers["hidden"], helpers["concealed"] = hidden, concealed }

// TestHiddenIsNotGone: whom /proc does not show to this user is not taken for gone, and a child of ours is
// known, signalled and waited for all the same.
func TestHiddenIsNotGone(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount a /proc that hides processes")
	}
	cmd := helper(t, "hidden")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.Output()
	if got := string(out); err != nil || !strings.HasSuffix(got, "done\n") || strings.Contains(got, "wrong") {
		t.Errorf("%v\n%s", err, got)
	}
}

// hidden is a process of a plain user under such a /proc.
func hidden() {
	must := func(what string, err error) {
		if err != nil {
			fmt.Println("wrong:", what, err)
			os.Exit(1)
		}
	}
	must("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must("proc", unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
	var child *exec.Cmd
	self, err := os.Open("/proc/self/exe") // its folder may be closed to that user
	must("self", err)
	must("user", errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)))
	if _, err := Look(1); err != ErrHidden {
		fmt.Println("wrong: init:", err)
	}
	if _, err := Look(1 << 22); err != ErrGone {
		fmt.Println("wrong: nobody:", err)
	}
	child = exec.Command("/proc/self/fd/3")
	child.ExtraFiles, child.Env = []*os.File{self}, append(os.Environ(), "BOUNDARY_TEST_AS=concealed")
	said, err := child.StdoutPipe()
	must("pipe", err)
	var r Reaper
	id, err := r.Start(func() (int, error) {
		if err := child.Start(); err != nil {
			return 0, err
		}
		return child.Process.Pid, nil
	})
	must("start", err)
	_, err = bufio.NewReader(said).ReadString('\n')
	must("concealed", err)
	if _, err := Look(id.PID); err != ErrHidden {
		fmt.Println("wrong: a concealed child:", err)
	}
	if err := Signal(id, 0); err != ErrHidden {
		fmt.Println("wrong: a signal to a number that nobody vouches for:", err)
	}
	if all := r.Children(); len(all) != 1 || all[0].Identity != id || all[0].State != Hidden {
		fmt.Println("wrong: children:", all)
	}
	must("signal", r.Signal(id, unix.SIGTERM))
	for empty := false; !empty; {
		empty = r.Reap(func(e Exit) {
			if e.Identity != id || e.Status.Signal() != unix.SIGTERM {
				fmt.Println("wrong: its end:", e)
			}
		})
	}
	fmt.Println("done")
}

func concealed() {
	if err := Conceal(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("concealed")
	select {}
}
