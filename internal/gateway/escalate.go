package gateway

import (
	"context"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
)

// toldToPeople are the kinds of entries that go out by the configured ways.
var toldToPeople = []journal.Kind{journal.Escalated, journal.EscalationOver, journal.Contradiction, journal.UnclaimedRun}

// weigh notes in a draft what is to be brought to people, once for each reason, and what of it is over.
// seen is the action as people see it.
func (g *Gateway) weigh(d *draft, seen *longstop.Action) {
	for _, e := range reconcile.Pressing(seen, d.at.Time) {
		if place := escalationOf(d.Escalations, e.Because); place == nil || !place.OverAt.IsZero() {
			e.At = d.at
			d.Escalations = append(without(d.Escalations, e.Because), e)
			d.note(journal.Escalated, g.by, map[string]any{"because": e.Because, "message": e.Message, "since": e.Since,
				"outcome": seen.Outcome, "alive": seen.Alive, "next": seen.Next})
		}
	}
	for i := range d.Escalations {
		e := &d.Escalations[i]
		if !e.OverAt.IsZero() || !reconcile.Over(seen, e.Because) {
			continue
		}
		d.Escalations = append([]longstop.Escalation(nil), d.Escalations...) // others may have the list
		e = &d.Escalations[i]
		e.OverAt = d.at
		d.note(journal.EscalationOver, g.by, map[string]any{"because": e.Because, "since": e.Since,
			"outcome": seen.Outcome, "alive": seen.Alive, "next": seen.Next})
	}
}

func escalationOf(list []longstop.Escalation, because longstop.EscalationReason) *longstop.Escalation {
	for i := range list {
		if list[i].Because == because {
			return &list[i]
		}
	}
	return nil
}

func without(list []longstop.Escalation, because longstop.EscalationReason) []longstop.Escalation {
	var kept []longstop.Escalation
	for _, e := range list {
		if e.Because != because {
			kept = append(kept, e)
		}
	}
	return kept
}

// judged is a draft's action with its verdict, without its host's present sight: as it is once the host
// has nothing more to say.
func (g *Gateway) judged(d *draft) *longstop.Action {
	seen := lifecycle.Project(d.Action, d.at.Time, g.stale())
	return &seen
}

// watchUnknowns weighs what is unresolved, again and again: an unknown becomes pressing by the clock alone.
// What is resolved was weighed when that was written.
func (g *Gateway) watchUnknowns() {
	ticker := time.NewTicker(2 * g.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.weighAll()
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *Gateway) weighAll() {
	var changes []change
	for _, h := range g.allHosts() {
		for _, id := range h.open() {
			if a, ok := h.kept(id); ok && g.tips(a) {
				changes = append(changes, change{id, func(d *draft) error {
					if d.Unresolved() { // else it was weighed with what resolved it
						seen := g.shown(d.Action)
						g.weigh(d, &seen)
					}
					return nil
				}})
			}
		}
	}
	for len(changes) > 0 {
		some := changes[:min(len(changes), runsAtOnce)]
		changes = changes[len(some):]
		if _, err := g.changeAll(context.WithoutCancel(g.ctx), some); err != nil {
			return // the same is found next time
		}
	}
}

// tips reports whether weighing an action would change it.
func (g *Gateway) tips(a longstop.Action) bool {
	seen := g.shown(a)
	d := draft{Action: a, at: g.now()}
	g.weigh(&d, &seen)
	return len(d.entries) > 0
}
