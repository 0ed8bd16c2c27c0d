package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/longstop/longstop"
)

const (
	minTail = 4 // characters of an id's end that may stand for it
	maxShow = 5 // candidates that an ambiguous id's error lists
)

// Action returns an action by its id: whole, or a part of it that fits no other, in upper or lower
// case and with or without act_: any of its beginning, or its last four characters or more.
// Otherwise longstop.CodeNotFound or longstop.CodeAmbiguous.
func (s *Store) Action(ctx context.Context, id string) (*longstop.Action, error) {
	a, err := scanAction(s.reads.QueryRowContext(ctx, selectAction+`WHERE id = ?`, id))
	if a != nil || err != nil {
		return a, err
	}
	part := idPart(id, "ACT_")
	if part == "" {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("%q is not an action's id", id), Hint: "longstop ps -a"}
	}
	found, err := s.candidates(ctx, "actions", "act_", part)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, actionNotFound(id)
	case len(found) > 1:
		return nil, ambiguous(id, found)
	}
	return scanAction(s.reads.QueryRowContext(ctx, selectAction+`WHERE id = ?`, found[0]))
}

// idPart reads part of an id as people write it: Crockford's base 32 takes I and L for 1, O for 0.
func idPart(id, prefix string) string {
	part := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(id)), prefix)
	return strings.NewReplacer("I", "1", "L", "1", "O", "0").Replace(part)
}

// candidates returns the ids of a table that begin, after their prefix, or end with part, newest first, at most one more than an
// error shows.
func (s *Store) candidates(ctx context.Context, table, prefix, part string) ([]string, error) {
	query := `SELECT id FROM ` + table + ` WHERE rowid IN (SELECT rowid FROM ` + table + ` WHERE id >= ? AND id < ?`
	args := []any{prefix + part, prefix + part + "\x7f"}
	if len(part) >= minTail {
		query += ` UNION SELECT rowid FROM ` + table + ` WHERE tail >= ? AND tail < ?`
		tail := backwards(part)
		args = append(args, tail, tail+"\x7f")
	}
	query += `) ORDER BY rowid DESC LIMIT ?`
	var found []string
	err := s.each(ctx, query, append(args, maxShow+1), func(r row) error {
		var id string
		err := r.Scan(&id)
		found = append(found, id)
		return err
	})
	return found, err
}

func ambiguous(id string, found []string) error {
	more := ""
	if len(found) > maxShow {
		found, more = found[:maxShow], " and others"
	}
	return &longstop.Error{Code: longstop.CodeAmbiguous,
		Message: fmt.Sprintf("%q fits %s%s", id, strings.Join(found, ", "), more), Hint: "give more of the id"}
}

func actionNotFound(id string) error {
	return &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("no action %q", id), Hint: "longstop ps -a"}
}
