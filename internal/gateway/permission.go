package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// A launch that policy asks about waits for a person, in the hands in which it is. Only these have what is
// kept nowhere: the values of the environment, standard input, what a terminal is like.

// askApproval makes a new action wait for a person, as the policy wants.
func (g *Gateway) askApproval(d *draft, v policy.Verdict, digest string) {
	d.Approval = longstop.Approval{State: longstop.ApprovalPending, ExpiresAt: longstop.At(d.at.Add(v.ApprovalTTL)),
		Policy: digest, Rule: v.Rule, Because: v.Reason}
	d.Approval.Binds = approver.Content([]byte(g.boundOf(&d.Action).String()))
	d.note(journal.ApprovalAsked, g.by, map[string]any{"rule": v.Rule, "reason": v.Reason, "policy": digest,
		"binds": d.Approval.Binds, "expires_at": d.Approval.ExpiresAt})
}

// permitted waits until the launch may go on, and reports whether it may. What it goes on with is the
// approver's wish, until the approval's end: whoever asked may have gone.
func (l *launching) permitted() bool {
	if l.made.Approval.State == longstop.ApprovalNotRequired {
		return true
	}
	for {
		a, err := l.g.await(l.h.ctx, l.made, nil, func(a longstop.Action, _ bool) bool {
			return !waitsForApproval(&a) || !l.g.now().Before(a.Approval.ExpiresAt.Time)
		})
		if err != nil {
			return false // the gateway is closing: the next one takes it up
		}
		if !waitsForApproval(&a) {
			if a.Approval.State == longstop.ApprovalGranted && a.Launch.State == longstop.LaunchNotAttempted {
				return true
			}
			dropStdin(l.want.stdin)
			return false
		}
		if _, err := l.g.change(l.h.ctx, l.id, func(d *draft) error { return expire(d, l.g.by) }); err != nil {
			select { // it is pending still, and looked at again
			case <-time.After(time.Second):
			case <-l.h.ctx.Done():
			}
		}
	}
}

// grant finds what permits the launch and refuses a request that is not the one that was asked about.
func (l *launching) grant(ctx context.Context) (*grant, error) {
	if l.made.Approval.State == longstop.ApprovalNotRequired {
		return nil, nil
	}
	a, ok := l.h.kept(l.id)
	if !ok {
		return nil, nil // over meanwhile
	}
	if _, now := l.g.judge(policy.Question{Host: a.Host, By: a.RequestedBy, Request: a.Request}); now != a.Approval.Policy {
		return nil, notApproved("the policy is another one than when it was asked for")
	}
	if now := l.g.digest(l.h.shown(), &l.want.request, l.want.env); now != a.Request.Digest {
		return nil, notApproved("the request, the host or its key are not those that were asked about")
	}
	return l.g.granted(ctx, l.id)
}

// notPermitted is the error for an action that an approver, or the clock, kept from its launch; nil for
// any other.
func notPermitted(a *longstop.Action) error {
	if a.Launch.State != longstop.LaunchNotAttempted {
		return nil
	}
	e := &longstop.Error{Code: longstop.CodeDenied, ActionID: a.ID, Hint: "longstop show " + string(a.ID)}
	switch a.Approval.State {
	case longstop.ApprovalDenied:
		e.Message = fmt.Sprintf("%s said no: %s; nothing was sent", a.Approval.By, a.Approval.Reason)
	case longstop.ApprovalRevoked:
		e.Message = fmt.Sprintf("the approval was taken back: %s; nothing was sent", a.Approval.Reason)
	case longstop.ApprovalExpired:
		e.Code = longstop.CodeExpired
		if a.Approval.By != "" {
			e.Message = fmt.Sprintf("%s approved it, and it could not be launched until %s; nothing was sent", a.Approval.By,
				a.Approval.ExpiresAt.Local().Format("15:04:05"))
			if a.Approval.Reason != "" {
				e.Message += ": " + a.Approval.Reason
			}
			break
		}
		e.Message = fmt.Sprintf("nobody approved it until %s, which is not a no; nothing was sent", a.Approval.ExpiresAt.Local().Format("15:04:05"))
	default:
		return nil
	}
	return e
}

// unsent settles what an earlier gateway had been asked for and not sent. The intent to send is durable
// before the first byte, so without it nothing was. What nobody is left to send it for is over; what waits
// for a person goes on waiting, unless what it needs was in that gateway's memory alone.
func (g *Gateway) unsent(pending []sqlite.Pending) error {
	var changes []change
	for _, p := range pending {
		a := p.Action
		if a.Launch.State != longstop.LaunchNotAttempted {
			continue
		}
		why := "the gateway stopped before anything was sent"
		if a.Approval.State == longstop.ApprovalPending || a.Approval.State == longstop.ApprovalGranted {
			h, lost := g.hosts[a.Host], lostWithMemory(&a.Request)
			switch {
			case lost == "" && h != nil:
				g.resume(h, p)
				continue
			case lost != "":
				why = "the gateway was restarted while it waited for approval, and " + lost + " is kept in memory alone: ask again"
			}
		}
		changes = append(changes, change{a.ID, func(d *draft) error { return rejectDraft(d, g.by, longstop.CodeExpired, why) }})
	}
	if len(changes) == 0 {
		return nil
	}
	_, err := g.changeAll(g.ctx, changes)
	return err
}

// lostWithMemory names what a restart of the gateway takes from a request.
func lostWithMemory(r *longstop.Request) string {
	var lost []string
	if len(r.Env) > 0 {
		lost = append(lost, "the environment ("+strings.Join(r.Env, ", ")+")")
	}
	if r.StdinBytes > 0 {
		lost = append(lost, "standard input")
	}
	if r.PTY {
		lost = append(lost, "what its terminal is like")
	}
	if r.Redacted {
		lost = append(lost, "what was taken out of the request as secret")
	}
	return strings.Join(lost, " and ")
}

// resume takes a launch that waits for approval back into hands.
func (g *Gateway) resume(h *host, p sqlite.Pending) {
	a := p.Action
	l := &launching{g: g, h: h, ctx: h.ctx, done: make(chan struct{}), id: a.ID, made: a, secret: p.Secret,
		want: &asked{request: a.Request, kept: a.Request, key: a.IdempotencyKey, session: a.SessionID}}
	h.hold(a, p.Secret)
	if a.Request.Owner == longstop.OwnerNone {
		l.want.command, _ = directCommand(&a.Request, nil) // it was made of the same before
	}
	g.goes(l.run)
}
