package boundary

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test process waits for its children with os/exec; one that has a Reaper must be another.
func TestMain(m *testing.M) {
	if script := os.Getenv("REAPER_TEST_SCRIPT"); script != "" {
		reap(script)
		return
	}
	if as := helpers[os.Getenv("BOUNDARY_TEST_AS")]; as != nil {
		as()
		return
	}
	os.Exit(m.Run())
}

// reap is a process with a Reaper: it runs the script, prints a line for each of its children that
// ends, and ends when it has none.
func reap(script string) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	if err := Subreap(); err != nil {
		fmt.Println(err)
		return
	}
	os.Unsetenv("REAPER_TEST_SCRIPT")
	var r Reaper
	main, err := r.Start(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		empty := r.Reap(func(e Exit) {
			s, err := Look(e.PID)
			who := "other"
			if e.Identity == main {
				who = "main"
			}
			fmt.Println(who, e.Status.ExitStatus(), int(e.Status.Signal()), err == nil && s.Dead() && s.Identity == e.Identity)
		})
		if empty {
			fmt.Println("empty", len(r.Children()))
			return
		}
		if os.Getenv("REAPER_TEST_KILL") != "" && (len(Descendants(os.Getpid())) > 1 || r.Children()[0].Identity != main) {
			for _, s := range r.Children() {
				r.Signal(s.Identity, unix.SIGKILL)
			}
		}
		select {
		case <-ended:
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func reaped(t *testing.T, script string, env ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "REAPER_TEST_SCRIPT="+script), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestReaperInheritsOrphansAndKnowsWhenNobodyIsLeft(t *testing.T) {
	t.Parallel()
	lines := reaped(t, `(setsid sh -c 'sleep 0.3; exit 5' &) ; exit 7`)
	if got := strings.Join(lines, "; "); got != "main 7 -1 true; other 5 -1 true; empty 0" {
		t.Error(got)
	}
}

func TestReaperTellsSignalsFromCodes(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"kill -SEGV $$": "main -1 11 true; empty 0",
		"kill -KILL $$": "main -1 9 true; empty 0",
		"exit 255":      "main 255 -1 true; empty 0",
	} {
		if got := strings.Join(reaped(t, script), "; "); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

func TestReaperSignalsItsChildren(t *testing.T) {
	t.Parallel()
	lines := reaped(t, `sleep 60 & exec sleep 60`, "REAPER_TEST_KILL=1")
	if got := strings.Join(lines, "; "); got != "main -1 9 true; other -1 9 true; empty 0" {
		t.Error(got)
	}
}
