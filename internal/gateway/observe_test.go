package gateway_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestAlteredRecord: law 2. The workload, the same user, writes a record of its own. It fails the
// MAC: the facts stay, and the outcome is unknown by name.
func TestLaw2AlteredRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	final := forgeFinal(t, a, []byte("a secret of their own"))
	b.must(os.WriteFile(filepath.Join(hosts[0].StateDir, "runs", string(a.RunID), "final"), final, 0o600))
	a = b.until(a.ID, "the altered record is seen", func(a longstop.Action) bool { return a.UnknownBecause == longstop.UnreadableRecord })
	if a.Outcome != longstop.OutcomeUnknown || a.Workload.State != longstop.WorkloadRunning || a.Workload.Result != nil {
		t.Errorf("%s", pretty(a))
	}
	raws, err := b.Raw(t.Context(), string(a.ID))
	b.must(err)
	if last := raws[len(raws)-1]; last.Kind != "record" || !strings.Contains(string(last.Bytes), `"state":"finished"`) {
		t.Errorf("the altered bytes are not kept: %q", raws)
	}
	if kinds := b.kinds(a.ID); kinds[len(kinds)-1] != "observed" {
		t.Errorf("journal %v", kinds)
	}
	// Law 10: nobody gets out of being stopped that way; and then its owner's word is the one that counts.
	a = b.cancel(a.ID, nil)
	a = b.until(a.ID, "its end", func(a longstop.Action) bool { return !a.Unresolved() })
	if a.Outcome != longstop.OutcomeCancelled || a.Alive != longstop.AliveNo || a.Cancel.State != longstop.CancelConfirmed || a.Workload.Unsigned {
		t.Errorf("%s", pretty(a))
	}
}

// forgeFinal is the file of a final record that says success, well made but for its secret.
func forgeFinal(t *testing.T, a longstop.Action, secret []byte) []byte {
	t.Helper()
	dir := filepath.Join(sshtest.ShortDir(t), "state")
	folder, err := record.Create(dir)
	must(t, err)
	defer folder.Close()
	run, err := folder.Build(wire.Submit{RunID: a.RunID, ActionID: a.ID, SessionID: a.SessionID, Key: a.IdempotencyKey, Request: a.Request, Secret: secret})
	must(t, err)
	defer run.Close()
	_, err = folder.Claim(run, a.IdempotencyKey)
	must(t, err)
	lock, err := run.Lock()
	must(t, err)
	defer lock.Unlock()
	empty, zero, none := true, 0, 0
	_, err = run.Finish(&longstop.Record{State: longstop.WorkloadFinished, Result: &longstop.Result{ExitCode: &zero}, Sequence: 100,
		Boundary: longstop.Boundary{Kind: longstop.BoundaryTree, Empty: &empty, Processes: &none}}, secret)
	must(t, err)
	final, err := os.ReadFile(filepath.Join(dir, "runs", string(a.RunID), "final"))
	must(t, err)
	return final
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatCouldNotBeKeptIsAskedForAgain: the disk takes nothing just when the run's end is pushed. Once
// it does again, the end is learnt.
func TestWhatCouldNotBeKeptIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	gate := filepath.Join(sshtest.ShortDir(t), "go")
	a := b.run(script("while [ ! -e " + gate + " ]; do sleep 0.05; done; exit 4"))
	b.until(a.ID, "it is seen", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	db, err := sql.Open("sqlite", filepath.Join(b.home, "longstop.db")+"?_pragma=busy_timeout(10000)")
	b.must(err)
	defer db.Close()
	_, err = db.Exec(`CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	b.must(err)
	b.must(os.WriteFile(gate, nil, 0o600))
	watches := b.tap.count(wire.VerbWatch)
	sshtest.Eventually(t, "the end was told and could not be kept", func() bool { return b.tap.count(wire.VerbWatch) > watches+2 })
	_, err = db.Exec(`DROP TRIGGER full`)
	b.must(err)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 {
		t.Errorf("%s", pretty(a))
	}
}
