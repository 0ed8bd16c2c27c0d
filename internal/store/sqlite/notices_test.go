package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// A notice is there with its entry or not at all, the one due first comes first, and it outlasts the store's closing.
func TestNotices(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s", "db")
	open := func(ways ...string) *Store {
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.Tell([]journal.Kind{journal.Escalated}, ways)
		return s
	}
	s := open("webhook", "command")
	at := longstop.At(time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC))
	appendOne := func(kind journal.Kind, fails error) {
		t.Helper()
		err := s.Update(t.Context(), func(tx *Tx) error {
			if _, err := tx.Append(journal.Entry{At: at, Kind: kind, By: "gateway"}); err != nil {
				return err
			}
			return fails
		})
		if err != fails {
			t.Fatal(err)
		}
	}
	next := func(way string) *Notice {
		t.Helper()
		n, err := s.NextNotice(t.Context(), way)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	appendOne(journal.Observed, nil)
	appendOne(journal.Escalated, ErrStale)
	if n := next("webhook"); n != nil {
		t.Fatalf("of another kind, or taken back: %+v", n)
	}
	appendOne(journal.Escalated, nil)
	appendOne(journal.Escalated, nil)
	first := next("webhook")
	if first == nil || first.Entry.Kind != journal.Escalated || first.Entry.Index != 1 || first.ID == "" || first.Tries != 0 || first.DueAt != at {
		t.Fatalf("%+v", first)
	}
	first.Tries, first.DueAt, first.Failure = 1, longstop.At(at.Add(time.Hour)), "no"
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutNotice(first) }); err != nil {
		t.Fatal(err)
	}
	second := next("webhook")
	if second.Entry.Index != 2 || second.ID == first.ID || next("command").Entry.Index != 1 {
		t.Fatalf("%+v", second)
	}
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteNotice(second) }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open("webhook")
	if n := next("webhook"); n.ID != first.ID || n.Tries != 1 || n.Failure != "no" || n.DueAt != first.DueAt {
		t.Errorf("after a restart: %+v", n)
	}
	var dropped map[string]int
	if err := s.Update(t.Context(), func(tx *Tx) (err error) { dropped, err = tx.DropNotices(); return err }); err != nil {
		t.Fatal(err)
	}
	if len(dropped) != 1 || dropped["command"] != 2 || next("command") != nil || next("webhook") == nil {
		t.Errorf("dropped %v", dropped)
	}
}
