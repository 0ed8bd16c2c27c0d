package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// keptCheckpoints is how many checkpoints are kept that nobody else signed.
const keptCheckpoints = 100

// Checkpoint is a signed head that is kept.
type Checkpoint struct {
	Size     int64 // as filed; what is signed is in Note
	At       longstop.Time
	Cosigned bool
	Note     []byte
}

// KeepCheckpoint keeps a checkpoint; one that others signed takes the place of one that nobody did.
func (tx *Tx) KeepCheckpoint(c Checkpoint) error {
	tx.wrote = true
	err := tx.store.exec(tx.store.stmt.keepCheckpoint, c.Size, c.At.UnixMicro(), c.Cosigned, c.Note)
	if err == nil {
		err = tx.store.exec(tx.store.stmt.dropCheckpoints, keptCheckpoints)
	}
	if err != nil {
		return fmt.Errorf("keep a checkpoint: %w", err)
	}
	return nil
}

// Checkpoints are those that are kept, oldest first.
func (s *Store) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	var all []Checkpoint
	err := s.each(ctx, `SELECT size, at, cosigned, note FROM checkpoints ORDER BY size`, nil, func(r row) error {
		var c Checkpoint
		var at int64
		err := r.Scan(&c.Size, &at, &c.Cosigned, &c.Note)
		c.At = longstop.At(time.UnixMicro(at))
		all = append(all, c)
		return err
	})
	return all, err
}

// HeadAt is the log's head as it was at an earlier size.
func (s *Store) HeadAt(ctx context.Context, size int64) (journal.Head, error) {
	hash, err := tlog.TreeHash(size, storedHashes(ctx, s.reads))
	if err != nil {
		return journal.Head{}, fmt.Errorf("read the log at %d entries: %w", size, err)
	}
	return journal.Head{Size: size, Hash: hash}, nil
}

// Chosen says which entries go into a bundle: all from From up to and without To, of one action or
// session if that is given.
type Chosen struct {
	Action   longstop.ActionID
	Session  longstop.SessionID
	From, To int64
}

// Prove returns entries with their proofs in the log of a head, and for each earlier one the proof that
// the log goes on from it. Withhold, where given, says of an entry's bytes why they may not leave.
func (s *Store) Prove(ctx context.Context, head journal.Head, which Chosen, earlier []journal.Head, withhold func(entry []byte) string) (*journal.Bundle, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	hashes := remembered(storedHashes(ctx, tx))
	b := &journal.Bundle{Format: journal.BundleFormat, Entries: []journal.Proven{}}
	for e, err := range chosenEntries(ctx, tx, which, head.Size) {
		if err != nil {
			return nil, err
		}
		p := journal.Proven{Index: e.entry.Index, Bytes: e.bytes}
		if p.Proof, err = tlog.ProveRecord(head.Size, p.Index, hashes); err != nil {
			return nil, fmt.Errorf("prove entry %d: %w", p.Index, err)
		}
		if p.Withheld = withhold(p.Bytes); p.Withheld != "" {
			hash := tlog.RecordHash(p.Bytes)
			p.Bytes, p.Hash = nil, &hash
		}
		b.Entries = append(b.Entries, p)
	}
	for _, h := range earlier {
		c := journal.Consistency{Head: h}
		if h.Size < 1 || h.Size > head.Size {
			return nil, &journal.BadEntry{Index: head.Size, Why: fmt.Sprintf("is missing: an earlier look saw %d entries", h.Size)}
		}
		if c.Proof, err = tlog.ProveTree(head.Size, h.Size, hashes); err != nil {
			return nil, fmt.Errorf("prove the log from %d entries on: %w", h.Size, err)
		}
		b.Consistency = append(b.Consistency, c)
	}
	return b, nil
}

type chosenEntry struct {
	entry journal.Entry
	bytes []byte
}

// chosenEntries are the entries that a bundle is to have. There is no index by session: the log is read.
func chosenEntries(ctx context.Context, db querier, which Chosen, size int64) func(func(chosenEntry, error) bool) {
	return func(yield func(chosenEntry, error) bool) {
		to := size
		if which.To > 0 {
			to = min(to, which.To)
		}
		query, args := `SELECT bytes FROM entries WHERE idx >= ? AND idx < ?`, []any{which.From, to}
		if which.Action != "" {
			query, args = query+` AND action_id = ?`, append(args, string(which.Action))
		}
		rows, err := db.QueryContext(ctx, query+` ORDER BY idx`, args...)
		if err != nil {
			yield(chosenEntry{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var e chosenEntry
			if err = rows.Scan(&e.bytes); err == nil {
				e.entry, err = journal.Decode(e.bytes)
			}
			if err == nil && which.Session != "" && e.entry.SessionID != which.Session {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(chosenEntry{}, err)
		}
	}
}

// remembered reads each hash once: proofs share most of theirs.
func remembered(from tlog.HashReader) tlog.HashReader {
	known := map[int64]tlog.Hash{}
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			hash, ok := known[index]
			if !ok {
				read, err := from.ReadHashes([]int64{index})
				if err != nil {
					return nil, err
				}
				hash = read[0]
				known[index] = hash
			}
			hashes[i] = hash
		}
		return hashes, nil
	})
}
