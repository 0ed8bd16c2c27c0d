package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// Notice is an entry that is to be told to people one way and was not yet.
type Notice struct {
	Way     string
	ID      string // the same at each try
	Entry   journal.Entry
	Tries   int // that failed
	DueAt   longstop.Time
	Failure string // of the last try
}

// Tell has every entry of these kinds that is appended from now on told to people in each of these ways:
// a notice is written in the same transaction. Call it before the first update.
func (s *Store) Tell(kinds []journal.Kind, ways []string) { s.tells = Tells{kinds, ways} }

// Tells is of which entries people are told, and in which ways. A gateway_started entry has it under "tells", so
// that the log says which notices there were from there on.
type Tells struct {
	Kinds []journal.Kind `json:"kinds"`
	Ways  []string       `json:"ways"`
}

// Tells is what Tell was called with.
func (s *Store) Tells() Tells { return s.tells }

// addNotices writes the notices of an entry that was appended.
func (tx *Tx) addNotices(e *journal.Entry) error {
	if !slices.Contains(tx.store.tells.Kinds, e.Kind) {
		return nil
	}
	for _, way := range tx.store.tells.Ways {
		id, err := noticeID(e, way)
		if err == nil {
			err = tx.store.exec(tx.store.stmt.addNotice, way, e.Index, id, 0, e.At.UnixMicro(), "")
		}
		if err != nil {
			return fmt.Errorf("keep a notice of entry %d: %w", e.Index, err)
		}
	}
	return nil
}

// noticeID follows from the entry, so that who is told twice can know it even where the notice was written anew.
func noticeID(e *journal.Entry, way string) (string, error) {
	data, err := journal.Encode(*e)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(data, "\n"+way...))
	return "ntc_" + base32.StdEncoding.EncodeToString(sum[:])[:26], nil
}

// NextNotice returns the notice that is to be told next one way, which may be due later, or nil.
func (s *Store) NextNotice(ctx context.Context, way string) (*Notice, error) {
	n := Notice{Way: way}
	var due int64
	var entry []byte
	err := s.reads.QueryRowContext(ctx, `SELECT id, tries, due_at, failure, bytes FROM notices JOIN entries ON idx = entry
		WHERE way = ? ORDER BY due_at, entry LIMIT 1`, way).Scan(&n.ID, &n.Tries, &due, &n.Failure, &entry)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		n.DueAt = longstop.At(time.UnixMicro(due))
		n.Entry, err = journal.Decode(entry)
	}
	if err != nil {
		return nil, fmt.Errorf("read the next notice: %w", err)
	}
	return &n, nil
}

// PutNotice keeps how often a notice was tried, and when it is tried next.
func (tx *Tx) PutNotice(n *Notice) error {
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.putNotice, n.Tries, n.DueAt.UnixMicro(), n.Failure, n.Way, n.Entry.Index); err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	return nil
}

// DeleteNotice takes a notice out that was told.
func (tx *Tx) DeleteNotice(n *Notice) error {
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.deleteNotice, n.Way, n.Entry.Index); err != nil {
		return fmt.Errorf("delete a notice: %w", err)
	}
	return nil
}

// DropNotices takes out those whose way is none that Tell was called with, and returns how many there
// were of each.
func (tx *Tx) DropNotices() (map[string]int, error) {
	rows, err := tx.store.stmt.noticeWays.Query()
	if err != nil {
		return nil, fmt.Errorf("count notices: %w", err)
	}
	defer rows.Close()
	dropped := map[string]int{}
	for rows.Next() {
		var way string
		var n int
		if err := rows.Scan(&way, &n); err != nil {
			return nil, fmt.Errorf("count notices: %w", err)
		}
		if !slices.Contains(tx.store.tells.Ways, way) {
			dropped[way] = n
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, fmt.Errorf("count notices: %w", err)
	}
	for way := range dropped {
		tx.wrote = true
		if err := tx.store.exec(tx.store.stmt.dropNotices, way); err != nil {
			return nil, fmt.Errorf("drop notices: %w", err)
		}
	}
	return dropped, nil
}
