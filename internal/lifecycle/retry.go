package lifecycle

import "github.com/longstop/longstop"

// Retry says whether the same work may be asked for again as a new action, and why. It reads the
// verdict of a projected action. preflight says that the new attempt is given a script of its own that
// is asked first, on the host, and lets nothing begin unless the work is still to be done.
//
// The order is the rule: one attempt follows another, never two; what did not happen may happen; what
// only reads always may; what may still be running may not, whoever asks; and then the effect decides.
func Retry(a *longstop.Action, preflight bool) longstop.Retry {
	no := func(because string) longstop.Retry { return longstop.Retry{Because: because} }
	yes := func(because string) longstop.Retry { return longstop.Retry{Allowed: true, Because: because} }
	effect := a.Request.Effect
	switch {
	case a.RetriedBy != "":
		return no("it was retried: " + string(a.RetriedBy) + " is its next attempt")
	case a.Outcome == longstop.OutcomeNotStarted:
		return yes("nothing was started")
	case a.Workload.NothingToDo():
		return yes("the command was not run: its preflight found nothing to do")
	case effect == longstop.EffectRead:
		return yes("effect read: it may always run again")
	case a.Outcome == longstop.OutcomePending:
		return no("it has not ended")
	case a.Alive == longstop.AliveYes:
		return no("some of it is still running")
	case a.Outcome == longstop.OutcomeUnknown && a.Resolution != nil:
		return resolvedRetry(a.Resolution.Outcome, effect)
	case mayStillRun(a):
		return no("some of it may still be running: outcome " + unknownWords(a))
	case effect == longstop.EffectIdempotent:
		return yes("effect idempotent: it may run again under the same effect token")
	case a.Outcome == longstop.OutcomeSucceeded:
		return no("effect once, and it ran: succeeded")
	case askedWhetherToDo(a):
		return yes("its preflight, asked afterwards, says that it is still to be done")
	case preflight:
		return yes("the preflight given is asked first, and lets nothing begin that is not still to be done")
	case a.Outcome == longstop.OutcomeUnknown:
		return no("effect once, outcome " + unknownWords(a))
	}
	return no("effect once, and it ran: " + string(a.Outcome))
}

// resolvedRetry is what a reviewer's word about an unknown allows.
func resolvedRetry(says longstop.Outcome, effect longstop.Effect) longstop.Retry {
	switch {
	case says == longstop.OutcomeNotStarted:
		return longstop.Retry{Allowed: true, Because: "a reviewer says that it did not happen"}
	case effect == longstop.EffectIdempotent:
		return longstop.Retry{Allowed: true, Because: "effect idempotent, and a reviewer says that it is over: " + string(says)}
	}
	return longstop.Retry{Because: "effect once, and a reviewer says that it happened: " + string(says)}
}

// mayStillRun reports whether nobody can say that nothing of the work is alive. Of a direct action the
// end of its channel says so: nothing else ever will.
func mayStillRun(a *longstop.Action) bool {
	if a.Request.Owner == longstop.OwnerNone {
		s := a.SSHCommand.State
		return s != longstop.SSHExited && s != longstop.SSHSignaled
	}
	return a.Alive != longstop.AliveNo
}

// askedWhetherToDo reports whether the last preflight that was run afterwards let the work go on. One that
// an agent made up is none.
func askedWhetherToDo(a *longstop.Action) bool {
	for i := len(a.Checks) - 1; i >= 0; i-- {
		if c := a.Checks[i]; c.Kind == longstop.InquiryPreflight && !c.Given {
			return c.State == longstop.CheckPassed
		}
	}
	return false
}

func unknownWords(a *longstop.Action) string {
	if a.UnknownBecause == "" {
		return string(a.Outcome)
	}
	return string(a.Outcome) + " (" + string(a.UnknownBecause) + ")"
}

// BeforeRetry is what to do about a retry that is not allowed: the next command.
func BeforeRetry(a *longstop.Action) string {
	id := string(a.ID)
	switch {
	case a.RetriedBy != "":
		return "longstop retry " + string(a.RetriedBy)
	case a.Outcome == longstop.OutcomePending:
		return "longstop wait " + id + ", or longstop cancel " + id + " first"
	case a.Outcome == longstop.OutcomeSucceeded:
		return "longstop run starts it as new work, if that is what is wanted"
	case a.Alive == longstop.AliveYes, a.Outcome != longstop.OutcomeUnknown && a.Alive == longstop.AliveUnknown:
		return "longstop cancel " + id
	case a.Unresolved() && a.Request.Owner != longstop.OwnerNone:
		return a.Next
	case mayStillRun(a):
		return "look on the host, then longstop resolve " + id
	}
	return "longstop reconcile " + id + " --preflight asks the application; longstop resolve " + id + " is a reviewer's word"
}
