package gateway

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

const (
	// refusalsEvery is how often the same refusal of the same caller becomes an entry.
	refusalsEvery = time.Minute
	// refusalsKept is how many refusals of one caller are told apart at once; what more there is of a kind
	// counts as one.
	refusalsKept = 10
)

// refusals keep a caller in a loop from filling the disk: what they bring about as often as they like becomes an
// entry once a minute, which counts those that were left out since the one before. Those that no other follows are
// journalled when their minute is over, and when the gateway closes; a crash loses the count of a minute.
type refusals struct {
	mu sync.Mutex
	of map[refusal]*repeated
}

// refusal is what makes two of them the same. Asker is who the socket or the token says it is: a name that the
// caller chooses would be a new one each time.
type refusal struct {
	asker string
	kind  journal.Kind
	what  string // was asked; of a fixed set
	about string // an action or a host; empty, and so is what: all that is over refusalsKept
}

type repeated struct {
	at      longstop.Time // of the last entry
	leftOut int           // since
	last    journal.Entry // of those
	say     map[string]any
}

// journalRefusal appends an entry about a refusal, unless the same one was a moment ago.
func (g *Gateway) journalRefusal(ctx context.Context, asker, what string, e journal.Entry, say map[string]any, raws ...sqlite.Raw) error {
	if e.ActionID != "" && e.SessionID == "" {
		if a, err := g.find(ctx, string(e.ActionID)); err == nil {
			e.SessionID, e.RunID, e.Host = a.SessionID, a.RunID, a.Host
		}
	}
	e.At = g.now()
	about := string(e.ActionID)
	if about == "" {
		about = e.Host
	}
	leftOut, due := g.refusals.due(refusal{asker, e.Kind, what, about}, e, say)
	if !due {
		return nil
	}
	return g.store.Update(context.WithoutCancel(ctx), func(tx *sqlite.Tx) error {
		return g.appendRefusal(tx, e, say, leftOut, raws...)
	})
}

func (g *Gateway) appendRefusal(tx *sqlite.Tx, e journal.Entry, say map[string]any, leftOut int, raws ...sqlite.Raw) error {
	all := maps.Clone(say)
	if all == nil {
		all = map[string]any{}
	}
	if leftOut > 0 {
		all["left_out"] = leftOut
	}
	if now := g.now(); now.Sub(e.At.Time) >= time.Second { // it waited for others like it
		all["refused_at"], e.At = e.At, now
	}
	if len(all) > 0 {
		e.Body = body(all)
	}
	_, err := tx.Append(e, raws...)
	return err
}

// due reports whether a refusal is to be an entry now, and how many that are the same were none since the last.
func (r *refusals) due(of refusal, e journal.Entry, say map[string]any) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[refusal]*repeated{}
	}
	if r.of[of] == nil && r.countOf(of.asker) >= refusalsKept {
		of.what, of.about = "", ""
	}
	seen := r.of[of]
	if seen == nil {
		r.of[of] = &repeated{at: e.At}
		return 0, true
	}
	if since := e.At.Sub(seen.at.Time); since >= 0 && since < refusalsEvery {
		seen.leftOut++
		seen.last, seen.say = e, say
		return 0, false
	}
	leftOut = seen.leftOut
	*seen = repeated{at: e.At}
	return leftOut, true
}

func (r *refusals) countOf(asker string) (n int) {
	for of := range r.of {
		if of.asker == asker {
			n++
		}
	}
	return n
}

// takeOld takes out what is over: those whose last entry is a minute old, or all. What was left out of them is
// returned, to be journalled.
func (r *refusals) takeOld(now longstop.Time, all bool) (left []repeated) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, seen := range r.of {
		if since := now.Sub(seen.at.Time); !all && since >= 0 && since < refusalsEvery {
			continue
		}
		if seen.leftOut == 0 {
			delete(r.of, of)
			continue
		}
		left = append(left, *seen)
		*seen = repeated{at: now}
	}
	return left
}

// appendLeftOut journals those: the last of each, with how many there were before it.
func (g *Gateway) appendLeftOut(tx *sqlite.Tx, left []repeated) error {
	for _, r := range left {
		if err := g.appendRefusal(tx, r.last, r.say, r.leftOut-1); err != nil {
			return err
		}
	}
	return nil
}

// journalRefusals does so for as long as the gateway runs.
func (g *Gateway) journalRefusals() {
	ticker := time.NewTicker(refusalsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.journalLeftOut()
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *Gateway) journalLeftOut() {
	if left := g.refusals.takeOld(g.now(), false); len(left) > 0 {
		g.store.Update(g.ctx, func(tx *sqlite.Tx) error { return g.appendLeftOut(tx, left) })
	}
}
