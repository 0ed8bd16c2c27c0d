package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// toldToken is a token as the log gives it. Hash is empty where an earlier version did not tell it.
type toldToken struct {
	longstop.Token
	Hash string `json:"hash"`
}

func (t *toldToken) id() string {
	return fmt.Sprintf("token %s of %s", t.Name, t.CreatedAt.Format("2006-01-02T15:04:05.000000Z"))
}

func (w *standing) applyToken(e *journal.Entry) error {
	t := new(toldToken)
	if err := json.Unmarshal(e.Body, t); err != nil {
		return err
	}
	if e.Kind == journal.TokenCreated {
		if strings.Contains(t.Hash, redact.Mark) {
			t.Hash = ""
		}
		w.tokens = append(w.tokens, t)
		return nil
	}
	for _, made := range w.tokens {
		if made.Name == t.Name && made.RevokedAt.IsZero() {
			made.RevokedAt = e.At
			return nil
		}
	}
	return fmt.Errorf("it revokes token %s, which was not made", t.Name)
}

// storedTokens are all rows, by their id.
func storedTokens(ctx context.Context, db querier) (map[string]*toldToken, error) {
	stored := map[string]*toldToken{}
	err := eachRow(ctx, db, `SELECT hex(hash), name, created_at, expires_at, revoked_at FROM tokens`, func(r row) error {
		t := new(toldToken)
		var err error
		t.Token, err = scanToken(prefixed{r, &t.Hash})
		t.Hash = strings.ToLower(t.Hash)
		if stored[t.id()] != nil {
			return &Difference{Row: t.id(), Why: "there are two of it"}
		}
		stored[t.id()] = t
		return err
	})
	return stored, err
}

// prefixed is a row with one column before those that are scanned.
type prefixed struct {
	row
	first any
}

func (p prefixed) Scan(into ...any) error { return p.row.Scan(append([]any{p.first}, into...)...) }

func (w *standing) checkTokens(ctx context.Context, db querier) error {
	stored, err := storedTokens(ctx, db)
	if err != nil {
		return err
	}
	told := map[string]bool{}
	for _, t := range w.tokens {
		id := t.id()
		told[id] = true
		is := stored[id]
		differs := func(field string) error { return &Difference{id, field, "it is not what the journal says"} }
		switch {
		case is == nil:
			return &Difference{Row: id, Why: "it is not there"}
		case !is.ExpiresAt.Equal(t.ExpiresAt.Time):
			return differs("expires_at")
		case !is.RevokedAt.Equal(t.RevokedAt.Time):
			return differs("revoked_at")
		case t.Hash == "":
			w.inPart(id)
		case is.Hash != t.Hash:
			return differs("hash")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		if !told[id] {
			return &Difference{Row: id, Why: "no entry is about it"}
		}
	}
	return nil
}

// rebuildTokens keeps the hashes of those of which the log does not tell it. Where it is not stored either, the
// token cannot be used any more.
func (w *standing) rebuildTokens(ctx context.Context, stmt *statements, tx *sql.Tx) error {
	stored, err := storedTokens(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM tokens`); err != nil {
		return err
	}
	for _, t := range w.tokens {
		text := t.Hash
		if text == "" {
			w.inPart(t.id())
			if is := stored[t.id()]; is != nil {
				text = is.Hash
			}
		}
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) == 0 {
			continue
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO tokens (hash, name, created_at, expires_at, revoked_at) VALUES (?, ?, ?, ?, ?)`,
			hash, t.Name, t.CreatedAt.UnixMicro(), microseconds(t.ExpiresAt), microseconds(t.RevokedAt))
		if err != nil {
			return fmt.Errorf("%s: %w", t.id(), err)
		}
	}
	return nil
}
