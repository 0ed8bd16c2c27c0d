package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// theRunner is the folder of the real runner, built once for all tests; LONGSTOP_TEST_RUNNER names
// one that is built already.
var theRunner = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("LONGSTOP_TEST_RUNNER"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "lsrun")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "longstop-runner"), "./cmd/longstop-runner")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	built = dir
	return dir, build.Run()
})

var built string // to be removed

func TestMain(m *testing.M) {
	status := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(status)
}

// clock is the wall clock, shifted.
type clock struct{ shift time.Duration }

func (c clock) Now() time.Time { return time.Now().Add(c.shift) }

// clockFunc is a clock of a test's own.
type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }

// bench is a gateway's home, and a host for it.
type bench struct {
	t      testing.TB
	home   string
	server *sshtest.Server
	proxy  *sshtest.Proxy
	tap    *tap
	config string // ssh_config that goes through the proxy
	shift  time.Duration
	clock  func() time.Time // nil: the wall clock, shifted
	beat   time.Duration
	idle   time.Duration
	reach  time.Duration
	policy func(policy.Question) (policy.Verdict, string)
	ways   []gateway.Way
	redact *redact.Redactor

	transport string // empty: openssh

	*gateway.Gateway
	store *sqlite.Store
}

// newBench starts an sshd behind a proxy and a gateway that has enrolled it as "loop". What is set is so
// before the gateway starts.
func newBench(t testing.TB, o sshtest.Options, set ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, home: sshtest.ShortDir(t), server: sshtest.Start(t, o), beat: 300 * time.Millisecond}
	b.proxy = sshtest.NewProxy(t, b.server.Addr)
	b.tap = &tap{Dialer: &sshlink.OpenSSH{Dir: filepath.Join(b.home, "ssh")}}
	for _, f := range set {
		f(b)
	}
	var err error
	b.config, err = b.server.Via(b.proxy.Addr)
	b.must(err)
	b.start()
	if _, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config, Transport: b.transport}, nil); err != nil {
		t.Fatalf("enrol: %v", err)
	}
	return b
}

// embedded has the gateway speak SSH itself.
func embedded(b *bench) {
	b.transport, b.tap.Dialer = "embedded", &sshlink.Embedded{}
}

// eachTransport runs a test over both.
func eachTransport(t *testing.T, test func(t *testing.T, over func(*bench))) {
	t.Parallel()
	for name, over := range map[string]func(*bench){"openssh": func(*bench) {}, "embedded": embedded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, over)
		})
	}
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// start begins a gateway on the home.
func (b *bench) start() {
	b.t.Helper()
	dir, err := theRunner()
	b.must(err)
	b.store, err = sqlite.Open(filepath.Join(b.home, "longstop.db"))
	b.must(err)
	var now gateway.Clock = clock{b.shift}
	if b.clock != nil {
		now = clockFunc(b.clock)
	}
	b.Gateway, err = gateway.New(gateway.Config{
		Store:   b.store,
		Dialers: map[string]sshlink.Dialer{"openssh": b.tap, "embedded": b.tap},
		Runners: &gateway.FolderRunners{FS: os.DirFS(dir), Where: dir},
		Clock:   now, Home: b.home, Name: "test", Heartbeat: b.beat, Idle: b.idle, Reach: b.reach,
		Policy: b.policy, Ways: b.ways, Redact: b.redact,
	})
	b.must(err)
	g, store := b.Gateway, b.store
	b.t.Cleanup(func() { closeGateway(b.t, g, store) })
}

func closeGateway(t testing.TB, g *gateway.Gateway, store *sqlite.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	differs := (*sqlite.Difference)(nil) // another error: it is closed already
	if _, err := store.CheckProjections(ctx); errors.As(err, &differs) {
		t.Errorf("what is stored is not what the journal gives: %v", err)
	}
	store.Close()
}

// stop ends the gateway in good order; start begins another.
func (b *bench) stop() {
	b.t.Helper()
	closeGateway(b.t, b.Gateway, b.store)
}

var operator = longstop.Requester{Kind: "operator", Name: "anna", Via: "test"}

func script(s string) longstop.RunRequest {
	return longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: s}}
}

// run launches and fails the test unless the launch was accepted.
func (b *bench) run(req longstop.RunRequest) longstop.Action {
	b.t.Helper()
	a, err := b.Run(b.t.Context(), req, operator, gateway.Told{})
	if err != nil || a.Launch.State != longstop.LaunchAccepted {
		b.t.Fatalf("run: launch %s, %v\n%s", a.Launch.State, err, pretty(a))
	}
	return a
}

// wait waits for the end of an action.
func (b *bench) wait(id longstop.ActionID) longstop.Action {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	a, err := b.Wait(ctx, string(id))
	if err != nil {
		b.t.Fatalf("wait: %v\n%s", err, pretty(a))
	}
	return a
}

// until waits for an action to look a certain way.
func (b *bench) until(id longstop.ActionID, what string, is func(longstop.Action) bool) longstop.Action {
	b.t.Helper()
	var a longstop.Action
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var err error
		a, err = b.Action(b.t.Context(), string(id))
		b.must(err)
		if is(a) {
			return a
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within a minute: %s\n%s", what, pretty(a))
		}
	}
}

// output reads a whole stream.
func (b *bench) output(id longstop.ActionID, stream string) string {
	b.t.Helper()
	var all []byte
	for {
		got, err := b.Output(b.t.Context(), string(id), stream, int64(len(all)), 0, 10*time.Second)
		b.must(err)
		all = append(all, got.Data...)
		if got.End {
			return string(all)
		}
	}
}

// kinds lists the journal's kinds about an action.
func (b *bench) kinds(id longstop.ActionID) []string {
	b.t.Helper()
	entries, err := b.Journal(b.t.Context(), gateway.JournalFilter{Action: id, After: -1, Limit: 1000})
	b.must(err)
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// lines counts the lines of a file on the "host", which is this machine.
func lines(name string) int {
	data, _ := os.ReadFile(name)
	n := 0
	for _, c := range data {
		if c == '\n' {
			n++
		}
	}
	return n
}

func pretty(v any) string {
	b, _ := json.MarshalIndent(v, "", "  ")
	return string(b)
}
