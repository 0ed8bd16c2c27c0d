package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/store/sqlite"
)

const (
	defaultSessionIdle = 24 * time.Hour
	// idleLooks bounds how long a session that has become idle stays open: the wall clock may be set, and
	// the machine may have slept.
	idleLooks = time.Minute
	// sessionsAtOnce bounds how many are looked at in one go.
	sessionsAtOnce = 1000
)

// sessions is what the gateway remembers of them beside the store.
type sessions struct {
	mu        sync.RWMutex
	standing  map[identity]longstop.SessionID // the default one of each owner, as last seen; it may have ended
	withdrawn map[longstop.SessionID]bool     // ended, and with them the leases of their runs, while there are any
}

// identity is whose a session is.
type identity struct{ kind, name string }

func identityOf(r longstop.Requester) identity { return identity{r.Kind, r.Name} }

func (g *Gateway) loadSessions() error {
	g.sessions.standing, g.sessions.withdrawn = map[identity]longstop.SessionID{}, map[longstop.SessionID]bool{}
	ended, err := g.store.Withdrawn(g.ctx)
	for _, id := range ended {
		g.sessions.withdrawn[id] = true
	}
	return err
}

// authorised reports whether the session of an action still stands behind its lease.
func (g *Gateway) authorised(a *longstop.Action) bool {
	g.sessions.mu.RLock()
	defer g.sessions.mu.RUnlock()
	return !g.sessions.withdrawn[a.SessionID]
}

// StartSession begins a session of whoever asks.
func (g *Gateway) StartSession(ctx context.Context, req longstop.SessionRequest, by longstop.Requester) (longstop.SessionView, error) {
	if len(req.Purpose) > 4096 || !utf8.ValidString(req.Purpose) {
		return longstop.SessionView{}, &longstop.Error{Code: longstop.CodeUsage, Message: "the purpose: want at most 4096 bytes of UTF-8",
			Hint: "longstop session start --help"}
	}
	if err := checkAsker(req.By); err != nil {
		return longstop.SessionView{}, err
	}
	if req.By.Via != "" {
		by.Via = req.By.Via
	}
	now := g.now()
	s := longstop.Session{ID: longstop.NewSessionID(now.Time), StartedBy: by, StartedAt: now, Purpose: g.cfg.Redact.Text(req.Purpose)}
	if err := g.store.Update(ctx, func(tx *sqlite.Tx) error { return tx.PutSession(&s, started(&s)) }); err != nil {
		return longstop.SessionView{}, err
	}
	return g.store.Session(ctx, string(s.ID))
}

func started(s *longstop.Session) journal.Entry {
	return journal.Entry{At: s.StartedAt, Kind: journal.SessionStarted, By: words(s.StartedBy)}
}

// standing returns the session of an owner's runs that name none. It stays the same while it is open,
// whichever process asks, and whichever gateway.
func (g *Gateway) standing(ctx context.Context, by longstop.Requester) (longstop.SessionID, error) {
	g.sessions.mu.RLock()
	id, known := g.sessions.standing[identityOf(by)]
	g.sessions.mu.RUnlock()
	if known {
		return id, nil
	}
	err := g.store.Update(ctx, func(tx *sqlite.Tx) error {
		there, err := tx.DefaultSession(by.Kind, by.Name)
		if err != nil || there != nil {
			if there != nil {
				id = there.ID
			}
			return err
		}
		now := g.now()
		s := longstop.Session{ID: longstop.NewSessionID(now.Time), StartedBy: by, StartedAt: now, Default: true}
		id = s.ID
		return tx.PutSession(&s, started(&s))
	})
	if err != nil {
		return "", err
	}
	g.sessions.mu.Lock()
	g.sessions.standing[identityOf(by)] = id
	g.sessions.mu.Unlock()
	return id, nil
}

// joinSession refuses a new action whose session has ended or is another's.
func joinSession(tx *sqlite.Tx, id longstop.SessionID, by identity) error {
	s, err := tx.Session(id)
	if err != nil {
		return err
	}
	return mayJoin(s, by)
}

func mayJoin(s *longstop.Session, by identity) error {
	switch {
	case identityOf(s.StartedBy) != by:
		return &longstop.Error{Code: longstop.CodeNotAllowed, Message: fmt.Sprintf("the session %s is not yours: it belongs to %s", s.ID, words(s.StartedBy)),
			Hint: "longstop session start --purpose WHY makes one of your own"}
	case s.Ended():
		return &longstop.Error{Code: longstop.CodeSessionEnded,
			Message: fmt.Sprintf("the session %s ended at %s (%s): nothing is started in it", s.ID, s.EndedAt.Format(time.RFC3339), s.EndedBecause),
			Hint:    "longstop session start --purpose WHY begins another"}
	}
	return nil
}

// sessionFor is the session of an action whose request names none: that of the attempt before it, where it
// still may be, else its owner's default one.
func (g *Gateway) sessionFor(ctx context.Context, next *nextAttempt, by longstop.Requester) (longstop.SessionID, error) {
	if next != nil {
		s, err := g.store.Session(ctx, string(next.earlier.SessionID))
		if err == nil && mayJoin(&s.Session, identityOf(by)) == nil {
			return s.ID, nil
		}
	}
	return g.standing(ctx, by)
}

// ended forgets a default session that has.
func (g *Gateway) ended(s *longstop.Session) {
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	if g.sessions.standing[identityOf(s.StartedBy)] == s.ID {
		delete(g.sessions.standing, identityOf(s.StartedBy))
	}
	if s.EndCancels != longstop.CancelsNobody {
		g.sessions.withdrawn[s.ID] = true
	}
}

// EndSession ends a session, and asks those of its runs to stop that its end is to cancel. Operators may end
// any, agents their own. One that has ended stays as it ended.
func (g *Gateway) EndSession(ctx context.Context, id string, cancels longstop.SessionCancel, by longstop.Requester) (longstop.SessionEnded, error) {
	view, err := g.Session(ctx, id, by)
	if err != nil {
		return longstop.SessionEnded{}, err
	}
	switch cancels {
	case "":
		cancels = longstop.CancelsLeased
	case longstop.CancelsLeased, longstop.CancelsAll, longstop.CancelsNobody:
	default:
		return longstop.SessionEnded{}, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("the end of a session cancels leased, all or none, not %q", cancels),
			Hint: "longstop session end --help"}
	}
	end := ending{by: words(by), because: longstop.SessionAsked, cancels: cancels}
	if err := g.endSession(ctx, view.ID, &end); err != nil {
		return longstop.SessionEnded{}, err
	}
	answer := longstop.SessionEnded{Cancelling: []longstop.ActionID{}, GoingOn: []longstop.ActionID{}}
	for i := range end.unresolved {
		if a := &end.unresolved[i]; cancelPending(a) {
			answer.Cancelling = append(answer.Cancelling, a.ID)
		} else if a.Unresolved() {
			answer.GoingOn = append(answer.GoingOn, a.ID)
		}
	}
	answer.Session, err = g.store.Session(ctx, string(view.ID))
	return answer, err
}

// ending is one end of a session: how, and the actions that were unresolved, as it leaves them.
type ending struct {
	by         string
	because    longstop.SessionEnd
	cancels    longstop.SessionCancel
	unresolved []longstop.Action
}

// takes reports whether the end cancels an action. What was not sent never is, afterwards, whatever goes on.
func (e *ending) takes(a *longstop.Action) bool {
	switch {
	case a.Launch.State == longstop.LaunchNotAttempted:
		return true
	case e.cancels == longstop.CancelsLeased:
		return a.Request.Lifetime == longstop.Leased
	}
	return e.cancels == longstop.CancelsAll
}

// endSession notes the end and every cancel in one transaction, so that no crash leaves a run with a session
// that has ended and nobody who stops it; then they are sent.
func (g *Gateway) endSession(ctx context.Context, id longstop.SessionID, end *ending) error {
	var s *longstop.Session
	err := g.store.Update(ctx, func(tx *sqlite.Tx) (err error) {
		end.unresolved = nil
		if s, err = tx.Session(id); err != nil || s.Ended() {
			return err
		}
		ids, err := tx.UnresolvedIn(id)
		if err != nil {
			return err
		}
		if end.because == longstop.SessionIdle {
			if idle, err := g.isIdle(tx, id, ids); !idle {
				return err
			}
		}
		s.EndedAt, s.EndedBy, s.EndedBecause, s.EndCancels = g.now(), end.by, end.because, end.cancels
		if err := tx.PutSession(s, journal.Entry{At: s.EndedAt, Kind: journal.SessionEnded, By: end.by}); err != nil {
			return err
		}
		for _, id := range ids {
			a, err := g.changeIn(tx, change{id, func(d *draft) error {
				if !end.takes(&d.Action) {
					return nil
				}
				return requestCancel(d, end.by+" (ended the session)")
			}})
			if err != nil {
				return err
			}
			end.unresolved = append(end.unresolved, a)
		}
		return nil
	})
	if err != nil || !s.Ended() {
		return err
	}
	g.ended(s)
	for _, a := range end.unresolved {
		g.publish(a)
		if cancelPending(&a) {
			g.pursueCancel(&a)
		}
	}
	return nil
}

// isIdle reports whether nothing has happened in a session for as long as configured, and nothing is unresolved.
// It is asked in the transaction that ends the session: whoever used it before that has kept it open.
func (g *Gateway) isIdle(tx *sqlite.Tx, id longstop.SessionID, unresolved []longstop.ActionID) (bool, error) {
	if len(unresolved) > 0 {
		return false, nil
	}
	last, err := tx.LastUsed(id)
	return err == nil && g.idleSince(last), err
}

func (g *Gateway) idleSince(last longstop.Time) bool {
	return g.now().Sub(last.Time) >= g.cfg.SessionIdle
}

// Session returns a session by its id or a part of it that fits no other. An agent sees its own.
func (g *Gateway) Session(ctx context.Context, id string, by longstop.Requester) (longstop.SessionView, error) {
	s, err := g.store.Session(ctx, id)
	if err == nil && by.Kind == longstop.RequesterAgent && identityOf(s.StartedBy) != identityOf(by) {
		return longstop.SessionView{}, &longstop.Error{Code: longstop.CodeNotAllowed,
			Message: fmt.Sprintf("the session %s is not yours: it belongs to %s", s.ID, words(s.StartedBy)), Hint: "longstop sessions"}
	}
	s, _ = redact.Value(g.cfg.Redact, s)
	return s, err
}

// SessionFilter chooses sessions for a list, newest first. The zero filter is all that are open, or have
// something unresolved.
type SessionFilter struct {
	All    bool
	Limit  int
	Before longstop.SessionID
}

// Sessions lists sessions, newest first: an agent's own, or everybody's.
func (g *Gateway) Sessions(ctx context.Context, f SessionFilter, by longstop.Requester) ([]longstop.SessionView, error) {
	of := sqlite.SessionFilter{Open: !f.All, Limit: f.Limit, Before: f.Before}
	if by.Kind == longstop.RequesterAgent {
		of.Kind, of.Name = by.Kind, by.Name
	}
	list, err := g.store.Sessions(ctx, of)
	list, _ = redact.Value(g.cfg.Redact, list) // what was kept before it was configured as secret
	return list, err
}

// endIdle ends sessions in which nothing has happened for as long as configured, for as long as the
// gateway runs.
func (g *Gateway) endIdle() {
	every := min(max(g.cfg.SessionIdle/4, 50*time.Millisecond), idleLooks)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		g.endIdleOnce()
		g.forgetWithdrawn()
		select {
		case <-ticker.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// endIdleOnce looks once. What cannot be read or written now is looked at again.
func (g *Gateway) endIdleOnce() {
	for page := (sqlite.SessionFilter{Open: true, Limit: sessionsAtOnce}); ; {
		list, err := g.store.Sessions(g.ctx, page)
		if err != nil {
			return
		}
		for _, s := range list {
			if !s.Ended() && s.Unresolved == 0 && g.idleSince(s.LastUsedAt) {
				g.endSession(g.ctx, s.ID, &ending{by: g.by, because: longstop.SessionIdle, cancels: longstop.CancelsLeased})
			}
		}
		if len(list) < sessionsAtOnce {
			return
		}
		page.Before = list[len(list)-1].ID
	}
}

// forgetWithdrawn forgets ended sessions none of whose runs is left: nothing joins them any more. What it forgets
// was known before the store was asked.
func (g *Gateway) forgetWithdrawn() {
	g.sessions.mu.RLock()
	known := slices.Collect(maps.Keys(g.sessions.withdrawn))
	g.sessions.mu.RUnlock()
	if len(known) == 0 {
		return
	}
	left, err := g.store.Withdrawn(g.ctx)
	if err != nil {
		return
	}
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	for _, id := range known {
		if !slices.Contains(left, id) {
			delete(g.sessions.withdrawn, id)
		}
	}
}
