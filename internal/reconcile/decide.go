package reconcile

import (
	"hash/fnv"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// Decide says what to do about an action, given what its host answered. Call it only while nobody
// waits for the action's submit: until then the launch is in the hands of whoever sent it.
//
// A launch that was sent and has no answer is looked for by its key; a key that has no run is
// burnt, for not found proves nothing about a submit under way; and only a key that is burnt, or has
// another run, says that nothing was started. A cancel that somebody wants is asked for wherever there is a run, for as
// long as the host has not shown its end.
func Decide(a longstop.Action, sight Sight, now time.Time) []Step {
	c := decision{action: a, now: now}
	seen, isRecord := sight.(Seen)
	switch {
	case a.Launch.State == longstop.LaunchRejected && isRecord:
		return []Step{ApplyRecord{seen}} // a contradiction, which Observe puts into words
	case a.Launch.State == longstop.LaunchRejected, a.Request.Owner == longstop.OwnerNone && a.Launch.State != longstop.LaunchNotAttempted:
		return nil
	case a.Launch.State == longstop.LaunchNotAttempted:
		return c.notSent()
	}
	switch s := sight.(type) {
	case NotAsked:
		return c.ask()
	case Seen:
		return c.seen(s)
	case Claimed:
		return c.claimed()
	case NotFound:
		return c.notFound()
	case Voided:
		return c.voided()
	case Taken:
		return c.taken(s.By)
	case Expired:
		return c.blind(c.accepted(nil), longstop.RecordExpired, "the run was removed from the host after its retention, and left no record")
	case Blocked:
		return c.blind(nil, s.Because, s.Message)
	}
	return c.ask()
}

// decision is one case: the facts before any step, and the time.
type decision struct {
	action longstop.Action
	now    time.Time
}

// notSent: what nobody sent in its time is never sent. Approvals run out by themselves.
func (c decision) notSent() []Step {
	if cancelWanted(c.action.Cancel.State) {
		return []Step{Reject{longstop.CodeExpired, "cancelled before anything was sent"}}
	}
	switch c.action.Approval.State {
	case longstop.ApprovalNotRequired, longstop.ApprovalConsumed:
		return []Step{Reject{longstop.CodeExpired, "never sent: whoever asked had gone, or the gateway stopped"}}
	}
	return nil
}

// ask: the question that the facts leave open.
func (c decision) ask() []Step {
	switch {
	case c.action.Launch.State != longstop.LaunchAccepted:
		return append(c.unanswered(), Find{})
	case settled(&c.action):
		return nil
	case c.cancelDue():
		return []Step{AskCancel{}}
	}
	return []Step{Look{}}
}

func (c decision) seen(s Seen) []Step {
	steps := []Step{ApplyRecord{s}}
	_, contradiction := lifecycle.Observe(&c.action, s.Record, s.Sighting)
	switch {
	case contradiction != "" && settled(&c.action):
		return steps
	case contradiction != "":
		return append(steps, c.askAgain())
	case settled(&c.action):
		return append(steps, Collect{})
	case c.cancelDue():
		steps = append(steps, AskCancel{})
	}
	return append(steps, c.askAgain())
}

func (c decision) claimed() []Step {
	steps := c.accepted(nil)
	if c.cancelDue() {
		steps = append(steps, AskCancel{})
	}
	return append(steps, c.askAgain())
}

// unborn is how long a run that was accepted may be without its first record.
const unborn = 2 * time.Minute

func (c decision) notFound() []Step {
	if a := &c.action; a.Launch.State == longstop.LaunchAccepted {
		if a.Workload.Writer == nil && c.now.Sub(a.Launch.At.Time) < unborn {
			return c.claimed() // the host does not tell a run without a record from none
		}
		return c.blind(nil, longstop.UnreadableRecord, "the host accepted the run and knows nothing of it any more")
	}
	reason := "no answer to the submit was read, and nobody waits for it"
	if cancelWanted(c.action.Cancel.State) {
		reason = "cancelled while nobody knew whether it had started"
	}
	return append(c.unanswered(), Void{reason})
}

func (c decision) voided() []Step {
	if c.action.Launch.State == longstop.LaunchAccepted {
		return c.blind(nil, longstop.UnreadableRecord, "the host accepted the run and calls its key void now")
	}
	unread := "no answer to the submit was read"
	if why := c.action.Launch.Message; why != "" {
		unread += " (" + why + ")"
	}
	return []Step{Reject{longstop.CodeKeyVoid, unread + "; its key is void now, so nothing was or will be started"}}
}

func (c decision) taken(by longstop.RunID) []Step {
	if c.action.Launch.State == longstop.LaunchAccepted {
		return c.blind(nil, longstop.UnreadableRecord, "the host accepted the run, and its key has another one now: "+string(by))
	}
	return []Step{Reject{longstop.CodeKeyConflict, "the key has " + string(by) + " there, which another gateway started; nothing was started for this action"}}
}

// blind: no sight of the run, for a reason. It is asked about for ever.
func (c decision) blind(steps []Step, because longstop.UnknownReason, message string) []Step {
	if settled(&c.action) {
		return steps
	}
	steps = append(append(steps, c.unanswered()...), CannotSee{because, message})
	lifecycle.CannotSee(&c.action, because, message, longstop.At(c.now))
	return append(steps, c.askAgain())
}

// unanswered: of a submit that was sent nobody awaits an answer now.
func (c decision) unanswered() []Step {
	if c.action.Launch.State == longstop.LaunchSent {
		return []Step{MarkUnknown{}}
	}
	return nil
}

func (c decision) accepted(steps []Step) []Step {
	if c.action.Launch.State != longstop.LaunchAccepted {
		return append(steps, Accept{})
	}
	return steps
}

// settled reports whether nothing that the host can still say matters: the run is final, and what
// it released is gone.
func settled(a *longstop.Action) bool {
	return a.Launch.State == longstop.LaunchAccepted && a.Workload.State.Final() && !a.ReleasedAlive()
}

func cancelWanted(s longstop.CancelState) bool {
	switch s {
	case longstop.CancelRequested, longstop.CancelDelivered, longstop.CancelUnconfirmed:
		return true
	}
	return false
}

// slack is how long after its grace a delivered cancel may take before it is asked for again: the
// host's own deadline for a hung owner is within it.
const slack = 30 * time.Second

// cancelDue reports whether the host is to be asked (again) to stop the run.
func (c decision) cancelDue() bool {
	switch cancel := &c.action.Cancel; cancel.State {
	case longstop.CancelRequested, longstop.CancelUnconfirmed:
		return true
	case longstop.CancelDelivered:
		grace := time.Duration(c.action.Request.GraceS * float64(time.Second))
		return c.now.Sub(cancel.At.Time) > grace+slack
	}
	return false
}

// askAgain: soon after the last sight, less often the longer there is none, never less often than
// every two minutes, or every fifteen seconds where somebody waits for a cancel.
func (c decision) askAgain() AskAgain {
	since := c.action.Launch.At
	if o := c.action.Observation; o != nil {
		since = o.At
		if o.Because != "" {
			since = o.Since
		}
	}
	most := mostBackoff
	if cancelWanted(c.action.Cancel.State) {
		most = 15 * time.Second
	}
	after := min(max(c.now.Sub(since.Time)/4, leastBackoff), most)
	h := fnv.New64a()
	h.Write([]byte(c.action.ID))
	return AskAgain{jitter(after, h.Sum64(), uint64(c.now.UnixNano()))}
}
