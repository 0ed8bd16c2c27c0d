package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

const (
	// challengeOpen is how long a challenge can be answered.
	challengeOpen = 2 * time.Minute
	// challengesOpen is how many may be open at once; the oldest goes for one more.
	challengesOpen = 1000
	// longestRefusal is how long proofs by an approver are refused after many wrong ones.
	longestRefusal = time.Minute
)

// proofs are the challenges that are open, in memory alone: a restart closes them all.
type proofs struct {
	mu     sync.Mutex
	open   map[string]*challenge
	failed map[string]*failures // by approver
}

type challenge struct {
	longstop.Challenge
	about longstop.ChallengeRequest // with the approver's name and the action's whole id
	facts string                    // what the statement binds of the world, as it was
}

// failures are the wrong proofs since the last right one.
type failures struct {
	count int
	until time.Time // proofs are refused till then
}

// Evidence is a proof as it is kept: whoever has it can verify again who agreed to what.
type Evidence struct {
	Approver  string             `json:"approver"`
	PublicKey []byte             `json:"public_key"`
	Kind      longstop.ProofKind `json:"kind"`
	Statement string             `json:"statement"`
	Signature []byte             `json:"signature"`
}

// Challenge makes what a person signs to do what they ask. It can be used once.
func (g *Gateway) Challenge(ctx context.Context, about longstop.ChallengeRequest, by longstop.Requester) (longstop.Challenge, error) {
	if err := g.personOnly(ctx, about, by); err != nil {
		return longstop.Challenge{}, err
	}
	who, err := g.signer(ctx, about.Approver)
	if err != nil {
		return longstop.Challenge{}, err
	}
	about.Approver = who.Name
	facts, err := g.bound(ctx, &about)
	if longstop.CodeOf(err) == longstop.CodeNotPending {
		err = g.refuseProof(ctx, about, words(by), asRefusal(err))
	}
	if err != nil {
		return longstop.Challenge{}, err
	}
	now := g.now()
	c := &challenge{about: about, facts: facts.String(), Challenge: longstop.Challenge{
		ID: "chl_" + rand.Text(), Approver: who, ExpiresAt: longstop.At(now.Add(challengeOpen))}}
	head := approver.Statement{{Name: "challenge", Value: c.ID}, {Name: "gateway", Value: g.cfg.Name}, {Name: "approver", Value: who.Name},
		{Name: "sign before", Value: c.ExpiresAt.Format(time.RFC3339)}}
	c.Statement = append(head, facts...).String()
	if g.cfg.Redact.Has(c.Statement) {
		return longstop.Challenge{}, isSecret("what you would sign")
	}
	g.proofs.add(c, now.Time)
	return c.Challenge, nil
}

// isSecret refuses to keep what a signature is of: without what is secret in it, it would be of something else.
func isSecret(what string) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: what + " has something in it that longstopd.json says is secret, and it is kept as it is signed",
		Hint: "say it without that; docs/redaction.md"}
}

// personOnly refuses who is no person, on the record. Nothing that an agent can reach approves, resolves
// or changes policy.
func (g *Gateway) personOnly(ctx context.Context, about longstop.ChallengeRequest, by longstop.Requester) error {
	if by.Kind != longstop.RequesterAgent {
		return nil
	}
	return g.refuseProof(ctx, about, words(by), &longstop.Error{Code: longstop.CodeNotAllowed,
		Message: fmt.Sprintf("an agent may not %s: that is a person's to do, in a terminal", about.Kind),
		Hint:    "ask an operator, who does it without LONGSTOP_TOKEN"})
}

// RefuseAgent journals that an agent asked for what is people's alone, of the action with that id where
// there is one, and returns the error that says so.
func (g *Gateway) RefuseAgent(ctx context.Context, who longstop.Requester, asked, id string) error {
	why := &longstop.Error{Code: longstop.CodeNotAllowed, Message: fmt.Sprintf("the token of %s may not ask this: it is for people", who.Name),
		Hint: "ask an operator, who does it without LONGSTOP_TOKEN"}
	if a, err := g.Action(ctx, id); id != "" && err == nil {
		why.ActionID = a.ID
	}
	err := g.store.Update(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error {
		_, err := tx.Append(journal.Entry{At: g.now(), Kind: journal.AgentRefused, ActionID: why.ActionID, By: words(who),
			Body: body(map[string]any{"asked": asked})})
		return err
	})
	if err != nil {
		return fmt.Errorf("journal that an agent was refused: %w", err)
	}
	return why
}

// proven reports who proved themselves for exactly what is about to be done, and how. Whatever it answers,
// the challenge is used up. Call it before the change, and keep the evidence in the change's entry.
func (g *Gateway) proven(ctx context.Context, p longstop.Proof, about longstop.ChallengeRequest, by longstop.Requester) (Evidence, error) {
	if err := g.personOnly(ctx, about, by); err != nil {
		return Evidence{}, err
	}
	now := g.now().Time
	c := g.proofs.take(p.Challenge)
	facts, err := g.bound(ctx, &about)
	if longstop.CodeOf(err) == longstop.CodeNotPending {
		err = g.refuseProof(ctx, about, words(by), asRefusal(err))
	}
	if err != nil {
		return Evidence{}, err
	}
	refuse := func(code longstop.Code, format string, args ...any) (Evidence, error) {
		return Evidence{}, g.refuseProof(ctx, about, words(by), &longstop.Error{Code: code, Message: fmt.Sprintf(format, args...),
			Hint: "the same command again asks for another proof"})
	}
	switch {
	case c == nil:
		return refuse(longstop.CodeNotProven, "the challenge %.40q is not open: it was used, or is from before the gateway's restart", p.Challenge)
	case !now.Before(c.ExpiresAt.Time):
		return refuse(longstop.CodeNotProven, "the challenge ran out at %s", c.ExpiresAt.Local().Format(time.TimeOnly))
	case about.Approver != "" && about.Approver != c.about.Approver:
		return refuse(longstop.CodeNotProven, "the challenge is for %s, not %s", c.about.Approver, about.Approver)
	case c.facts != facts.String():
		return refuse(longstop.CodeNotProven, "what was signed is not what is to be done now: %s", differing(c.facts, facts.String()))
	}
	who, err := g.signer(ctx, c.about.Approver)
	if err != nil {
		return Evidence{}, err
	}
	if wait := g.proofs.wait(who.Name, now); wait > 0 {
		return refuse(longstop.CodeNotProven, "there were wrong proofs for %s: none is looked at for another %v", who.Name, wait.Round(time.Second))
	}
	if !approver.Verify(who, c.Statement, p.Kind, p.Signature) {
		g.proofs.failure(who.Name, now)
		return refuse(longstop.CodeNotProven, "this was not %s: a wrong passphrase, or another statement was signed", who.Name)
	}
	g.proofs.success(who.Name)
	return Evidence{Approver: who.Name, PublicKey: who.PublicKey, Kind: p.Kind, Statement: c.Statement, Signature: p.Signature}, nil
}

// refuseProof journals a refusal and returns its error.
func (g *Gateway) refuseProof(ctx context.Context, about longstop.ChallengeRequest, by string, why *longstop.Error) error {
	why.ActionID = about.ActionID
	err := g.store.Update(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error {
		_, err := tx.Append(journal.Entry{At: g.now(), Kind: journal.ProofRefused, ActionID: about.ActionID, By: by,
			Body: body(map[string]any{"for": about.Kind, "approver": about.Approver, "code": why.Code, "message": why.Message})})
		return err
	})
	if err != nil {
		return fmt.Errorf("journal that a proof was refused: %w", err)
	}
	return why
}

func (p *proofs) add(c *challenge, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest *challenge
	for id, open := range p.open {
		if now.After(open.ExpiresAt.Time) {
			delete(p.open, id)
		} else if oldest == nil || open.ExpiresAt.Before(oldest.ExpiresAt.Time) {
			oldest = open
		}
	}
	if len(p.open) >= challengesOpen {
		delete(p.open, oldest.ID)
	}
	if p.open == nil {
		p.open = map[string]*challenge{}
	}
	p.open[c.ID] = c
}

// take returns an open challenge and closes it.
func (p *proofs) take(id string) *challenge {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[id]
	delete(p.open, id)
	return c
}

// wait is how long proofs by an approver are still refused.
func (p *proofs) wait(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.failed[name]; f != nil {
		return f.until.Sub(now)
	}
	return 0
}

// failure makes the next proofs wait: twice as long with each wrong one.
func (p *proofs) failure(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = map[string]*failures{}
	}
	f := p.failed[name]
	if f == nil {
		f = &failures{}
		p.failed[name] = f
	}
	f.until = now.Add(min(time.Second<<min(f.count, 10), longestRefusal))
	f.count++
}

func (p *proofs) success(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failed, name)
}
