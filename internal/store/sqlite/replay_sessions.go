package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/longstop/longstop/internal/journal"
)

// replaySessions returns the JSON of every session that the log gives.
func replaySessions(ctx context.Context, db querier) (map[string][]byte, error) {
	rows, err := db.QueryContext(ctx, `SELECT idx, bytes FROM entries INDEXED BY entries_kind WHERE kind IN (?, ?)
		AND kind NOT IN (`+commonKinds+`) ORDER BY idx`, string(journal.SessionStarted), string(journal.SessionEnded))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sessions := map[string][]byte{}
	for rows.Next() {
		var index int64
		var text sql.RawBytes
		if err := rows.Scan(&index, &text); err != nil {
			return nil, err
		}
		e, err := journal.Decode(text)
		var patch []byte
		if err == nil {
			patch, err = journal.PatchOf(e.Body, ofSessions)
		}
		if err == nil {
			sessions[string(e.SessionID)], err = journal.Merge(sessions[string(e.SessionID)], patch)
		}
		if err != nil {
			return nil, &journal.BadEntry{Index: index, Why: err.Error()}
		}
	}
	return sessions, rows.Err()
}

// checkSessions holds every session, and what is counted of its actions, against what the log gives.
func checkSessions(ctx context.Context, db querier) error {
	given, err := replaySessions(ctx, db)
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, `SELECT `+sessionColumns+` FROM sessions ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, tail, kind, name, data string
		var standing, ended bool
		if err := rows.Scan(&id, &tail, &kind, &name, &standing, &ended, &data); err != nil {
			return err
		}
		want, known := given[id]
		if !known {
			return &Difference{Row: id, Why: "no entry is about it"}
		}
		s, err := readSession(want)
		if err != nil {
			return err
		}
		if !slices.Equal([]any{id, tail, kind, name, standing, ended, data}, sessionRow(s, want)) {
			return &Difference{Row: id, Field: "json", Why: "it is not what the journal says"}
		}
		delete(given, id)
	}
	for _, id := range slices.Sorted(maps.Keys(given)) {
		return &Difference{Row: id, Why: "it is not there"}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return checkTally(ctx, db)
}

const countActions = `SELECT session_id, iif(unresolved = 1, 'unresolved', outcome) AS came, count(*) FROM actions GROUP BY session_id, came`

func checkTally(ctx context.Context, db querier) error {
	const off = `SELECT session_id, came FROM (SELECT session_id, outcome AS came, n FROM tally WHERE n <> 0 EXCEPT ` + countActions + `)
		UNION SELECT session_id, came FROM (` + countActions + ` EXCEPT SELECT session_id, outcome, n FROM tally) LIMIT 1`
	var id, came string
	err := db.QueryRowContext(ctx, off).Scan(&id, &came)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("count the actions of sessions: %w", err)
	}
	return &Difference{Row: id, Field: came, Why: "it is counted otherwise than its actions are"}
}

// rebuildSessions writes every session anew, and the counts of their actions.
func (s *Store) rebuildSessions(ctx context.Context, tx *sql.Tx) error {
	given, err := replaySessions(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM sessions; DELETE FROM tally; INSERT INTO tally `+countActions); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(given)) {
		session, err := readSession(given[id])
		if err == nil {
			_, err = tx.StmtContext(ctx, s.stmt.putSession).ExecContext(ctx, sessionRow(session, given[id])...)
		}
		if err != nil {
			return fmt.Errorf("rebuild session %s: %w", id, err)
		}
	}
	return nil
}
