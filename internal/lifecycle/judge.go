package lifecycle

import (
	"time"

	"github.com/longstop/longstop"
)

// Verdict answers the two questions that people ask, and says what to do next.
type Verdict struct {
	Alive          longstop.Alive
	Outcome        longstop.Outcome
	UnknownBecause longstop.UnknownReason // with outcome unknown alone
	Next           string                 // a command to type, or empty: nothing is left to do
}

// Judge computes the verdict from the facts. It is total: whatever the facts are, each question
// has an answer, and where they do not fit together the answer is unknown. now is the gateway's
// clock; an observation older than stale (three heartbeats) is no sight of a run that may change.
func Judge(a *longstop.Action, now time.Time, stale time.Duration) Verdict {
	v := judge(a, now, stale)
	v.Next = next(a, v)
	return v
}

func judge(a *longstop.Action, now time.Time, stale time.Duration) Verdict {
	switch a.Launch.State {
	case longstop.LaunchNotAttempted:
		switch a.Approval.State {
		case longstop.ApprovalDenied, longstop.ApprovalExpired, longstop.ApprovalRevoked:
			return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeNotStarted}
		}
		return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomePending}
	case longstop.LaunchRejected:
		return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeNotStarted}
	}
	if a.Request.Owner == longstop.OwnerNone {
		return unknown(longstop.AliveUnknown, longstop.NoOwner)
	}
	switch a.Launch.State {
	case longstop.LaunchAccepted:
		return judgeWorkload(a, now, stale)
	case longstop.LaunchSent:
		// Somebody is still waiting for the answer, unless that was so long ago that nobody is.
		if fresh(a.Launch.At, now, stale) {
			return Verdict{Alive: longstop.AliveUnknown, Outcome: longstop.OutcomePending}
		}
	}
	return unknown(longstop.AliveUnknown, unansweredSubmit(a))
}

// unansweredSubmit is why a launch is unknown. That the host is silent is what the word means; that
// it answered, and with what cannot be used, is said instead.
func unansweredSubmit(a *longstop.Action) longstop.UnknownReason {
	if o := a.Observation; o != nil {
		switch o.Because {
		case longstop.HostMismatch, longstop.UnreadableRecord, longstop.RecordExpired:
			return o.Because
		}
	}
	return longstop.UnansweredSubmit
}

func judgeWorkload(a *longstop.Action, now time.Time, stale time.Duration) Verdict {
	w := &a.Workload
	switch w.State {
	case longstop.WorkloadFinished:
		return judgeFinished(a, now, stale)
	case longstop.WorkloadCancelled:
		if !proven(w.Boundary.Empty) {
			return unknown(longstop.AliveUnknown, longstop.UnreadableRecord)
		}
		return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeCancelled}
	case longstop.WorkloadLaunchFailed:
		return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeNotStarted}
	case longstop.WorkloadLost:
		switch {
		case w.LostBecause == longstop.Rebooted:
			return unknown(longstop.AliveNo, longstop.Rebooted)
		case w.EmptyProven:
			return unknown(longstop.AliveNo, longstop.OwnerLost)
		}
		return unknown(longstop.AliveUnknown, longstop.OwnerLost)
	}
	v := Verdict{Alive: longstop.AliveYes, Outcome: longstop.OutcomePending}
	switch w.State {
	case longstop.WorkloadNone, longstop.WorkloadQueued:
		v.Alive = longstop.AliveNo
	case longstop.WorkloadStarting, longstop.WorkloadRunning, longstop.WorkloadLingering,
		longstop.WorkloadCancelling, longstop.WorkloadOrphaned:
	default: // of a later release
		return unknown(longstop.AliveUnknown, longstop.UnreadableRecord)
	}
	if !Seen(a.Observation, now, stale) || dueSince(a, now) {
		return unknown(longstop.AliveUnknown, whyUnseen(a))
	}
	return v
}

// dueSince reports whether the run should have been stopped by now and nobody has looked since: a
// sight from before its lease or deadline passed says nothing of after.
func dueSince(a *longstop.Action, now time.Time) bool {
	passed := func(at longstop.Time) bool {
		return !at.IsZero() && now.Sub(at.Time) > time.Second && a.Observation.At.Before(at.Time)
	}
	return passed(a.Workload.DeadlineAt) || a.Workload.Lease != nil && passed(a.Workload.Lease.ExpiresAt)
}

// judgeFinished: the outcome is the launcher's, whatever became of what it released. A boundary
// that is not empty, with nothing named in it, is no finish. Where a preflight found nothing to do the
// work's end is what was asked for, though it did not run.
func judgeFinished(a *longstop.Action, now time.Time, stale time.Duration) Verdict {
	w := &a.Workload
	if w.NothingToDo() && w.Result == nil && proven(w.Boundary.Empty) {
		return Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeSucceeded}
	}
	left := w.Boundary.Empty != nil && !*w.Boundary.Empty && len(w.Released) == 0
	if left || w.Result == nil || (w.Result.ExitCode == nil) == (w.Result.Signal == "") {
		return unknown(longstop.AliveUnknown, longstop.UnreadableRecord)
	}
	v := Verdict{Alive: longstop.AliveNo, Outcome: longstop.OutcomeFailed}
	if w.Result.ExitCode != nil && *w.Result.ExitCode == 0 {
		v.Outcome = longstop.OutcomeSucceeded
	}
	switch {
	case len(w.Released) > 0 && Seen(a.Observation, now, stale):
		v.Alive = longstop.AliveYes
	case len(w.Released) > 0:
		v.Alive = longstop.AliveUnknown
	}
	return v
}

// whyUnseen is why a run that may be going on is not seen now.
func whyUnseen(a *longstop.Action) longstop.UnknownReason {
	because := longstop.Unreachable
	if a.Observation != nil && a.Observation.Because != "" {
		because = a.Observation.Because
	}
	if because == longstop.Unreachable && a.Cancel.State == longstop.CancelUnconfirmed {
		return longstop.UnansweredCancel
	}
	return because
}

// Seen reports whether an observation is a sight of the host now: live, with nothing in the way, and
// not older than stale. One from the future is no sight either: the clock was set.
func Seen(o *longstop.Observation, now time.Time, stale time.Duration) bool {
	return o != nil && o.Source == longstop.Live && o.Because == "" && fresh(o.At, now, stale)
}

func fresh(at longstop.Time, now time.Time, stale time.Duration) bool {
	age := now.Sub(at.Time)
	return !at.IsZero() && age <= stale && age >= -stale
}

func unknown(alive longstop.Alive, because longstop.UnknownReason) Verdict {
	return Verdict{Alive: alive, Outcome: longstop.OutcomeUnknown, UnknownBecause: because}
}

func proven(claim *bool) bool { return claim != nil && *claim }

// next is the command that a person would type next.
func next(a *longstop.Action, v Verdict) string {
	id := string(a.ID)
	if a.Removed != nil { // there is no output to read
		return "longstop show " + id
	}
	switch v.Outcome {
	case longstop.OutcomePending:
		if a.Workload.State == longstop.WorkloadCancelling && len(a.Workload.Survivors) > 0 {
			return "longstop inspect " + id
		}
		return "longstop wait " + id
	case longstop.OutcomeUnknown:
		switch {
		case v.UnknownBecause == longstop.HostMismatch, v.UnknownBecause == longstop.AccessRefused:
			return "longstop host check " + a.Host
		case v.UnknownBecause == longstop.NoOwner:
			return "longstop show " + id
		case a.Launch.State == longstop.LaunchAccepted && a.Workload.State.Final():
			// The host has said all it ever will: what the work left behind is what there is.
			return "longstop logs " + id
		}
		return "longstop reconcile " + id
	case longstop.OutcomeNotStarted:
		return "longstop show " + id
	}
	switch v.Alive {
	case longstop.AliveYes:
		return "longstop inspect " + id
	case longstop.AliveUnknown:
		return "longstop reconcile " + id
	}
	return "longstop logs " + id
}
