package systemd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/longstop/longstop"
)

func TestNames(t *testing.T) {
	t.Parallel()
	run := longstop.RunID("run_0123456789abcdef0123456789abcdef")
	if got, want := ServiceName(run), "longstop-run_0123456789abcdef0123456789abcdef.service"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := ScopeName("st_a-b/c"), `longstop-st_a\x2db-c.scope`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := unitPath("longstop-run_0a.service"), "/org/freedesktop/systemd1/unit/longstop_2drun_5f0a_2eservice"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := unitPath("0.scope"), "/org/freedesktop/systemd1/unit/_30_2escope"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

func TestEscapeAsSystemdDoes(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-escape")
	if err != nil {
		t.Skip("no systemd-escape here")
	}
	for _, s := range []string{"a", "run_0f", ".a.b", "a-b", "a/b", `a\b`, "a b", "é", "$x%y", "a:b@c", "\x01"} {
		out, err := exec.Command(program, "--", s).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(string(out), "\n"); escape(s) != want {
			t.Errorf("%q: %s, not %s", s, escape(s), want)
		}
	}
}

func TestLeadingNumber(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{"252 (252.39-1~deb12u2)": 252, "v255.4": 255, "256~rc1": 256, "219": 219, "": 0, "x1": 0, "99999999999999999999": 9999999} {
		if got := leadingNumber(version); got != want {
			t.Errorf("%q: %d, not %d", version, got, want)
		}
	}
}

func TestServiceProperties(t *testing.T) {
	t.Parallel()
	props, err := Service{Name: "x.service", Description: "d", Argv: []string{"/bin/a", "$HOME", "$$", "100%", `\x41`}, Env: []string{"A=$b %c"},
		Dir: "/srv", User: "deploy", Notify: true, StartWithin: time.Second, Forget: true}.properties()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, p := range props {
		if _, twice := got[p.Name]; twice {
			t.Errorf("%s twice", p.Name)
		}
		got[p.Name] = p.Value.Value()
	}
	want := map[string]any{
		"Description": "d", "Type": "notify", "Restart": "no", "KillMode": "mixed", "SendSIGHUP": false, "IgnoreSIGPIPE": false, "TasksMax": uint64(math.MaxUint64), "Delegate": true, "CollectMode": "inactive-or-failed",
		"ExecStart":        []execution{{"/bin/a", []string{"/bin/a", "$$HOME", "$$$$", "100%", `\x41`}, false}},
		"TimeoutStartUSec": uint64(1e6), "TimeoutStopUSec": uint64(math.MaxUint64),
		"Environment": []string{"A=$b %c"}, "WorkingDirectory": "/srv", "User": "deploy",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nnot %v", got, want)
	}
}

func TestServiceRefusesWhatCannotBeSaid(t *testing.T) {
	t.Parallel()
	for _, s := range []Service{
		{},
		{Argv: []string{"a"}},
		{Argv: []string{"/a", "\xff"}},
		{Argv: []string{"/a", "\x00"}},
		{Argv: []string{"/a"}, Env: []string{"A=\xff"}},
		{Argv: []string{"/a"}, Dir: "/\xff"},
		{Argv: []string{"/a"}, Description: "\x1b[1m"},
	} {
		if _, err := s.properties(); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
}

func variants(props map[string]any) map[string]dbus.Variant {
	all := map[string]dbus.Variant{}
	for name, value := range props {
		all[name] = dbus.MakeVariant(value)
	}
	return all
}

// What systemd answers of a unit that it does not know is what it answers of one that succeeded.
func TestC055UnknownUnitSaysNothing(t *testing.T) {
	t.Parallel()
	unknown := map[string]any{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainCode": int32(0), "ExecMainStatus": int32(0)}
	if known(variants(unknown)) {
		t.Error("not-found is known")
	}
	if known(nil) {
		t.Error("nothing is known")
	}
	unknown["ActiveState"] = "active" // its file was removed, it runs
	if !known(variants(unknown)) {
		t.Error("an active unit is not known")
	}
	unknown["LoadState"], unknown["ActiveState"] = "loaded", "inactive"
	if !known(variants(unknown)) {
		t.Error("a loaded unit is not known")
	}
	if u := unitOf(variants(unknown)); u.MainCode != "" || u.MainStatus != nil || u.InvocationID != "" || !u.StartedAt.IsZero() {
		t.Errorf("a main process that never was: %+v", u)
	}
}

func TestUnitOf(t *testing.T) {
	t.Parallel()
	u := unitOf(variants(map[string]any{
		"ActiveState": "failed", "SubState": "failed", "Result": "signal", "ControlGroup": "/a/b", "ExecMainPID": uint32(7), "ExecMainCode": int32(2), "ExecMainStatus": int32(9),
		"ExecMainStartTimestamp": uint64(1_700_000_000_000_001), "ExecMainExitTimestamp": uint64(math.MaxUint64),
		"InvocationID": []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"),
	}))
	nine := 9
	want := longstop.Unit{ActiveState: "failed", SubState: "failed", Result: "signal", ControlGroup: "/a/b", MainPID: 7, MainCode: "killed", MainStatus: &nine,
		StartedAt: longstop.At(time.UnixMicro(1_700_000_000_000_001)), InvocationID: "000102030405060708090a0b0c0d0e0f"}
	if !reflect.DeepEqual(u, want) {
		t.Errorf("%+v\nnot %+v", u, want)
	}
	// Other types than systemd's are not taken for values.
	if u := unitOf(variants(map[string]any{"ActiveState": 1, "ExecMainPID": "x", "ExecMainCode": uint32(1), "InvocationID": []byte{1}, "ExecMainStartTimestamp": int64(5)})); u != (longstop.Unit{}) {
		t.Errorf("%+v", u)
	}
	if job := jobOf(variants(map[string]any{"Job": []any{uint32(0), dbus.ObjectPath("/")}})); job != "" {
		t.Errorf("no job is %q", job)
	}
}

// A watch merges what signals say, and another start of the same name is another unit.
func TestWatchTakes(t *testing.T) {
	t.Parallel()
	id := func(b byte) []byte { return append(make([]byte, 15), b) }
	told := 0
	w := watch{m: &Manager{kind: User}, unit: "a.service", tell: func(longstop.Unit) { told++ }}
	steps := []struct {
		props map[string]any
		over  bool
	}{
		{map[string]any{"ActiveState": "activating", "InvocationID": id(1)}, false},
		{map[string]any{"ActiveState": "active"}, false},
		{map[string]any{"Result": "exit-code", "ExecMainCode": int32(1), "ExecMainStatus": int32(3)}, false},
		{map[string]any{"ActiveState": "failed"}, true},
	}
	for i, step := range steps {
		if err := w.take(variants(step.props)); err != nil || w.over() != step.over {
			t.Fatalf("step %d: %v, %+v", i, err, w.seen)
		}
	}
	if told != 3 || w.seen.Result != "exit-code" || *w.seen.MainStatus != 3 || w.seen.Manager != "user" {
		t.Errorf("told %d times, at last %+v", told, w.seen)
	}
	if err := w.take(variants(map[string]any{"ActiveState": "active", "InvocationID": id(2)})); !errors.Is(err, ErrNoUnit) || w.seen.ActiveState != "failed" {
		t.Errorf("another start: %v, %+v", err, w.seen)
	}
	queued := watch{m: w.m, tell: w.tell}
	if err := queued.take(variants(map[string]any{"ActiveState": "inactive"})); err != nil || queued.over() {
		t.Errorf("not started yet: %v, over %v", err, queued.over())
	}
}

func TestErrorsHaveTheirKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"org.freedesktop.DBus.Error.AccessDenied":                     ErrRefused,
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": ErrRefused,
		"org.freedesktop.systemd1.UnitExists":                         ErrExists,
		"org.freedesktop.systemd1.NoSuchUnit":                         ErrNoUnit,
		"org.freedesktop.DBus.Error.NoReply":                          ErrUnanswered,
		"org.freedesktop.DBus.Error.Spawn.ChildExited":                errAway,
		"org.freedesktop.DBus.Error.ServiceUnknown":                   errAway,
	} {
		err := explain(dbus.Error{Name: name, Body: []any{"words"}})
		if !errors.Is(err, want) || err.Error() != "words" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := explain(context.DeadlineExceeded); !errors.Is(err, ErrUnanswered) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	if err := explain(dbus.Error{Name: "org.example.Other"}); errors.Is(err, ErrUnanswered) || passing(err) || err.Error() != "org.example.Other" {
		t.Errorf("another: %v", err)
	}
	if undelivered(explain(dbus.Error{Name: "org.freedesktop.DBus.Error.NoReply"})) {
		t.Error("a call without reply may have been acted upon")
	}
}

func TestUserPlaces(t *testing.T) {
	t.Parallel()
	mine, uid := t.TempDir(), os.Getuid()
	for _, c := range []struct {
		runtimeDir string
		uid        int
		want       string
	}{
		{"", uid, fmt.Sprintf("/run/user/%d/bus", uid)},
		{mine, uid, mine + "/bus"},
		{mine, uid + 1, fmt.Sprintf("/run/user/%d/bus", uid+1)}, // another's, as su leaves it
		{mine + "/none", uid, fmt.Sprintf("/run/user/%d/bus", uid)},
	} {
		if got := userPlaces(c.runtimeDir, c.uid)[0].path; got != c.want {
			t.Errorf("%q of %d: %s, not %s", c.runtimeDir, c.uid, got, c.want)
		}
	}
}

// What fails before a call could be made is another try for whoever has time.
func TestLoginThatBreaks(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/bus")
	if err != nil {
		t.Fatal(err)
	}
	tries := make(chan bool, 1000)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			tries <- true
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-tries
		<-tries
		cancel()
	}()
	defer l.Close()
	if _, err := newBus(place{path: dir + "/bus"}).tell(ctx, busName, busPath, busName+".Peer.Ping"); err == nil || errors.Is(err, ErrNoManager) {
		t.Errorf("%v", err)
	}
}

func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBus(place{path: dir + "/bus"}, place{path: dir + "/private", direct: true})
	if _, err := b.connect(t.Context()); !errors.Is(err, ErrNoManager) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := b.ask(t.Context(), busName, busPath, busName+".Peer.Ping"); !errors.Is(err, ErrNoManager) {
		t.Errorf("no socket: %v", err)
	}
}

// Whoever has less time than the one who is connecting does not wait for that one.
func TestConnectKeepsItsOwnDeadline(t *testing.T) {
	t.Parallel()
	b := newBus()
	b.dialing <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.connect(ctx); !errors.Is(err, ErrUnanswered) {
		t.Error(err)
	}
	<-b.dialing
	b.close()
	if _, err := b.connect(t.Context()); !errors.Is(err, dbus.ErrClosed) {
		t.Error(err)
	}
}

// Somebody who takes connections and says nothing is left when the time is over.
func TestSilentBusIsLeft(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lsd") // short: a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, direct := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := newBus(place{path: path, direct: direct}).connect(ctx); !errors.Is(err, ErrUnanswered) || errors.Is(err, ErrNoManager) {
			t.Errorf("direct %v: %v", direct, err)
		}
	}
}

func TestKills(t *testing.T) {
	t.Parallel()
	if kills("root", nil, nil) || kills("root", []string{"root"}, nil) || !kills("root", nil, []string{"other"}) {
		t.Error("root is excluded where nobody is named")
	}
	for _, c := range []struct {
		only, exclude []string
		want          bool
	}{
		{nil, nil, true},
		{nil, []string{"root"}, true},
		{nil, []string{"deploy"}, false},
		{[]string{"deploy"}, nil, true},
		{[]string{"other"}, nil, false},
		{[]string{"deploy"}, []string{"deploy"}, false},
	} {
		if got := kills("deploy", c.only, c.exclude); got != c.want {
			t.Errorf("only %v, exclude %v: %v", c.only, c.exclude, got)
		}
	}
}

func TestShutdownIn(t *testing.T) {
	t.Parallel()
	if s := shutdownIn(variants(map[string]any{"ScheduledShutdown": []any{"", uint64(0)}, "PreparingForShutdown": false})); s != nil {
		t.Errorf("none: %+v", s)
	}
	s := shutdownIn(variants(map[string]any{"ScheduledShutdown": []any{"reboot", uint64(1_700_000_000_000_000)}}))
	if s == nil || s.Kind != "reboot" || !s.At.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("planned: %+v", s)
	}
	if s := shutdownIn(variants(map[string]any{"PreparingForShutdown": true})); s == nil || s.Kind != "" {
		t.Errorf("begun: %+v", s)
	}
}

func TestBoundaryOffer(t *testing.T) {
	t.Parallel()
	refused := Offer{Manager: System, Unit: "service", Because: "refused"}
	dies := Offer{Manager: User, Unit: "service", Can: true, Because: "it ends at logout", Remedy: "loginctl enable-linger deploy"}
	stays := Offer{Manager: User, Unit: "service", Can: true, Outlives: true}
	for _, c := range []struct {
		offers []Offer
		want   longstop.BoundaryOffer
	}{
		{[]Offer{stays, refused}, longstop.BoundaryOffer{Kind: longstop.BoundarySystemd, Can: true, Manager: "user"}},
		{[]Offer{dies, refused}, longstop.BoundaryOffer{Kind: longstop.BoundarySystemd, Because: "it ends at logout", Remedy: "loginctl enable-linger deploy"}},
		{nil, longstop.BoundaryOffer{Kind: longstop.BoundarySystemd, Because: ErrNoSystemd.Error()}},
		{[]Offer{refused}, longstop.BoundaryOffer{Kind: longstop.BoundarySystemd, Because: "refused"}},
	} {
		if got := (Survey{Offers: c.offers}).Boundary(longstop.BoundarySystemd); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v", c.offers, got)
		}
	}
}

func TestNotStartedSaysWhy(t *testing.T) {
	t.Parallel()
	status := func(n int) *int { return &n }
	for _, c := range []struct {
		err  NotStarted
		want string
	}{
		{NotStarted{Job: "failed", Unit: longstop.Unit{Result: "exit-code", MainCode: "exited", MainStatus: status(203)}}, "the unit was not started: failed, exit-code, status 203 of systemd.exec(5)"},
		{NotStarted{Job: "failed", Unit: longstop.Unit{Result: "exit-code", MainCode: "exited", MainStatus: status(5)}}, "the unit was not started: failed, exit-code, exited 5"},
		{NotStarted{Job: "canceled", Unit: longstop.Unit{Result: "success"}}, "the unit was not started: canceled"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}
