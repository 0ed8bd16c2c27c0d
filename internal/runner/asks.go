package runner

import (
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/internal/wire"
)

// askVerb is what one process of this user's asks of another.
type askVerb string

const (
	askSubmit askVerb = "submit" // of a keeper
	askOwn    askVerb = "own"    // of a keeper, by an owner that a service manager started: its run
	askHold   askVerb = "hold"   // of a keeper: stay while this connection is open
	askHeal   askVerb = "heal"   // of a keeper: answer for runs that nobody answers for
	askCancel askVerb = "cancel" // of an owner, or of a keeper
	askRenew  askVerb = "renew"  // of an owner, or of a keeper
	askWatch  askVerb = "watch"  // of an owner: nothing; the connection ends when it does
)

// ask is one question on a socket of ours.
type ask struct {
	Verb   askVerb        `json:"verb"`
	RunID  longstop.RunID `json:"run_id,omitempty"`
	Submit *wire.Submit   `json:"submit,omitempty"`
	Login  *login         `json:"login,omitempty"`
	// Manager is whose unit the submitted run is to be in; empty: none. See place.
	Manager systemd.Kind        `json:"manager,omitempty"`
	Instead systemd.Kind        `json:"instead,omitempty"`
	Cancel  *wire.CancelRequest `json:"cancel,omitempty"`
	Until   longstop.BootTime   `json:"until,omitempty"`
	// Bypass says that the run's owner was asked and did not answer.
	Bypass bool `json:"bypass,omitempty"`
	// Yours asks a keeper of another binary, about a run that it has; else it answers nothing.
	Yours bool `json:"yours,omitempty"`
}

// reply answers an ask: first, for a cancel, that it was heard, then the last one.
type reply struct {
	Heard    bool               `json:"heard,omitempty"` // and acted upon; another reply follows
	Error    *longstop.Error    `json:"error,omitempty"`
	Record   []byte             `json:"record,omitempty"` // as signed
	Existing bool               `json:"existing,omitempty"`
	Living   []longstop.Process `json:"living,omitempty"` // of a cancelled run that is not over
	Refused  string             `json:"refused,omitempty"`
}

// heardWithin is how long somebody who is well may take to hear. Whoever does not is bypassed.
const heardWithin = 5 * time.Second

// serve answers one connection to an owner.
func (c *custody) serve(l *link) {
	defer l.close()
	l.file.SetReadDeadline(time.Now().Add(heardWithin))
	var a ask
	if err := l.receive(&a); err != nil {
		return
	}
	l.file.SetReadDeadline(time.Time{})
	c.answer(l, a)
}

// answer answers an ask about the run that c answers for.
func (c *custody) answer(l *link, a ask) {
	switch {
	case a.Verb == askCancel && a.Cancel != nil:
		c.cancel(l, *a.Cancel)
	case a.Verb == askRenew:
		l.send(reply{Refused: c.renewed(a.Until), Record: c.newest()})
	case a.Verb == askWatch:
		select {
		case <-l.closed():
		case <-c.done:
		}
	default:
		l.send(reply{Error: &longstop.Error{Code: longstop.CodeUsage, Message: "an owner knows no verb " + quoted(string(a.Verb))}})
	}
}

// cancel stops the run, says so once the first signals are sent, and answers when it is over or the
// asker's wait is.
func (c *custody) cancel(l *link, request wire.CancelRequest) {
	cause := request.Cause
	if cause == "" {
		cause = longstop.CauseRequest
	}
	c.do(func() {
		grace := c.grace()
		if request.GraceMS >= 0 {
			grace = time.Duration(request.GraceMS) * time.Millisecond
		}
		c.ask(cause, grace)
		c.look()
	})
	if l.send(reply{Heard: true}) != nil {
		return
	}
	if request.WaitMS > 0 {
		select {
		case <-c.done:
		case <-time.After(time.Duration(request.WaitMS) * time.Millisecond):
		}
	}
	var last reply
	c.do(func() { last.Living = c.left() })
	last.Record = c.newest()
	l.send(last)
}

// left is who still lives of a run that is being stopped, and why.
func (c *custody) left() []longstop.Process {
	if c.over() {
		return nil
	}
	all := c.living()
	for i, p := range all {
		if c.stop != nil && boundary.BootNow() >= c.stop.killAt {
			all[i].Why = whyAlive(p, c.stop.met[boundary.Identity{PID: p.PID, Start: p.StartTime}])
		}
	}
	return append(all, c.within.doubts()...)
}

// renewed moves the end of the run's lease, or says why not. What is stale changes nothing: an
// instant that has passed, or one that is not later than the lease has already. A lease that ran out
// does not come back.
func (c *custody) renewed(until longstop.BootTime) (refused string) {
	refused = "the run is over"
	c.do(func() {
		now := boundary.BootNow()
		switch {
		case c.over():
		case c.rec.Lifetime != longstop.Leased || c.rec.LeaseUntil == 0:
			refused = "the run has no lease"
		case c.stop != nil && c.stop.cause != "":
			refused = "the run is being stopped: " + string(c.stop.cause)
		case now >= c.rec.LeaseUntil:
			refused = "the lease has run out"
		case until <= now:
			refused = "the instant has passed"
		case until <= c.rec.LeaseUntil: // asked twice, or late: the lease holds as it is
			refused = ""
		default:
			refused = ""
			c.rec.LeaseUntil, c.rec.LeaseRenewed = until, longstop.At(time.Now())
			c.write(false)
		}
	})
	return refused
}
