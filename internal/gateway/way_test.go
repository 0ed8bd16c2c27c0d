package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Every way that led nowhere is said with a code, a host and a command that shows why.
func TestExplained(t *testing.T) {
	t.Parallel()
	to := sshlink.Target{Name: "web-1", SSHConfig: "/etc/lab"}
	refused := &longstop.Error{Code: longstop.CodeUnsupported, Message: "web-1: the server refuses to run commands"}
	for _, c := range []struct {
		err     error
		code    longstop.Code
		message string
		hint    string
	}{
		{&unanswered{Err: fmt.Errorf("open a serve channel on web-1: %w", refused)}, longstop.CodeUnsupported,
			"open a serve channel on web-1: web-1: the server refuses to run commands", "see: ssh -v -F /etc/lab web-1 true"},
		{noRunner("web-1", sshlink.Exit{State: longstop.SSHExited, Status: 3}, "go away"), longstop.CodeNoRunner,
			`the login shell of web-1 ran something else than the runner: it exited 3 and printed "go away"`, "see what it prints: ssh -F /etc/lab web-1 true; longstop host check web-1 looks at its login shell and the runner"},
		{noRunner("web-1", sshlink.Exit{State: longstop.SSHExited, Status: 2}, "runtime: failed to create new OS thread (have 2)"), longstop.CodeNoRunner,
			`the runner cannot run on web-1: the account may have no more processes or threads (ulimit -u); it exited 2 and printed "runtime: failed to create new OS thread (have 2)"`,
			"see what it prints: ssh -F /etc/lab web-1 true; longstop host check web-1 looks at its login shell and the runner"},
		{noRunner("web-1", sshlink.Exit{State: longstop.SSHSignaled, Signal: "KILL"}, ""), longstop.CodeUnreachable,
			"the runner on web-1 died of SIGKILL and printed nothing", "see: ssh -v -F /etc/lab web-1 true"},
		{context.DeadlineExceeded, longstop.CodeUnreachable, "connect to web-1: context deadline exceeded", "see: ssh -v -F /etc/lab web-1 true"},
		{errors.New("odd"), longstop.CodeInternal, "connect to web-1: odd", "see: ssh -v -F /etc/lab web-1 true"},
		{&longstop.Error{Code: longstop.CodeAccessRefused, Message: "no", Hint: "theirs"}, longstop.CodeAccessRefused, "no", "theirs"},
		{saidBy("web-1", &longstop.Error{Code: longstop.CodeStateFolder, Message: "/s is a symbolic link", Hint: "theirs"}), longstop.CodeStateFolder, "web-1: /s is a symbolic link", "theirs"},
	} {
		err := explained(to, c.err)
		if longstop.CodeOf(err) != c.code || err.Error() != c.message || hintOf(err) != c.hint {
			t.Errorf("%v: %s, %q, %q", c.err, longstop.CodeOf(err), err, hintOf(err))
		}
	}
}

type dialerFunc func(context.Context, sshlink.Target) (sshlink.Link, error)

func (f dialerFunc) Dial(ctx context.Context, to sshlink.Target) (sshlink.Link, error) {
	return f(ctx, to)
}

// A host that takes its time is told of; one that does not, is not.
func TestSlowDialIsTold(t *testing.T) {
	t.Parallel()
	refused := &longstop.Error{Code: longstop.CodeAccessRefused}
	told := make(chan string, 1)
	g := &Gateway{cfg: Config{Dialers: map[string]sshlink.Dialer{
		"slow": dialerFunc(func(ctx context.Context, _ sshlink.Target) (sshlink.Link, error) {
			select {
			case line := <-told:
				told <- line
				return nil, refused
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
		"quick": dialerFunc(func(context.Context, sshlink.Target) (sshlink.Link, error) { return nil, refused }),
	}}}
	if _, err := g.dial(t.Context(), sshlink.Target{Name: "web-1"}, "slow", func(line string) { told <- line }); err != refused {
		t.Error(err)
	}
	if line := <-told; line != "connecting to web-1…" {
		t.Errorf("told %q", line)
	}
	if _, err := g.dial(t.Context(), sshlink.Target{Name: "web-1"}, "quick", func(line string) { t.Errorf("told %q", line) }); err != refused {
		t.Error(err)
	}
}

// While somebody waits for an action of a silent host, the pause between attempts is short; not so where the host
// refuses, which it would hold against whoever tries too often.
func TestPauseIsShortForWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{ctx: t.Context()}
		h := newHost(g, sqlite.Host{Host: longstop.Host{Name: "web-1"}})
		defer h.stop()
		a := longstop.Action{ID: "act_1", Launch: longstop.Launch{State: longstop.LaunchUnknown}}
		h.hold(a, nil)
		paused := func() time.Duration {
			began := time.Now()
			h.pause(time.Minute)
			return time.Since(began)
		}
		if d := paused(); d != time.Minute {
			t.Errorf("%v without anybody", d)
		}
		w := g.watchers.add(a.ID)
		if d := paused(); d != waitersPause {
			t.Errorf("%v with somebody", d)
		}
		h.sight.code = longstop.CodeAccessRefused
		if d := paused(); d != time.Minute {
			t.Errorf("%v with somebody, where the login is refused", d)
		}
		h.sight.code = ""
		g.watchers.remove(a.ID, w)
		if d := paused(); d != time.Minute {
			t.Errorf("%v once they left", d)
		}
	})
}
