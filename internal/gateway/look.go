package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// ActionFilter chooses actions for a list, newest first. The zero filter is all that are unresolved, or
// over with an outcome that stays unknown.
type ActionFilter struct {
	All     bool // the others too
	Host    string
	Session longstop.SessionID
	Limit   int               // default 100
	Before  longstop.ActionID // page: older than this one
}

// JournalFilter chooses journal entries, oldest first. Empty fields choose all.
type JournalFilter struct {
	Action  longstop.ActionID
	Session longstop.SessionID
	Host    string
	Kind    string
	Since   time.Time // by the clock that the gateway had; zero: from the first
	After   int64     // entries with a larger index; -1 from the first
	Before  int64     // entries with a smaller index; 0: to the last
	Limit   int       // default 100
	Newest  bool      // but of one action's: the newest Limit ones, oldest first
}

// RawAnswer is what came over the wire about an action, as it came.
type RawAnswer struct {
	Kind  string        `json:"kind"` // "submit_answer", "record", …
	At    longstop.Time `json:"at"`
	Bytes []byte        `json:"bytes"`
}

// Action returns the action of an id, or of an unambiguous start or end of one.
func (g *Gateway) Action(ctx context.Context, id string) (longstop.Action, error) {
	a, err := g.find(ctx, id)
	if err != nil {
		return longstop.Action{}, err
	}
	return g.shown(a), nil
}

// find returns the action as last committed: from memory, where it is unresolved and the id is whole.
func (g *Gateway) find(ctx context.Context, id string) (longstop.Action, error) {
	for _, h := range g.allHosts() {
		if a, ok := h.kept(longstop.ActionID(id)); ok {
			return a, nil
		}
	}
	a, err := g.store.Action(ctx, id)
	if err != nil {
		return longstop.Action{}, err
	}
	return *a, nil
}

// Actions lists actions, newest first.
func (g *Gateway) Actions(ctx context.Context, f ActionFilter) ([]longstop.Action, error) {
	page, err := g.store.Actions(ctx, sqlite.Filter{
		Host: f.Host, SessionID: f.Session, Open: !f.All, Before: f.Before, Limit: f.Limit})
	if err != nil {
		return nil, err
	}
	for i := range page {
		page[i] = g.shown(page[i])
	}
	return page, nil
}

// Journal returns entries, oldest first.
func (g *Gateway) Journal(ctx context.Context, f JournalFilter) ([]longstop.JournalEntry, error) {
	from := f.After + 1
	if !f.Since.IsZero() {
		since, err := g.store.Since(ctx, f.Since)
		if err != nil {
			return nil, err
		}
		from = max(from, since)
	}
	entries, err := g.store.Entries(ctx, sqlite.EntryFilter{Action: f.Action, Session: f.Session, Host: f.Host, Kind: journal.Kind(f.Kind),
		From: from, Before: f.Before, Newest: f.Newest && f.Action == "", Limit: f.Limit})
	if err != nil {
		return nil, err
	}
	shown := make([]longstop.JournalEntry, len(entries))
	for i, e := range entries {
		shown[i] = g.shownEntry(e)
	}
	return shown, nil
}

// shownEntry is an entry as people see it.
func (g *Gateway) shownEntry(e journal.Entry) longstop.JournalEntry {
	shown := longstop.JournalEntry{Index: e.Index, At: e.At, Kind: string(e.Kind), ActionID: e.ActionID,
		SessionID: e.SessionID, RunID: e.RunID, Host: e.Host, By: g.cfg.Redact.Text(e.By)}
	if len(e.Body) > 0 {
		shown.Body = json.RawMessage(g.cfg.Redact.JSON(e.Body))
	}
	return shown
}

// Redact is a text with a mark for what is configured as secret: whoever shows what a Gateway's method did not
// return as a value takes it from here.
func (g *Gateway) Redact(text string) string { return g.cfg.Redact.Text(text) }

// Raw returns what came over the wire about an action, oldest first, as many bytes as came.
func (g *Gateway) Raw(ctx context.Context, id string) ([]RawAnswer, error) {
	a, err := g.store.Action(ctx, id)
	if err != nil {
		return nil, err
	}
	raws, err := g.store.Raw(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	answers := make([]RawAnswer, len(raws))
	for i, r := range raws {
		answers[i] = RawAnswer{Kind: r.Kind, At: r.At, Bytes: g.cfg.Redact.Bytes(r.Bytes)}
	}
	return answers, nil
}

// Inspect lists every process of the run's boundary, as the host sees them now.
func (g *Gateway) Inspect(ctx context.Context, id string) (wire.InspectAnswer, error) {
	var answer wire.InspectAnswer
	a, h, err := g.running(ctx, id)
	if err != nil {
		return answer, err
	}
	got, err := h.inquire(ctx, wire.VerbInspect, wire.RunRequest{RunIDs: []longstop.RunID{a.RunID}}, answerWithin)
	if err != nil {
		return answer, err
	}
	if err := got.read(&answer); err != nil {
		return answer, err
	}
	answer, _ = redact.Value(g.cfg.Redact, answer)
	return answer, nil
}

// inquire asks what changes nothing: over the present channel, and where that turns out to be dead,
// as it may have been for a while, once more over a new one.
func (h *host) inquire(ctx context.Context, verb wire.Verb, body any, within time.Duration) (reply, error) {
	ch, err := h.connect(ctx, nil)
	if err != nil {
		return reply{}, err
	}
	got, err := ch.ask(ctx, verb, body, within)
	if err == nil || ctx.Err() != nil || ch.live() {
		return got, err
	}
	if ch, err = h.connect(ctx, nil); err != nil {
		return reply{}, err
	}
	return ch.ask(ctx, verb, body, within)
}

// running returns an action that its host may know, and the host.
func (g *Gateway) running(ctx context.Context, id string) (longstop.Action, *host, error) {
	a, err := g.find(ctx, id)
	if err != nil {
		return longstop.Action{}, nil, err
	}
	if a.RunID == "" || a.Launch.State == longstop.LaunchNotAttempted || a.Launch.State == longstop.LaunchRejected {
		return a, nil, &longstop.Error{Code: longstop.CodeNotFound, ActionID: a.ID,
			Message: "nothing was started for " + string(a.ID), Hint: "longstop show " + string(a.ID)}
	}
	h, err := g.host(a.Host)
	return a, h, err
}
