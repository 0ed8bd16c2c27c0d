package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// ofSessions is the name of the sessions' patches.
const ofSessions = "session"

const selectSession = `SELECT json FROM sessions `

func scanSession(r row) (*longstop.Session, []byte, error) {
	var data []byte
	switch err := r.Scan(&data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read a session: %w", err)
	}
	s, err := readSession(data)
	return s, data, err
}

func readSession(data []byte) (*longstop.Session, error) {
	s := new(longstop.Session)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read a session: %w", err)
	}
	return s, nil
}

func sessionNotFound(id string) error {
	return &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("no session %q", id),
		Hint: "longstop sessions -a lists them, longstop session start --purpose WHY makes one"}
}

// commonKinds are those that entries_kind leaves out: as a migration made it.
const commonKinds = `'requested', 'launch_intended', 'launch_answered', 'observed'`

// sessionColumns are all of a session's.
const sessionColumns = "id, tail, kind, name, standing, ended, json"

func sessionRow(s *longstop.Session, data []byte) []any {
	return []any{string(s.ID), backwards(string(s.ID)), s.StartedBy.Kind, s.StartedBy.Name, s.Default, s.Ended(), string(data)}
}

// PutSession makes or changes a session, and appends the entry that says why, to which it adds what changed.
// It fails where its owner has another default session that is open.
func (tx *Tx) PutSession(s *longstop.Session, why journal.Entry) error {
	_, before, err := scanSession(tx.store.stmt.session.QueryRow(string(s.ID)))
	if err != nil {
		return err
	}
	*s, _ = redact.Value(tx.store.secrets, *s)
	after, err := json.Marshal(s)
	if err == nil {
		why.SessionID = s.ID
		_, err = tx.AppendPatch(why, ofSessions, before, after)
	}
	if err == nil {
		err = tx.store.exec(tx.store.stmt.putSession, sessionRow(s, after)...)
	}
	if err != nil {
		return fmt.Errorf("put session %s: %w", s.ID, err)
	}
	return nil
}

// Session returns a session by its whole id, or longstop.CodeNotFound.
func (tx *Tx) Session(id longstop.SessionID) (*longstop.Session, error) {
	s, _, err := scanSession(tx.store.stmt.session.QueryRow(string(id)))
	if err == nil && s == nil {
		err = sessionNotFound(string(id))
	}
	return s, err
}

// DefaultSession returns the open session of an owner's runs that name none, nil if there is none.
func (tx *Tx) DefaultSession(kind, name string) (*longstop.Session, error) {
	s, _, err := scanSession(tx.store.stmt.defaultSession.QueryRow(kind, name))
	return s, err
}

// UnresolvedIn returns the unresolved actions of a session, oldest first.
func (tx *Tx) UnresolvedIn(id longstop.SessionID) ([]longstop.ActionID, error) {
	rows, err := tx.store.stmt.unresolvedIn.QueryContext(context.Background(), string(id))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []longstop.ActionID
	for rows.Next() {
		var id longstop.ActionID
		if err := rows.Scan((*string)(&id)); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// Session returns a session by its id, or a part of it that fits no other, as Action does.
func (s *Store) Session(ctx context.Context, id string) (longstop.SessionView, error) {
	one := func(id string) (longstop.SessionView, error) {
		found, _, err := scanSession(s.reads.QueryRowContext(ctx, selectSession+`WHERE id = ?`, id))
		if err != nil || found == nil {
			return longstop.SessionView{}, err
		}
		return s.view(ctx, *found)
	}
	if view, err := one(id); view.ID != "" || err != nil {
		return view, err
	}
	part := idPart(id, "SES_")
	if part == "" {
		return longstop.SessionView{}, sessionNotFound(id)
	}
	found, err := s.candidates(ctx, "sessions", "ses_", part)
	switch {
	case err != nil:
		return longstop.SessionView{}, err
	case len(found) == 0:
		return longstop.SessionView{}, sessionNotFound(id)
	case len(found) > 1:
		return longstop.SessionView{}, ambiguous(id, found)
	}
	return one(found[0])
}

// view adds what came of a session's actions.
func (s *Store) view(ctx context.Context, of longstop.Session) (longstop.SessionView, error) {
	v := longstop.SessionView{Session: of, Outcomes: map[longstop.Outcome]int{}}
	err := s.each(ctx, `SELECT outcome, n FROM tally WHERE session_id = ? AND n > 0`, []any{string(of.ID)}, func(r row) error {
		var outcome string
		var n int
		err := r.Scan(&outcome, &n)
		switch outcome {
		case "unresolved":
			v.Unresolved = n
		case settledUnknown:
			v.Outcomes[longstop.OutcomeUnknown] += n
		default:
			v.Outcomes[longstop.Outcome(outcome)] += n
		}
		return err
	})
	if err != nil {
		return v, err
	}
	v.LastUsedAt, err = s.lastUsed(ctx, of.ID)
	return v, err
}

// lastUsed is when something was noted about a session or its actions, but for what the gateway tidies by
// itself.
func (s *Store) lastUsed(ctx context.Context, id longstop.SessionID) (longstop.Time, error) {
	var data []byte
	err := s.reads.QueryRowContext(ctx, selectLastUse, string(id)).Scan(&data)
	return readLastUse(id, data, err)
}

// LastUsed is the same as it is inside the transaction.
func (tx *Tx) LastUsed(id longstop.SessionID) (longstop.Time, error) {
	var data []byte
	err := tx.store.stmt.lastUse.QueryRow(string(id)).Scan(&data)
	return readLastUse(id, data, err)
}

const used = ` AND kind NOT IN ('` + string(journal.RetentionApplied) + `', '` + string(journal.SessionEnded) + `') ORDER BY idx DESC LIMIT 1`

var selectLastUse = `SELECT bytes FROM entries WHERE idx = coalesce((` + unfiled(`session_id`, `?1`) + used + `), (` +
	filed(`session_id`, `?1`) + strings.Replace(used, ` idx`, ` filed.idx`, 1) + `))`

func readLastUse(id longstop.SessionID, data []byte, err error) (longstop.Time, error) {
	if err != nil {
		return longstop.Time{}, fmt.Errorf("look for the last entry of %s: %w", id, err)
	}
	e, err := journal.Decode(data)
	return e.At, err
}

// SessionFilter chooses sessions. Empty fields choose all.
type SessionFilter struct {
	Kind, Name string             // of their owner
	Open       bool               // only those that are open, or have something unresolved
	Before     longstop.SessionID // only those that began before this one
	Limit      int                // 0: 100
}

// Sessions returns a page of sessions, newest first.
func (s *Store) Sessions(ctx context.Context, f SessionFilter) ([]longstop.SessionView, error) {
	before := string(f.Before)
	if before == "" {
		before = "ses_~"
	}
	where := ` WHERE id < ?1`
	if f.Kind != "" {
		where += ` AND kind = ?3 AND name = ?4`
	}
	query := selectSession + where + ` ORDER BY id DESC LIMIT ?2`
	if f.Open {
		query = selectSession + `WHERE id IN (SELECT id FROM sessions INDEXED BY sessions_open WHERE ended = 0
			UNION SELECT session_id FROM tally INDEXED BY tally_unresolved WHERE outcome = 'unresolved' AND n > 0) AND` +
			where[len(` WHERE`):] + ` ORDER BY id DESC LIMIT ?2`
	}
	var list []longstop.SessionView
	err := s.each(ctx, query, []any{before, limit(f.Limit), f.Kind, f.Name}, func(r row) error {
		found, _, err := scanSession(r)
		if err == nil {
			list = append(list, longstop.SessionView{Session: *found})
		}
		return err
	})
	for i := range list {
		if err == nil {
			list[i], err = s.view(ctx, list[i].Session)
		}
	}
	return list, err
}

// Withdrawn returns the sessions that ended with a cancel for their runs, some of which are unresolved.
func (s *Store) Withdrawn(ctx context.Context) (ids []longstop.SessionID, err error) {
	const query = selectSession + `WHERE ended = 1 AND id IN (SELECT session_id FROM tally INDEXED BY tally_unresolved WHERE outcome = 'unresolved' AND n > 0)`
	err = s.each(ctx, query, nil, func(r row) error {
		found, _, err := scanSession(r)
		if err == nil && found.EndCancels != longstop.CancelsNobody {
			ids = append(ids, found.ID)
		}
		return err
	})
	return ids, err
}
