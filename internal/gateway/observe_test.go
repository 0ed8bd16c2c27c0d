package gateway_test

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestAlteredRecord: law 2. The workload, the same user, writes a record of its own. It fails the
// MAC: the facts stay, and the outcome is unknown by name.
func TestLaw2AlteredRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	folder, err := record.Open(hosts[0].StateDir)
	b.must(err)
	defer folder.Close()
	run, err := folder.Run(a.RunID)
	b.must(err)
	defer run.Close()
	_, rec, err := run.Read()
	b.must(err)
	zero := 0
	rec.Sequence += 10
	rec.State = longstop.WorkloadFinished
	rec.Result = &longstop.Result{ExitCode: &zero}
	if _, err := run.Write(&rec, []byte("a secret of their own"), true); err != nil {
		t.Fatal(err)
	}
	a = b.until(a.ID, "the altered record is seen", func(a longstop.Action) bool { return a.UnknownBecause == longstop.UnreadableRecord })
	if a.Outcome != longstop.OutcomeUnknown || a.Workload.State != longstop.WorkloadRunning || a.Workload.Result != nil {
		t.Errorf("%s", pretty(a))
	}
	raws, err := b.Raw(t.Context(), string(a.ID))
	b.must(err)
	if last := raws[len(raws)-1]; last.Kind != "record" {
		t.Errorf("the altered bytes are not kept: %v", raws)
	}
}
