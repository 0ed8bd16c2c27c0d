package reconcile

import (
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

// escalate appends an Escalate where the unknown has lasted past its limit. A host that is out of
// reach leaves a submit or cancel unanswered, and that is the more pressing unknown.
func (c decision) escalate(steps []Step, because longstop.UnknownReason, message string) []Step {
	a, since := &c.action, longstop.At(c.now)
	if o := a.Observation; o != nil && o.Because != "" {
		since = o.Since
	}
	if because == longstop.Unreachable {
		switch {
		case a.Launch.State != longstop.LaunchAccepted:
			because, since = longstop.UnansweredSubmit, earlier(a.Launch.At, since)
		case cancelWanted(a.Cancel.State):
			because, since = longstop.UnansweredCancel, earlier(a.Cancel.At, since)
		}
	}
	if c.now.Sub(since.Time) < Limits[because] {
		return steps
	}
	return append(steps, Escalate{because, since, message})
}

func earlier(a, b longstop.Time) longstop.Time {
	if a.IsZero() || b.Before(a.Time) {
		return b
	}
	return a
}
