package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

func effect(e longstop.Effect) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Request.Effect = e }
}

func reviewed(o longstop.Outcome) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Resolution = &longstop.Resolution{Outcome: o} }
}

func inquired(kind longstop.InquiryKind, states ...longstop.CheckState) func(*longstop.Action) {
	return func(a *longstop.Action) {
		for _, s := range states {
			a.Checks = append(a.Checks, longstop.Inquiry{ActionID: "act_2", Kind: kind, State: s})
		}
	}
}

func nothingLeft(a *longstop.Action) { a.Workload.EmptyProven = true }

func rebooted(a *longstop.Action) { a.Workload.LostBecause = longstop.Rebooted }

func over(s longstop.SSHState) func(*longstop.Action) {
	return func(a *longstop.Action) { a.SSHCommand.State = s }
}

// TestLaw5Retry: which retry is allowed, by the effect and by what is known of the earlier attempt.
func TestLaw5Retry(t *testing.T) {
	t.Parallel()
	read, idempotent := effect(longstop.EffectRead), effect(longstop.EffectIdempotent)
	running, lost := work(longstop.WorkloadRunning), work(longstop.WorkloadLost)
	didNotHappen := reviewed(longstop.OutcomeNotStarted)
	const (
		always    = "effect read: it may always run again"
		sameToken = "effect idempotent: it may run again under the same effect token"
		toDo      = "its preflight, asked afterwards, says that it is still to be done"
		mayRun    = "some of it may still be running: outcome unknown "
	)
	for _, c := range []struct {
		name    string
		changes []func(*longstop.Action)
		allowed bool
		because string
	}{
		{"once, running", on(running), false, "it has not ended"},
		{"once, succeeded", on(exited(0)), false, "effect once, and it ran: succeeded"},
		{"once, failed", on(exited(1)), false, "effect once, and it ran: failed"},
		{"once, cancelled", on(work(longstop.WorkloadCancelled)), false, "effect once, and it ran: cancelled"},
		{"once, unreachable", on(running, cached), false, mayRun + "(unreachable)"},
		{"once, launch unknown", on(launch(longstop.LaunchUnknown)), false, mayRun + "(unanswered_submit)"},
		{"once, rebooted", on(lost, rebooted), false, "effect once, outcome unknown (rebooted)"},
		{"once, lost, nothing left", on(lost, nothingLeft), false, "effect once, outcome unknown (owner_lost)"},
		{"once, lost, perhaps alive", on(lost), false, mayRun + "(owner_lost)"},
		{"no effect named", on(effect(""), exited(1)), false, "effect once, and it ran: failed"},

		{"once, rejected", on(launch(longstop.LaunchRejected)), true, "nothing was started"},
		{"once, launch failed", on(work(longstop.WorkloadLaunchFailed)), true, "nothing was started"},

		{"once, its preflight says it is to be done", on(lost, rebooted, inquired(longstop.InquiryPreflight, longstop.CheckPassed)), true, toDo},
		{"once, failed, its preflight says so", on(exited(1), inquired(longstop.InquiryPreflight, longstop.CheckNothingToDo, longstop.CheckPassed)), true, toDo},
		{"once, succeeded, its preflight says so", on(exited(0), inquired(longstop.InquiryPreflight, longstop.CheckPassed)), false, "effect once, and it ran: succeeded"},
		{"once, perhaps alive, its preflight says so", on(lost, inquired(longstop.InquiryPreflight, longstop.CheckPassed)), false, mayRun + "(owner_lost)"},
		{"once, the last preflight says it is done", on(lost, rebooted, inquired(longstop.InquiryPreflight, longstop.CheckPassed, longstop.CheckNothingToDo)), false, "effect once, outcome unknown (rebooted)"},
		{"once, its preflight has not answered", on(lost, rebooted, inquired(longstop.InquiryPreflight, longstop.CheckRunning)), false, "effect once, outcome unknown (rebooted)"},
		{"once, a verify is no preflight", on(lost, rebooted, inquired(longstop.InquiryVerify, longstop.CheckPassed)), false, "effect once, outcome unknown (rebooted)"},

		{"once, a reviewer saw that it did not happen", on(lost, didNotHappen), true, "a reviewer says that it did not happen"},
		{"once, and of one that cannot be reached", on(running, cached, didNotHappen), true, "a reviewer says that it did not happen"},
		{"once, and the host says otherwise since", on(running, didNotHappen), false, "it has not ended"},
		{"once, a reviewer saw that it did", on(lost, reviewed(longstop.OutcomeSucceeded)), false, "effect once, and a reviewer says that it happened: succeeded"},
		{"idempotent, a reviewer saw its end", on(idempotent, lost, reviewed(longstop.OutcomeFailed)), true, "effect idempotent, and a reviewer says that it is over: failed"},

		{"read, running", on(read, running), true, always},
		{"read, unreachable", on(read, running, cached), true, always},
		{"read, direct", on(read, direct, over(longstop.SSHLost)), true, always},

		{"idempotent, running", on(idempotent, running), false, "it has not ended"},
		{"idempotent, unreachable", on(idempotent, running, cached), false, mayRun + "(unreachable)"},
		{"idempotent, launch unknown", on(idempotent, launch(longstop.LaunchUnknown)), false, mayRun + "(unanswered_submit)"},
		{"idempotent, released ones alive", on(idempotent, exited(1, released)), false, "some of it is still running"},
		{"idempotent, released ones perhaps", on(idempotent, exited(1, released), cached), false, "some of it may still be running: outcome failed"},
		{"idempotent, lost, perhaps alive", on(idempotent, lost), false, mayRun + "(owner_lost)"},
		{"idempotent, lost, nothing left", on(idempotent, lost, nothingLeft), true, sameToken},
		{"idempotent, rebooted", on(idempotent, lost, rebooted), true, sameToken},
		{"idempotent, succeeded", on(idempotent, exited(0)), true, sameToken},

		{"idempotent, direct, ended", on(idempotent, direct, over(longstop.SSHExited)), true, sameToken},
		{"idempotent, direct, connection lost", on(idempotent, direct, over(longstop.SSHLost)), false, mayRun + "(no_owner)"},
		{"once, direct, ended", on(direct, over(longstop.SSHExited)), false, "effect once, outcome unknown (no_owner)"},

		{"retried", on(read, exited(0), func(a *longstop.Action) { a.RetriedBy = "act_2" }), false, "it was retried: act_2 is its next attempt"},
	} {
		p := lifecycle.Project(*action(c.changes...), now, stale)
		if *p.Retry != (longstop.Retry{Allowed: c.allowed, Because: c.because}) {
			t.Errorf("%s: %+v, want %t, %q", c.name, *p.Retry, c.allowed, c.because)
		}
		if hint := lifecycle.BeforeRetry(&p); !c.allowed && !strings.Contains(hint, "longstop ") {
			t.Errorf("%s: what to do is %q", c.name, hint)
		}
	}
}

// A preflight that is given with the retry stands in for evidence, but for what may still be running and
// for what is known to have happened.
func TestLaw5RetryWithAPreflight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		changes []func(*longstop.Action)
		allowed bool
	}{
		{"running", on(work(longstop.WorkloadRunning)), false},
		{"unreachable", on(work(longstop.WorkloadRunning), cached), false},
		{"perhaps alive", on(work(longstop.WorkloadLost)), false},
		{"released ones alive", on(exited(1, released)), false},
		{"rebooted", on(work(longstop.WorkloadLost), rebooted), true},
		{"failed", on(exited(1)), true},
		{"succeeded", on(exited(0)), false},
		{"direct, ended", on(direct, over(longstop.SSHExited)), true},
		{"retried", on(exited(1), func(a *longstop.Action) { a.RetriedBy = "act_2" }), false},
		{"a reviewer saw that it happened", on(work(longstop.WorkloadLost), rebooted, reviewed(longstop.OutcomeSucceeded)), false},
	} {
		p := lifecycle.Project(*action(c.changes...), now, stale)
		if got := lifecycle.Retry(&p, true); got.Allowed != c.allowed {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
