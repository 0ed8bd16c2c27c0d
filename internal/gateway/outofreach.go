package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/reconcile"
)

// errOver is why a launch goes no further that is over by what is written: nothing is left to note.
var errOver = errors.New("the launch is over")

// reach has dial connect to the host. What was approved is not over because nobody answers there for the moment:
// nothing was sent, the yes is not used, and it is good until its end. So it is tried again until then, or until the
// action is cancelled or the yes taken back. What only somebody's doing mends, a refusal, ends it at once, as it does
// what nobody approved: whoever asked is there, and asks again.
func (l *launching) reach(dial func() error) error {
	for tries := 0; ; tries++ {
		err := dial()
		if err == nil || l.made.Approval.State == longstop.ApprovalNotRequired {
			return err
		}
		if code := longstop.CodeOf(err); !code.OfTheWay() || code.Refusal() || l.h.ctx.Err() != nil {
			return err
		}
		if noted := l.noteOutOfReach(err); noted != nil {
			return noted
		}
		if over := l.rest(reconcile.Backoff(tries, l.h.seed())); over != nil {
			return over
		}
	}
}

// noteOutOfReach keeps why an approved action waits: once for each reason. Nobody's launch fails for want of that.
func (l *launching) noteOutOfReach(why error) error {
	code := longstop.CodeOf(why)
	words := fmt.Sprintf("approved, and %s is out of reach: %v. Nothing was sent; it is tried again until %s, when the approval ends",
		l.h.name, why, l.made.Approval.ExpiresAt.Local().Format("15:04:05"))
	noted := false
	a, err := l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if !unusedYes(&d.Action) || d.Launch.Because == string(code) {
			return nil
		}
		noted = true
		d.Launch.Because, d.Launch.Message, d.Launch.Hint = string(code), words, "longstop cancel "+string(d.ID)+" gives it up"
		d.note(journal.Unreachable, l.g.by, map[string]any{"code": code, "message": why.Error(), "approved_until": d.Approval.ExpiresAt})
		return nil
	})
	if err == nil && !unusedYes(&a) {
		return errOver
	}
	if noted {
		l.note(words + "; longstop cancel " + string(l.id) + " gives it up")
	}
	return nil
}

// rest waits before the host is tried again, and reports why it is not.
func (l *launching) rest(pause time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, pause)
	defer cancel()
	_, err := l.g.await(ctx, l.made, nil, func(a longstop.Action, _ bool) bool { return !unusedYes(&a) })
	switch {
	case l.h.ctx.Err() != nil:
		return errOver // the gateway is closing: the next one takes it up
	case err == nil:
		return errOver // cancelled, or taken back
	case l.ctx.Err() == nil:
		<-ctx.Done() // also where the action could not be read
		return nil
	}
	for {
		_, err := l.g.change(l.h.ctx, l.id, func(d *draft) error {
			if !unusedYes(&d.Action) {
				return nil
			}
			return endApproval(d, l.g.by, fmt.Sprintf("%s was out of reach until the approval ended", l.h.name))
		})
		if err == nil {
			return errOver
		}
		select { // it is granted still, and nobody else ends it
		case <-time.After(time.Second):
		case <-l.h.ctx.Done():
			return errOver
		}
	}
}

// unusedYes reports whether an approver has said yes, and nothing came of it so far.
func unusedYes(a *longstop.Action) bool {
	return a.Approval.State == longstop.ApprovalGranted && a.Launch.State == longstop.LaunchNotAttempted
}
