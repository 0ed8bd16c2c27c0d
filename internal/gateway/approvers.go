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

// Who can prove who they are is what the journal says: the first approver is trusted on first use, each
// later entry carries the proof of one who was there. The table of the store is what is compared with it.

// approvers is what the journal says of approvers, read on as it grows.
type approvers struct {
	mu   sync.Mutex
	next int64 // the first entry that was not read
	said map[string]longstop.KnownApprover
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
	g.approvers.mu.Lock()
	defer g.approvers.mu.Unlock()
	entries, next, err := g.store.EntriesOf(ctx, g.approvers.next, journal.ApproverSet, journal.ApproverRemoved)
	if err != nil {
		return nil, fmt.Errorf("read what the journal says of approvers: %w", err)
	}
	if g.approvers.said == nil {
		g.approvers.said = map[string]longstop.KnownApprover{}
	}
	for _, e := range entries {
		applyApprover(g.approvers.said, e)
	}
	g.approvers.next = next
	return maps.Clone(g.approvers.said), nil
}

// applyApprover goes one entry on. One that nobody proved, and is not the first, changes nothing.
func applyApprover(said map[string]longstop.KnownApprover, e journal.Entry) {
	var says approverSays
	if json.Unmarshal(e.Body, &says) != nil || approver.Check(says.Approver) != nil {
		return
	}
	switch {
	case len(said) == 0 && e.Kind == journal.ApproverSet:
	case says.Proof == nil:
		return
	default:
		who, there := said[says.Proof.Approver]
		if !there || !says.Proof.holds(who.Approver, approverFacts(e.Kind, says.Approver)...) {
			return
		}
	}
	if e.Kind == journal.ApproverRemoved {
		delete(said, says.Approver.Name)
		return
	}
	said[says.Approver.Name] = longstop.KnownApprover{Approver: says.Approver, SetAt: e.At, SetBy: e.By, First: len(said) == 0}
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
		return longstop.KnownApprover{}, usage("%v", err)
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
			return longstop.KnownApprover{}, usage("%s is the only approver and stays", name)
		default:
			return g.changeApprover(ctx, journal.ApproverRemoved, a.Approver, longstop.ApproverRemove, &proof, by)
		}
	}
	return longstop.KnownApprover{}, &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("there is no approver %.80q", name)}
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
