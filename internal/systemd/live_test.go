//go:build hosts

package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func bothWays(t *testing.T, test func(*testing.T, *Manager)) {
	for _, direct := range []bool{false, true} {
		t.Run(map[bool]string{false: "bus", true: "direct"}[direct], func(t *testing.T) {
			t.Parallel()
			test(t, live(t, direct))
		})
	}
}

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

func (m *Manager) kill(ctx context.Context, unit string) error {
	_, err := m.bus.ask(ctx, managerName, managerPath, managerIface+".KillUnit", unit, "all", int32(9))
	return err
}

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

func gate(t testing.TB) (path, wait string, open func()) {
	path = filepath.Join(t.TempDir(), "gate")
	return path, "while ! [ -e " + path + " ]; do sleep .01; done;", func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

type end struct {
	longstop.Unit
	error
}

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

func self(t testing.TB) string {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
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
