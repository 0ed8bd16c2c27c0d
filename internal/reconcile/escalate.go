package reconcile

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// Limits is how long an unknown may last before it is brought to people, by its reason. What no
// waiting can mend is said at once. It goes on being asked about all the same.
var Limits = map[longstop.UnknownReason]time.Duration{
	longstop.UnansweredSubmit: 2 * time.Minute,
	longstop.UnansweredCancel: 2 * time.Minute,
	longstop.Unreachable:      15 * time.Minute,
	longstop.AccessRefused:    0,
	longstop.OwnerLost:        0,
	longstop.Rebooted:         0,
	longstop.HostMismatch:     0,
	longstop.UnreadableRecord: 0,
	longstop.RecordExpired:    0,
	longstop.NoOwner:          0,
}

// Pressing is what of an action is to be brought to people by now: an unknown that has lasted past its
// limit and that nobody has resolved, and processes that cannot be killed. a is as people see it: with
// its verdict, and with the host's present sight.
func Pressing(a *longstop.Action, now time.Time) []longstop.Escalation {
	var list []longstop.Escalation
	if survivors(a) {
		list = append(list, longstop.Escalation{Because: longstop.SurvivorsLeft, Message: named(a.Workload.Survivors), Since: a.Cancel.KilledAt})
	}
	if !a.NeedsPeople() {
		return list
	}
	because, since := lasting(a)
	if since.IsZero() {
		since = longstop.At(now)
	}
	if now.Sub(since.Time) < Limits[because] {
		return list
	}
	message := ""
	if o := a.Observation; o != nil && o.Because != "" {
		message = o.Message
	}
	return append(list, longstop.Escalation{Because: longstop.EscalationReason(because), Message: message, Since: since})
}

// Over reports whether what was brought to people for a reason is over. An unknown is one unknown,
// whatever reasons follow each other: they end together.
func Over(a *longstop.Action, because longstop.EscalationReason) bool {
	if because == longstop.SurvivorsLeft {
		return !survivors(a)
	}
	return !a.NeedsPeople()
}

// lasting is the reason of an unknown and since when it lasts. A host that is out of reach leaves a
// submit or cancel unanswered, and that is the more pressing unknown.
func lasting(a *longstop.Action) (longstop.UnknownReason, longstop.Time) {
	var since longstop.Time
	if o := a.Observation; o != nil && o.Because != "" {
		since = o.Since
	} else if o != nil {
		since = o.At
	}
	switch because := a.UnknownBecause; {
	case because == longstop.UnansweredSubmit:
		return because, earlier(a.Launch.At, since)
	case because == longstop.UnansweredCancel, because == longstop.Unreachable && cancelWanted(a.Cancel.State):
		return longstop.UnansweredCancel, earlier(a.Cancel.At, since)
	case a.Request.Owner == longstop.OwnerNone:
		return because, a.SSHCommand.At
	default:
		return because, since
	}
}

// earlier is the earlier of two times, of which either may be absent.
func earlier(a, b longstop.Time) longstop.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a.Time) {
		return b
	}
	return a
}

func survivors(a *longstop.Action) bool {
	return a.Workload.State == longstop.WorkloadCancelling && len(a.Workload.Survivors) > 0 && a.Resolution == nil
}

// mostNamed is how many processes a message names.
const mostNamed = 5

func named(list []longstop.Process) string {
	var who []string
	for _, p := range list[:min(len(list), mostNamed)] {
		name, _, _ := strings.Cut(p.Command, " ") // arguments are nobody's business out there
		who = append(who, fmt.Sprintf("%d %s: %s", p.PID, path.Base(name), p.Why))
	}
	if more := len(list) - mostNamed; more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	return "cannot be killed: " + strings.Join(who, ", ")
}
