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
