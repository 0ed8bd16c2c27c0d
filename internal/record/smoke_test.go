package record

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

func TestRunGoesThrough(t *testing.T) {
	t.Parallel()
	f, err := Create(t.TempDir() + "/state")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sub := wire.Submit{RunID: longstop.NewRunID(), ActionID: "act_X", Key: "k", Request: longstop.Request{Digest: "sha256:x"}}
	run, err := f.Build(sub)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := f.Claim(run, "k")
	if err != nil || !claim.Mine || claim.RunID != sub.RunID {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if _, err := run.Lock(); err != nil {
		t.Fatal(err)
	}
	rec := longstop.Record{State: longstop.WorkloadStarting}
	if _, err := run.Write(&rec, nil, true); err != nil {
		t.Fatal(err)
	}
	rec.State = longstop.WorkloadRunning
	rec.Main = &longstop.Main{PID: 7, PGID: 7, SID: 7, StartTime: 1}
	if _, err := run.Write(&rec, nil, true); err != nil {
		t.Fatal(err)
	}
	if n := f.Flushes(); n != 4 {
		t.Errorf("%d flushes from submit to running, want 4", n)
	}
	rec.State = longstop.WorkloadFinished
	if _, err := run.Finish(&rec, []byte("s")); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Finish(&rec, nil); err != ErrFinal {
		t.Errorf("second final: %v", err)
	}
	_, got, err := run.Read()
	if err != nil || got.State != longstop.WorkloadFinished || got.Sequence != 3 {
		t.Errorf("read %+v, %v", got, err)
	}
}
