package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

func (b *bench) cancel(id longstop.ActionID, note func(string)) longstop.Action {
	b.t.Helper()
	ctx, leave := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer leave()
	a, err := b.Cancel(ctx, string(id), operator, note)
	b.must(err)
	return a
}

// TestCancel stops a tree and says so only when nothing is left, C014 C017.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	other := b.run(script("sleep 60"))
	mark := filepath.Join(sshtest.ShortDir(t), "got")
	a := b.run(script(`trap "echo shell >>` + mark + `; exit 0" TERM; (trap "echo child >>` + mark + `; exit 0" TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done`))
	sshtest.Eventually(t, "both traps are set", func() bool {
		got, err := b.Inspect(t.Context(), string(a.ID))
		return err == nil && len(got.Processes) >= 3
	})
	var notes []string
	a = b.cancel(a.ID, func(line string) { notes = append(notes, line) })
	if a.Cancel.State != longstop.CancelConfirmed || a.Outcome != longstop.OutcomeCancelled || a.Alive != longstop.AliveNo || a.Workload.Cause != longstop.CauseRequest {
		t.Errorf("%s", pretty(a))
	}
	if got, _ := os.ReadFile(mark); !strings.Contains(string(got), "shell") || !strings.Contains(string(got), "child") {
		t.Errorf("TERM reached %q", got)
	}
	if said := strings.Join(notes, "\n"); !strings.Contains(said, "TERM to") {
		t.Errorf("the caller was told %q", said)
	}
	if kinds := b.kinds(a.ID); slices.Index(kinds, "cancel_requested") < 0 {
		t.Errorf("journal %v", kinds)
	}
	if o, _ := b.Action(t.Context(), string(other.ID)); o.Alive != longstop.AliveYes {
		t.Errorf("the other run: %s", pretty(o))
	}
	b.cancel(other.ID, nil)
}

// TestCancelTooLate: what ended by itself keeps its result, whatever is asked afterwards.
func TestCancelTooLate(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.wait(b.run(script("exit 4")).ID)
	if a = b.cancel(a.ID, nil); a.Outcome != longstop.OutcomeFailed || a.Cancel.State != longstop.CancelNone || *a.Workload.Result.ExitCode != 4 {
		t.Errorf("%s", pretty(a))
	}
}

// TestCancelBeforeSent: nothing is sent then, ever.
func TestCancelBeforeSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.stop() // the next gateway has no connection yet
	b.start()
	b.proxy.Freeze() // and cannot make one
	req, ran := counting(t)
	made := make(chan longstop.ActionID, 1)
	done := make(chan error, 1)
	go func() {
		_, err := b.Run(t.Context(), req, operator, gateway.Told{Action: func(a longstop.Action) {
			select {
			case made <- a.ID:
			default:
			}
		}})
		done <- err
	}()
	id := <-made
	a := b.cancel(id, nil)
	if a.Outcome != longstop.OutcomeNotStarted || a.Cancel.State != longstop.CancelConfirmed || a.Launch.State != longstop.LaunchRejected {
		t.Errorf("%s", pretty(a))
	}
	b.proxy.Thaw()
	if err := <-done; longstop.CodeOf(err) != longstop.CodeExpired {
		t.Errorf("Run said %v", err)
	}
	if ran() != 0 || b.tap.count(wire.VerbSubmit) != 0 {
		t.Errorf("ran %d times, %d submits", ran(), b.tap.count(wire.VerbSubmit))
	}
}

// TestCancelUnknownLaunch: nobody knows whether it started; it ends cancelled or void, and is never
// launched later.
func TestCancelUnknownLaunch(t *testing.T) {
	for name, c := range map[string]struct {
		fate fate
		want longstop.Outcome
	}{
		"it had started":     {loseAns, longstop.OutcomeCancelled},
		"it had not started": {loseIt, longstop.OutcomeNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sshtest.Options{})
			b.run(script("true"))
			req := script("exec sleep 60")
			lost := &longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"}
			b.tap.set(func(verb wire.Verb) fate {
				if verb == wire.VerbSubmit {
					b.tap.refuse = lost // b.tap.mu is held
					return c.fate
				}
				return pass
			})
			// The caller waits, and would have it sent again; but it is cancelled first.
			ids := make(chan longstop.ActionID, 1)
			go b.Run(t.Context(), req, operator, gateway.Told{Action: func(a longstop.Action) {
				if a.Launch.State == longstop.LaunchUnknown {
					select {
					case ids <- a.ID:
					default:
					}
				}
			}})
			id := <-ids
			go b.Cancel(t.Context(), string(id), operator, nil)
			b.until(id, "the cancel is noted", func(a longstop.Action) bool { return a.Cancel.State == longstop.CancelRequested })
			b.tap.set(nil)
			b.tap.refuseDials(nil)
			a := b.wait(id)
			if a.Outcome != c.want || a.Cancel.State != longstop.CancelConfirmed || b.tap.count(wire.VerbSubmit) != 2 {
				t.Errorf("%d submits\n%s", b.tap.count(wire.VerbSubmit), pretty(a))
			}
		})
	}
}

// TestCancelUnanswered: the cancel goes out and its answer is lost. It is unconfirmed, and asked
// about until the host answers, by the next gateway too.
func TestCancelUnanswered(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	b.tap.always(wire.VerbCancel, loseIt)
	a = b.cancel(a.ID, nil)
	if a.Cancel.State != longstop.CancelUnconfirmed || a.Cancel.Because == "" || a.Workload.State.Final() {
		t.Errorf("%s", pretty(a))
	}
	b.stop()
	b.tap.set(nil)
	b.start()
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeCancelled || a.Cancel.State != longstop.CancelConfirmed {
		t.Errorf("after a restart: %s", pretty(a))
	}
}

// TestCancelLost: owner and keeper are gone, and the cancel's own answer is the last word, lost. It is
// no confirmation, and nobody waits for another one.
func TestCancelLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 600"))
	owner := a.Workload.Writer.PID
	keeper, err := exec.Command("ps", "-o", "ppid=", "-p", fmt.Sprint(owner)).Output()
	b.must(err)
	b.must(exec.Command("kill", "-KILL", strings.TrimSpace(string(keeper)), fmt.Sprint(owner)).Run())
	b.cancel(a.ID, nil)
	a = b.wait(a.ID)
	b.until(a.ID, "the cancel's end", func(a longstop.Action) bool {
		return a.Workload.State == longstop.WorkloadLost && a.Cancel.State == longstop.CancelUnconfirmed && a.Cancel.Because != ""
	})
	if again := b.cancel(a.ID, nil); again.Workload.State != longstop.WorkloadLost || again.Cancel.State != longstop.CancelUnconfirmed {
		t.Errorf("%s", pretty(again))
	}
}

// TestC017CancelUnreachable: C017, a cancel that could not be sent stays requested, says why, and is
// delivered when the host is back.
func TestC017CancelUnreachable(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.proxy.Cut()
	b.until(a.ID, "the cut is seen", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeUnknown })
	a = b.cancel(a.ID, nil)
	if a.Cancel.State != longstop.CancelRequested || !strings.Contains(a.Cancel.Because, "no route") {
		t.Errorf("%s", pretty(a))
	}
	b.tap.refuseDials(nil)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeCancelled {
		t.Errorf("%s", pretty(a))
	}
}

// TestCancelAtMaxSessions1 takes a second connection, and learns the limit instead of probing it.
func TestCancelAtMaxSessions1(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{MaxSessions: 1})
	refused := func() int { return strings.Count(b.server.Log(), "no more sessions") }
	var known int
	for range 2 {
		known = refused()
		a := b.run(script("sleep 60"))
		if a = b.cancel(a.ID, nil); a.Outcome != longstop.OutcomeCancelled {
			t.Errorf("%s", pretty(a))
		}
	}
	if now := refused(); now != known {
		t.Errorf("the server's limit was known, and run into %d times more", now-known)
	}
}
