package record

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// folder makes a state folder.
func folder(t testing.TB) *Folder {
	t.Helper()
	f, err := Create(t.TempDir() + "/state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func submission(key string) wire.Submit {
	return wire.Submit{RunID: longstop.NewRunID(), ActionID: "act_1", SessionID: "ses_1", Key: key, Secret: []byte("secret"),
		EnvValues: map[string][]byte{"PASSWORD": []byte("hunter2")}, EffectToken: "token",
		Request: longstop.Request{Argv: []string{"true"}, Env: []string{"PASSWORD"}, Digest: "sha256:1"}}
}

// claimed makes a run that has its key.
func claimed(t testing.TB, f *Folder, key string) *Run {
	t.Helper()
	run, err := f.Build(submission(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	claim, err := f.Claim(run, key)
	if err != nil || !claim.Mine {
		t.Fatalf("claim: %+v, %v", claim, err)
	}
	return run
}

// locked makes a run that has its key, and whose lock is held.
func locked(t testing.TB, f *Folder, key string) *Run {
	t.Helper()
	run := claimed(t, f, key)
	if _, err := run.Lock(); err != nil {
		t.Fatal(err)
	}
	return run
}

func main24182() *longstop.Main {
	return &longstop.Main{PID: 24182, PGID: 24182, SID: 24182, StartTime: 8123}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func finish(t testing.TB, run *Run) []byte {
	t.Helper()
	raw, err := run.Finish(&longstop.Record{State: longstop.WorkloadFinished, FinishedAt: longstop.At(time.Now()),
		Main: main24182(), Result: &longstop.Result{ExitCode: new(int)}}, []byte("secret"))
	must(t, err)
	return raw
}

func TestFromSubmitToFinal(t *testing.T) {
	t.Parallel()
	f := folder(t)
	sub := submission("k")
	run, err := f.Build(sub)
	must(t, err)
	defer run.Close()
	if _, _, err := run.Read(); !errors.Is(err, ErrNoRun) {
		t.Errorf("before the claim: %v, want ErrNoRun", err)
	}
	_, err = f.Claim(run, "k")
	must(t, err)
	if _, _, err := run.Read(); err != ErrNoRecord {
		t.Errorf("before the first record: %v, want ErrNoRecord", err)
	}
	_, err = run.Lock()
	must(t, err)
	rec := longstop.Record{State: longstop.WorkloadStarting}
	for i, state := range []longstop.WorkloadState{longstop.WorkloadStarting, longstop.WorkloadRunning, longstop.WorkloadLingering} {
		rec.State = state
		if i > 0 {
			rec.Main = main24182()
		}
		raw, err := run.Write(&rec, sub.Secret, i == 1)
		must(t, err)
		got, want := readAs(t, f, run.ID(), sub.Secret), rec
		if got.State != state || got.Sequence != uint64(i+1) || got.StateID != f.StateID() || got.Version != 1 || want.Sequence != got.Sequence {
			t.Errorf("after %s: %+v", state, got)
		}
		if again, _, err := run.Read(); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("after %s: read other bytes than were written (%v)", state, err)
		}
	}
	// What the host contract's benchmark counts: two at once until running, one for the final record,
	// and two beside whatever else is done.
	if n := f.Flushes(); n != 2 {
		t.Errorf("%d flushes from submit to running, want 2", n)
	}
	run.Settle()
	before := f.Flushes()
	rec.State = longstop.WorkloadFinished
	final, err := run.Finish(&rec, sub.Secret)
	must(t, err)
	if n := f.Flushes() - before; n > 3 {
		t.Errorf("%d flushes for the final record, want 1, and 2 to settle", n)
	}
	if got := readAs(t, f, run.ID(), sub.Secret); got.State != longstop.WorkloadFinished || got.Sequence != 4 {
		t.Errorf("final: %+v", got)
	}
	// Law 2: once.
	if _, err := run.Finish(&rec, sub.Secret); err != ErrFinal {
		t.Errorf("a second final record: %v, want ErrFinal", err)
	}
	rec.State = longstop.WorkloadRunning
	if _, err := run.Write(&rec, sub.Secret, true); err != ErrFinal {
		t.Errorf("a record after the final one: %v, want ErrFinal", err)
	}
	if again, _, err := run.Read(); err != nil || !bytes.Equal(again, final) {
		t.Errorf("the final record changed (%v)", err)
	}
}

// readAs reads a run as another process would, with the gateway's check of the MAC.
func readAs(t *testing.T, f *Folder, id longstop.RunID, secret []byte) longstop.Record {
	t.Helper()
	run, err := f.Run(id)
	must(t, err)
	defer run.Close()
	raw, _, err := run.Read()
	must(t, err)
	rec, signed, err := wire.Verify(raw, secret)
	if err != nil || !signed {
		t.Fatalf("signed %v, %v", signed, err)
	}
	return rec
}

func TestOnlyTheHolderOfTheLockWrites(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := claimed(t, f, "k")
	if _, err := run.Write(&longstop.Record{State: longstop.WorkloadStarting}, nil, false); err == nil {
		t.Error("a record was written without the lock")
	}
	if _, err := run.Finish(&longstop.Record{State: longstop.WorkloadLost}, nil); err == nil {
		t.Error("a final record was written without the lock")
	}
	if _, err := run.Lock(); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Write(&longstop.Record{State: longstop.WorkloadFinished}, nil, false); err == nil {
		t.Error("a final state was written into a slot")
	}
	if _, err := run.Finish(&longstop.Record{State: longstop.WorkloadRunning}, nil); err == nil {
		t.Error("a state that is not final was written as final")
	}
}

func TestSecretsStayOffTheDisk(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "the key")
	_, err := run.Write(&longstop.Record{State: longstop.WorkloadStarting}, []byte("secret"), true)
	must(t, err)
	request, err := run.Request()
	must(t, err)
	if request.EffectToken != "token" || request.Request.Env[0] != "PASSWORD" || request.RunID != run.ID() {
		t.Errorf("request: %+v", request)
	}
	everyFile(t, f.Dir(), func(path string, data []byte) {
		for _, secret := range []string{"hunter2", "secret", "the key"} {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s holds %q", path, secret)
			}
		}
	})
}

func everyFile(t *testing.T, dir string, visit func(path string, data []byte)) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		path := dir + "/" + entry.Name()
		if entry.IsDir() {
			everyFile(t, path, visit)
			continue
		}
		data, err := os.ReadFile(path)
		must(t, err)
		visit(path, data)
	}
}

// C028: a reader in the middle of a write sees a whole record, and never an older one than before.
func TestC028ReadersNeverSeeHalfARecord(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	id := run.ID()
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			reader, err := f.Run(id)
			if err != nil {
				t.Error(err)
				return
			}
			defer reader.Close()
			var last uint64
			for {
				_, rec, err := reader.Read()
				switch {
				case errors.Is(err, ErrNoRecord) && last == 0:
				case err != nil:
					t.Errorf("read: %v", err)
					return
				case rec.Sequence < last:
					t.Errorf("record %d after record %d", rec.Sequence, last)
					return
				case len(rec.Anomalies) > 0 && rec.Anomalies[0] != filler(rec.Sequence):
					t.Errorf("record %d has the text of another", rec.Sequence)
					return
				}
				last = rec.Sequence
				if rec.State.Final() {
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := uint64(1); n <= 3000; n++ {
		_, err := run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182(), Anomalies: []string{filler(n)}}, nil, false)
		if err != nil {
			t.Error(err)
			break
		}
	}
	finish(t, run)
	readers.Wait()
	close(done)
}

func filler(n uint64) string { return strings.Repeat(fmt.Sprint(n, " "), 300) }

func TestARecordTooLongIsWrittenShorter(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	var many []longstop.Process
	for pid := range 2000 {
		many = append(many, longstop.Process{PID: pid + 2, StartTime: 1, Command: strings.Repeat("x", 500), Files: [3]string{"/a", "/b", "/c"}})
	}
	rec := longstop.Record{State: longstop.WorkloadCancelling, Main: main24182(), Survivors: many}
	_, err := run.Write(&rec, []byte("secret"), false)
	must(t, err)
	got := readAs(t, f, run.ID(), []byte("secret"))
	if len(got.Survivors) == 0 || len(got.Survivors) >= 2000 || len(got.Anomalies) == 0 || got.Survivors[0].PID != 2 {
		t.Errorf("%d survivors named, anomalies %q", len(got.Survivors), got.Anomalies)
	}
	if len(rec.Survivors) != 2000 || rec.Survivors[0].Files[0] != "/a" || len(rec.Anomalies) != 0 {
		t.Error("the caller's record was shortened too")
	}
	rec.State, rec.Left, rec.Released = longstop.WorkloadCancelled, many, many
	rec.LaunchError = &longstop.LaunchError{Message: strings.Repeat("é", 90000)}
	_, err = run.Finish(&rec, []byte("secret"))
	must(t, err)
	if got := readAs(t, f, run.ID(), []byte("secret")); len(got.Left) == 0 || len(got.Released) == 0 {
		t.Error("a list went altogether")
	}
}

// C037: a number that kill(2) takes for a group, or for everything, is not read as a process.
func TestC037NumbersThatAreNoProcessAreRefused(t *testing.T) {
	t.Parallel()
	valid := string(wire.Sign(longstop.Record{Version: 1, RunID: "run_00000000000000000000000000000001", Sequence: 1,
		State: longstop.WorkloadRunning, Main: main24182(), Released: []longstop.Process{{PID: 77, StartTime: 3}}}, nil))
	for _, change := range []struct{ from, to string }{
		{`"pid":24182`, `"pid":0`}, {`"pid":24182`, `"pid":-1`}, {`"pid":24182`, `"pid":1`}, {`"pid":24182`, `"pid":99999999999999999999`},
		{`"pid":24182`, `"pid":2147483648`}, {`"pid":24182`, `"pid":"24182"`}, {`"pid":24182`, `"pid":24182.0e0`}, {`"pid":24182`, `"pid":null`},
		{`"pid":24182`, `"x":24182`}, {`"pgid":24182`, `"pgid":0`}, {`"sid":24182`, `"sid":-7`}, {`"start_time":8123`, `"start_time":0`},
		{`"start_time":8123`, `"start_time":-8123`}, {`"pid":77`, `"pid":1`}, {`"pid":77`, `"pid":-77`}, {`"pid":24182`, `"pid":5,"pid":24182`},
		{`"state":"running"`, `"state":"done"`}, {`"state":"running"`, `"state":""`}, {`"version":1`, `"version":0`},
		{`"run_id":"run_00000000000000000000000000000001"`, `"run_id":"run_00000000000000000000000000000002"`},
	} {
		f := folder(t)
		run := locked(t, f, "k")
		altered := strings.ReplaceAll(valid, change.from, change.to)
		if altered == valid {
			t.Fatalf("%s is not in the record", change.from)
		}
		altered = strings.Replace(altered, "run_00000000000000000000000000000001", string(run.ID()), 1)
		plant(t, f, run.ID(), 1, altered)
		_, _, err := run.Read()
		if longstop.CodeOf(err) != longstop.CodeUnreadable {
			t.Errorf("%s: %v, want %s", change.to, err, longstop.CodeUnreadable)
		}
		run.Close()
	}
}

// plant writes text into the run's slots as if it were a record.
func plant(t *testing.T, f *Folder, id longstop.RunID, sequence uint64, text string) {
	t.Helper()
	file, err := os.OpenFile(f.Path("claims", string(id)), os.O_WRONLY, 0)
	must(t, err)
	defer file.Close()
	_, err = file.WriteAt(seal(kindRecord, sequence, []byte(text)), int64(headSize+slotSize*int(sequence%slotCount)))
	must(t, err)
}

func TestANewerVersionIsSaidToBeNewer(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	plant(t, f, run.ID(), 1, `{"version":2,"run_id":"`+string(run.ID())+`","state":"dreaming"}`)
	if _, _, err := run.Read(); longstop.CodeOf(err) != longstop.CodeVersionMismatch {
		t.Errorf("a record of version 2: %v", err)
	}
	sealed := bytes.Replace(seal(kindRecord, 1, []byte("{}")), []byte("record 1 "), []byte("record 2 "), 1)
	must(t, os.WriteFile(run.Path("final"), sealed, 0600))
	if _, _, err := run.Read(); longstop.CodeOf(err) != longstop.CodeVersionMismatch {
		t.Errorf("an envelope of version 2: %v", err)
	}
}

// C127: what is damaged is said to be damaged, is kept, and does no harm to other runs.
func TestC127DamagedRecordsAreKeptAndSaid(t *testing.T) {
	t.Parallel()
	f := folder(t)
	good := locked(t, f, "good")
	finish(t, good)
	garbage := map[string]string{"empty": "", "brace": "{", "null": "null", "list": "[]", "state": `{"state":5}`,
		"long": strings.Repeat("x", 2_000_000), "zeroes": strings.Repeat("\x00", 40_000),
		"sealed": string(seal(kindRecord, 3, []byte("null"))), "other": string(seal(kindClaim, 0, []byte("{}")))}
	for name, text := range garbage {
		run := locked(t, f, name)
		must(t, os.WriteFile(run.Path("final"), []byte(text), 0600))
		checkUnreadable(t, f, run.ID(), name)
		if kept, err := os.ReadFile(run.Path("final")); err != nil || string(kept) != text {
			t.Errorf("%s: the damaged file was not kept (%v)", name, err)
		}
	}
	for name, replace := range map[string]func(path string) error{
		"folder":   func(path string) error { return os.Mkdir(path, 0700) },
		"link":     func(path string) error { return os.Symlink("/etc/passwd", path) },
		"fifo":     func(path string) error { return unix.Mkfifo(path, 0600) },
		"dangling": func(path string) error { return os.Symlink("/nowhere", path) },
	} {
		run := locked(t, f, name)
		must(t, replace(run.Path("final")))
		checkUnreadable(t, f, run.ID(), name+" for a final record")
		slots := locked(t, f, name+" slots")
		path := f.Path("claims", string(slots.ID()))
		must(t, os.Remove(path))
		must(t, replace(path))
		checkUnreadable(t, f, slots.ID(), name+" for a record file")
	}
	if rec := readAs(t, f, good.ID(), []byte("secret")); rec.State != longstop.WorkloadFinished {
		t.Errorf("the good run: %+v", rec)
	}
	if _, err := f.List("0.", 0); err != nil {
		t.Errorf("list beside damaged records: %v", err)
	}
	if removed, _, err := f.GC(Retention{MaxAge: 1, Now: time.Now().Add(time.Hour)}); err != nil || len(removed) != 1 {
		t.Errorf("gc removed %v, %v; want the good run alone", removed, err)
	}
}

func checkUnreadable(t *testing.T, f *Folder, id longstop.RunID, what string) {
	t.Helper()
	run, err := f.Run(id)
	if err == nil {
		defer run.Close()
		_, _, err = run.Read()
	}
	if longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("%s: %v, want %s", what, err, longstop.CodeUnreadable)
	}
}

func TestOneTornSlotLeavesTheOther(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	for n := 1; n <= 2; n++ {
		_, err := run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}, nil, true)
		must(t, err)
	}
	tear := func(slot int64) {
		file, err := os.OpenFile(f.Path("claims", string(run.ID())), os.O_WRONLY, 0)
		must(t, err)
		defer file.Close()
		_, err = file.WriteAt([]byte("torn"), headSize+slot*slotSize+60)
		must(t, err)
	}
	tear(2) // the newer one, with sequence 2
	if _, rec, err := run.Read(); err != nil || rec.Sequence != 1 {
		t.Errorf("read %d, %v; want the older record", rec.Sequence, err)
	}
	tear(1)
	if _, _, err := run.Read(); err != ErrNoRecord {
		t.Errorf("read: %v; want the empty record of the start", err)
	}
	tear(0)
	checkUnreadable(t, f, run.ID(), "all slots torn")
	// An heir still can say what it knows, and the damaged slots stay.
	run.Close()
	heir, err := f.Run(run.ID())
	must(t, err)
	defer heir.Close()
	if lock, err := heir.Lock(); lock == nil || longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("lock: %v, %v; want the lock and why the record cannot be read", lock, err)
	}
	damaged, err := os.ReadFile(f.Path("claims", string(heir.ID())))
	must(t, err)
	if _, err := heir.Write(&longstop.Record{State: longstop.WorkloadOrphaned}, nil, true); longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("a record over damaged ones: %v", err)
	}
	_, err = heir.Finish(&longstop.Record{State: longstop.WorkloadLost, LostBecause: longstop.OwnerLost}, nil)
	must(t, err)
	if _, rec, err := heir.Read(); err != nil || rec.State != longstop.WorkloadLost {
		t.Errorf("read %+v, %v", rec, err)
	}
	if kept, _ := os.ReadFile(f.Path("claims", string(heir.ID()))); !bytes.Equal(kept, damaged) {
		t.Error("the damaged slots were not kept")
	}
}
