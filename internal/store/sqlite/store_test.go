package sqlite

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// clock is the time of everything in these tests.
var clock = time.Date(2026, 11, 29, 14, 2, 11, 123456000, time.UTC)

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openNew(t testing.TB) *Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
}

// newAction makes an action as the gateway would when it is asked for one.
func newAction(host string) *longstop.Action {
	id := longstop.NewActionID(clock)
	return &longstop.Action{
		ID: id, Revision: 1, SessionID: "ses_0000000AAAAAAAA", Host: host, CreatedAt: longstop.At(clock),
		RequestedBy:    longstop.Requester{Kind: "operator", Name: "anna", Via: "cli"},
		Request:        longstop.Request{Argv: []string{"./migrate.sh", "--to", "42"}, Effect: longstop.EffectOnce, Digest: "sha256:00"},
		IdempotencyKey: "key-" + string(id), Attempt: 1, RunID: longstop.NewRunID(),
		Outcome: longstop.OutcomePending, Alive: longstop.AliveNo,
		Launch: longstop.Launch{State: longstop.LaunchNotAttempted}, Workload: longstop.Workload{State: longstop.WorkloadNone},
	}
}

func entryFor(a *longstop.Action, kind journal.Kind) journal.Entry {
	return journal.Entry{At: longstop.At(clock), Kind: kind, ActionID: a.ID, SessionID: a.SessionID, RunID: a.RunID, Host: a.Host,
		By: "operator anna", Body: json.RawMessage(`{"says":"anna"}`)}
}

// put appends an entry and puts the action, in one update.
func put(t testing.TB, s *Store, a *longstop.Action, kind journal.Kind, raws ...Raw) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *Tx) error {
		return tx.PutAction(a, []byte("secret of "+a.RunID), entryFor(a, kind), raws...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, s *Store) journal.Head {
	t.Helper()
	head, err := s.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a folder?with %41 #odd name", "longstop.db")
	s := open(t, path)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	a.Revision, a.Launch.State = 2, longstop.LaunchAccepted
	put(t, s, a, journal.LaunchAnswered, Raw{Kind: "submit_answer", Bytes: []byte("LONGSTOP/1 …")})
	verify(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path)
	got, err := s.Action(t.Context(), string(a.ID))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(a) {
		t.Errorf("read %+v\nwrote %+v", got, a)
	}
	if head := verify(t, s); head.Size != 2 {
		t.Errorf("size %d, want 2", head.Size)
	}
}
