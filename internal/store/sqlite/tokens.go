package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/longstop/longstop"
)

// AddToken keeps a token by its hash. It fails where one of that name is not revoked.
func (tx *Tx) AddToken(t longstop.Token, hash []byte) error {
	tx.wrote = true
	err := tx.store.exec(tx.store.stmt.addToken, hash, t.Name, t.CreatedAt.UnixMicro(), microseconds(t.ExpiresAt))
	if err != nil && isTaken(err) {
		return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("there is a token %q already", t.Name),
			Hint: "longstop token revoke " + t.Name + ", or another name"}
	}
	if err != nil {
		return fmt.Errorf("keep token %s: %w", t.Name, err)
	}
	return nil
}

// RevokeToken takes the token of a name back, and reports whether there was one.
func (tx *Tx) RevokeToken(name string, at longstop.Time) (bool, error) {
	tx.wrote = true
	result, err := tx.store.stmt.revokeToken.ExecContext(context.Background(), at.UnixMicro(), name)
	if err != nil {
		return false, fmt.Errorf("revoke token %s: %w", name, err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

const selectToken = `SELECT name, created_at, expires_at, revoked_at FROM tokens `

func scanToken(r row) (longstop.Token, error) {
	var t longstop.Token
	var created int64
	var expires, revoked sql.NullInt64
	err := r.Scan(&t.Name, &created, &expires, &revoked)
	t.CreatedAt, t.ExpiresAt, t.RevokedAt = longstop.At(time.UnixMicro(created)), timeOf(expires), timeOf(revoked)
	return t, err
}

// Token returns the token of a hash, or reports that there is none.
func (s *Store) Token(ctx context.Context, hash []byte) (t longstop.Token, there bool, err error) {
	t, err = scanToken(s.reads.QueryRowContext(ctx, selectToken+`WHERE hash = ?`, hash))
	if errors.Is(err, sql.ErrNoRows) {
		return longstop.Token{}, false, nil
	}
	if err != nil {
		return longstop.Token{}, false, fmt.Errorf("look for a token: %w", err)
	}
	return t, true, nil
}

// Tokens returns all tokens, newest first.
func (s *Store) Tokens(ctx context.Context) ([]longstop.Token, error) {
	var list []longstop.Token
	err := s.each(ctx, selectToken+`ORDER BY created_at DESC, name`, nil, func(r row) error {
		t, err := scanToken(r)
		list = append(list, t)
		return err
	})
	return list, err
}

// microseconds stores a time, a zero one as NULL.
func microseconds(t longstop.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func timeOf(us sql.NullInt64) longstop.Time {
	if !us.Valid {
		return longstop.Time{}
	}
	return longstop.At(time.UnixMicro(us.Int64))
}
