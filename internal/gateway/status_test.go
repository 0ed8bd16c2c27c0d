package gateway_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// hits are the actions that a reviewers' query finds.
func (b *bench) hits(query string) (ids []longstop.ActionID) {
	b.t.Helper()
	page, err := b.Audit(b.t.Context(), gateway.AuditFilter{Query: query})
	b.must(err)
	for _, a := range page.Actions {
		ids = append(ids, a.ID)
	}
	return ids
}

// C145: the outcome is the shell's own status, and which options the shell had stands beside it.
func TestC145TheStatusIsTheShells(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	for _, c := range []struct {
		script         string
		plainly, being int // without and with -e and pipefail
	}{
		{"false; echo done", 0, 1},
		{"false | cat", 0, 1},
		{"(exit 9) & exit 0", 0, 0}, // nobody asked for its status
		{"if ! false; then :; fi", 0, 0},
		{"exit 4", 4, 4},
	} {
		for strict, want := range map[bool]int{false: c.plainly, true: c.being} {
			req := script(c.script)
			req.Request.StrictShell = strict
			a, err := b.Run(t.Context(), req, operator, gateway.Told{})
			if longstop.CodeOf(err) == longstop.CodeUnsupported && strict {
				t.Skip("this host's shell has no pipefail")
			}
			b.must(err)
			a = b.wait(a.ID)
			outcome := longstop.OutcomeSucceeded
			if want != 0 {
				outcome = longstop.OutcomeFailed
			}
			if a.Outcome != outcome || *a.Workload.Result.ExitCode != want || a.Request.StrictShell != strict {
				t.Errorf("%q, strict %v: %s %v", c.script, strict, a.Outcome, a.Workload.Result)
			}
		}
	}
}

// C146: what cannot be seen says since when, becomes unknown, is on the reviewers' lists, and settles itself
// when the host answers again. A host with such a run is not removed.
func TestC146RunningSaysHowOldThatIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 2; exit 5"))
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.proxy.Cut()
	a = b.until(a.ID, "it is unknown", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeUnknown })
	if a.Alive != longstop.AliveUnknown || a.UnknownBecause != longstop.Unreachable || a.Observation.Source != longstop.Cached || a.Observation.Since.IsZero() {
		t.Errorf("%s", pretty(a))
	}
	for _, query := range []string{"missing", "unknown"} {
		if ids := b.hits(query); len(ids) != 1 || ids[0] != a.ID {
			t.Errorf("%s: %v", query, ids)
		}
	}
	if err := b.RemoveHost(t.Context(), "loop"); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a host with an unresolved run is removed: %v", err)
	}
	b.tap.refuseDials(nil)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 5 {
		t.Errorf("%s", pretty(a))
	}
	if ids := append(b.hits("missing"), b.hits("unknown")...); len(ids) != 0 {
		t.Errorf("still listed: %v", ids)
	}
	queries, err := b.AuditQueries(t.Context())
	b.must(err)
	for _, q := range queries {
		if q.Name == "unapproved" && q.Hits != 1 || q.Name == "missing" && (q.Hits != 0 || q.More) {
			t.Errorf("%+v", q)
		}
	}
}

// C148: a cancel and the end cross. Both facts stand side by side, and the outcome follows how it ended.
func TestC148CancelCrossesTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	seen := map[longstop.Outcome]int{}
	for i := range 8 {
		a := b.run(script("sleep 0.2; exit 7"))
		for end := time.Now().Add(time.Duration(i) * 40 * time.Millisecond); time.Now().Before(end); {
			if now, err := b.Action(t.Context(), string(a.ID)); err != nil || now.Settled() {
				break
			}
		}
		b.cancel(a.ID, nil)
		a = b.wait(a.ID)
		seen[a.Outcome]++
		switch code := a.Workload.Main.ExitCode; a.Outcome {
		case longstop.OutcomeFailed:
			if *code != 7 || a.Workload.State != longstop.WorkloadFinished || a.Cancel.State != longstop.CancelNone && a.Cancel.State != longstop.CancelTooLate {
				t.Errorf("it ended by itself: %s", pretty(a))
			}
		case longstop.OutcomeCancelled:
			if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseRequest || a.Cancel.State != longstop.CancelConfirmed {
				t.Errorf("it was stopped: %s", pretty(a))
			}
		default:
			t.Errorf("%s", pretty(a))
		}
	}
	t.Logf("outcomes: %v", seen)
}

// C151: what was put into the background is the work too: the run is over when it is.
func TestC151BackgroundWorkIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	result := filepath.Join(t.TempDir(), "result")
	work := `sh -c "sleep 1; echo result > ` + result + `" & echo started; exit 0`
	a := b.run(script(work))
	b.until(a.ID, "its main process ended first", func(a longstop.Action) bool {
		return a.Workload.State == longstop.WorkloadLingering && a.Outcome == longstop.OutcomePending && *a.Workload.Main.ExitCode == 0 || a.Settled()
	})
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || lines(result) != 1 {
		t.Errorf("over before its work: %s", pretty(a))
	}
	os.Remove(result)
	req := script(work)
	req.Request.Leftover = longstop.LeftoverKill
	if a = b.wait(b.run(req).ID); len(a.Workload.Left) == 0 || lines(result) != 0 {
		t.Errorf("who was ended is not named: %s", pretty(a))
	}
	if ids := b.hits("left"); len(ids) != 1 || ids[0] != a.ID {
		t.Errorf("left: %v", ids)
	}
}

// C152: runner and work are gone at once. That is unknown, without an exit code, and nobody runs it again
// by himself.
func TestC152LostIsNeitherPassedNorFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	out := filepath.Join(t.TempDir(), "out")
	a := b.run(script("echo ran >> " + out + "; exec sleep 600"))
	a = b.until(a.ID, "it runs", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadRunning && lines(out) == 1 })
	keeper, err := exec.Command("ps", "-o", "ppid=", "-p", fmt.Sprint(a.Workload.Writer.PID)).Output()
	b.must(err)
	b.must(exec.Command("kill", "-KILL", strings.TrimSpace(string(keeper)), fmt.Sprint(a.Workload.Writer.PID), fmt.Sprint(a.Workload.Main.PID)).Run())
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.OwnerLost || a.Workload.Result != nil || a.Attempt != 1 {
		t.Errorf("%s", pretty(a))
	}
	if a.Retry == nil || a.Retry.Allowed {
		t.Errorf("a retry is allowed: %s", pretty(a.Retry))
	}
	if lines(out) != 1 {
		t.Errorf("it ran %d times", lines(out))
	}
	if ids := b.hits("unknown"); len(ids) != 1 || ids[0] != a.ID {
		t.Errorf("unknown: %v", ids)
	}
}
