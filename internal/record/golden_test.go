package record

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// goldenRecord has every field set that a record can have.
func goldenRecord() longstop.Record {
	at := longstop.At(time.Date(2026, 11, 29, 13, 21, 41, 123456000, time.UTC))
	three, no, seven := 3, false, 7
	process := longstop.Process{PID: 24190, PPID: 24182, PGID: 24182, SID: 24182, UID: 1000, State: "S", StartTime: 8140, ElapsedMS: 1200,
		Command: "sleep 12 <&>", Files: [3]string{"/dev/null", "pipe:[1]", "pipe:[2]"}, Why: "EPERM"}
	return longstop.Record{
		Version: 1, RunID: "run_0123456789abcdef0123456789abcdef", ActionID: "act_07Q2M0000000000", SessionID: "ses_07Q2M0000000000",
		KeyHash: KeyHash("the key"), Digest: "sha256:1", Sequence: 5, At: at, BootAt: 81_230_000_000,
		Writer:  longstop.Writer{Kind: longstop.WriterOwner, Version: "0.1.0", PID: 24177, MachineID: "0123456789abcdef0123456789abcdef", BootID: "2bd5ab4b-9a3c-4224-8c50-25583ad4ea31"},
		StateID: "fedcba9876543210fedcba9876543210",
		State:   longstop.WorkloadCancelled, StartedAt: at, FinishedAt: at, Lifetime: longstop.Leased, Leftover: longstop.LeftoverKill, GraceMS: 10000,
		Main:     &longstop.Main{PID: 24182, PGID: 24182, SID: 24182, StartTime: 8123, PIDNS: "pid:[4026531836]", ExitCode: &seven, Signal: "SEGV", EndedAt: at},
		Boundary: longstop.Boundary{Kind: longstop.BoundaryTree, Path: "/p", Processes: &three, Empty: &no},
		Released: []longstop.Process{process}, Survivors: []longstop.Process{process}, Left: []longstop.Process{process},
		Result: &longstop.Result{ExitCode: &seven}, Cause: longstop.CauseLease, LostBecause: longstop.OwnerLost, EmptyProven: true,
		LaunchError: &longstop.LaunchError{Step: "exec", Path: "/no", Errno: "ENOENT", Message: "no such file"},
		LeaseUntil:  1, LeaseRenewed: at, DeadlineUntil: 2,
		Cancel:    &longstop.CancelLog{RequestedAt: at, Signal: "TERM", SignalledAt: at, Signalled: 4, KilledAt: at, Killed: 1, EmptyAt: at},
		Output:    longstop.Output{StdoutBytes: 10321, StderrBytes: 5, DroppedBytes: 7, DropReason: "ENOSPC", Merged: true, AfterEnd: true, Stream: longstop.StreamComplete},
		Anomalies: []string{"the owner was stopped"},
	}
}

// What this release writes is what the golden files hold, and it reads what they hold: a record of
// this release must be read by every later one. A change here is a change of the format.
func TestGoldenRecord(t *testing.T) {
	t.Parallel()
	raw := wire.Sign(goldenRecord(), []byte("golden secret"))
	golden(t, "testdata/final-1.record", seal(kindRecord, 5, raw))
	data, err := os.ReadFile("testdata/final-1.record")
	must(t, err)
	f := folder(t)
	id := goldenRecord().RunID
	must(t, os.Mkdir(f.Path("runs", string(id)), 0700))
	must(t, os.WriteFile(f.Path("runs", string(id), "final"), data, 0600))
	run, err := f.Run(id)
	must(t, err)
	defer run.Close()
	read, _, err := run.Read()
	must(t, err)
	rec, signed, err := wire.Verify(read, []byte("golden secret"))
	if err != nil || !signed {
		t.Fatalf("signed %v, %v", signed, err)
	}
	rec.MAC = ""
	got, _ := json.Marshal(rec)
	want, _ := json.Marshal(goldenRecord())
	if string(got) != string(want) {
		t.Errorf("read %s\nwant %s", got, want)
	}
}

func TestGoldenClaim(t *testing.T) {
	t.Parallel()
	at := longstop.At(time.Date(2026, 11, 29, 13, 21, 41, 123456000, time.UTC))
	claim := Claim{Version: 1, KeyHash: KeyHash("the key"), RunID: goldenRecord().RunID, ActionID: "act_07Q2M0000000000", SessionID: "ses_07Q2M0000000000",
		Digest: "sha256:1", Lifetime: longstop.Leased, Leftover: longstop.LeftoverWait, GraceMS: 10000, LeaseUntil: 1, NotAfter: 2, At: at, BootID: "boot"}
	golden(t, "testdata/claim-1.record", claim.seal())
	golden(t, "testdata/void-1.record", Claim{Version: 1, KeyHash: KeyHash("the key"), Void: true, Reason: "gave up", At: at, BootID: "boot"}.seal())
	for path, want := range map[string]Claim{"testdata/claim-1.record": claim} {
		data, err := os.ReadFile(path)
		must(t, err)
		if got, err := unsealClaim(data); err != nil || got != want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

func golden(t *testing.T, path string, data []byte) {
	t.Helper()
	if *update {
		must(t, os.MkdirAll("testdata", 0755))
		must(t, os.WriteFile(path, data, 0644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if string(data) != string(want) {
		t.Errorf("%s holds\n%s\nthis release writes\n%s\n(go test ./internal/record -update writes it anew)", path, want, data)
	}
}
