package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// openTree reads the log's right edge.
func openTree(ctx context.Context, db querier) (journal.Tree, error) {
	size, err := logSize(ctx, db)
	if err != nil {
		return journal.Tree{}, err
	}
	return journal.OpenTree(size, storedHashes(ctx, db))
}

func logSize(ctx context.Context, db querier) (size int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(idx) + 1, 0) FROM entries`).Scan(&size)
	return size, err
}

// storedHashes reads the log's hashes as tlog numbers them.
func storedHashes(ctx context.Context, db querier) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			entry, at := journal.HashOwner(index)
			var part []byte
			const one = `SELECT substr(hashes, ? + 1, ?) FROM entries WHERE idx = ?`
			err := db.QueryRowContext(ctx, one, at*tlog.HashSize, tlog.HashSize, entry).Scan(&part)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, err
			}
			if copy(hashes[i][:], part) != tlog.HashSize {
				return nil, &journal.BadEntry{Index: entry, Why: "its hashes are missing"}
			}
		}
		return hashes, nil
	})
}

// Head is the log as it is on the disk now: keep it elsewhere, and Verify can tell later that
// nothing before it was changed.
func (s *Store) Head(ctx context.Context) (journal.Head, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return journal.Head{}, err
	}
	defer tx.Rollback()
	tree, err := openTree(ctx, tx)
	return tree.Head(), err
}

// Proof proves to whoever trusts the head that an entry is in the log: tlog.CheckRecord.
func (s *Store) Proof(ctx context.Context, index int64) (tlog.RecordProof, journal.Head, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, journal.Head{}, err
	}
	defer tx.Rollback()
	tree, err := openTree(ctx, tx)
	if err != nil {
		return nil, journal.Head{}, err
	}
	if index < 0 || index >= tree.Size() {
		return nil, journal.Head{}, &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("the journal has no entry %d", index)}
	}
	proof, err := tlog.ProveRecord(tree.Size(), index, storedHashes(ctx, tx))
	return proof, tree.Head(), err
}

// Verify reads the whole log, and what is tied to it, as it is on the disk now, and returns its
// head. The first place that is not as it was written is a *journal.BadEntry. See journal.Verify
// for kept.
func (s *Store) Verify(ctx context.Context, kept ...journal.Head) (journal.Head, error) {
	tx, err := s.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return journal.Head{}, err
	}
	defer tx.Rollback()
	head, err := journal.Verify(storedEntries(ctx, tx), kept...)
	if err != nil {
		return head, err
	}
	if err := verifyRaws(ctx, tx); err != nil {
		return head, err
	}
	if err := verifyFiled(ctx, tx); err != nil {
		return head, err
	}
	return head, verifyLast(ctx, tx)
}

func storedEntries(ctx context.Context, db querier) iter.Seq2[journal.Stored, error] {
	return func(yield func(journal.Stored, error) bool) {
		rows, err := db.QueryContext(ctx, `SELECT idx, coalesce(action_id, ''), coalesce(session_id, ''), coalesce(host, ''), kind, hashes, bytes FROM entries ORDER BY idx`)
		if err != nil {
			yield(journal.Stored{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			entry, err := scanStored(rows)
			if !yield(entry, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(journal.Stored{}, err)
		}
	}
}

func scanStored(rows *sql.Rows) (journal.Stored, error) {
	var e journal.Stored
	var hashes, data sql.RawBytes
	if err := rows.Scan(&e.Index, &e.Filed.ActionID, &e.Filed.SessionID, &e.Filed.Host, &e.Filed.Kind, &hashes, &data); err != nil {
		return e, err
	}
	e.Bytes = data
	for part := []byte(hashes); len(part) > 0; {
		var hash tlog.Hash
		part = part[copy(hash[:], part):]
		e.Hashes = append(e.Hashes, hash)
	}
	return e, nil
}

func verifyRaws(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, `SELECT entry, place, coalesce(raws.action_id, ''), raws.kind, at, size, salt, raws.bytes, entries.bytes
		FROM raws LEFT JOIN entries ON entries.idx = raws.entry ORDER BY seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var entry, place, at, size int64
		var action, kind string
		var salt, raw, data sql.RawBytes
		if err := rows.Scan(&entry, &place, &action, &kind, &at, &size, &salt, &raw, &data); err != nil {
			return err
		}
		e, err := journal.Decode(data)
		if err != nil {
			return &journal.BadEntry{Index: entry, Why: "raw bytes are kept for it and it is not there"}
		}
		if place < 0 || place >= int64(len(e.Raw)) || e.Raw[place].Digest != saltedDigest(salt, raw) {
			return &journal.BadEntry{Index: entry, Why: fmt.Sprintf("its raw bytes number %d were changed since", place)}
		}
		if is := e.Raw[place]; is.Kind != kind || is.Bytes != size || string(e.ActionID) != action || e.At.UnixMicro() != at {
			return &journal.BadEntry{Index: entry, Why: fmt.Sprintf("its raw bytes number %d are filed as something else", place)}
		}
	}
	return rows.Err()
}

// verifyLast checks that the entry which last changed each action, each approver and the policy is there: a log whose
// end was cut off is consistent in itself.
func verifyLast(ctx context.Context, db querier) error {
	var entry int64
	var what string
	err := db.QueryRowContext(ctx, `SELECT entry, id FROM actions LEFT JOIN entries ON entries.idx = actions.entry WHERE entries.action_id IS NOT actions.id
		UNION ALL SELECT entry, 'approver ' || name FROM approvers LEFT JOIN entries ON idx = entry WHERE kind IS NOT 'approver_set'
		UNION ALL SELECT entry, 'the policy' FROM policy LEFT JOIN entries ON idx = entry WHERE kind IS NOT 'policy_changed'
		ORDER BY entry LIMIT 1`).Scan(&entry, &what)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return &journal.BadEntry{Index: entry, Why: fmt.Sprintf("is not the one that changed %s last", what)}
}
