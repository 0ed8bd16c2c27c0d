package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// statements are those of the writing connection, prepared once.
type statements struct {
	begin, commit, rollback        *sql.Stmt
	savepoint, release, rollbackTo *sql.Stmt

	appendEntry, addRaw        *sql.Stmt
	fileEntries                *sql.Stmt
	insertAction, updateAction *sql.Stmt
	updateActionIndexed        *sql.Stmt
	putSecret                  *sql.Stmt
	actionByID, actionByKey    *sql.Stmt
	putHost, deleteHost        *sql.Stmt
	host, isEnrolled           *sql.Stmt
	keep, unkeep               *sql.Stmt
	addNotice, putNotice       *sql.Stmt
	deleteNotice, dropNotices  *sql.Stmt
	noticeWays                 *sql.Stmt
	collected, wasRead         *sql.Stmt
	putPolicy                  *sql.Stmt
	unresolvedOn, unresolvedOf *sql.Stmt
	addToken, revokeToken      *sql.Stmt
	session, putSession        *sql.Stmt
	defaultSession             *sql.Stmt
	unresolvedIn, lastUse      *sql.Stmt

	putApprover, deleteApprover *sql.Stmt

	keepCheckpoint, dropCheckpoints *sql.Stmt
}

func (s *statements) all() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.begin:      `BEGIN IMMEDIATE`,
		&s.commit:     `COMMIT`,
		&s.rollback:   `ROLLBACK`,
		&s.savepoint:  `SAVEPOINT one`,
		&s.release:    `RELEASE one`,
		&s.rollbackTo: `ROLLBACK TO one`,

		&s.appendEntry: `INSERT INTO entries (idx, action_id, kind, session_id, host, hashes, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		&s.fileEntries: fileEntries,
		&s.addRaw: `INSERT INTO raws (entry, place, action_id, kind, at, size, salt, bytes)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		&s.insertAction: `INSERT INTO actions (` + strings.Join(actionColumns, ", ") + `)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		// Most updates leave run, unresolved and traits as they were; not to name them spares the pages of
		// their indexes, which SQLite writes even for the same value.
		&s.updateAction: `UPDATE actions SET revision = ?1, outcome = ?2, entry = ?3, json = ?4
			WHERE id = ?5 AND revision = ?1 - 1 AND run_id IS ?6 AND unresolved = ?7 AND traits = ?8`,
		&s.updateActionIndexed: `UPDATE actions SET revision = ?1, outcome = ?2, entry = ?3, json = ?4, run_id = ?6, unresolved = ?7, traits = ?8
			WHERE id = ?5 AND revision = ?1 - 1`,
		&s.putSecret: `INSERT INTO secrets (run_id, action_id, secret) VALUES (?, ?, ?)
			ON CONFLICT (run_id) DO UPDATE SET secret = excluded.secret`,
		&s.actionByID:  selectAction + `WHERE id = ?`,
		&s.actionByKey: selectAction + `WHERE key = ?`,
		&s.putHost: `INSERT INTO hosts (name, max_sessions, json) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET max_sessions = excluded.max_sessions, json = excluded.json`,
		&s.deleteHost: `DELETE FROM hosts WHERE name = ?`,
		&s.host:       selectHost + `WHERE name = ?`,
		&s.isEnrolled: `SELECT EXISTS (SELECT 1 FROM hosts WHERE name = ?)`,
		&s.keep: `INSERT INTO kept (run_id, action_id, state_id, since, unread)
			SELECT ?1, ?2, json ->> '$.state_id', ?3, ?4 FROM hosts WHERE name = ?5 ON CONFLICT DO NOTHING`,
		&s.unkeep: `DELETE FROM kept WHERE run_id = ?`,
		&s.keepCheckpoint: `INSERT INTO checkpoints (size, at, cosigned, note) VALUES (?, ?, ?, ?)
			ON CONFLICT (size) DO UPDATE SET at = excluded.at, cosigned = excluded.cosigned, note = excluded.note WHERE excluded.cosigned >= cosigned`,
		&s.dropCheckpoints: `DELETE FROM checkpoints WHERE cosigned = 0 AND size NOT IN (
			SELECT size FROM checkpoints WHERE cosigned = 0 ORDER BY size DESC LIMIT ?)`,
		&s.collected:    `UPDATE kept SET collected_at = ?2 WHERE run_id = ?1`,
		&s.addNotice:    `INSERT INTO notices (way, entry, id, tries, due_at, failure) VALUES (?, ?, ?, ?, ?, ?)`,
		&s.putNotice:    `UPDATE notices SET tries = ?, due_at = ?, failure = ? WHERE way = ? AND entry = ?`,
		&s.deleteNotice: `DELETE FROM notices WHERE way = ? AND entry = ?`,
		&s.dropNotices:  `DELETE FROM notices WHERE way = ?`,
		&s.noticeWays:   `SELECT way, count(*) FROM notices GROUP BY way`,
		&s.unresolvedOn: `SELECT count(*) FROM (SELECT 1 FROM actions INDEXED BY actions_unresolved
			WHERE unresolved = 1 AND host = ? LIMIT ?)`,
		&s.unresolvedOf: `SELECT count(*) FROM (SELECT 1 FROM actions INDEXED BY actions_requester
			WHERE unresolved = 1 AND requester = ? LIMIT ?)`,
		&s.putPolicy: `INSERT INTO policy (one, entry, digest, text) VALUES (1, ?1, ?2, ?3)
			ON CONFLICT (one) DO UPDATE SET entry = ?1, digest = ?2, text = ?3`,
		&s.wasRead: `UPDATE kept SET unread = unread & ~?2 WHERE run_id = ?1`,

		&s.session:        selectSession + `WHERE id = ?`,
		&s.defaultSession: selectSession + `INDEXED BY sessions_standing WHERE kind = ? AND name = ? AND standing = 1 AND ended = 0`,
		&s.putSession: `INSERT INTO sessions (` + sessionColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET ended = excluded.ended, json = excluded.json`,
		&s.unresolvedIn: `SELECT id FROM actions INDEXED BY actions_unresolved WHERE session_id = ? AND unresolved = 1 ORDER BY seq`,
		&s.lastUse:      selectLastUse,

		&s.addToken:    `INSERT INTO tokens (hash, name, created_at, expires_at) VALUES (?, ?, ?, ?)`,
		&s.revokeToken: `UPDATE tokens SET revoked_at = ?1 WHERE name = ?2 AND revoked_at IS NULL`,
		&s.putApprover: `INSERT INTO approvers (name, entry, json) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET entry = excluded.entry, json = excluded.json`,
		&s.deleteApprover: `DELETE FROM approvers WHERE name = ?`,
	}
}

func (s *statements) prepare(ctx context.Context, conn *sql.Conn) error {
	for into, text := range s.all() {
		prepared, err := conn.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		*into = prepared
	}
	return nil
}

func (s *statements) close() {
	for prepared := range s.all() {
		if *prepared != nil {
			(*prepared).Close()
		}
	}
}

// exec runs a prepared statement of the writing connection to its end: no update is left between
// two of its statements because its caller went away.
func (s *Store) exec(prepared *sql.Stmt, args ...any) error {
	_, err := prepared.ExecContext(context.Background(), args...)
	return err
}

// mayGoOn reports whether a commit that failed so left the file as it was. After a failed flush
// nobody knows what the disk has (and the next flush may well succeed).
func mayGoOn(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff { // the primary code
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT:
		return true
	}
	return false
}

// isFull reports whether SQLite found no room on the disk.
func isFull(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL
}

// isTaken reports whether an insert failed because a value that must be unique is there already.
func isTaken(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}
