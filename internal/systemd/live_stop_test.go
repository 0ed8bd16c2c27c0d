//go:build hosts

package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

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
