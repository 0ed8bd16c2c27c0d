package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// draft is an action being changed inside a transaction: its facts, and the journal entries that
// say why. A draft without entries is not written.
type draft struct {
	longstop.Action
	made    *longstop.Action // of a new one: as its first entry has it
	secret  []byte           // a new run's
	entries []draftEntry
	at      longstop.Time
}

type draftEntry struct {
	entry journal.Entry
	raws  []sqlite.Raw
}

// entryOf is an entry about an action that changes nothing of it.
func entryOf(a *longstop.Action, kind journal.Kind, by string) journal.Entry {
	return journal.Entry{Kind: kind, ActionID: a.ID, SessionID: a.SessionID, RunID: a.RunID, Host: a.Host, By: by}
}

// note adds an entry about the action.
func (d *draft) note(kind journal.Kind, by string, say any, raws ...sqlite.Raw) {
	e := entryOf(&d.Action, kind, by)
	e.At, e.Body = d.at, body(say)
	d.entries = append(d.entries, draftEntry{e, raws})
}

// body is the JSON of what an entry says more; nothing for nil.
func body(say any) json.RawMessage {
	if say == nil {
		return nil
	}
	b, err := json.Marshal(say)
	if err != nil {
		panic("gateway: a journal body always has a JSON form: " + err.Error())
	}
	return b
}

// write puts the draft's entries and the action, one revision on, into the transaction. The last entry
// says what changed in the action; the first of a new one says what was asked for.
func (g *Gateway) write(tx *sqlite.Tx, d *draft) error {
	g.contradict(d)
	if !d.Unresolved() {
		g.weigh(d, g.judged(d))
	}
	last := len(d.entries) - 1
	for i, e := range d.entries[:last] {
		err := error(nil)
		if i == 0 && d.made != nil {
			err = tx.AppendChange(d.made, e.entry, e.raws...)
		} else {
			_, err = tx.Append(e.entry, e.raws...)
		}
		if err != nil {
			return err
		}
	}
	d.Revision++
	v := lifecycle.Judge(&d.Action, d.at.Time, g.stale())
	d.Alive, d.Outcome, d.UnknownBecause, d.Next = v.Alive, v.Outcome, v.UnknownBecause, v.Next
	if err := tx.PutAction(&d.Action, d.secret, d.entries[last].entry, d.entries[last].raws...); err != nil {
		return err
	}
	if d.InquiresOf != "" && !d.Unresolved() {
		if err := g.endInquiry(tx, d); err != nil {
			return err
		}
	}
	switch {
	case keptByHost(&d.Action):
		return tx.Keep(&d.Action, d.at)
	case d.Removed != nil:
		return tx.Unkeep(d.RunID)
	}
	return nil
}

// change is one action's part of an update. To is called inside the transaction with the action as
// it stands there; it must be quick and may be given nothing to do.
type change struct {
	id longstop.ActionID
	to func(*draft) error
}

// change applies a change durably, tells who watches, and returns the action as it then is. ctx
// bounds the wait for the turn alone.
func (g *Gateway) change(ctx context.Context, id longstop.ActionID, to func(*draft) error) (longstop.Action, error) {
	changed, err := g.changeAll(ctx, []change{{id, to}})
	if err != nil {
		return longstop.Action{}, err
	}
	return changed[0], nil
}

// changeAll applies changes of several actions in one transaction.
func (g *Gateway) changeAll(ctx context.Context, changes []change) ([]longstop.Action, error) {
	result := make([]longstop.Action, len(changes))
	err := g.store.Update(ctx, func(tx *sqlite.Tx) error {
		for i, c := range changes {
			a, err := g.changeIn(tx, c)
			if err != nil {
				return err
			}
			result[i] = a
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, a := range result {
		g.publish(a)
	}
	return result, nil
}

// changeIn applies a change inside a transaction. Who commits it publishes the action.
func (g *Gateway) changeIn(tx *sqlite.Tx, c change) (longstop.Action, error) {
	stored, err := tx.Action(c.id)
	if err != nil {
		return longstop.Action{}, err
	}
	d := draft{Action: *stored, at: g.now()}
	if err := c.to(&d); err != nil {
		return longstop.Action{}, fmt.Errorf("change %s: %w", c.id, err)
	}
	if len(d.entries) > 0 {
		err = g.write(tx, &d)
	}
	return d.Action, err
}

// publish tells the host's loops and everyone who watches about a committed action.
func (g *Gateway) publish(a longstop.Action) {
	if h := g.known(a.Host); h != nil {
		h.keep(a)
	}
	g.watchers.committed(&a)
	if a.InquiresOf != "" && !a.Unresolved() {
		if earlier, err := g.store.Action(g.ctx, string(a.InquiresOf)); err == nil {
			g.publish(*earlier) // it was written with this one
		}
	}
}

// shown is the action as people see it: with the host's present sight laid over it, and judged now.
func (g *Gateway) shown(a longstop.Action) longstop.Action {
	if h := g.known(a.Host); h != nil {
		h.overlay(&a)
	}
	a, _ = redact.Value(g.cfg.Redact, a) // what was kept before it was configured as secret
	return lifecycle.Project(a, g.now().Time, g.stale())
}
