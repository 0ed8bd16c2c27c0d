package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Who can prove who they are, and what policy they set, is what the journal says: the first approver is
// trusted on first use, every other entry carries the proof of one who was there. The tables of the store
// are what is compared with it.

// ledger is what the journal says of that, read on as it grows.
type ledger struct {
	mu        sync.Mutex
	next      int64 // the first entry that was not read
	approvers map[string]longstop.KnownApprover
	policy    string // its text, as the last one signed it
}

// approverSays is the body of an approver_set or approver_removed entry.
type approverSays struct {
	Approver longstop.Approver `json:"approver"`
	First    bool              `json:"first,omitempty"`
	Proof    *Evidence         `json:"proof,omitempty"`
}

// Approvers lists who can prove who they are, by name, and says of whose keys the store has others than
// the journal.
func (g *Gateway) Approvers(ctx context.Context) ([]longstop.KnownApprover, error) {
	said, err := g.said(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := g.store.Approvers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range stored {
		known, there := said[s.Name]
		if !there || approver.Digest(known.Approver) != approver.Digest(s.Approver) {
			known.Approver, known.Changed = s.Approver, "the store has a key that the journal does not: it was changed outside of Longstop"
			said[s.Name] = known
		}
	}
	for name, known := range said {
		if !slices.ContainsFunc(stored, func(s sqlite.Approver) bool { return s.Name == name }) {
			known.Changed = "the store has no such approver any more, and the journal does: it was changed outside of Longstop"
			said[name] = known
		}
	}
	return slices.SortedFunc(maps.Values(said), func(a, b longstop.KnownApprover) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}), nil
}

// said is what the journal says of approvers. Who reads may keep it.
func (g *Gateway) said(ctx context.Context) (map[string]longstop.KnownApprover, error) {
	l := &g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.read(ctx, g.store)
	return maps.Clone(l.approvers), err
}

// policySaid is the policy that the journal says was set last; empty if none was.
func (g *Gateway) policySaid(ctx context.Context) (string, error) {
	l := &g.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.read(ctx, g.store)
	return l.policy, err
}

// read goes on to the journal's end.
func (l *ledger) read(ctx context.Context, store *sqlite.Store) error {
	entries, next, err := store.EntriesOf(ctx, l.next, journal.ApproverSet, journal.ApproverRemoved, journal.PolicyChanged)
	if err != nil {
		return fmt.Errorf("read what the journal says of approvers: %w", err)
	}
	if l.approvers == nil {
		l.approvers = map[string]longstop.KnownApprover{}
	}
	for _, e := range entries {
		if e.Kind == journal.PolicyChanged {
			l.applyPolicy(e)
		} else {
			l.applyApprover(e)
		}
	}
	l.next = next
	return nil
}

// applyApprover goes one entry on. One that nobody proved, and is not the first, changes nothing.
func (l *ledger) applyApprover(e journal.Entry) {
	var says approverSays
	if json.Unmarshal(e.Body, &says) != nil || approver.Check(says.Approver) != nil {
		return
	}
	first := len(l.approvers) == 0 && e.Kind == journal.ApproverSet
	if !first && !l.signed(says.Proof, approverFacts(e.Kind, says.Approver)...) {
		return
	}
	if e.Kind == journal.ApproverRemoved {
		delete(l.approvers, says.Approver.Name)
		return
	}
	l.approvers[says.Approver.Name] = longstop.KnownApprover{Approver: says.Approver, SetAt: e.At, SetBy: e.By, First: first}
}

// applyPolicy does the same for a policy.
func (l *ledger) applyPolicy(e journal.Entry) {
	var says struct {
		Text  string    `json:"text"`
		Proof *Evidence `json:"proof"`
	}
	if json.Unmarshal(e.Body, &says) == nil && l.signed(says.Proof,
		approver.Fact{Name: "kind", Value: string(longstop.ChallengePolicy)}, approver.Fact{Name: "content", Value: approver.Content([]byte(says.Text))}) {
		l.policy = says.Text
	}
}

// signed reports whether an approver who is there signed a statement with these facts.
func (l *ledger) signed(proof *Evidence, facts ...approver.Fact) bool {
	if proof == nil {
		return false
	}
	who, there := l.approvers[proof.Approver]
	return there && proof.holds(who.Approver, facts...)
}

// approverFacts are the lines of the statement that a change of an approver needs.
func approverFacts(kind journal.Kind, a longstop.Approver) []approver.Fact {
	facts := []approver.Fact{{Name: "kind", Value: string(longstop.ChallengeApprover)}, {Name: "content", Value: approver.Digest(a)}}
	if kind == journal.ApproverRemoved {
		facts = append(facts, approver.Fact{Name: "reason", Value: longstop.ApproverRemove + a.Name})
	} else {
		facts = append(facts, approver.Fact{Name: "reason", Value: longstop.ApproverSet + a.Name})
	}
	return facts
}

// holds reports whether the evidence is an approver's signature of a statement with these facts.
func (e *Evidence) holds(by longstop.Approver, facts ...approver.Fact) bool {
	for _, f := range facts {
		if !f.In(e.Statement) {
			return false
		}
	}
	return approver.Verify(by, e.Statement, e.Kind, e.Signature)
}

// signer is the approver of that name, or the only one, whose key is what the journal says.
func (g *Gateway) signer(ctx context.Context, name string) (longstop.Approver, error) {
	list, err := g.Approvers(ctx)
	if err != nil {
		return longstop.Approver{}, err
	}
	none := &longstop.Error{Code: longstop.CodeNotProven, Message: "nobody can prove who they are yet", Hint: "longstop approver set"}
	switch {
	case len(list) == 0:
		return longstop.Approver{}, none
	case name == "" && len(list) == 1:
		name = list[0].Name
	case name == "":
		var all []string
		for _, a := range list {
			all = append(all, a.Name)
		}
		return longstop.Approver{}, &longstop.Error{Code: longstop.CodeAmbiguous,
			Message: fmt.Sprintf("there are several approvers: %v", all), Hint: "say which with --as NAME"}
	}
	for _, a := range list {
		switch {
		case a.Name != name:
		case a.Changed != "":
			return longstop.Approver{}, &longstop.Error{Code: longstop.CodeNotProven, Message: fmt.Sprintf("the key of %s is refused: %s", name, a.Changed),
				Hint: "longstop journal verify; docs/approvals.md says what to do"}
		default:
			return a.Approver, nil
		}
	}
	none.Message = fmt.Sprintf("there is no approver %.80q", name)
	none.Hint = "longstop approver show"
	return longstop.Approver{}, none
}

// SetApprover makes or replaces an approver. The first is trusted on first use, and the journal says so;
// any other needs the proof of one who is there, for ApproverChange(a).
func (g *Gateway) SetApprover(ctx context.Context, a longstop.Approver, proof *longstop.Proof, by longstop.Requester) (longstop.KnownApprover, error) {
	if err := approver.Check(a); err != nil {
		return longstop.KnownApprover{}, &longstop.Error{Code: longstop.CodeUsage, Message: err.Error(), Hint: "longstop approver set --help"}
	}
	return g.changeApprover(ctx, journal.ApproverSet, a, longstop.ApproverSet, proof, by)
}

// RemoveApprover takes an approver out. The last one stays: whoever came then would be the first.
func (g *Gateway) RemoveApprover(ctx context.Context, name string, proof longstop.Proof, by longstop.Requester) (longstop.KnownApprover, error) {
	list, err := g.Approvers(ctx)
	if err != nil {
		return longstop.KnownApprover{}, err
	}
	for _, a := range list {
		switch {
		case a.Name != name:
		case len(list) == 1:
			return longstop.KnownApprover{}, &longstop.Error{Code: longstop.CodeUsage, Message: name + " is the only approver and stays",
				Hint: "longstop approver set NAME makes another one first"}
		default:
			return g.changeApprover(ctx, journal.ApproverRemoved, a.Approver, longstop.ApproverRemove, &proof, by)
		}
	}
	return longstop.KnownApprover{}, &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("there is no approver %.80q", name), Hint: "longstop approver show"}
}

func (g *Gateway) changeApprover(ctx context.Context, kind journal.Kind, a longstop.Approver, does string, proof *longstop.Proof, by longstop.Requester) (longstop.KnownApprover, error) {
	g.approving.Lock() // two firsts at once: one is
	defer g.approving.Unlock()
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeApprover, Reason: does + a.Name, Content: approver.Digest(a)}
	present, err := g.Approvers(ctx)
	if err != nil {
		return longstop.KnownApprover{}, err
	}
	says := approverSays{Approver: a, First: len(present) == 0}
	who := words(by)
	switch {
	case says.First:
		err = g.personOnly(ctx, about, by)
	case proof == nil:
		err = g.refuseProof(ctx, about, who, &longstop.Error{Code: longstop.CodeNotProven,
			Message: "there is an approver: a change needs the proof of one who is there", Hint: "longstop approver show"})
	default:
		var evidence Evidence
		evidence, err = g.proven(ctx, *proof, about, by)
		says.Proof, who = &evidence, "approver "+evidence.Approver
	}
	if err != nil {
		return longstop.KnownApprover{}, err
	}
	at := g.now()
	err = g.store.Update(ctx, func(tx *sqlite.Tx) error {
		entry, err := tx.Append(journal.Entry{At: at, Kind: kind, By: who, Body: body(says)})
		if err != nil {
			return err
		}
		if kind == journal.ApproverRemoved {
			return tx.DeleteApprover(a.Name)
		}
		return tx.PutApprover(sqlite.Approver{Approver: a, Entry: entry})
	})
	return longstop.KnownApprover{Approver: a, SetAt: at, SetBy: who, First: says.First}, err
}
