package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
)

const (
	// challengeOpen is how long a challenge can be answered.
	challengeOpen = 2 * time.Minute
)

// proofs tells which challenges are open. What there is to know of one travels with it, sealed under a key that
// is in memory alone: a restart closes them all. However many are asked for, and however many wrong proofs come,
// none of them takes anything from another; only the right ones are remembered, so that each is used once.
type proofs struct {
	key  [32]byte
	mu   sync.Mutex
	used map[string]longstop.Time // by challenge: when it would have run out
}

// challenge is what a ticket has.
type challenge struct {
	ID        string
	Approver  string
	Statement string
	Facts     string // what the statement binds of the world, as it was
	ExpiresAt longstop.Time
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
	c := challenge{ID: "chl_" + rand.Text(), Approver: who.Name, Facts: facts.String(), ExpiresAt: longstop.At(g.now().Add(challengeOpen))}
	head := approver.Statement{{Name: "challenge", Value: c.ID}, {Name: "gateway", Value: g.cfg.Name}, {Name: "approver", Value: who.Name},
		{Name: "sign before", Value: c.ExpiresAt.Format(time.RFC3339)}}
	c.Statement = append(head, facts...).String()
	if g.cfg.Redact.Has(c.Statement) {
		return longstop.Challenge{}, isSecret("what you would sign")
	}
	return longstop.Challenge{ID: c.ID, Statement: c.Statement, Approver: who, ExpiresAt: c.ExpiresAt, Ticket: g.proofs.seal(&c)}, nil
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
	err := g.journalRefusal(ctx, words(who), asked, journal.Entry{Kind: journal.AgentRefused, ActionID: why.ActionID, By: words(who)},
		map[string]any{"asked": asked})
	if err != nil {
		return fmt.Errorf("journal that an agent was refused: %w", err)
	}
	return why
}

// proven reports who proved themselves for exactly what is about to be done, and how. The challenge is then used
// up; a wrong proof takes nothing from it, nor from anybody's next. Call it before the change, and keep the evidence
// in the change's entry.
func (g *Gateway) proven(ctx context.Context, p longstop.Proof, about longstop.ChallengeRequest, by longstop.Requester) (Evidence, error) {
	if err := g.personOnly(ctx, about, by); err != nil {
		return Evidence{}, err
	}
	now := g.now()
	c := g.proofs.open(&p)
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
		return refuse(longstop.CodeNotProven, notOpen, p.Challenge)
	case !now.Before(c.ExpiresAt.Time):
		return refuse(longstop.CodeNotProven, "the challenge ran out at %s", c.ExpiresAt.Local().Format(time.TimeOnly))
	case about.Approver != "" && about.Approver != c.Approver:
		return refuse(longstop.CodeNotProven, "the challenge is for %s, not %s", c.Approver, about.Approver)
	case c.Facts != facts.String():
		return refuse(longstop.CodeNotProven, "what was signed is not what is to be done now: %s", differing(c.Facts, facts.String()))
	}
	who, err := g.signer(ctx, c.Approver)
	if err != nil {
		return Evidence{}, err
	}
	if !approver.Verify(who, c.Statement, p.Kind, p.Signature) {
		return refuse(longstop.CodeNotProven, "this was not %s: a wrong passphrase, or another statement was signed", who.Name)
	}
	if !g.proofs.use(c, now) {
		return refuse(longstop.CodeNotProven, notOpen, p.Challenge)
	}
	return Evidence{Approver: who.Name, PublicKey: who.PublicKey, Kind: p.Kind, Statement: c.Statement, Signature: p.Signature}, nil
}

// refuseProof journals a refusal and returns its error.
func (g *Gateway) refuseProof(ctx context.Context, about longstop.ChallengeRequest, by string, why *longstop.Error) error {
	why.ActionID = about.ActionID
	err := g.journalRefusal(ctx, by, string(about.Kind)+" "+string(why.Code), journal.Entry{Kind: journal.ProofRefused, ActionID: about.ActionID, By: by},
		map[string]any{"for": about.Kind, "approver": about.Approver, "code": why.Code, "message": why.Message})
	if err != nil {
		return fmt.Errorf("journal that a proof was refused: %w", err)
	}
	return why
}

const notOpen = "the challenge %.40q is not open: it was used, or is from before the gateway's restart"

// seal makes a challenge's ticket: its JSON behind a MAC of it.
func (p *proofs) seal(c *challenge) []byte {
	says := body(c)
	return append(p.mac(says), says...)
}

func (p *proofs) mac(says []byte) []byte {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write(says)
	return mac.Sum(nil)
}

// open returns the challenge that a proof answers, nil where it is not one of this gateway's that is open.
func (p *proofs) open(of *longstop.Proof) *challenge {
	if len(of.Ticket) < sha256.Size || !hmac.Equal(of.Ticket[:sha256.Size], p.mac(of.Ticket[sha256.Size:])) {
		return nil
	}
	c := new(challenge)
	if json.Unmarshal(of.Ticket[sha256.Size:], c) != nil || c.ID != of.Challenge {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, used := p.used[c.ID]; used {
		return nil
	}
	return c
}

// use closes a challenge that was answered right, and reports whether it was open. Nobody is kept in mind for
// longer than they could come again.
func (p *proofs) use(c *challenge, now longstop.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, used := p.used[c.ID]; used {
		return false
	}
	maps.DeleteFunc(p.used, func(_ string, until longstop.Time) bool { return now.After(until.Time) })
	if p.used == nil {
		p.used = map[string]longstop.Time{}
	}
	p.used[c.ID] = c.ExpiresAt
	return true
}
