package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
	"github.com/longstop/longstop/internal/journal"
)

// Replayed is what came of replaying the log.
type Replayed struct {
	Rows                              int      // that the log gives
	Earlier                           int      // that it does not: made by a version whose entries did not say what changed
	From                              int64    // the first entry that says so; all of Earlier were made before it
	Hosts, Tokens, Approvers, Notices int      // that the log gives, in whole or in part
	Partly                            []string // of these: of which earlier versions told not all
}

// Difference is the first place where a projection is not what the log gives.
type Difference struct {
	Row   string // the id of an action or a session, or what it is and its name
	Field string // a column, or a member of the JSON
	Why   string
}

func (d *Difference) Error() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: %s", d.Row, d.Why)
	}
	return fmt.Sprintf("%s: %s: %s", d.Row, d.Field, d.Why)
}

// actionColumns are all of an action's but seq, which rises in the order in which they were made.
var actionColumns = []string{"id", "tail", "key", "session_id", "host", "created_at", "run_id", "revision", "unresolved", "outcome", "entry", "requester", "traits", "json"}

// actionRow is an action as its row holds it, in the order of actionColumns.
func actionRow(a *longstop.Action, entry int64, data []byte) []any {
	return []any{string(a.ID), backwards(string(a.ID)), a.IdempotencyKey, string(a.SessionID), a.Host,
		a.CreatedAt.UnixMicro(), optional(string(a.RunID)), a.Revision, a.Unresolved(), openOutcome(a), entry,
		requester(a.RequestedBy), traitsOf(a), string(data)}
}

// replayedAction is an action as the log gives it.
type replayedAction struct {
	id        longstop.ActionID
	entry     int64 // the last that changed it
	action    *longstop.Action
	noiseGone bool // what a login shell printed is not kept any more
}

func (r *replayedAction) row() []any {
	return actionRow(r.action, r.entry, fastjson.AppendAction(nil, r.action))
}

// firstPatch is the first entry that says what changed; the next to come, where none does.
func firstPatch(ctx context.Context, db querier) (int64, error) {
	next := int64(0)
	for e, err := range storedEntries(ctx, db) {
		if err != nil {
			return 0, err
		}
		entry, err := journal.Decode(e.Bytes)
		if err != nil {
			return 0, &journal.BadEntry{Index: e.Index, Why: err.Error()}
		}
		if patch, err := journal.PatchOf(entry.Body, ofActions); err == nil && patch != nil {
			return e.Index, nil
		}
		next = e.Index + 1
	}
	return next, nil
}

// replay calls fn with each action that the log gives, in the order in which they were made.
func replay(ctx context.Context, db querier, fn func(*replayedAction) error) (Replayed, error) {
	var done Replayed
	var err error
	if done.From, err = firstPatch(ctx, db); err != nil {
		return done, err
	}
	rows, err := db.QueryContext(ctx, `SELECT action_id, min(idx) AS first FROM entries WHERE action_id IS NOT NULL
		GROUP BY action_id ORDER BY first`)
	if err != nil {
		return done, err
	}
	defer rows.Close()
	for rows.Next() {
		var id longstop.ActionID
		var first int64
		if err := rows.Scan((*string)(&id), &first); err != nil {
			return done, err
		}
		if first < done.From {
			done.Earlier++
			continue
		}
		r, err := replayAction(ctx, db, id)
		if err == nil {
			err = fn(r)
		}
		if err != nil {
			return done, err
		}
		done.Rows++
	}
	return done, rows.Err()
}

// replayAction applies the patches of one action's entries.
func replayAction(ctx context.Context, db querier, id longstop.ActionID) (*replayedAction, error) {
	rows, err := db.QueryContext(ctx, `SELECT idx, bytes FROM entries WHERE action_id = ? ORDER BY idx`, string(id))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	r := &replayedAction{id: id, entry: -1}
	var data []byte
	noise := noiseSeen{entry: -1}
	for rows.Next() {
		var index int64
		var text sql.RawBytes
		if err := rows.Scan(&index, &text); err != nil {
			return nil, err
		}
		entry, err := journal.Decode(text)
		var patch []byte
		if err == nil {
			patch, err = journal.PatchOf(entry.Body, ofActions)
		}
		if err == nil && patch != nil {
			r.entry = index
			data, err = journal.Merge(data, patch)
		}
		if err != nil {
			return nil, &journal.BadEntry{Index: index, Why: err.Error()}
		}
		noise.look(index, entry.Raw)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if data == nil {
		return nil, &Difference{Row: string(id), Why: "no entry says what it is"}
	}
	if r.action, err = readAction(data); err != nil {
		return nil, &journal.BadEntry{Index: r.entry, Why: err.Error()}
	}
	r.action.SSHCommand.Noise, r.noiseGone, err = noise.read(ctx, db)
	return r, err
}

// noiseSeen is where the bytes are that a login shell printed last.
type noiseSeen struct {
	entry int64
	place int
}

func (n *noiseSeen) look(entry int64, raws []journal.RawDigest) {
	for place, raw := range raws {
		if raw.Kind == rawNoise {
			n.entry, n.place = entry, place
		}
	}
}

func (n *noiseSeen) read(ctx context.Context, db querier) (noise string, gone bool, err error) {
	if n.entry < 0 {
		return "", false, nil
	}
	err = db.QueryRowContext(ctx, `SELECT bytes FROM raws WHERE entry = ? AND place = ?`, n.entry, n.place).Scan(&noise)
	if errors.Is(err, sql.ErrNoRows) {
		return "", true, nil
	}
	return noise, false, err
}

// CheckProjections replays the log and compares all that it gives with what is stored: every action, its columns and
// its JSON, every session, host, token, approver and notice, and the policy. The first that differs is a *Difference.
func (s *Store) CheckProjections(ctx context.Context) (Replayed, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Replayed{}, err
	}
	defer tx.Rollback()
	before := int64(-1)
	done, err := replay(ctx, tx, func(r *replayedAction) error { return r.compare(ctx, tx, &before) })
	if err != nil {
		return done, err
	}
	var id string
	err = tx.QueryRowContext(ctx, `SELECT id FROM actions WHERE NOT EXISTS (SELECT 1 FROM entries WHERE action_id = actions.id)
		ORDER BY seq LIMIT 1`).Scan(&id)
	if err == nil {
		err = &Difference{Row: id, Why: "no entry is about it"}
	} else if errors.Is(err, sql.ErrNoRows) {
		err = checkSessions(ctx, tx)
	}
	if err != nil {
		return done, err
	}
	w, err := replayStanding(ctx, tx)
	if err == nil {
		err = w.check(ctx, tx)
		done.count(w)
	}
	return done, err
}

// count adds what else the log gave.
func (r *Replayed) count(w *standing) {
	r.Hosts, r.Tokens, r.Approvers, r.Notices, r.Partly = len(w.hosts), len(w.tokens), len(w.approvers), len(w.notices.pending), w.partly
}

// compare holds a row against what the log gives. Before is the seq of the one made before it.
func (r *replayedAction) compare(ctx context.Context, db querier, before *int64) error {
	differs := func(field, format string, args ...any) error {
		return &Difference{string(r.id), field, fmt.Sprintf(format, args...)}
	}
	var id, tail, key, session, host, outcome, by, data string
	var run sql.NullString
	var seq, created, revision, entry, traits int64
	var unresolved bool
	const query = `SELECT seq, id, tail, key, session_id, host, created_at, run_id, revision, unresolved, outcome, entry, requester, traits, json FROM actions WHERE id = ?`
	err := db.QueryRowContext(ctx, query, string(r.id)).Scan(&seq, &id, &tail, &key, &session, &host, &created, &run, &revision, &unresolved, &outcome, &entry, &by, &traits, &data)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return differs("", "it is not there")
	case err != nil:
		return err
	case seq <= *before:
		return differs("seq", "it is %d, and of the one made before it %d", seq, *before)
	}
	*before = seq
	if err := r.compareJSON([]byte(data), differs); err != nil {
		return err
	}
	is := []any{id, tail, key, session, host, created, run, revision, unresolved, outcome, entry, by, traits}
	for i, want := range r.row()[:len(is)] {
		if is[i] != want {
			return differs(actionColumns[i], "it is %v, and the journal says %v", is[i], want)
		}
	}
	return nil
}

func (r *replayedAction) compareJSON(data []byte, differs func(field, format string, args ...any) error) error {
	stored, err := readAction(data)
	if err != nil {
		return differs("json", "%v", err)
	}
	if r.noiseGone {
		stored.SSHCommand.Noise = ""
	}
	is, want := fastjson.AppendAction(nil, stored), fastjson.AppendAction(nil, r.action)
	field, err := journal.FirstDifference(is, want)
	if err != nil || field != "" {
		return differs(field, "it is not what the journal says")
	}
	return nil
}

// Rebuild writes every row anew that the log gives, and removes what it does not know. The gateway
// must not run: it has read what is there.
func (s *Store) Rebuild(ctx context.Context) (done Replayed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return done, s.refuse
	}
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return done, err
	}
	defer tx.Rollback()
	from, err := firstPatch(ctx, tx)
	if err != nil {
		return done, err
	}
	if _, err := tx.ExecContext(ctx, `PRAGMA defer_foreign_keys = 1`); err != nil {
		return done, err
	}
	const unknown = `DELETE FROM actions WHERE NOT EXISTS (SELECT 1 FROM entries WHERE action_id = actions.id AND idx < ?)`
	if _, err := tx.ExecContext(ctx, unknown, from); err != nil {
		return done, err
	}
	insert := tx.StmtContext(ctx, s.stmt.insertAction)
	done, err = replay(ctx, tx, func(r *replayedAction) error {
		_, err := insert.ExecContext(ctx, r.row()...)
		return err
	})
	if err != nil {
		return done, fmt.Errorf("rebuild: %w", err)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM secrets WHERE action_id NOT IN (SELECT id FROM actions)`); err != nil {
		return done, err
	}
	if err := s.rebuildSessions(ctx, tx); err != nil {
		return done, err
	}
	w, err := s.rebuildStanding(ctx, tx)
	if err != nil {
		return done, err
	}
	done.count(w)
	return done, tx.Commit()
}
