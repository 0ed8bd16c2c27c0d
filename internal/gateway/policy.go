package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/store/sqlite"
)

const denyAll = "default: deny\n"

// loadPolicy takes up the policy that the journal says was set last. One that cannot be read lets nothing
// start: a gateway without it would allow everything. Another one in the store is refused, on the record.
func (g *Gateway) loadPolicy() error {
	text, digest, err := g.store.Policy(g.ctx)
	if err != nil {
		return err
	}
	said, err := g.policySaid(g.ctx)
	if errors.As(err, new(*journal.BadEntry)) {
		text, said, err = []byte(denyAll), denyAll, nil // nothing that it says is believed; to look and to stop go on
	}
	if err != nil {
		return err
	}
	if string(text) != said {
		why := &longstop.Error{Code: longstop.CodeNotProven, Message: "the store has a policy that the journal does not: it was changed outside of Longstop"}
		if err := g.refuseProof(g.ctx, longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Content: digest}, g.by, why); err != error(why) {
			return err
		}
		if said == "" {
			said = denyAll // somebody had one; nobody signed this one
		}
	}
	if said == "" {
		return nil
	}
	p, err := policy.Parse([]byte(said))
	if err != nil {
		return &longstop.Error{Code: longstop.CodeInternal, Message: "the policy cannot be read", Err: err,
			Hint: "run the longstopd that took it, or restore the store from a backup"}
	}
	g.policy.Store(p)
	return nil
}

// Policy is the one that holds.
func (g *Gateway) Policy() longstop.Policy {
	p := g.policy.Load()
	if p == nil {
		return longstop.Policy{}
	}
	return longstop.Policy{Digest: p.Digest(), Text: p.Text()}
}

// SetPolicy makes a policy the one that holds, from the next request on, as a person proves that they
// want it. Which text it is, and the proof, are in the journal.
func (g *Gateway) SetPolicy(ctx context.Context, text []byte, by longstop.Requester, proof longstop.Proof) (longstop.Policy, error) {
	p, err := policy.Parse(text)
	if err != nil {
		return longstop.Policy{}, &longstop.Error{Code: longstop.CodeUsage, Message: "the policy was not taken: " + err.Error(), Hint: "longstop policy check FILE"}
	}
	if g.cfg.Redact.Has(string(text)) {
		return longstop.Policy{}, isSecret("the policy")
	}
	evidence, err := g.proven(ctx, proof, longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Content: approver.Content(text)}, by)
	if err != nil {
		return longstop.Policy{}, err
	}
	return g.holdPolicy(ctx, p, "approver "+evidence.Approver, evidence)
}

// holdPolicy journals and keeps a policy, and lets it hold once that is durable.
func (g *Gateway) holdPolicy(ctx context.Context, p *policy.Policy, by string, proof any) (longstop.Policy, error) {
	g.policyTurn.Lock() // what holds here is the last that the journal names
	defer g.policyTurn.Unlock()
	err := g.store.Update(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error {
		entry, err := tx.Append(journal.Entry{At: g.now(), Kind: journal.PolicyChanged, By: by, Body: body(map[string]any{
			"digest": p.Digest(), "text": p.Text(), "was": g.policy.Load().Digest(), "proof": proof})})
		if err != nil {
			return err
		}
		return tx.PutPolicy(entry, p.Digest(), []byte(p.Text()))
	})
	if err != nil {
		return longstop.Policy{}, fmt.Errorf("keep the policy: %w", err)
	}
	g.policy.Store(p)
	return g.Policy(), nil
}

// judge puts a request to the policy that holds, and returns with its verdict the policy's digest.
func (g *Gateway) judge(q policy.Question) (policy.Verdict, string) {
	if g.cfg.Policy != nil {
		return g.cfg.Policy(q)
	}
	p := g.policy.Load()
	return p.Decide(q), p.Digest()
}

// CheckPolicy says what a text is as a policy, or what is wrong with it. It changes nothing.
func (g *Gateway) CheckPolicy(text []byte) (longstop.PolicyCheck, error) {
	p, err := policy.Parse(text)
	if wrong := (policy.Errors)(nil); errors.As(err, &wrong) {
		return longstop.PolicyCheck{Problems: wrong.Shown()}, nil
	}
	if err != nil {
		return longstop.PolicyCheck{}, err
	}
	return longstop.PolicyCheck{Digest: p.Digest(), Summary: p.Summary(), Warnings: p.Warnings().Shown()}, nil
}

// Explain says what a policy would say to a request. It changes nothing.
func (g *Gateway) Explain(q longstop.PolicyQuestion, peer longstop.Requester) (longstop.PolicyVerdict, error) {
	if q.Text != nil || q.As != nil {
		return g.suppose(q, peer)
	}
	h, err := g.host(q.Run.Host)
	if err != nil {
		return longstop.PolicyVerdict{}, err
	}
	want, err := g.accept(q.Run, h.shown())
	if err != nil {
		return longstop.PolicyVerdict{}, err
	}
	g.bind(want, h, requester(q.Run.By, peer))
	return want.verdict.Shown(want.policy), nil
}

// maxSupposed is how many bytes of a policy an agent may have a request held against: what that takes grows with the
// policy times the script, and nothing of it can be called off.
const maxSupposed = 16 << 10

// suppose explains by another policy, or for somebody else: without anything of the host but its name.
func (g *Gateway) suppose(q longstop.PolicyQuestion, peer longstop.Requester) (longstop.PolicyVerdict, error) {
	p, by, r := g.policy.Load(), requester(q.Run.By, peer), q.Run.Request
	if q.Text != nil {
		if peer.Kind == longstop.RequesterAgent && len(*q.Text) > maxSupposed {
			return longstop.PolicyVerdict{}, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("the policy has %d bytes, and agents may ask about one of %d at most", len(*q.Text), maxSupposed),
				Hint: "longstop policy explain without --policy asks the policy that holds"}
		}
		var err error
		if p, err = policy.Parse([]byte(*q.Text)); err != nil {
			return longstop.PolicyVerdict{}, &longstop.Error{Code: longstop.CodeUsage, Message: "the policy cannot be read: " + err.Error(), Hint: "longstop policy check FILE"}
		}
	}
	if q.As != nil {
		by = *q.As
	}
	r.TakeDefaults()
	v := p.Decide(policy.Question{Host: q.Run.Host, By: by, Request: r})
	v.Bind(&r)
	return v.Shown(p.Digest()), nil
}

// bind puts a request to the policy and completes it with what the policy's limits say. What it is then is
// what its digest is of.
func (g *Gateway) bind(want *asked, h *host, by longstop.Requester) {
	want.verdict, want.policy = g.judge(policy.Question{Host: h.name, By: by, Request: want.request})
	if want.verdict.Bind(&want.request); len(want.verdict.Given) > 0 {
		g.complete(want, h.shown())
	}
}

// crowded says, in the transaction that would make the action, which limit on how many there are at once
// it would break; empty if none.
func (l *launching) crowded(tx *sqlite.Tx) (string, error) {
	v := &l.want.verdict
	for _, limit := range []struct {
		most  int
		count func(most int) (int, error)
		where string
	}{
		{v.Limits.PerHost, func(most int) (int, error) { return tx.UnresolvedOn(l.h.name, most) }, "on " + l.h.name},
		{v.Limits.PerRequester, func(most int) (int, error) { return tx.UnresolvedOf(l.made.RequestedBy, most) }, "of " + words(l.made.RequestedBy)},
	} {
		if limit.most == 0 {
			continue
		}
		n, err := limit.count(limit.most)
		if err != nil {
			return "", err
		}
		if n >= limit.most {
			return fmt.Sprintf("%s lets at most %d actions %s be unresolved at once, and there are as many", v.Named(), limit.most, limit.where), nil
		}
	}
	return "", nil
}

// makeRoom denies, in the transaction that would make the action, what would be one too many.
func (l *launching) makeRoom(tx *sqlite.Tx, d *draft) error {
	why, err := l.crowded(tx)
	if err != nil || why == "" {
		return err
	}
	a := l.made
	a.Approval = longstop.Approval{State: longstop.ApprovalNotRequired}
	l.made = a
	*d, err = l.draft(&a, why)
	return err
}

// deny makes a new action one that the policy denies.
func (l *launching) deny(d *draft, why string) error {
	l.warm, d.Approval = nil, longstop.Approval{State: longstop.ApprovalNotRequired}
	if err := rejectDraft(d, l.g.by, longstop.CodeDenied, why+"; nothing was sent"); err != nil {
		return err
	}
	return nil
}

// dropped lets go of a launch that was denied.
func (l *launching) dropped() {
	dropStdin(l.want.stdin)
	close(l.done)
}

// asRequested is what the first journal entry of an action says of its request beside the request itself.
type asRequested struct {
	Env    map[string]string       `json:"env"` // what may be kept of its environment's values
	Policy *longstop.PolicyVerdict `json:"policy,omitempty"`
}

func (l *launching) requested() asRequested {
	says := asRequested{Env: l.want.envMACs}
	if l.want.policy != "" {
		v := l.want.verdict.Shown(l.want.policy)
		v.Findings = nil // the action has them
		says.Policy = &v
	}
	return says
}

// requestedAs reads that entry.
func (g *Gateway) requestedAs(ctx context.Context, id longstop.ActionID) (says asRequested, err error) {
	entries, err := g.store.Entries(ctx, sqlite.EntryFilter{Action: id, Limit: 1})
	if err != nil || len(entries) == 0 {
		return says, err
	}
	err = json.Unmarshal(entries[0].Body, &says)
	return says, err
}

// sameAsked reports whether a request is that of an action but for what policies gave to either.
func (l *launching) sameAsked(existing *longstop.Action, says asRequested) bool {
	then := map[string]bool{}
	if says.Policy != nil {
		for _, field := range says.Policy.Given {
			then[field] = true
		}
	}
	now := map[string]bool{}
	for _, field := range l.want.verdict.Given {
		now[field] = true
	}
	r := l.want.request
	if old := existing.Request; (now["deadline_s"] || r.DeadlineS == 0) && (then["deadline_s"] || old.DeadlineS == 0) {
		r.DeadlineS = old.DeadlineS
	}
	if old := existing.Request; (now["output_max_bytes"] || r.OutputMax == nil) && (then["output_max_bytes"] || old.OutputMax == nil) {
		r.OutputMax = old.OutputMax
	}
	return l.g.digest(l.h.shown(), &r, l.want.env) == existing.Request.Digest
}
