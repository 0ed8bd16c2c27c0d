package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/longstop/longstop"
)

// PutPolicy makes a policy the one that holds. The entry is the one of this update that names it.
func (tx *Tx) PutPolicy(entry int64, digest string, text []byte) error {
	tx.wrote = true
	if err := tx.store.exec(tx.store.stmt.putPolicy, entry, digest, append([]byte{}, text...)); err != nil {
		return fmt.Errorf("put the policy: %w", err)
	}
	return nil
}

// Policy returns the policy that holds and its digest, which is empty if there has been none.
func (s *Store) Policy(ctx context.Context) (text []byte, digest string, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT text, digest FROM policy`).Scan(&text, &digest)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the policy: %w", err)
	}
	return text, digest, nil
}

// UnresolvedOn counts a host's unresolved actions, up to most.
func (tx *Tx) UnresolvedOn(host string, most int) (n int, err error) {
	err = tx.store.stmt.unresolvedOn.QueryRow(host, most).Scan(&n)
	return n, err
}

// UnresolvedOf counts a requester's unresolved actions, up to most.
func (tx *Tx) UnresolvedOf(by longstop.Requester, most int) (n int, err error) {
	err = tx.store.stmt.unresolvedOf.QueryRow(requester(by), most).Scan(&n)
	return n, err
}

// requester is who asked, as the column of that name has it. A kind has no spaces.
func requester(by longstop.Requester) string { return by.Kind + " " + by.Name }
