//go:build hosts

package systemd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// These tests run on a host, in a binary that test/hosts puts there: LONGSTOP_LIVE says with which
// manager, "system" or "user". The same binary is the program of units, and what test/hosts calls
// from a login that is to end: LONGSTOP_DO and its arguments.

func TestMain(m *testing.M) {
	if act := os.Getenv("LONGSTOP_DO"); act != "" {
		if err := deeds[act](flagless(os.Args[1:])); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func flagless(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

var deeds = map[string]func(args []string) error{
	"argv": func(args []string) error { // what arrived: arguments, the environment's X, the directory
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		return writeJSON(os.Getenv("OUT"), append(args, os.Getenv("X"), dir))
	},
	"ready": func(args []string) error { // READY=1 once the file is there
		for !exists(args[0]) {
			time.Sleep(5 * time.Millisecond)
		}
		if err := Notify("READY=1"); err != nil {
			return err
		}
		return unix.Pause()
	},
	"witness": func(args []string) error { // on TERM: is it because of a stop? written to the file
		term := make(chan os.Signal, 1)
		signal.Notify(term, unix.SIGTERM)
		if err := Notify("READY=1"); err != nil {
			return err
		}
		<-term
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		m, err := Connect(ctx, Kind(args[0]))
		if err != nil {
			return writeJSON(args[2], err.Error())
		}
		manager, err1 := m.Stopping(ctx, "")
		unit, err2 := m.Stopping(ctx, args[1])
		return writeJSON(args[2], fmt.Sprintf("manager %v %v, unit %v %v", manager, err1, unit, err2))
	},
	"look": func(args []string) error { // the survey
		return writeJSON("/dev/stdout", Look(context.Background(), args[0]))
	},
	"start": func(args []string) error { // manager, unit, argv: a service that stays when we go
		m, err := Connect(context.Background(), Kind(args[0]))
		if err != nil {
			return err
		}
		u, err := m.StartService(context.Background(), Service{Name: args[1], Argv: args[2:], Env: os.Environ(), Notify: os.Getenv("NOTIFY") != "", StartWithin: 10 * time.Second, StopWithin: 5 * time.Second})
		if err != nil {
			return err
		}
		return writeJSON("/dev/stdout", u)
	},
	"read": func(args []string) error {
		m, err := Connect(context.Background(), Kind(args[0]))
		if err != nil {
			return err
		}
		u, err := m.Read(context.Background(), args[1], "")
		if err != nil {
			return err
		}
		return writeJSON("/dev/stdout", u)
	},
	"await": func(args []string) error { // what was seen, and the error
		m, err := Connect(context.Background(), Kind(args[0]))
		if err != nil {
			return err
		}
		u, err := m.Follow(context.Background(), args[1], "", nil)
		if err := writeJSON("/dev/stdout", u); err != nil {
			return err
		}
		return err
	},
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if path == "/dev/stdout" {
		_, err = fmt.Printf("%s\n", data)
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// live is a connection to the manager under test; with direct, past the message bus.
func live(t testing.TB, direct bool) *Manager {
	t.Helper()
	kind := Kind(os.Getenv("LONGSTOP_LIVE"))
	if kind == "" {
		t.Skip("runs on a host: go test -tags hosts -run Systemd ./test/hosts")
	}
	m, err := Connect(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	if direct {
		m.Close()
		m.bus = newBus(m.bus.places[1])
	}
	t.Cleanup(m.Close)
	return m
}

// bothWays runs a test over the bus and over the manager's own socket.
func bothWays(t *testing.T, test func(*testing.T, *Manager)) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "bus", true: "direct"}[direct], func(t *testing.T) {
			t.Parallel()
			test(t, live(t, direct))
		})
	}
}

// service is a service of a new name that runs a script; it is gone when the test is over.
func service(t testing.TB, m *Manager, script string) Service {
	s := Service{Name: ServiceName(longstop.NewRunID()), Description: "a test", Argv: []string{"/bin/sh", "-c", script},
		StartWithin: 20 * time.Second, StopWithin: 20 * time.Second}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		defer cancel()
		if err := m.kill(ctx, s.Name); err != nil && !errors.Is(err, ErrNoUnit) && !isNamed(err, "org.freedesktop.systemd1.NoSuchProcess") {
			t.Errorf("clean up %s: %v", s.Name, err)
		}
		m.ResetFailed(ctx, s.Name)
	})
	return s
}

// kill is a test's way to end a unit.
func (m *Manager) kill(ctx context.Context, unit string) error {
	_, err := m.bus.ask(ctx, managerName, managerPath, managerIface+".KillUnit", unit, "all", int32(9))
	return err
}

// command is one of systemd's own, for the same manager.
func (m *Manager) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, append([]string{"--" + string(m.kind)}, args...)...)
	c.Env = append(os.Environ(), fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Getuid()))
	return c
}

func mustStart(t testing.TB, m *Manager, s Service) longstop.Unit {
	t.Helper()
	u, err := m.StartService(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func mustRead(t testing.TB, m *Manager, unit string) longstop.Unit {
	t.Helper()
	u, err := m.Read(t.Context(), unit, "")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func ended(t testing.TB, u longstop.Unit, state, result, code string, status int) {
	t.Helper()
	if u.ActiveState != state || u.Result != result || u.MainCode != code || u.MainStatus == nil || *u.MainStatus != status {
		t.Errorf("want %s, %s, %s %d: %+v", state, result, code, status, u)
	}
}

// gate is a file that a script waits for.
func gate(t testing.TB) (path, wait string, open func()) {
	path = filepath.Join(t.TempDir(), "gate")
	return path, "while ! [ -e " + path + " ]; do sleep .01; done;", func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiveServiceToItsEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		_, wait, open := gate(t)
		s := service(t, m, wait+"exit 7")
		u := mustStart(t, m, s)
		if u.ActiveState != "active" || u.MainPID == 0 || u.InvocationID == "" || u.MainCode != "" || u.StartedAt.IsZero() || !u.EndedAt.IsZero() {
			t.Fatalf("running: %+v", u)
		}
		if group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", u.MainPID)); err != nil || !strings.Contains(string(group), u.ControlGroup+"\n") || u.ControlGroup == "" {
			t.Errorf("control group %q: %v\n%s", u.ControlGroup, err, group)
		}
		open()
		end, err := m.Follow(within(t, 20*time.Second), s.Name, u.InvocationID, nil)
		if err != nil {
			t.Fatal(err)
		}
		ended(t, end, "failed", "exit-code", "exited", 7)
		if end.InvocationID != u.InvocationID || end.MainPID != u.MainPID || end.EndedAt.Before(end.StartedAt.Time) {
			t.Errorf("at the end: %+v\nat the start: %+v", end, u)
		}
		ended(t, mustRead(t, m, s.Name), "failed", "exit-code", "exited", 7) // kept, for it failed
		if _, err := m.Read(t.Context(), s.Name, strings.Repeat("0", 32)); !errors.Is(err, ErrNoUnit) {
			t.Errorf("another invocation: %v", err)
		}
		if err := m.ResetFailed(t.Context(), s.Name); err != nil {
			t.Error(err)
		}
		if u, err := m.Read(t.Context(), s.Name, ""); !errors.Is(err, ErrNoUnit) {
			t.Errorf("after reset-failed: %+v, %v", u, err)
		}
	})
}

// A clean end leaves nothing to read: who follows the unit has it all the same.
func TestLiveC055CollectedUnitIsNoSuccess(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		_, wait, open := gate(t)
		s := service(t, m, wait+"exit 0")
		u := mustStart(t, m, s)
		followed := follow(t, m, u)
		open()
		e := <-followed
		if e.error != nil {
			t.Fatal(e.error)
		}
		ended(t, e.Unit, "inactive", "success", "exited", 0)
		eventually(t, "the unit forgotten", func() bool { _, err := m.Read(t.Context(), s.Name, ""); return errors.Is(err, ErrNoUnit) })
		seen, err := m.Follow(within(t, 20*time.Second), s.Name, u.InvocationID, nil)
		if !errors.Is(err, ErrNoUnit) || !seen.Forgotten || seen.Result != "" {
			t.Errorf("a unit that nobody looked at: %+v, %v", seen, err)
		}
	})
}

type end struct {
	longstop.Unit
	error
}

// follow follows a unit, and returns once what happens to it from here on is seen.
func follow(t *testing.T, m *Manager, u longstop.Unit) <-chan end {
	ctx, on, over := within(t, time.Minute), make(chan bool, 100), make(chan end, 1)
	go func() {
		u, err := m.Follow(ctx, u.Name, u.InvocationID, func(longstop.Unit) { on <- true })
		over <- end{u, err}
		close(on)
	}()
	<-on
	return over
}

func TestLiveHeldUnitIsNotCollected(t *testing.T) {
	t.Parallel()
	m := live(t, false)
	_, wait, open := gate(t)
	s := service(t, m, wait+"exit 0")
	mustStart(t, m, s)
	if held, err := m.Hold(t.Context(), s.Name); !held || err != nil {
		t.Fatal(held, err)
	}
	open()
	eventually(t, "the end", func() bool { return mustRead(t, m, s.Name).Ended() })
	ended(t, mustRead(t, m, s.Name), "inactive", "success", "exited", 0)
	if err := m.Release(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the unit forgotten", func() bool { _, err := m.Read(t.Context(), s.Name, ""); return errors.Is(err, ErrNoUnit) })
	if _, err := m.Hold(t.Context(), s.Name); !errors.Is(err, ErrNoUnit) {
		t.Errorf("hold what is not there: %v", err)
	}
}

func TestLiveC056OneOfTwentyStarts(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		ran := filepath.Join(t.TempDir(), "ran")
		s := service(t, m, "echo ran >>"+ran+"; sleep 60")
		var group sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			group.Go(func() { _, errs[i] = m.StartService(t.Context(), s) })
		}
		group.Wait()
		started := 0
		for _, err := range errs {
			if err == nil {
				started++
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		}
		eventually(t, "the work", func() bool { data, _ := os.ReadFile(ran); return len(data) > 0 })
		if data, _ := os.ReadFile(ran); started != 1 || string(data) != "ran\n" {
			t.Errorf("%d starts, %q", started, data)
		}
	})
}

// KillMode=mixed: TERM is for the main process alone, which ends the rest itself.
func TestLiveStopTermsTheMainProcessAlone(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		dir := t.TempDir()
		s := service(t, m, fmt.Sprintf(`cd %s
sh -c 'trap "echo child >>termed" TERM; touch child; while :; do sleep .01; done' &
trap 'echo main >>termed; exit 3' TERM; while ! [ -e child ]; do sleep .01; done; touch main; while :; do sleep .01; done`, dir))
		u := mustStart(t, m, s)
		eventually(t, "both traps", func() bool { return exists(dir + "/main") })
		if held, err := m.Hold(t.Context(), s.Name); err != nil || held == m.bus.places[0].direct {
			t.Fatal(held, err)
		}
		if stopping, err := m.Stopping(t.Context(), s.Name); stopping || err != nil {
			t.Errorf("before the stop: %v, %v", stopping, err)
		}
		if err := m.Stop(within(t, 20*time.Second), s.Name); err != nil {
			t.Fatal(err)
		}
		if termed, _ := os.ReadFile(dir + "/termed"); string(termed) != "main\n" {
			t.Errorf("TERM went to %q", termed)
		}
		if procs, err := os.ReadFile("/sys/fs/cgroup" + u.ControlGroup + "/cgroup.procs"); err == nil && len(procs) > 0 {
			t.Errorf("left in the cgroup: %s", procs)
		}
		if u, err := m.Read(t.Context(), s.Name, ""); err != nil {
			t.Errorf("a unit that exited 3 is kept: %v", err)
		} else {
			ended(t, u, "failed", "exit-code", "exited", 3)
		}
	})
}

// An owner that is killed takes the work in its delegated cgroup along: the manager sees to it.
func TestLiveOwnersDeathEndsTheRest(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		pid := filepath.Join(t.TempDir(), "pid")
		s := service(t, m, `g=$(sed -n 's/^0:://p' /proc/self/cgroup); for r in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ -e $r$g/cgroup.procs ] && c=$r$g/work; done
mkdir $c && sh -c 'trap "" TERM; echo $$ >'$c'/cgroup.procs && echo $$ >`+pid+`.new && mv `+pid+`.new `+pid+`; while :; do sleep .01; done' & wait`)
		u := mustStart(t, m, s)
		eventually(t, "the work", func() bool { return exists(pid) })
		data, err := os.ReadFile(pid)
		if err != nil {
			t.Fatal(err)
		}
		work := "/proc/" + strings.TrimSpace(string(data))
		if group, err := os.ReadFile(work + "/cgroup"); err != nil || !strings.Contains(string(group), u.ControlGroup+"/work\n") {
			t.Fatalf("the work is in %s, %v", group, err)
		}
		over := follow(t, m, u)
		if err := unix.Kill(u.MainPID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e := <-over
		if e.error != nil {
			t.Fatal(e.error)
		}
		ended(t, e.Unit, "failed", "signal", "killed", 9)
		if exists(work) {
			t.Error("the unit is over, the work is not")
		}
	})
}

// A stop that waits for its turn: a unit that is ordered after ours is to be over first.
func TestLiveStoppingByJob(t *testing.T) {
	t.Parallel()
	m := live(t, false)
	path, wait, open := gate(t)
	s := service(t, m, wait+"exit 0")
	u := mustStart(t, m, s)
	last := "longstop-" + rawID() + ".service"
	do := func(program string, args ...string) {
		if out, err := m.command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
	}
	do("systemd-run", "-q", "--unit="+last, "-p", "After="+s.Name, "-p", "ExecStop=/bin/sh -c '"+wait+"'", "/bin/sleep", "600")
	do("systemctl", "--no-block", "stop", last, s.Name)
	eventually(t, "the stop to be seen", func() bool { stopping, err := m.Stopping(t.Context(), s.Name); return err == nil && stopping })
	if now := mustRead(t, m, s.Name); now.ActiveState != "active" || exists(path) {
		t.Errorf("its job has come to its turn: %+v", now)
	}
	over := follow(t, m, u)
	open()
	if e := <-over; e.error != nil || !e.Ended() {
		t.Errorf("%+v, %v", e.Unit, e.error)
	}
}

func TestLiveStopKillsAfterStopWithin(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		dir := t.TempDir()
		s := service(t, m, "trap '' TERM; touch "+dir+"/ready; while :; do sleep .01; done")
		s.StopWithin = 700 * time.Millisecond
		u := mustStart(t, m, s)
		eventually(t, "the trap", func() bool { return exists(dir + "/ready") })
		// A deadline ends the waiting alone.
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := m.Stop(short, s.Name); !errors.Is(err, ErrUnanswered) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that was too short: %v", err)
		}
		if stopping, err := m.Stopping(t.Context(), s.Name); !stopping || err != nil {
			t.Errorf("while it is being stopped: %v, %v", stopping, err)
		}
		if err := m.Stop(within(t, 20*time.Second), s.Name); err != nil {
			t.Fatal(err)
		}
		end := mustRead(t, m, s.Name)
		ended(t, end, "failed", "timeout", "killed", 9)
		if end.EndedAt.Sub(u.StartedAt.Time) < s.StopWithin {
			t.Errorf("killed before its time: %+v", end)
		}
	})
}

func TestLiveC065BytesArriveAsTheyAre(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		const odd = "a $HOME ${HOME} $$ $$HOME %n %% 100% \\x41 \\\\ \"q\" 'q' ;a;b | \t tab\nline é 日本 * ~ # end "
		words := []string{odd, "$HOME", "${HOME}", "$$", "$", "%h", "", " ", "-", "@x", "${", "}", "\\", ";", "a;b", `"`, "'"}
		dir := filepath.Join(t.TempDir(), "a $HOME %n 'b' \"c\" é")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out $HOME %n")
		program := filepath.Join(dir, "pro $HOME gram %n")
		if err := os.Symlink("/proc/self/exe", program+".link"); err != nil {
			t.Fatal(err)
		}
		copyFile(t, "/proc/self/exe", program)
		s := service(t, m, "")
		s.Argv = append([]string{program, "--"}, words...)
		s.Env = []string{"LONGSTOP_DO=argv", "OUT=" + out, "X=" + odd}
		s.Dir = dir
		mustStart(t, m, s)
		eventually(t, "the words", func() bool { return exists(out) })
		var got []string
		data, _ := os.ReadFile(out)
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for i, want := range append(slices.Clone(words), odd, dir) {
			if got[i] != want {
				t.Errorf("word %d: %q, not %q", i, got[i], want)
			}
		}
		for _, bad := range []string{"\xff", "a\x00b", "a\x01b"} {
			s := service(t, m, bad)
			if _, err := m.StartService(t.Context(), s); err == nil || errors.Is(err, ErrUnanswered) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}

func copyFile(t *testing.T, from, to string) {
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// The manager keeps copies of the descriptors: the end of a pipe comes with the end of the unit.
func TestLiveFilesArePassed(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		closed := filepath.Join(t.TempDir(), "closed")
		_, wait, open := gate(t)
		in, inEnd, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		outEnd, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s := service(t, m, `read line; echo "got $line"; exec >&- <&-; touch `+closed+"; "+wait)
		s.Stdin, s.Stdout = in, out
		mustStart(t, m, s)
		in.Close()
		out.Close()
		fmt.Fprintln(inEnd, "a secret")
		lines := bufio.NewReader(outEnd)
		if got, err := lines.ReadString('\n'); err != nil || got != "got a secret\n" {
			t.Errorf("%q, %v", got, err)
		}
		eventually(t, "the unit's process to close its ends", func() bool { return exists(closed) })
		ends := []unix.PollFd{{Fd: int32(outEnd.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(ends, 0); n != 0 || err != nil {
			t.Errorf("the pipe has ended before the unit did: %v, %v", ends, err)
		}
		open()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestLiveWhatCannotStartSaysWhy(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		s := service(t, m, "")
		s.Argv = []string{"/nonexistent/program"}
		u, err := m.StartService(t.Context(), s)
		var not *NotStarted
		if !errors.As(err, &not) || not.Job != "failed" || not.Unit.MainStatus == nil || *not.Unit.MainStatus != 203 || u != (longstop.Unit{}) {
			t.Errorf("no program: %+v, %v", u, err)
		}
		t.Log(err)
		s = service(t, m, "exit 5")
		s.Notify = true
		_, err = m.StartService(t.Context(), s)
		if !errors.As(err, &not) || not.Unit.MainStatus == nil || *not.Unit.MainStatus != 5 {
			t.Errorf("ended before it was ready: %v", err)
		}
		t.Log(err)
		s = service(t, m, "sleep 60")
		s.Notify, s.StartWithin = true, 200*time.Millisecond
		_, err = m.StartService(t.Context(), s)
		if !errors.As(err, &not) || not.Unit.Result != "timeout" {
			t.Errorf("never ready: %v", err)
		}
		t.Log(err)
		if _, err := m.Read(t.Context(), s.Name, ""); !errors.Is(err, ErrNoUnit) {
			t.Errorf("what did not start is not kept: %v", err)
		}
		s = service(t, m, "true")
		s.Name = "no such kind of name"
		if _, err := m.StartService(t.Context(), s); err == nil || errors.Is(err, ErrUnanswered) {
			t.Errorf("a bad name: %v", err)
		} else {
			t.Log(err)
		}
	})
}

func TestLiveNotifyIsAwaited(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		path, _, open := gate(t)
		s := service(t, m, "")
		s.Argv, s.Env, s.Notify = []string{self(t), path}, []string{"LONGSTOP_DO=ready"}, true
		started := make(chan longstop.Unit, 1)
		go func() { u, _ := m.StartService(within(t, 20*time.Second), s); started <- u }()
		eventually(t, "the start", func() bool {
			u, err := m.Read(t.Context(), s.Name, "")
			return err == nil && u.ActiveState == "activating" && u.MainPID > 0
		})
		select {
		case u := <-started:
			t.Fatalf("started before it was ready: %+v", u)
		default:
		}
		open()
		if u := <-started; u.ActiveState != "active" || u.SubState != "running" {
			t.Errorf("%+v", u)
		}
	})
}

func self(t testing.TB) string {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLiveScopeIsDelegated(t *testing.T) {
	bothWays(t, func(t *testing.T, m *Manager) {
		sleep := exec.Command("sleep", "60")
		if err := sleep.Start(); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- sleep.Wait() }()
		s := Scope{Name: ScopeName(rawID()), Description: "a test", PIDs: []int{sleep.Process.Pid}, StopWithin: 5 * time.Second}
		u, err := m.StartScope(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if u.ActiveState != "active" || u.ControlGroup == "" {
			t.Fatalf("%+v", u)
		}
		// Ours to divide and to enter: a process of ours goes into a child of it.
		dir := cgroupDir(t, u.ControlGroup) + "/child"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(sleep.Process.Pid)), 0); err != nil {
			t.Error(err)
		}
		// From outside, too: the login's session is another branch of the tree.
		other := exec.Command("sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { other.Process.Kill(); other.Wait() }()
		err = os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(other.Process.Pid)), 0)
		if m.kind == User && !errors.Is(err, os.ErrPermission) {
			t.Errorf("a process of the session enters the scope's cgroup by itself: %v", err)
		}
		if err := m.Attach(t.Context(), s.Name, "/child", other.Process.Pid); err != nil {
			t.Error(err)
		}
		if group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", other.Process.Pid)); err != nil || !strings.Contains(string(group), u.ControlGroup+"/child\n") {
			t.Errorf("attached, it is in %s, %v", group, err)
		}
		if _, err := m.StartScope(t.Context(), s); !errors.Is(err, ErrExists) {
			t.Errorf("a second of that name: %v", err)
		}
		if err := m.Stop(within(t, 20*time.Second), s.Name); err != nil {
			t.Error(err)
		}
		<-waited
		if _, err := m.Read(t.Context(), s.Name, ""); !errors.Is(err, ErrNoUnit) {
			t.Errorf("a scope that is over: %v", err)
		}
	})
}

func rawID() string { return strings.TrimPrefix(string(longstop.NewRunID()), "run_")[:12] }

func cgroupDir(t testing.TB, group string) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if exists(root + group + "/cgroup.procs") {
			return root + group
		}
	}
	t.Fatalf("no cgroup %s", group)
	return ""
}

// A manager that executes itself anew is away for a moment, and forgets who was listening over its
// own socket.
func TestLiveReexec(t *testing.T) {
	for _, direct := range []bool{false, true} {
		asked, unanswered := 0, 0
		m := live(t, direct)
		path, _, ready := gate(t)
		_, wait, open := gate(t)
		long, slow, held := service(t, m, wait+"exit 5"), service(t, m, ""), service(t, m, wait+"exit 0")
		slow.Argv, slow.Env, slow.Notify = []string{self(t), path}, []string{"LONGSTOP_DO=ready"}, true
		u := mustStart(t, m, long)
		mustStart(t, m, held)
		if _, err := m.Hold(t.Context(), held.Name); err != nil {
			t.Fatal(err)
		}
		over, started := follow(t, m, u), make(chan end, 1)
		go func() {
			u, err := m.StartService(within(t, 60*time.Second), slow)
			started <- end{u, err}
		}()
		eventually(t, "the start", func() bool {
			u, err := m.Read(t.Context(), slow.Name, "")
			return err == nil && u.ActiveState == "activating"
		})
		for range 3 {
			reexec := m.command("systemctl", "daemon-reexec")
			done := make(chan error, 1)
			go func() { done <- reexec.Run() }()
			for asking := true; asking; {
				if got, err := m.Read(t.Context(), long.Name, u.InvocationID); err != nil || got.MainPID != u.MainPID {
					t.Errorf("direct %v: during daemon-reexec: %+v, %v", direct, got, err)
				}
				s := service(t, m, "exit 0")
				_, err := m.StartService(within(t, 20*time.Second), s)
				if errors.Is(err, ErrUnanswered) { // said so, and done again by whoever may
					unanswered++
					_, err = m.StartService(within(t, 20*time.Second), s)
				}
				if err != nil && !errors.Is(err, ErrExists) {
					t.Errorf("direct %v: start during daemon-reexec: %v", direct, err)
				}
				asked++
				select {
				case err := <-done:
					if asking = false; err != nil {
						t.Errorf("direct %v: systemctl daemon-reexec: %v", direct, err)
					}
				default:
				}
			}
		}
		ready()
		if s := <-started; s.error != nil || s.ActiveState != "active" {
			t.Errorf("direct %v: a start across daemon-reexec: %+v, %v", direct, s.Unit, s.error)
		}
		open()
		e := <-over
		if e.error != nil {
			t.Fatal(e.error)
		}
		ended(t, e.Unit, "failed", "exit-code", "exited", 5)
		if e.InvocationID != u.InvocationID {
			t.Errorf("direct %v: another invocation: %+v", direct, e.Unit)
		}
		if !direct { // a hold lasts as long as the connection to the bus, whatever the manager does
			eventually(t, "the end of the unit that is held", func() bool { return mustRead(t, m, held.Name).Ended() })
			ended(t, mustRead(t, m, held.Name), "inactive", "success", "exited", 0)
		}
		t.Logf("direct %v: %d starts beside it, %d of them unanswered at first", direct, asked, unanswered)
	}
}

// Anybody on a bus may send signals in the manager's words.
func TestLiveForgedSignalIsNotBelieved(t *testing.T) {
	t.Parallel()
	m := live(t, false)
	_, wait, open := gate(t)
	s := service(t, m, wait+"exit 6")
	u := mustStart(t, m, s)
	l, err := dial(t.Context(), m.bus.places[0])
	if err != nil {
		t.Fatal(err)
	}
	defer l.end()
	over := follow(t, m, u)
	for range 20 {
		l.Emit(dbus.ObjectPath(unitPath(s.Name)), propsIface+".PropertiesChanged", unitIface,
			map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("inactive"), "Result": dbus.MakeVariant("success")}, []string{})
	}
	open()
	e := <-over
	if e.error != nil {
		t.Fatal(e.error)
	}
	ended(t, e.Unit, "failed", "exit-code", "exited", 6)
}

func TestLiveLook(t *testing.T) {
	live(t, false)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := Look(t.Context(), me.Username)
	if s.Version == "" || s.Linger == nil || s.KillsAtLogout == nil || s.Session == nil || !strings.HasSuffix(s.Session.Scope, ".scope") || len(s.Unasked) > 0 {
		data, _ := json.MarshalIndent(s, "", " ")
		t.Errorf("not everything could be asked: %s", data)
	}
}

func TestLiveNothingIsLeftOpen(t *testing.T) {
	cleaner := live(t, false)
	count := func() (files, routines int) {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all), runtime.NumGoroutine()
	}
	files, routines := count()
	for range 10 {
		m, err := Connect(t.Context(), cleaner.kind)
		if err != nil {
			t.Fatal(err)
		}
		s := service(t, cleaner, "sleep 600")
		u := mustStart(t, m, s)
		over := follow(t, m, u)
		if err := m.Stop(within(t, 20*time.Second), s.Name); err != nil {
			t.Fatal(err)
		}
		<-over
		m.Close()
		Look(t.Context(), "root")
	}
	eventually(t, "all closed", func() bool { f, r := count(); return f <= files && r <= routines })
}

// From the call to a running service, over a connection that is there and over a new one, and beside
// them systemd-run, which is a process of its own and so has to be one.
func BenchmarkLiveStart(b *testing.B) {
	kind := live(b, false).kind
	spec := func() Service {
		return Service{Name: ServiceName(longstop.NewRunID()), Argv: []string{"/bin/true"}, StartWithin: 20 * time.Second, StopWithin: time.Second}
	}
	m := live(b, false)
	ways := []struct {
		name  string
		start func() error
		took  []time.Duration
	}{
		{name: "connected", start: func() error { _, err := m.StartService(b.Context(), spec()); return err }},
		{name: "connecting", start: func() error {
			m, err := Connect(b.Context(), kind)
			if err != nil {
				return err
			}
			defer m.Close()
			_, err = m.StartService(b.Context(), spec())
			return err
		}},
		{name: "systemd-run", start: func() error {
			return m.command("systemd-run", "-q", "-p", "Type=exec", "/bin/true").Run()
		}},
	}
	for b.Loop() {
		for i := range ways {
			began := time.Now()
			if err := ways[i].start(); err != nil {
				b.Fatal(err)
			}
			ways[i].took = append(ways[i].took, time.Since(began))
		}
	}
	for _, way := range ways {
		slices.Sort(way.took)
		b.ReportMetric(float64(way.took[len(way.took)/2].Microseconds())/1000, way.name+"-ms")
	}
}

func BenchmarkLiveRead(b *testing.B) {
	m := live(b, false)
	s := service(b, m, "sleep 600")
	mustStart(b, m, s)
	for b.Loop() {
		mustRead(b, m, s.Name)
	}
}

func BenchmarkLiveLook(b *testing.B) {
	live(b, false)
	for b.Loop() {
		Look(b.Context(), "deploy")
	}
}
