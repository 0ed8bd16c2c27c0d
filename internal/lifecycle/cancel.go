package lifecycle

import "github.com/longstop/longstop"

// wanted reports whether a cancel was asked for and is not over.
func wanted(s longstop.CancelState) bool {
	switch s {
	case longstop.CancelRequested, longstop.CancelDelivered, longstop.CancelUnconfirmed:
		return true
	}
	return false
}

// observeCancel moves a cancel that was asked for to where the record shows it. What nobody asked
// for here (a lease, a deadline, a signal on the host) is the record's cause and no cancel.
func observeCancel(a *longstop.Action, rec longstop.Record) {
	c := &a.Cancel
	if !wanted(c.State) {
		return
	}
	if log := rec.Cancel; log != nil {
		if !log.SignalledAt.IsZero() {
			c.Signal = log.Signal
		}
		c.KilledAt = log.KilledAt
	}
	to := cancelShown(a, rec)
	if to == "" || to == c.State {
		return
	}
	c.State = must(walk(Cancels, c.State, to))
	c.Because = ""
	if to == longstop.CancelUnconfirmed {
		c.Because = "the run is lost, and nobody can prove that nothing is left"
	}
}

// cancelShown is the state of an asked cancel that the record proves, or none.
func cancelShown(a *longstop.Action, rec longstop.Record) longstop.CancelState {
	log, w := rec.Cancel, &a.Workload
	switch w.State {
	case longstop.WorkloadCancelled:
		return longstop.CancelConfirmed // with its boundary empty, as CheckRecord saw
	case longstop.WorkloadLaunchFailed:
		return longstop.CancelTooLate
	case longstop.WorkloadLost:
		if w.EmptyProven || w.LostBecause == longstop.Rebooted {
			return longstop.CancelConfirmed
		}
		return longstop.CancelUnconfirmed
	case longstop.WorkloadFinished:
		signalled := log != nil && !log.SignalledAt.IsZero() && log.SignalledAt.Before(rec.FinishedAt.Time)
		switch {
		case len(w.Released) > 0:
			return "" // what it released can still be stopped
		case len(rec.Released) > 0, signalled:
			return longstop.CancelConfirmed
		}
		return longstop.CancelTooLate
	}
	// Being stopped for another cause is no sign that the host has heard of this one.
	stopping := w.State == longstop.WorkloadCancelling || log != nil
	if stopping && (rec.Cause == "" || rec.Cause == longstop.CauseRequest) {
		return longstop.CancelDelivered
	}
	return ""
}
