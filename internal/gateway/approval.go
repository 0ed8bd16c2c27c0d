package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Approvals lists the actions that wait for a person's yes or no, oldest first.
func (g *Gateway) Approvals(ctx context.Context) ([]longstop.Action, error) {
	g.mu.Lock()
	hosts := make([]*host, 0, len(g.hosts))
	for _, h := range g.hosts {
		hosts = append(hosts, h)
	}
	g.mu.Unlock()
	list := []longstop.Action{}
	for _, h := range hosts {
		for _, id := range h.open() {
			if a, ok := h.kept(id); ok && waitsForApproval(&a) {
				list = append(list, g.shown(a))
			}
		}
	}
	slices.SortFunc(list, func(a, b longstop.Action) int {
		if c := a.CreatedAt.Compare(b.CreatedAt.Time); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list, ctx.Err()
}

// waitsForApproval reports whether nothing but a person's yes keeps an action from its launch.
func waitsForApproval(a *longstop.Action) bool {
	return a.Approval.State == longstop.ApprovalPending && a.Launch.State == longstop.LaunchNotAttempted
}

// Approve grants what a pending action asks for. Its launch goes on at once, on behalf of who approved,
// whether whoever asked is still there or not.
func (g *Gateway) Approve(ctx context.Context, id string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeApprove, ActionID: longstop.ActionID(id)}
	return g.decide(ctx, about, by, proof, func(d *draft, e *Evidence) error {
		if err := holdsFor(d, e, g.boundOf(&d.Action)); err != nil {
			return err
		}
		d.Approval.By, d.Approval.At = "approver "+e.Approver, d.at
		d.note(journal.ApprovalGranted, d.Approval.By, map[string]any{"binds": d.Approval.Binds, "proof": e})
		return nil
	})
}

// Deny refuses what a pending action asks for, with a reason. It is never sent.
func (g *Gateway) Deny(ctx context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeDeny, ActionID: longstop.ActionID(id), Reason: reason}
	return g.decide(ctx, about, by, proof, func(d *draft, e *Evidence) error {
		d.Approval.By, d.Approval.At, d.Approval.Reason = "approver "+e.Approver, d.at, reason
		d.note(journal.ApprovalDenied, d.Approval.By, map[string]any{"reason": reason, "proof": e})
		return nil
	})
}

// Revoke takes an approval back. What was not launched never is. A leased run that goes on loses its
// lease and is asked to stop; a detached one needs no word from here, and goes on until it is cancelled.
func (g *Gateway) Revoke(ctx context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error) {
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeRevoke, ActionID: longstop.ActionID(id), Reason: reason}
	a, err := g.decide(ctx, about, by, proof, func(d *draft, e *Evidence) error {
		who := "approver " + e.Approver
		d.Approval.Reason = reason
		d.note(journal.ApprovalRevoked, who, map[string]any{"reason": reason, "proof": e})
		if d.Launch.State == longstop.LaunchNotAttempted || d.Request.Lifetime != longstop.Leased {
			return nil
		}
		return requestCancel(d, who)
	})
	if err == nil && cancelPending(&a) {
		_, err = g.pursueCancel(&a)
	}
	return a, err
}

// decide takes an approval one state on, as a person proves that they want it.
func (g *Gateway) decide(ctx context.Context, about longstop.ChallengeRequest, by longstop.Requester, proof longstop.Proof,
	to func(*draft, *Evidence) error) (longstop.Action, error) {
	whole, err := g.Action(ctx, string(about.ActionID))
	if err != nil {
		return whole, err
	}
	about.ActionID = whole.ID
	evidence, err := g.proven(ctx, proof, about, by)
	if err != nil {
		return whole, err
	}
	var refused error
	a, err := g.change(ctx, about.ActionID, func(d *draft) error {
		if refused = mayDecide(about.Kind, &d.Action, d.at); refused != nil {
			return expire(d, g.by)
		}
		state, err := lifecycle.Approvals.Step(d.Approval.State, decisions[about.Kind])
		if err != nil {
			return err
		}
		d.Approval.State = state
		return to(d, &evidence)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return a, g.refuseProof(ctx, about, "approver "+evidence.Approver, asRefusal(err))
	}
	return g.shown(a), nil
}

func asRefusal(err error) *longstop.Error {
	return &longstop.Error{Code: longstop.CodeOf(err), Message: err.Error(), Hint: hintOf(err)}
}

// decisions are the states that a person's proof leads to.
var decisions = map[longstop.ChallengeKind]longstop.ApprovalState{
	longstop.ChallengeApprove: longstop.ApprovalGranted,
	longstop.ChallengeDeny:    longstop.ApprovalDenied,
	longstop.ChallengeRevoke:  longstop.ApprovalRevoked,
}

// mayDecide says why an approval is not to be granted, denied or revoked now; nil where it is.
func mayDecide(kind longstop.ChallengeKind, a *longstop.Action, now longstop.Time) error {
	no := func(format string, args ...any) error {
		return &longstop.Error{Code: longstop.CodeNotPending, ActionID: a.ID, Message: fmt.Sprintf("%s ", a.ID) + fmt.Sprintf(format, args...),
			Hint: "longstop show " + string(a.ID)}
	}
	state := a.Approval.State
	switch kind {
	case longstop.ChallengeApprove, longstop.ChallengeDeny:
		switch {
		case a.Launch.State == longstop.LaunchRejected:
			return no("is over: %s", a.Launch.Message)
		case state != longstop.ApprovalPending:
			return no("is not waiting for approval: it is %s", strings.ReplaceAll(string(state), "_", " "))
		case !now.Before(a.Approval.ExpiresAt.Time):
			return no("waited for approval until %s: that time is over, and nothing was sent", a.Approval.ExpiresAt.Local().Format("15:04:05"))
		}
	case longstop.ChallengeRevoke:
		switch {
		case state != longstop.ApprovalGranted && state != longstop.ApprovalConsumed:
			return no("has no approval to be taken back: it is %s", strings.ReplaceAll(string(state), "_", " "))
		case !a.Unresolved():
			return no("is over: there is nothing left to take back")
		}
	}
	return nil
}

// expire notes inside a change that an approval's time is over, where it is.
func expire(d *draft, by string) error {
	state := d.Approval.State
	if state != longstop.ApprovalPending && state != longstop.ApprovalGranted || d.Launch.State != longstop.LaunchNotAttempted ||
		d.at.Before(d.Approval.ExpiresAt.Time) {
		return nil
	}
	return endApproval(d, by, "")
}

// endApproval notes inside a change that an approval which was not used is none any more: its time is over, or what
// it was for is, because.
func endApproval(d *draft, by, because string) error {
	state := d.Approval.State
	if state != longstop.ApprovalPending && state != longstop.ApprovalGranted {
		return nil
	}
	next, err := lifecycle.Approvals.Step(state, longstop.ApprovalExpired)
	if err != nil {
		return err
	}
	d.Approval.State, d.Approval.Reason = next, because
	say := map[string]any{"was": state}
	if because != "" {
		say["because"] = because
	}
	d.note(journal.ApprovalExpired, by, say)
	return nil
}

// consume uses the approval up, inside the change that intends the launch: once, and for nothing but what
// was signed. What says so is the signature in the journal; that the store calls it granted is not enough.
func (g *Gateway) consume(d *draft, grant *grant) error {
	if d.Approval.State == longstop.ApprovalNotRequired {
		return nil
	}
	state, err := lifecycle.Approvals.Step(d.Approval.State, longstop.ApprovalConsumed)
	if err != nil {
		return err
	}
	switch {
	case grant == nil:
		return errUnsigned
	case !d.at.Before(d.Approval.ExpiresAt.Time):
		return notApproved("the approval ran out at %s", d.Approval.ExpiresAt.Local().Format("15:04:05"))
	}
	if err := holdsFor(d, &grant.Evidence, g.boundOf(&d.Action)); err != nil {
		return err
	}
	if !grant.holds(grant.by) {
		return notApproved("the signature in the journal is not that of %s", grant.Approver)
	}
	d.Approval.State = state
	d.note(journal.ApprovalConsumed, g.by, map[string]any{"binds": d.Approval.Binds, "granted": grant.entry})
	return nil
}

// holdsFor refuses a statement that says something else than the facts do now.
func holdsFor(d *draft, e *Evidence, now approver.Statement) error {
	for _, f := range append(approver.Statement{{Name: "kind", Value: string(longstop.ChallengeApprove)}}, now...) {
		if !f.In(e.Statement) {
			return notApproved("%s is %s now, and that was not signed", f.Name, f.Value)
		}
	}
	return nil
}

// errUnsigned is why an approval does not hold that nobody gave.
var errUnsigned = notApproved("no signature of an approver is in the journal")

func notApproved(format string, args ...any) error {
	return &longstop.Error{Code: longstop.CodeDenied, Message: "the approval does not hold: " + fmt.Sprintf(format, args...) + "; nothing was sent"}
}

// grant is what the journal has of an action's approval.
type grant struct {
	Evidence
	by    longstop.Approver // as the journal says now
	entry int64
}

// granted finds an action's grant in the journal; nil where there is none.
func (g *Gateway) granted(ctx context.Context, id longstop.ActionID) (found *grant, err error) {
	const page = 1000 // refusals, which anybody may cause, are entries too
	for of := (sqlite.EntryFilter{Action: id, Limit: page}); ; {
		entries, err := g.store.Entries(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Kind != journal.ApprovalGranted {
				continue
			}
			var says struct {
				Proof Evidence `json:"proof"`
			}
			if err := json.Unmarshal(e.Body, &says); err != nil {
				return nil, fmt.Errorf("read entry %d: %w", e.Index, err)
			}
			found = &grant{Evidence: says.Proof, entry: e.Index}
		}
		if len(entries) < page {
			break
		}
		of.From = entries[page-1].Index + 1
	}
	if found != nil {
		found.by, err = g.signer(ctx, found.Approver)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}
