package boundary

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// eventually polls until ok, and fails the test after ten seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// start runs a shell script in a session of its own, and kills what is left of it at the end.
func start(t *testing.T, script string, env ...string) Stat {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range All() {
			if s.SID == cmd.Process.Pid {
				Signal(s.Identity, unix.SIGKILL)
			}
		}
		cmd.Wait()
	})
	s, err := Look(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStatWithAnyName(t *testing.T) {
	line := "4242 (a) R (b\n) S 17 4200 4100 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 3 0 987654 0 0 0\n"
	got, err := parseStat([]byte(line))
	want := Stat{Identity: Identity{4242, 987654}, PPID: 17, PGID: 4200, SID: 4100, State: 'S', Threads: 3, Name: "a) R (b\n"}
	if err != nil || got != want {
		t.Fatalf("parseStat = %+v, %v; want %+v", got, err, want)
	}
	const ends = "4242 (x) R 17 4200 4100 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 3 0 987654 0 0 0\n"
	if got, err := parseStat([]byte(ends)); err != nil || !got.Exiting {
		t.Errorf("one that has begun to end: %+v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1 ()", "1 (x) S 1 2", "x (y) S 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5", "1 (x) SS 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5 6"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) = %+v", bad, s)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (x) S 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5 6"))
	f.Fuzz(func(t *testing.T, data []byte) { parseStat(data) })
}

func TestLookAtOneself(t *testing.T) {
	s, err := Look(os.Getpid())
	if err != nil || s.PID != os.Getpid() || s.PPID != os.Getppid() || s.Start == 0 || s.Dead() {
		t.Fatalf("Look = %+v, %v", s, err)
	}
	if now := Ticks(BootNow()); s.Start > now {
		t.Errorf("started at tick %d, and it is only %d", s.Start, now)
	}
	if _, err := Look(1 << 22); !errors.Is(err, ErrGone) {
		t.Errorf("Look at nobody: %v", err)
	}
}

// C043: a group is not the tree.
func TestC043DescendantsInOtherSessions(t *testing.T) {
	t.Parallel()
	top := start(t, `setsid sh -c 'setsid sleep 60 & wait' & sleep 60 & wait`)
	var names []string
	eventually(t, "four descendants", func() bool {
		names = names[:0]
		for _, s := range Descendants(top.PID) {
			names = append(names, s.Name)
		}
		return len(names) == 4 || len(names) == 3 && !slices.Contains(names, "setsid")
	})
	for _, s := range Descendants(top.PID) {
		defer Signal(s.Identity, unix.SIGKILL)
	}
}

// Law 7: never signal a stranger.
func TestLaw7SignalRefusesNumbersThatAreNotOneProcess(t *testing.T) {
	for _, pid := range []int{0, 1, -1, -os.Getpid(), os.Getpid(), os.Getppid(), 1<<22 + 1} {
		id := Identity{PID: pid}
		if s, err := Look(pid); err == nil {
			id = s.Identity
		}
		if err := Signal(id, unix.SIGTERM); !errors.Is(err, ErrRefused) {
			t.Errorf("Signal(%v) = %v", id, err)
		}
		if err := new(Reaper).Signal(id, unix.SIGTERM); !errors.Is(err, ErrRefused) {
			t.Errorf("Reaper.Signal(%v) = %v", id, err)
		}
	}
}

func TestLaw7SignalWantsTheStartTime(t *testing.T) {
	t.Parallel()
	s := start(t, "exec sleep 60")
	other := s.Identity
	other.Start++
	for _, signal := range []func(Identity, unix.Signal, ...unix.Signal) error{Signal, new(Reaper).Signal} {
		if err := signal(other, unix.SIGCONT, unix.SIGKILL); !errors.Is(err, ErrGone) {
			t.Fatalf("signal to a stranger: %v", err)
		}
	}
	if !Is(s.Identity) {
		t.Fatal("the stranger did not survive")
	}
	if err := Signal(s.Identity, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "death", func() bool { return !Is(s.Identity) })
}

// A stopped process hears TERM by the CONT that follows it, which is sent to the same process.
func TestSignalFollowed(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]func(Identity, unix.Signal, ...unix.Signal) error{"by anybody": Signal, "by its parent": new(Reaper).Signal} {
		s := start(t, "exec sleep 60")
		if err := Signal(s.Identity, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a stopped process", func() bool { l, err := Look(s.PID); return err == nil && l.State == 'T' })
		if err := signal(s.Identity, unix.SIGTERM, unix.SIGCONT); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		eventually(t, "its end", func() bool { return !Is(s.Identity) })
	}
}

// C041: a zombie is dead, whatever kill(pid, 0) says.
func TestC041ZombieIsDead(t *testing.T) {
	t.Parallel()
	s := start(t, "exit 3") // nobody waits for it before the test ends
	eventually(t, "zombie", func() bool {
		now, err := Look(s.PID)
		return err == nil && now.Dead()
	})
	if unix.Kill(s.PID, 0) != nil {
		t.Error("the premise is wrong: kill(2) fails for a zombie here")
	}
	if Is(s.Identity) {
		t.Error("a zombie counts as alive")
	}
	// Kill(2) succeeds for it: a cancel that "reached" it would be told of a run that ended by itself.
	for _, signal := range []func(Identity, unix.Signal, ...unix.Signal) error{Signal, new(Reaper).Signal} {
		if err := signal(s.Identity, unix.SIGTERM); !errors.Is(err, ErrGone) {
			t.Errorf("a signal to a zombie: %v", err)
		}
	}
}

func TestMarked(t *testing.T) {
	t.Parallel()
	run, other := longstop.NewRunID(), longstop.NewRunID()
	s := start(t, "exec sleep 60", RunMark+"="+string(run))
	start(t, "exec sleep 60", RunMark+"="+string(other))
	start(t, "exec sleep 60", "X"+RunMark+"="+string(run), "NOT="+RunMark+"="+string(run))
	eventually(t, "the marked one, alone", func() bool {
		found := Marked(run, s.Start)
		return len(found) == 1 && found[0].Identity == s.Identity
	})
	if found := Marked(run, s.Start+1); len(found) != 0 {
		t.Errorf("found %v, which started before the run", found)
	}
	if got := Mark(s.PID); got != run {
		t.Errorf("Mark = %q", got)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	s := start(t, "exec sleep 60 </dev/null")
	eventually(t, "exec", func() bool { s, _ = Look(s.PID); return Describe(s).Command == "sleep 60" })
	p := Describe(s)
	if p.PID != s.PID || p.Command != "sleep 60" || p.UID != os.Geteuid() || p.Files[0] != "/dev/null" || p.SID != s.PID || p.State == "" {
		t.Errorf("Describe = %+v", p)
	}
	if p := Describe(Stat{Identity: Identity{PID: 1 << 22}, Name: "kworker"}); p.Command != "[kworker]" || p.UID != -1 {
		t.Errorf("Describe of one who is gone = %+v", p)
	}
}

func TestHost(t *testing.T) {
	if len(BootID()) != 36 || !strings.HasPrefix(PIDNamespace(), "pid:[") || BootNow() <= 0 {
		t.Errorf("boot %q, namespace %q, now %d", BootID(), PIDNamespace(), BootNow())
	}
	if got := Errno(&os.PathError{Err: unix.EACCES}); got != "EACCES" {
		t.Errorf("Errno = %q", got)
	}
}
