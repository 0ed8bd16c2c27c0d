package sqlite

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
	"github.com/longstop/longstop/internal/journal"
)

// entryOfSize is an entry of about so many bytes.
func entryOfSize(n int) journal.Entry {
	e := entryFor(newAction("web-1"), journal.Observed)
	e.Body = []byte(`"` + rand.Text() + fmt.Sprintf("%0*d", n-300, 0) + `"`)
	return e
}

// bare is what the journal costs more than: one insert of the same size, with the same index, in a
// durable transaction of the same connection.
type bare struct{ s *Store }

func newBare(b *testing.B) bare {
	s := openNew(b)
	for _, sql := range []string{
		`CREATE TABLE bare (idx INTEGER PRIMARY KEY, action_id TEXT, bytes BLOB NOT NULL) STRICT`,
		`CREATE INDEX bare_action ON bare (action_id) WHERE action_id IS NOT NULL`,
	} {
		if _, err := s.conn.ExecContext(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	var err error
	s.stmt.appendEntry, err = s.conn.PrepareContext(b.Context(), `INSERT INTO bare (action_id, bytes) VALUES (?, ?)`)
	if err != nil {
		b.Fatal(err)
	}
	return bare{s}
}

func (w bare) insert(b *testing.B, action string, data []byte) {
	for _, err := range []error{w.s.exec(w.s.stmt.begin), w.s.exec(w.s.stmt.appendEntry, action, data), w.s.exec(w.s.stmt.commit)} {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend appends one entry of about 700 bytes in each commit, and does the same with a
// bare insert in turn; "ratio" is the bare insert's time over the journal's.
func BenchmarkAppend(b *testing.B) {
	s, plain := openNew(b), newBare(b)
	e := entryOfSize(700)
	data, err := journal.Encode(e)
	if err != nil {
		b.Fatal(err)
	}
	data = append(data, make([]byte, 64)...) // two tree hashes on average
	var ours, theirs []time.Duration
	for b.Loop() {
		e.ActionID = longstop.NewActionID(clock)
		start := time.Now()
		if err := s.Update(context.Background(), func(tx *Tx) error { _, err := tx.Append(e); return err }); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		plain.insert(b, string(e.ActionID), data)
		ours, theirs = append(ours, middle.Sub(start)), append(theirs, time.Since(middle))
	}
	report(b, "journal", ours)
	report(b, "bare", theirs)
	b.ReportMetric(float64(total(theirs))/float64(total(ours)), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkUpdate does what the gateway does around a launch: an entry, a raw answer and a
// projection in one commit.
func BenchmarkUpdate(b *testing.B) {
	s := openNew(b)
	a := newAction("web-1")
	put(b, s, a, journal.Requested)
	raw := Raw{Kind: "submit_answer", Bytes: make([]byte, 1500)}
	var took []time.Duration
	for b.Loop() {
		a.Revision++
		start := time.Now()
		put(b, s, a, journal.Observed, raw)
		took = append(took, time.Since(start))
	}
	report(b, "update", took)
}

// BenchmarkChange is what an update pays for saying what changed, beside its commit.
func BenchmarkChange(b *testing.B) {
	a := newAction("web-1")
	before := fastjson.AppendAction(nil, a)
	a.Revision, a.Launch.State = 2, longstop.LaunchAccepted
	a.Workload = longstop.Workload{State: longstop.WorkloadRunning, StartedAt: longstop.At(clock), Sequence: 3,
		Main: &longstop.Main{PID: 24182, PGID: 24182, SID: 24182, StartTime: 8123}}
	for b.Loop() {
		after := fastjson.AppendAction(make([]byte, 0, 4<<10), a)
		patch, err := journal.Diff(before, after)
		if err == nil {
			_, err = journal.WithPatch([]byte(`{"launch":"accepted"}`), ofActions, patch)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUpdateAtOnce has eight writers at once; "flushes/op" is how many commits each paid.
func BenchmarkUpdateAtOnce(b *testing.B) {
	s := openNew(b)
	before := s.Flushes()
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			a := newAction("web-1")
			put(b, s, a, journal.Requested)
			for range b.N / 8 {
				a.Revision++
				put(b, s, a, journal.Observed)
			}
		})
	}
	writers.Wait()
	b.ReportMetric(float64(s.Flushes()-before)/float64(b.N), "flushes/op")
}

func report(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	b.ReportMetric(us(took[len(took)/2]), what+"-p50-µs")
	b.ReportMetric(us(took[len(took)*99/100]), what+"-p99-µs")
}

func total(took []time.Duration) (sum time.Duration) {
	for _, d := range took {
		sum += d
	}
	return sum
}

// fillMillion makes a million actions that are over, of a hundred hosts and a thousand sessions. It writes
// rows, not a log that could be verified.
func fillMillion(b *testing.B, s *Store) {
	a := newAction("web-1")
	a.Approval.State, a.Launch.State, a.Workload.State = longstop.ApprovalNotRequired, longstop.LaunchAccepted, longstop.WorkloadFinished
	a.Outcome = longstop.OutcomeSucceeded
	put(b, s, a, journal.Observed)
	for _, fill := range []string{
		`DROP TRIGGER actions_made`,
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
		INSERT INTO actions (id, tail, key, session_id, host, created_at, run_id, revision, unresolved, outcome, entry, json, traits)
		SELECT printf('act_%07d', i) || hex(randomblob(4)), hex(randomblob(4)) || i, 'key-' || i, printf('ses_%015d', i % 1000), 'web-' || (i % 100),
			created_at, 'run_' || hex(randomblob(16)), 1, 0, iif(i % 10000 = 0, 'unknown', 'succeeded'), 0, json,
			1 + iif(i % 5000 = 0, 4 + 8 + 16 + 32, 0) FROM n, actions WHERE actions.seq = 1`,
		`INSERT OR REPLACE INTO tally ` + countActions,
		`INSERT INTO sessions SELECT session_id, session_id, 'operator', 'anna', 0, 0, json_object('session_id', session_id,
			'started_by', json_object('kind', 'operator', 'name', 'anna', 'via', 'cli'), 'started_at', '2026-11-29T14:02:11.000000Z')
			FROM (SELECT DISTINCT session_id FROM tally)`,
	} {
		if _, err := s.conn.ExecContext(b.Context(), fill); err != nil {
			b.Fatal(err)
		}
	}
}

// fillEntries makes two million entries about them, behind those that are there.
func fillEntries(b *testing.B, s *Store) {
	const fill = `INSERT INTO entries (idx, action_id, kind, session_id, host, hashes, bytes)
		SELECT last.idx + 2 * seq - 1 + more, id, iif(seq % 5000 = 0, iif(seq % 10000 = 0, 'contradiction', 'requested_again'), 'observed'), actions.session_id, actions.host, hashes, bytes
			FROM entries, actions, (SELECT 0 AS more UNION SELECT 1), (SELECT max(idx) AS idx FROM entries) AS last WHERE entries.idx = 0`
	for _, fill := range []string{fill, strings.NewReplacer("?1", "0", "?2", "(SELECT max(idx) / 128 * 128 - 1 FROM entries)", "INTO", "OR IGNORE INTO").Replace(fileEntries)} {
		if _, err := s.conn.ExecContext(b.Context(), fill); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMillion reads from, and writes to, a database of a million finished actions.
func BenchmarkMillion(b *testing.B) {
	s := openNew(b)
	fillMillion(b, s)
	unresolved := newAction("web-7")
	put(b, s, unresolved, journal.Requested)
	b.Run("create", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			put(b, s, newAction("web-1"), journal.Requested)
			took = append(took, time.Since(start))
		}
		report(b, "create", took)
	})
	fillEntries(b, s)
	middle, session := longstop.ActionID(""), longstop.SessionID("ses_000000000000007")
	if err := s.conn.QueryRowContext(b.Context(), `SELECT id FROM actions WHERE seq = 500000`).Scan((*string)(&middle)); err != nil {
		b.Fatal(err)
	}
	page := func(name string, read func() error) {
		b.Run("page/"+name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms")
			b.ReportMetric(0, "ns/op")
		})
	}
	for name, f := range map[string]Filter{
		"ps": {Open: true}, "ps-a": {}, "ps-a-middle": {Before: middle}, "ps-host": {Host: "web-7", Before: middle}, "ps-session": {SessionID: session, Before: middle},
	} {
		page(name, func() error { _, err := s.Actions(b.Context(), f); return err })
	}
	page("show", func() error {
		if _, err := s.Action(b.Context(), string(middle)); err != nil {
			return err
		}
		_, err := s.Entries(b.Context(), EntryFilter{Action: middle})
		return err
	})
	for name, f := range map[string]EntryFilter{
		"activity": {Newest: true}, "activity-session": {Session: session, Newest: true}, "activity-host": {Host: "web-7", Newest: true},
		"activity-rare-kind": {Kind: journal.Contradiction, Newest: true}, "activity-host-and-rare-kind": {Kind: journal.Contradiction, Host: "web-0", Newest: true},
		"activity-common-kind": {Kind: journal.Observed, Newest: true}, "activity-host-and-common-kind": {Kind: journal.Observed, Host: "web-7", Before: 1_000_000, Newest: true},
	} {
		page(name, func() error { _, err := s.Entries(b.Context(), f); return err })
	}
	page("activity-since", func() error { _, err := s.Since(b.Context(), clock); return err })
	for i := range Queries {
		q := &Queries[i]
		page("audit-"+q.Name, func() error {
			if len(q.Kinds) > 0 {
				_, err := s.AuditEntries(b.Context(), q, AuditFilter{})
				return err
			}
			_, err := s.AuditActions(b.Context(), q, AuditFilter{SessionID: session})
			return err
		})
	}
	page("audit", func() error {
		for i := range Queries {
			if _, err := s.Hits(b.Context(), &Queries[i], 1001); err != nil {
				return err
			}
		}
		return nil
	})
	page("sessions", func() error { _, err := s.Sessions(b.Context(), SessionFilter{Open: true}); return err })
	b.Run("resolve", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Action(b.Context(), string(unresolved.ID[11:])); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkVerify reads and hashes a log; "entries/s" is its speed.
func BenchmarkVerify(b *testing.B) {
	s := openNew(b)
	e := entryOfSize(700)
	const n = 20_000
	err := s.Update(b.Context(), func(tx *Tx) error {
		for range n {
			if _, err := tx.Append(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		verify(b, s)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkOpen is what the store adds to the daemon's start.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "home", "longstop.db")
	put(b, open(b, path), newAction("web-1"), journal.Requested)
	for b.Loop() {
		s, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
