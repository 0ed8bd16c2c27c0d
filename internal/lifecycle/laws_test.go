package lifecycle_test

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// everyAction yields the facts in every combination that Judge can tell apart, also those that no
// host would ever show together. The action is reused.
func everyAction() iter.Seq[*longstop.Action] {
	approvals := []longstop.ApprovalState{longstop.ApprovalNotRequired, longstop.ApprovalRevoked}
	cancels := []longstop.CancelState{longstop.CancelNone, longstop.CancelUnconfirmed, longstop.CancelConfirmed}
	observations := []*longstop.Observation{nil, {At: ago(time.Second), Source: longstop.Live}, {At: ago(time.Minute), Source: longstop.Live}}
	for _, because := range []longstop.UnknownReason{longstop.Unreachable, longstop.AccessRefused, longstop.HostMismatch,
		longstop.UnreadableRecord, longstop.RecordExpired} {
		observations = append(observations, &longstop.Observation{At: ago(time.Second), Source: longstop.Live, Because: because})
	}
	results := []*longstop.Result{nil, {ExitCode: ptr(0)}, {ExitCode: ptr(3)}, {Signal: "SEGV"}, {ExitCode: ptr(0), Signal: "SEGV"}, {}}
	losses := []longstop.Workload{{}, {LostBecause: longstop.Rebooted}, {LostBecause: longstop.OwnerLost}, {LostBecause: longstop.OwnerLost, EmptyProven: true}}
	return func(yield func(*longstop.Action) bool) {
		for a := range product(
			axis(approvals, func(a *longstop.Action, v longstop.ApprovalState) { a.Approval.State = v }),
			axis(append(slices.Clone(lifecycle.Launches.States), ""), func(a *longstop.Action, v longstop.LaunchState) { a.Launch.State = v }),
			axis([]time.Duration{time.Second, time.Hour}, func(a *longstop.Action, v time.Duration) { a.Launch.At = ago(v) }),
			axis([]longstop.OwnerKind{longstop.OwnerAuto, longstop.OwnerNone}, func(a *longstop.Action, v longstop.OwnerKind) { a.Request.Owner = v }),
			axis(append(slices.Clone(lifecycle.Workloads.States), ""), func(a *longstop.Action, v longstop.WorkloadState) { a.Workload.State = v }),
			axis(cancels, func(a *longstop.Action, v longstop.CancelState) { a.Cancel.State = v }),
			axis(observations, func(a *longstop.Action, v *longstop.Observation) { a.Observation = v }),
			axis(results, func(a *longstop.Action, v *longstop.Result) { a.Workload.Result = v }),
			axis([]*bool{nil, ptr(true), ptr(false)}, func(a *longstop.Action, v *bool) { a.Workload.Boundary.Empty = v }),
			axis([]int{0, 1}, func(a *longstop.Action, n int) { a.Workload.Released = make([]longstop.Process, n) }),
			axis(losses, func(a *longstop.Action, v longstop.Workload) {
				a.Workload.LostBecause, a.Workload.EmptyProven = v.LostBecause, v.EmptyProven
			}),
		) {
			if !yield(a) {
				return
			}
		}
	}
}

// axis is one way in which actions differ.
func axis[T any](values []T, set func(*longstop.Action, T)) func(*longstop.Action, func() bool) bool {
	return func(a *longstop.Action, then func() bool) bool {
		for _, v := range values {
			set(a, v)
			if !then() {
				return false
			}
		}
		return true
	}
}

func product(axes ...func(*longstop.Action, func() bool) bool) iter.Seq[*longstop.Action] {
	return func(yield func(*longstop.Action) bool) {
		a := &longstop.Action{ID: "act_1", Host: "h"}
		var along func(i int) bool
		along = func(i int) bool {
			if i == len(axes) {
				return yield(a)
			}
			return axes[i](a, func() bool { return along(i + 1) })
		}
		along(0)
	}
}

// broken says which law a verdict breaks, given the facts.
func broken(a *longstop.Action, v lifecycle.Verdict) string {
	w := &a.Workload
	empty := w.Boundary.Empty != nil && *w.Boundary.Empty
	accepted := a.Launch.State == longstop.LaunchAccepted
	exit := w.Result != nil && w.Result.ExitCode != nil && w.Result.Signal == ""
	switch {
	case !slices.Contains([]longstop.Alive{longstop.AliveYes, longstop.AliveNo, longstop.AliveUnknown}, v.Alive):
		return "alive is no answer"
	case (v.Outcome == longstop.OutcomeUnknown) != (v.UnknownBecause != ""):
		return "law 3: an unknown has a reason, and nothing else has"
	}
	switch v.Outcome {
	case longstop.OutcomeSucceeded:
		if !accepted || w.State != longstop.WorkloadFinished || !exit || *w.Result.ExitCode != 0 {
			return "law 2: succeeded without a finished record of exit 0"
		}
	case longstop.OutcomeFailed:
		if !accepted || w.State != longstop.WorkloadFinished || w.Result == nil || exit && *w.Result.ExitCode == 0 {
			return "law 2: failed without a finished record that says so"
		}
	case longstop.OutcomeCancelled:
		if !accepted || w.State != longstop.WorkloadCancelled || !empty {
			return "law 6: cancelled without an empty boundary"
		}
	case longstop.OutcomeNotStarted:
		refused := a.Launch.State == longstop.LaunchNotAttempted && (a.Approval.State == longstop.ApprovalDenied || a.Approval.State == longstop.ApprovalRevoked)
		if a.Launch.State != longstop.LaunchRejected && !refused && (!accepted || w.State != longstop.WorkloadLaunchFailed) {
			return "law 5: not started, and a submit may be under way"
		}
	case longstop.OutcomePending, longstop.OutcomeUnknown:
	default:
		return "outcome is no answer"
	}
	if v.Alive == longstop.AliveNo && accepted && a.Request.Owner != longstop.OwnerNone {
		left := len(w.Released) > 0 || w.Boundary.Empty != nil && !empty
		switch {
		case w.State == longstop.WorkloadFinished && left, w.State == longstop.WorkloadCancelled && !empty:
			return "law 6: not alive, and something may be left"
		case w.State == longstop.WorkloadLost && w.LostBecause != longstop.Rebooted && !w.EmptyProven:
			return "law 6: not alive, and nobody has proven it"
		case !w.State.Final() && w.State != longstop.WorkloadNone && w.State != longstop.WorkloadQueued:
			return "not alive, and it is running"
		}
	}
	return ""
}

// laws tries a property on every combination of facts.
func laws(t *testing.T, property func(a *longstop.Action, v lifecycle.Verdict) string) {
	t.Helper()
	t.Parallel()
	bad := 0
	for a := range everyAction() {
		v := lifecycle.Judge(a, now, stale)
		if why := property(a, v); why != "" {
			t.Errorf("%s: %+v of %s", why, v, facts(a))
			if bad++; bad == 10 {
				t.Fatal("and more")
			}
		}
	}
}

func facts(a *longstop.Action) string {
	o := "never seen"
	if a.Observation != nil {
		o = fmt.Sprintf("%+v", *a.Observation)
	}
	return fmt.Sprintf("approval %s, launch %s, workload %+v, cancel %s, owner %s, %s",
		a.Approval.State, a.Launch.State, a.Workload, a.Cancel.State, a.Request.Owner, o)
}

func TestLaws2And5And6HoldForEveryCombinationOfFacts(t *testing.T) { laws(t, broken) }

func TestLaw1TheSSHCommandIsNoEvidence(t *testing.T) {
	sayings := []longstop.SSHCommand{{State: longstop.SSHExited, Status: ptr(0)}, {State: longstop.SSHExited, Status: ptr(255)},
		{State: longstop.SSHSignaled, Signal: "KILL"}, {State: longstop.SSHNoStatus}, {State: longstop.SSHLost}, {State: longstop.SSHCarried}}
	n := 0
	laws(t, func(a *longstop.Action, v lifecycle.Verdict) string {
		a.SSHCommand = sayings[n%len(sayings)]
		n++
		if with := lifecycle.Judge(a, now, stale); with != v {
			return fmt.Sprintf("ssh_command %s made it %+v", a.SSHCommand.State, with)
		}
		a.SSHCommand = longstop.SSHCommand{}
		return ""
	})
}

// However long nobody looks: what is unknown stays so, for the same reason; what was pending may
// become unknown; and nothing becomes an outcome.
func TestLaw3UnknownNeverDecays(t *testing.T) {
	ages := []time.Duration{time.Minute, 24 * time.Hour, 10 * 365 * 24 * time.Hour}
	n := 0
	laws(t, func(a *longstop.Action, v lifecycle.Verdict) string {
		n++
		later := lifecycle.Judge(a, now.Add(ages[n%len(ages)]), stale)
		switch {
		case v.Outcome == longstop.OutcomeUnknown && (later.Outcome != v.Outcome || later.UnknownBecause != v.UnknownBecause):
			return fmt.Sprintf("decayed to %+v", later)
		case v.Outcome == longstop.OutcomePending && later.Outcome != longstop.OutcomePending && later.Outcome != longstop.OutcomeUnknown:
			return fmt.Sprintf("time alone made it %+v", later)
		case v.Outcome != longstop.OutcomePending && later.Outcome != v.Outcome:
			return fmt.Sprintf("time alone made it %+v", later)
		case later.Alive != v.Alive && later.Alive != longstop.AliveUnknown:
			return fmt.Sprintf("time alone made it %+v", later)
		}
		return ""
	})
}

func TestLaw10GivingUpWaitingChangesNothing(t *testing.T) {
	laws(t, func(a *longstop.Action, v lifecycle.Verdict) string {
		a.Waits = []longstop.Wait{{By: "somebody", GaveUpAt: ago(0)}}
		defer func() { a.Waits = nil }()
		if after := lifecycle.Judge(a, now, stale); after != v {
			return fmt.Sprintf("a wait made it %+v", after)
		}
		return ""
	})
}

func TestLaw9ProjectTouchesNothingAndExitStatusIsTotal(t *testing.T) {
	n := 0
	laws(t, func(a *longstop.Action, v lifecycle.Verdict) string {
		if n++; n%17 != 0 {
			return ""
		}
		a.Workload.Lease = &longstop.Lease{State: longstop.LeaseActive, ExpiresAt: ago(time.Minute)}
		defer func() { a.Workload.Lease = nil }()
		var lease, before = *a.Workload.Lease, *a
		p := lifecycle.Project(*a, now, stale)
		if !reflect.DeepEqual(before, *a) || lease != *a.Workload.Lease {
			return "Project changed the action"
		}
		if p.Alive != v.Alive || p.Outcome != v.Outcome || p.UnknownBecause != v.UnknownBecause || p.Next != v.Next || p.Retry == nil {
			return fmt.Sprintf("Project says %+v", p)
		}
		status := lifecycle.ExitStatus(&p)
		if status < 0 || status > 255 || (status == 0) != (p.Outcome == longstop.OutcomeSucceeded) {
			return fmt.Sprintf("exit status %d", status)
		}
		if p.Retry.Allowed && p.Outcome != longstop.OutcomeNotStarted {
			return "a retry of what is to happen once: " + p.Retry.Because
		}
		return ""
	})
}
