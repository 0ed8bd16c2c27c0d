package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// newDirect is a bench whose host has no runner.
func newDirect(t *testing.T, over func(*bench)) *bench {
	t.Helper()
	b := newBench(t, sshtest.Options{}, over)
	h, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config, Transport: b.transport, Direct: true}, nil)
	b.must(err)
	if !h.Direct || h.HostKey == "" || h.StateID != "" || h.Runner != "" {
		t.Fatalf("%+v", h)
	}
	return b
}

func directly(script string) longstop.RunRequest {
	return longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: script, Owner: longstop.OwnerNone}}
}

// TestPointDirect: what a direct action's channel says is its SSH fact, over both transports; of its workload
// nothing is said, and its outcome is unknown.
func TestPointDirect(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		b := newDirect(t, over)
		stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("in\n"))
		b.must(err)
		status := func(n int) *int { return &n }
		for name, c := range map[string]struct {
			req            longstop.RunRequest
			state          longstop.SSHState
			status         *int
			signal         string
			stdout, stderr string
		}{
			"exits":     {directly("echo out; echo err >&2; exit 3"), longstop.SSHExited, status(3), "", "out\n", "err\n"},
			"killed":    {directly("echo out; kill -TERM $$"), longstop.SSHSignaled, nil, "TERM", "out\n", ""},
			"arguments": {longstop.RunRequest{Host: "loop", Request: longstop.Request{Argv: []string{"echo", "a", "b/c=d"}, Owner: longstop.OwnerNone}}, longstop.SSHExited, status(0), "", "a b/c=d\n", ""},
			"env": {longstop.RunRequest{Host: "loop", EnvValues: map[string][]byte{"A": []byte("1"), "B": []byte("x,y")},
				Request: longstop.Request{Argv: []string{"printenv", "A", "B"}, Owner: longstop.OwnerNone}}, longstop.SSHExited, status(0), "", "1\nx,y\n", ""},
			"stdin":   {longstop.RunRequest{Host: "loop", StdinID: stdin.ID, Request: longstop.Request{Argv: []string{"cat"}, Owner: longstop.OwnerNone}}, longstop.SSHExited, status(0), "", "in\n", ""},
			"no such": {directly("/no/such"), longstop.SSHExited, status(127), "", "", ""},
		} {
			t.Run(name, func(t *testing.T) {
				b := &bench{t: t, Gateway: b.Gateway, store: b.store}
				a := b.wait(b.run(c.req).ID)
				s := &a.SSHCommand
				if s.State != c.state || s.Signal != c.signal || (s.Status == nil) != (c.status == nil) || s.Status != nil && *s.Status != *c.status || s.HostKey == "" || s.Channel == "" {
					t.Errorf("ssh: %s", pretty(s))
				}
				if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.NoOwner || a.Alive != longstop.AliveUnknown ||
					a.Workload.State != longstop.WorkloadNone || a.Unresolved() || len(a.Escalations) > 0 || a.NeedsPeople() {
					t.Errorf("%s", pretty(a))
				}
				if out := b.output(a.ID, "stdout"); out != c.stdout {
					t.Errorf("stdout %q", out)
				}
				if got := b.output(a.ID, "stderr"); c.stderr != "" && got != c.stderr {
					t.Errorf("stderr %q", got)
				}
				if kinds := b.kinds(a.ID); !slices.Equal(kinds, []string{"requested", "launch_intended", "channel_opened", "channel_closed"}) {
					t.Errorf("%v", kinds)
				}
				if again, err := b.Reconcile(t.Context(), string(a.ID)); err != nil || again.Revision != a.Revision {
					t.Errorf("reconcile: %v", err)
				}
			})
		}
		open, err := b.Actions(t.Context(), gateway.ActionFilter{})
		b.must(err)
		if len(open) > 0 {
			t.Errorf("ps lists %d that ended", len(open))
		}
	})
}

// TestPointDirectIsCut: a channel that ends before its command says that nobody knows, and why.
func TestPointDirectIsCut(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		for name, c := range map[string]struct {
			deadline float64
			cut      func(*bench, longstop.Action)
			state    longstop.SSHState
			cancel   longstop.CancelState
			because  string
		}{
			"the connection is lost": {0, func(b *bench, _ longstop.Action) { b.proxy.Cut() }, longstop.SSHLost, longstop.CancelNone, ""},
			"it is cancelled": {0, func(b *bench, a longstop.Action) { b.cancel(a.ID, nil) }, longstop.SSHNoStatus, longstop.CancelUnconfirmed,
				"cancelled: its channel was closed; whether the command ended, nobody can say"},
			"its deadline passes": {0.3, func(*bench, longstop.Action) {}, longstop.SSHNoStatus, longstop.CancelUnconfirmed,
				"its deadline passed: its channel was closed; whether the command ended, nobody can say"},
			"the gateway stops": {0, func(b *bench, _ longstop.Action) { b.stop(); b.start() }, longstop.SSHLost, longstop.CancelNone, ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newDirect(t, over)
				here := t.TempDir() // nobody stops a direct action's command: it goes on for as long as this is there
				req := directly("echo begun; while [ -e " + here + " ]; do sleep 0.05; done")
				req.Request.DeadlineS = c.deadline
				a := b.run(req)
				if got, err := b.Output(t.Context(), string(a.ID), "stdout", 0, 0, 20*time.Second); c.deadline == 0 && (err != nil || string(got.Data) != "begun\n" || got.End) {
					t.Errorf("while it runs: %q, %v", got.Data, err)
				}
				c.cut(b, a)
				a = b.wait(a.ID)
				if a.SSHCommand.State != c.state || a.Cancel.State != c.cancel || a.Cancel.Because != c.because || a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.NoOwner {
					t.Errorf("%s", pretty(a))
				}
				if len(a.Escalations) != 1 || a.Escalations[0].Because != "no_owner" || a.Retry.Allowed {
					t.Errorf("%s", pretty(a))
				}
				if c.deadline == 0 && b.output(a.ID, "stdout") != "begun\n" {
					t.Errorf("output %q", b.output(a.ID, "stdout"))
				}
				open, err := b.Actions(t.Context(), gateway.ActionFilter{})
				b.must(err)
				if len(open) != 1 {
					t.Errorf("ps lists %d", len(open))
				}
			})
		}
	})
}

// A direct action whose standard input is gone when it is approved is not started with none instead.
func TestDirectStdinIsGone(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(b *bench) { b.policy = asksAbout })
	_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
	b.must(err)
	stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("rows"))
	b.must(err)
	path, text := b.marker()
	req := directly(text)
	req.StdinID = stdin.ID
	a := b.ask(req)
	b.must(os.Remove(filepath.Join(b.home, "stdin", stdin.ID)))
	b.approve(a.ID)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeNotStarted || !strings.Contains(a.Launch.Message, "standard input") || lines(path) != 0 {
		t.Errorf("%s", pretty(a))
	}
}

// TestPointDirectOutputIsBounded: the beginning of each stream is kept, and what is not is said.
func TestPointDirectOutputIsBounded(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(*bench) {})
	most := int64(longstop.MinOutputMax)
	req := directly(fmt.Sprintf("head -c %d /dev/zero; echo end", 2*most))
	req.Request.OutputMax = &most
	a := b.wait(b.run(req).ID)
	o := a.Output
	if o.StdoutBytes != 2*most+4 || o.DroppedBytes != most+4 || o.DropReason != longstop.DroppedOverMax || o.MaxBytes != most || len(o.StdoutDropped) != 1 {
		t.Errorf("%s", pretty(o))
	}
	at := int64(0)
	for {
		got, err := b.Output(t.Context(), string(a.ID), "stdout", at, 0, time.Second)
		b.must(err)
		if err := got.Follows(at); err != nil {
			t.Fatal(err)
		}
		if at = got.Next(); got.End {
			break
		}
	}
	if at != 2*most+4 {
		t.Errorf("read to %d", at)
	}
}

// What nobody on the host could hold, or what would have to be quoted, is refused before anything is sent.
func TestPointDirectRefuses(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(*bench) {})
	argv := func(args ...string) longstop.Request {
		return longstop.Request{Argv: args, Owner: longstop.OwnerNone}
	}
	with := func(change func(*longstop.Request)) longstop.Request {
		r := argv("true")
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		r    longstop.Request
		env  string
		code longstop.Code
	}{
		"a space":           {argv("echo", "a b"), "", longstop.CodeUsage},
		"a quote":           {argv("echo", "it's"), "", longstop.CodeUsage},
		"nothing":           {argv("echo", ""), "", longstop.CodeUsage},
		"an assignment":     {argv("A=b"), "", longstop.CodeUsage},
		"a glob":            {argv("ls", "*"), "", longstop.CodeUsage},
		"env with a space":  {argv("true"), "a b", longstop.CodeUsage},
		"env of a script":   {longstop.Request{Script: "true", Owner: longstop.OwnerNone}, "b", longstop.CodeUsage},
		"detached":          {with(func(r *longstop.Request) { r.Lifetime = longstop.Detached }), "", longstop.CodeUsage},
		"a lease":           {with(func(r *longstop.Request) { r.LeaseS = 10 }), "", longstop.CodeUsage},
		"limits":            {with(func(r *longstop.Request) { r.Limits = &longstop.Limits{CPUS: 1} }), "", longstop.CodeUsage},
		"a preflight":       {with(func(r *longstop.Request) { r.Preflight = "true" }), "", longstop.CodeUsage},
		"a name":            {with(func(r *longstop.Request) { r.Exclusive = "db" }), "", longstop.CodeUsage},
		"a terminal":        {with(func(r *longstop.Request) { r.PTY = true }), "", longstop.CodeUsage},
		"an owner":          {with(func(r *longstop.Request) { r.Owner = longstop.OwnerAuto }), "", longstop.CodeUnsupported},
		"a runner's owner":  {with(func(r *longstop.Request) { r.Owner = longstop.OwnerRunner }), "", longstop.CodeUnsupported},
		"leftovers killed":  {with(func(r *longstop.Request) { r.Leftover = longstop.LeftoverKill }), "", longstop.CodeUsage},
		"another directory": {with(func(r *longstop.Request) { r.Cwd = "/" }), "", longstop.CodeUsage},
	} {
		req := longstop.RunRequest{Host: "loop", Request: c.r}
		if c.env != "" {
			req.EnvValues = map[string][]byte{"A": []byte(c.env)}
		}
		a, err := b.Run(t.Context(), req, operator, gateway.Told{})
		var e *longstop.Error
		if !errors.As(err, &e) || e.Code != c.code || a.ID != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// otherKey leads to a host with another key.
type otherKey struct{ sshlink.Dialer }

type otherKeyLink struct{ sshlink.Link }

func (d otherKey) Dial(ctx context.Context, to sshlink.Target) (sshlink.Link, error) {
	link, err := d.Dialer.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return otherKeyLink{link}, nil
}

func (l otherKeyLink) Facts() sshlink.Facts {
	f := l.Link.Facts()
	f.HostKey = "SHA256:another"
	return f
}

// A host for direct actions is recognised by its host key alone: another one is refused before anything is sent.
func TestPointDirectHostKey(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(*bench) {})
	h, err := b.CheckHost(t.Context(), "loop", nil)
	if err != nil || !h.Direct || h.Seen == nil {
		t.Errorf("%+v, %v", h, err)
	}
	b.stop()
	b.tap.Dialer = otherKey{b.tap.Dialer}
	b.start()
	if _, err := b.CheckHost(t.Context(), "loop", nil); longstop.CodeOf(err) != longstop.CodeHostMismatch {
		t.Errorf("check: %v", err)
	}
	a, err := b.Run(t.Context(), directly("true"), operator, gateway.Told{})
	if longstop.CodeOf(err) != longstop.CodeHostMismatch || a.Launch.State != longstop.LaunchRejected || a.Outcome != longstop.OutcomeNotStarted {
		t.Errorf("%v\n%s", err, pretty(a))
	}
}

// A direct action may go to a host with a runner, too.
func TestPointDirectBesideARunner(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(directly("exit 4"))
	other := b.wait(b.run(script("exit 5")).ID)
	a = b.wait(a.ID)
	if a.SSHCommand.Status == nil || *a.SSHCommand.Status != 4 || *other.Workload.Result.ExitCode != 5 {
		t.Errorf("%s", pretty(a))
	}
}

// TestDirectRetention: what a direct action wrote is kept here as long as hosts keep theirs, and then removed without
// another launch; its record says so.
func TestDirectRetention(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(*bench) {})
	read, unread, silent := b.run(directly("echo read")), b.run(directly("echo unread >&2")), b.run(directly("true"))
	for _, a := range []longstop.Action{read, unread, silent} {
		b.wait(a.ID)
	}
	if out := b.output(read.ID, "stdout"); out != "read\n" {
		t.Errorf("output %q", out)
	}
	strays := filepath.Join(b.home, "direct", string(longstop.NewActionID(time.Now())))
	b.must(os.Mkdir(strays, 0o700))
	kept := func(a longstop.Action) bool {
		_, err := os.Stat(filepath.Join(b.home, "direct", string(a.ID)))
		return err == nil
	}
	b.later(6)
	b.later(8)
	for _, a := range []longstop.Action{read, silent} {
		a = b.until(a.ID, "it is removed after a week", isRemoved)
		if kinds := b.kinds(a.ID); kinds[len(kinds)-1] != "retention_applied" || a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.NoOwner {
			t.Errorf("%v\n%s", kinds, pretty(a))
		}
		sshtest.Eventually(t, "the end of its folder", func() bool { return !kept(a) })
	}
	if _, err := b.Output(t.Context(), string(read.ID), "stdout", 0, 0, 0); longstop.CodeOf(err) != longstop.CodeExpired || !strings.Contains(err.Error(), "as long as was promised") {
		t.Errorf("%v", err)
	}
	if out := b.output(unread.ID, "stderr"); out != "unread\n" { // and now it was
		t.Errorf("what nobody had read: %q", out)
	}
	b.later(9)
	a := b.until(unread.ID, "it was read, and a week is over", isRemoved)
	sshtest.Eventually(t, "the end of its folder", func() bool { return !kept(a) })
	b.must(os.Mkdir(filepath.Join(b.home, "direct", string(read.ID)), 0o700)) // as if a crash had come between
	b.later(31)
	sshtest.Eventually(t, "the end of what is nobody's", func() bool { left, err := os.ReadDir(filepath.Dir(strays)); return err == nil && len(left) == 0 })
}

// TestLaw3DirectWhoseCommandMayHaveGone: what a gateway has on its disk that is killed when a direct action's command is
// about to go out says no more than that to the next one: the launch is unknown and stays so, nobody sends it again, and
// a cancel that was asked for is unconfirmed.
func TestLaw3DirectWhoseCommandMayHaveGone(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(*bench) {})
	disk, marker := sshtest.ShortDir(t), filepath.Join(t.TempDir(), "ran")
	asked, goOn := make(chan struct{}), make(chan struct{})
	b.tap.mu.Lock()
	b.tap.starts = func() { close(asked); <-goOn }
	b.tap.mu.Unlock()
	ran := make(chan longstop.Action, 1)
	go func() {
		a, _ := b.Run(context.Background(), directly("echo ran >> "+marker), operator, gateway.Told{})
		ran <- a
	}()
	<-asked
	open, err := b.Actions(t.Context(), gateway.ActionFilter{})
	b.must(err)
	if len(open) != 1 || open[0].Launch.State != longstop.LaunchSent || open[0].SSHCommand.State != longstop.SSHNotOpened {
		t.Fatalf("%s", pretty(open))
	}
	id := open[0].ID
	stopping, leave := context.WithCancel(t.Context())
	cancelled := make(chan struct{})
	go func() {
		b.Gateway.Cancel(stopping, string(id), operator, nil)
		close(cancelled)
	}()
	b.until(id, "a cancel is asked for", func(a longstop.Action) bool { return a.Cancel.State == longstop.CancelRequested })
	leave()
	<-cancelled
	b.must(b.store.Backup(t.Context(), filepath.Join(disk, "longstop.db")))
	for _, name := range []string{"salt", gateway.KeyFile} {
		data, err := os.ReadFile(filepath.Join(b.home, name))
		b.must(err)
		b.must(os.WriteFile(filepath.Join(disk, name), data, 0o600))
	}

	next := *b
	next.home, next.tap = disk, &tap{Dialer: b.tap.Dialer}
	next.start()
	a := next.wait(id)
	if a.Launch.State != longstop.LaunchUnknown || a.SSHCommand.State != longstop.SSHLost || a.Outcome != longstop.OutcomeUnknown || a.Alive != longstop.AliveUnknown ||
		a.Workload.State != longstop.WorkloadNone || a.Cancel.State != longstop.CancelUnconfirmed || a.Cancel.Because != "the gateway stopped, and its channel with it" || a.Retry.Allowed {
		t.Errorf("%s", pretty(a))
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the next gateway ran the command")
	}
	next.stop()
	next.start() // and none after it has anything left to say
	if again, err := next.Action(t.Context(), string(id)); err != nil || again.Revision != a.Revision {
		t.Errorf("%v: revision %d, and then %d", err, a.Revision, again.Revision)
	}
	close(goOn)
	if a := <-ran; a.Launch.State != longstop.LaunchAccepted {
		t.Errorf("%s", pretty(a))
	}
}
