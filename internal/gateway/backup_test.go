package gateway_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// TestPointBackupUnderLoad: a copy made while actions come and go is whole, and a gateway on it knows the runs
// of the host that were there. What came after it is missing, and that is found: by a checkpoint that was kept
// elsewhere, and by the host's run that no action claims.
func TestPointBackupUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	gate := filepath.Join(sshtest.ShortDir(t), "go")
	goesOn := func() longstop.Action {
		req := script("while [ ! -e " + gate + " ]; do sleep 0.02; done; exit 4")
		req.Request.Lifetime = longstop.Detached
		return b.run(req)
	}
	before := goesOn()
	restored := sshtest.ShortDir(t)
	var load sync.WaitGroup
	started := make(chan struct{}, 40)
	for range 4 {
		load.Go(func() {
			for range 10 {
				if _, err := b.Run(b.t.Context(), script("true"), operator, gateway.Told{}); err != nil {
					t.Error(err)
				}
				started <- struct{}{}
			}
		})
	}
	<-started
	b.must(b.store.Backup(t.Context(), filepath.Join(restored, "longstop.db")))
	load.Wait()
	for _, name := range []string{"salt", gateway.KeyFile} {
		data, err := os.ReadFile(filepath.Join(b.home, name))
		b.must(err)
		b.must(os.WriteFile(filepath.Join(restored, name), data, 0o600))
	}
	after := goesOn()
	kept, err := b.Checkpoint(t.Context())
	b.must(err)
	b.stop()

	b.home = restored
	b.start()
	_, key, err := gateway.JournalKey(restored)
	b.must(err)
	c, err := journal.OpenCheckpoint([]byte(kept.Note), key)
	b.must(err)
	_, err = b.store.Verify(t.Context())
	b.must(err)
	var bad *journal.BadEntry
	if _, err := b.store.Verify(t.Context(), c.Head); !errors.As(err, &bad) {
		t.Errorf("with the checkpoint: %v", err)
	}
	if err := b.store.Backup(t.Context(), filepath.Join(restored, "longstop.db")); err == nil {
		t.Error("a backup was written over a file")
	}
	b.until(before.ID, "the host is heard again", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	sshtest.Eventually(t, "the run that no action claims is seen", func() bool {
		entries, err := b.store.Entries(t.Context(), sqlite.EntryFilter{Limit: 100_000})
		b.must(err)
		for _, e := range entries {
			if e.Kind == journal.UnclaimedRun && e.RunID == after.RunID {
				return true
			}
		}
		return false
	})
	b.must(os.WriteFile(gate, nil, 0o600))
	if a := b.wait(before.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 {
		t.Errorf("the run from before: %s", pretty(a))
	}
}
