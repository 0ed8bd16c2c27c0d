//go:build hosts

package systemd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// live is a connection to the manager under test; with direct, past the message bus.

// bothWays runs a test over the bus and over the manager's own socket.

// service is a service of a new name that runs a script; it is gone when the test is over.

// kill is a test's way to end a unit.

// command is one of systemd's own, for the same manager.

// gate is a file that a script waits for.

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

// follow follows a unit, and returns once what happens to it from here on is seen.

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

// An owner that is killed takes the work in its delegated cgroup along: the manager sees to it.

// A stop that waits for its turn: a unit that is ordered after ours is to be over first.

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
		for _, name := range []string{"no such kind of name", "\xff.service", "a\x00.service", ""} {
			s := Service{Name: name, Argv: []string{"/bin/true"}}
			if _, err := m.StartService(t.Context(), s); err == nil || errors.Is(err, ErrUnanswered) {
				t.Errorf("the name %q: %v", name, err)
			}
			if err := m.Stop(t.Context(), name); err == nil || errors.Is(err, ErrUnanswered) {
				t.Errorf("stop %q: %v", name, err)
			}
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

// A manager that executes itself anew is away for a moment, and forgets who was listening over its

// own socket.

// Anybody on a bus may send signals in the manager's words.

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
