package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

func putSession(t *testing.T, s *Store, session *longstop.Session, kind journal.Kind) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *Tx) error {
		return tx.PutSession(session, journal.Entry{At: longstop.At(clock), Kind: kind, By: "operator anna"})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Sessions and what is counted of their actions follow from the journal.
func TestPointSessionsAreReplayed(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	session := longstop.Session{ID: "ses_0000000AAAAAAAA", StartedBy: longstop.Requester{Kind: "operator", Name: "anna", Via: "cli"},
		StartedAt: longstop.At(clock), Purpose: "upgrade"}
	putSession(t, s, &session, journal.SessionStarted)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	b := newAction("web-2")
	b.Launch.State, b.Outcome = longstop.LaunchRejected, longstop.OutcomeNotStarted
	put(t, s, b, journal.Requested)
	view, err := s.Session(t.Context(), "AAAA")
	if err != nil || view.Unresolved != 1 || view.Outcomes[longstop.OutcomeNotStarted] != 1 {
		t.Fatalf("%+v %v", view, err)
	}
	a.Revision, a.Launch.State, a.Outcome = 2, longstop.LaunchRejected, longstop.OutcomeNotStarted
	put(t, s, a, journal.LaunchAnswered)
	session.EndedAt, session.EndedBy, session.EndedBecause = longstop.At(clock), "operator anna", longstop.SessionAsked
	putSession(t, s, &session, journal.SessionEnded)
	if view, err := s.Session(t.Context(), "ses_0000000AAAAAAAA"); err != nil || view.Unresolved != 0 || view.Outcomes[longstop.OutcomeNotStarted] != 2 || !view.Ended() {
		t.Fatalf("%+v %v", view, err)
	}
	check := func(what string, row string) {
		t.Helper()
		_, err := s.CheckProjections(t.Context())
		var d *Difference
		if row == "" && err != nil || row != "" && (!errors.As(err, &d) || d.Row != row) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("as it was made", "")
	for _, spoil := range []string{
		`UPDATE sessions SET json = replace(json, 'upgrade', 'harmless')`,
		`UPDATE sessions SET ended = 0`,
		`UPDATE sessions SET name = 'eve'`,
		`DELETE FROM sessions`,
		`UPDATE tally SET n = n + 1`,
		`DELETE FROM tally`,
	} {
		_, err := s.conn.ExecContext(t.Context(), spoil)
		must(t, err)
		check(spoil, string(session.ID))
		_, err = s.Rebuild(t.Context())
		must(t, err)
		check("rebuilt after "+spoil, "")
	}
	verify(t, s)
	for _, spoil := range []string{`kind = 'observed'`, `session_id = NULL`, `host = 'web-9'`} {
		_, err := s.conn.ExecContext(t.Context(), `SAVEPOINT spoilt; UPDATE entries SET `+spoil+` WHERE idx = 1`)
		must(t, err)
		_, err = journal.Verify(storedEntries(t.Context(), s.conn))
		if bad := (*journal.BadEntry)(nil); !errors.As(err, &bad) || bad.Index != 1 {
			t.Errorf("%s: %v", spoil, err)
		}
		_, err = s.conn.ExecContext(t.Context(), `ROLLBACK TO spoilt; RELEASE spoilt`)
		must(t, err)
	}
}

// What earlier versions wrote is verified as it is, and filed as what is appended now once it is opened.
func TestEntriesWithoutFilesAreFiled(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	for i := range 2*fileEvery + 5 {
		a.Revision = int64(i + 1)
		put(t, s, a, journal.Observed)
	}
	const count = `SELECT count(*) || ' ' || sum(idx) || ' ' || max(idx) || ' ' || count(DISTINCT field || value) FROM filed`
	filed := func() (n string) {
		must(t, s.conn.QueryRowContext(t.Context(), count).Scan(&n))
		return n
	}
	appended := filed()
	_, err := s.conn.ExecContext(t.Context(), `DROP TABLE filed; CREATE INDEX entries_session ON entries (session_id) WHERE session_id IS NOT NULL;
		CREATE INDEX entries_host ON entries (host) WHERE host IS NOT NULL; DELETE FROM goose_db_version WHERE version_id >= 11`)
	must(t, err)
	verify(t, s) // a copy that no gateway has opened since
	must(t, s.Close())
	s = open(t, s.path)
	if want := fmt.Sprintf("%d %d %d 2", 4*fileEvery, 2*fileEvery*(2*fileEvery-1), 2*fileEvery-1); appended != want || filed() != want {
		t.Errorf("filed %s when they were appended and %s by the migration, want %s", appended, filed(), want)
	}
	verify(t, s)
	for _, change := range []string{`DELETE FROM filed WHERE field = 'host' AND idx = 7`, `UPDATE filed SET value = 'ses_x' WHERE field = 'session_id' AND idx = 7`,
		`INSERT INTO filed VALUES ('host', 'web-9', 7)`} {
		_, err := s.conn.ExecContext(t.Context(), `SAVEPOINT spoilt; `+change)
		must(t, err)
		if err := verifyFiled(t.Context(), s.conn); err == nil || !strings.Contains(err.Error(), "entry 7") {
			t.Errorf("%s: %v", change, err)
		}
		_, err = s.conn.ExecContext(t.Context(), `ROLLBACK TO spoilt; RELEASE spoilt`)
		must(t, err)
	}
}

// An index of the entries' columns is made for what earlier versions wrote: from the bytes, as Verify sees them.
func TestEntriesOfEarlierVersionsAreFiled(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	put(t, s, newAction("web-1"), journal.Requested)
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Append(journal.Entry{At: longstop.At(clock), Kind: journal.GatewayStarted, By: "session host\nhost x", Body: []byte(`{"a":"\n\nhost b\n"}`)})
		return err
	}))
	migration, err := migrations.ReadFile("migrations/00009_sessions.sql")
	must(t, err)
	_, err = s.conn.ExecContext(t.Context(), `DROP TABLE sessions; DROP TABLE tally; DROP TRIGGER actions_made; DROP TRIGGER actions_gone; DROP TRIGGER actions_changed;
		DROP INDEX entries_kind;
		ALTER TABLE entries DROP COLUMN kind; ALTER TABLE entries DROP COLUMN session_id; ALTER TABLE entries DROP COLUMN host; `+string(migration))
	must(t, err)
	verify(t, s)
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
}
