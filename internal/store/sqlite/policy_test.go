package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// The last policy holds, and outlives the process.
func TestPolicyIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home", "longstop.db")
	s := open(t, path)
	if text, digest, err := s.Policy(t.Context()); text != nil || digest != "" || err != nil {
		t.Fatalf("of a new store: %q, %q, %v", text, digest, err)
	}
	for _, text := range []string{"default: deny\n", ""} {
		err := s.Update(t.Context(), func(tx *Tx) error {
			entry, err := tx.Append(journal.Entry{At: longstop.At(clock), Kind: journal.PolicyChanged, By: "operator anna"})
			if err != nil {
				return err
			}
			return tx.PutPolicy(entry, "sha256:"+text, []byte(text))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, path)
	if text, digest, err := s.Policy(t.Context()); len(text) != 0 || digest != "sha256:" || err != nil {
		t.Errorf("after both: %q, %q, %v", text, digest, err)
	}
}

// Unresolved actions are counted as the update finds them, up to what matters.
func TestUnresolvedAreCounted(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	scout := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
	for i, host := range []string{"web-1", "web-1", "web-2", "web-2"} {
		a := newAction(host)
		if i%2 == 0 {
			a.RequestedBy = scout
		}
		if i == 3 {
			a.Launch.State = longstop.LaunchRejected
		}
		put(t, s, a, journal.Requested)
	}
	counted := func(count func(*Tx) (int, error)) (n int) {
		t.Helper()
		err := s.Update(t.Context(), func(tx *Tx) (err error) {
			n, err = count(tx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for want, count := range map[int]func(*Tx) (int, error){
		0: func(tx *Tx) (int, error) { return tx.UnresolvedOn("web-3", 9) },
		1: func(tx *Tx) (int, error) { return tx.UnresolvedOn("web-1", 1) },
		2: func(tx *Tx) (int, error) { return tx.UnresolvedOf(scout, 9) },
	} {
		if n := counted(count); n != want {
			t.Errorf("%d, want %d", n, want)
		}
	}
	if n := counted(func(tx *Tx) (int, error) { return tx.UnresolvedOn("web-2", 9) }); n != 1 {
		t.Errorf("on web-2: %d", n)
	}
}
