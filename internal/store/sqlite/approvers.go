package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// Approver is an approver as stored, and the entry that set them.
type Approver struct {
	longstop.Approver
	Entry int64
}

// PutApprover makes or replaces an approver. The update has appended the entry that says so.
func (tx *Tx) PutApprover(a Approver) error {
	data, err := json.Marshal(a.Approver)
	if err != nil {
		return fmt.Errorf("put approver %s: %w", a.Name, err)
	}
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.putApprover, a.Name, a.Entry, string(data)); err != nil {
		return fmt.Errorf("put approver %s: %w", a.Name, err)
	}
	return nil
}

// DeleteApprover takes an approver out.
func (tx *Tx) DeleteApprover(name string) error {
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.deleteApprover, name); err != nil {
		return fmt.Errorf("delete approver %s: %w", name, err)
	}
	return nil
}

// Approvers returns all of them, by name.
func (s *Store) Approvers(ctx context.Context) ([]Approver, error) {
	var list []Approver
	err := s.each(ctx, `SELECT entry, json FROM approvers ORDER BY name`, nil, func(r row) error {
		var a Approver
		var data string
		if err := r.Scan(&a.Entry, &data); err != nil {
			return err
		}
		list = append(list, a)
		return json.Unmarshal([]byte(data), &list[len(list)-1].Approver)
	})
	if err != nil {
		return nil, fmt.Errorf("read the approvers: %w", err)
	}
	return list, nil
}

// EntriesOf returns all entries of some kinds from an index on, oldest first, and the index after the
// log's last entry. The kinds are rare ones. An entry whose bytes were changed is an error: keys and policies
// are believed by what is read here.
func (s *Store) EntriesOf(ctx context.Context, from int64, kinds ...journal.Kind) (entries []journal.Entry, next int64, err error) {
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal: %w", err)
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(idx) + 1, 0) FROM entries`).Scan(&next); err != nil {
		return nil, 0, fmt.Errorf("read the journal: %w", err)
	}
	args := []any{}
	for _, kind := range kinds {
		args = append(args, string(kind))
	}
	of := `INDEXED BY entries_kind WHERE kind IN (?` + strings.Repeat(", ?", len(kinds)-1) + `) AND kind NOT IN (` + commonKinds + `)`
	if from == 0 { // once in a gateway's life: by the bytes, whatever they are filed under
		of = `WHERE (instr(bytes, ?) > 0` + strings.Repeat(" OR instr(bytes, ?) > 0", len(kinds)-1) + `)`
		for i, kind := range kinds {
			args[i] = []byte("\nkind " + string(kind) + "\n")
		}
	}
	rows, err := tx.QueryContext(ctx, `SELECT idx, hashes, bytes FROM entries `+of+` AND idx >= ? ORDER BY idx`, append(args, from)...)
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var hashes, data []byte
		if err := rows.Scan(&at, &hashes, &data); err != nil {
			return nil, 0, fmt.Errorf("read the journal: %w", err)
		}
		if hash := tlog.RecordHash(data); !bytes.HasPrefix(hashes, hash[:]) {
			return nil, 0, &journal.BadEntry{Index: at, Why: "its bytes do not have its hash: one of them was changed"}
		}
		e, err := journal.Decode(data)
		if err != nil {
			return nil, 0, fmt.Errorf("read the journal: %w", err)
		}
		if slices.Contains(kinds, e.Kind) {
			entries = append(entries, e)
		}
	}
	return entries, next, rows.Err()
}
