package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/longstop/longstop"
)

// Streams is a set of output streams.
type Streams int

// The streams of a run.
const (
	Stdout Streams = 1 << iota
	Stderr
)

// Kept is a run with a final record here of which its host still keeps something.
type Kept struct {
	RunID    longstop.RunID
	ActionID longstop.ActionID
	Since    longstop.Time // when the final record became durable here
	Unread   Streams       // with bytes that nobody has read to their end
}

// Keep notes that the host of an action keeps its run, unless that is known.
func (tx *Tx) Keep(a *longstop.Action, since longstop.Time) error {
	var unread Streams
	if a.Output.StdoutBytes > 0 {
		unread |= Stdout
	}
	if a.Output.StderrBytes > 0 {
		unread |= Stderr
	}
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.keep, string(a.RunID), string(a.ID), since.UnixMicro(), int(unread), a.Host); err != nil {
		return fmt.Errorf("note that %s is kept: %w", a.RunID, err)
	}
	return nil
}

// Unkeep notes that the host keeps nothing more of a run.
func (tx *Tx) Unkeep(id longstop.RunID) error { return tx.keptIs(tx.store.stmt.unkeep, id) }

// Collected notes that the host answered that a run may go.
func (tx *Tx) Collected(id longstop.RunID, at longstop.Time) error {
	return tx.keptIs(tx.store.stmt.collected, id, at.UnixMicro())
}

// WasRead notes that streams of a run were read to their end.
func (tx *Tx) WasRead(id longstop.RunID, streams Streams) error {
	return tx.keptIs(tx.store.stmt.wasRead, id, int(streams))
}

func (tx *Tx) keptIs(s *sql.Stmt, id longstop.RunID, args ...any) error {
	tx.wrote = true
	if err := tx.store.exec(s, append([]any{string(id)}, args...)...); err != nil {
		return fmt.Errorf("change what is kept of %s: %w", id, err)
	}
	return nil
}

// Uncollected returns runs of a state folder that the host was not told may go, or has not answered.
func (s *Store) Uncollected(ctx context.Context, stateID string, limit int) ([]longstop.RunID, error) {
	var ids []longstop.RunID
	const query = `SELECT run_id FROM kept INDEXED BY kept_uncollected WHERE state_id = ? AND collected_at IS NULL LIMIT ?`
	err := s.each(ctx, query, []any{stateID, limit}, func(r row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, longstop.RunID(id))
		return err
	})
	return ids, err
}

// DueFilter chooses kept runs of a state folder that may go, by when their final records became durable
// here: collected ones that were read, collected ones, any.
type DueFilter struct {
	StateID           string
	Read, Unread, Any time.Time
	After             *Kept // the last of the page before
	Limit             int
}

// Due returns a page of the runs that a filter chooses, oldest first.
func (s *Store) Due(ctx context.Context, f DueFilter) ([]Kept, error) {
	const query = `SELECT run_id, action_id, since, unread FROM kept INDEXED BY kept_since
		WHERE state_id = ?1 AND since >= ?2 AND (since, run_id) > (?2, ?3) AND since <= max(?4, ?5, ?6)
		AND (collected_at IS NOT NULL AND (unread = 0 AND since <= ?4 OR since <= ?5) OR since <= ?6)
		ORDER BY since, run_id LIMIT ?7`
	since, run := int64(0), ""
	if f.After != nil {
		since, run = f.After.Since.UnixMicro(), string(f.After.RunID)
	}
	var due []Kept
	args := []any{f.StateID, since, run, f.Read.UnixMicro(), f.Unread.UnixMicro(), f.Any.UnixMicro(), limit(f.Limit)}
	err := s.each(ctx, query, args, func(r row) error {
		var k Kept
		var at int64
		err := r.Scan(&k.RunID, &k.ActionID, &at, &k.Unread)
		k.Since = longstop.At(time.UnixMicro(at))
		due = append(due, k)
		return err
	})
	return due, err
}

// Oldest is since when the oldest kept runs of a state folder are kept.
type Oldest struct {
	Read    time.Time // of those that were read; zero: there is none
	Any     time.Time // of all
	Waiting bool      // some were not collected
}

// Oldest looks for the oldest kept runs of a state folder.
func (s *Store) Oldest(ctx context.Context, stateID string) (oldest Oldest, err error) {
	const query = `SELECT coalesce(min(since) FILTER (WHERE unread = 0), 0), coalesce(min(since), 0),
		count(*) > count(collected_at) FROM kept WHERE state_id = ?`
	var read, any int64
	if err := s.reads.QueryRowContext(ctx, query, stateID).Scan(&read, &any, &oldest.Waiting); err != nil {
		return oldest, fmt.Errorf("look for the oldest kept run: %w", err)
	}
	if read > 0 {
		oldest.Read = time.UnixMicro(read)
	}
	if any > 0 {
		oldest.Any = time.UnixMicro(any)
	}
	return oldest, nil
}
