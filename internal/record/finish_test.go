package record

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// The work has its owner's rights: it can remove, move and fill its own run's folder, and put
// something where the final record goes. The result is known all the same.
var sabotage = map[string]func(t *testing.T, run *Run){
	"folder removed": func(t *testing.T, run *Run) { must(t, os.RemoveAll(run.Path(""))) },
	"folder moved":   func(t *testing.T, run *Run) { must(t, os.Rename(run.Path("."), run.f.Path("elsewhere"))) },
	"another folder in its place": func(t *testing.T, run *Run) {
		must(t, os.Rename(run.Path("."), run.f.Path("elsewhere")))
		must(t, os.Mkdir(run.f.Path("runs", string(run.id)), 0700))
	},
	"folder closed": func(t *testing.T, run *Run) { must(t, os.Chmod(run.Path("."), 0)) },
	"folder open":   func(t *testing.T, run *Run) { must(t, os.Chmod(run.Path("."), 0755)) },
	"room removed":  func(t *testing.T, run *Run) { must(t, os.Remove(run.Path("final.reserved"))) },
	"room a folder": func(t *testing.T, run *Run) {
		must(t, os.Remove(run.Path("final.reserved")))
		must(t, os.Mkdir(run.Path("final.reserved"), 0700))
	},
	"final garbage": func(t *testing.T, run *Run) { must(t, os.WriteFile(run.Path("final"), []byte("garbage"), 0600)) },
	"final empty":   func(t *testing.T, run *Run) { must(t, os.WriteFile(run.Path("final"), nil, 0600)) },
	"final folder":  func(t *testing.T, run *Run) { must(t, os.Mkdir(run.Path("final"), 0700)) },
	"final link":    func(t *testing.T, run *Run) { must(t, os.Symlink("/etc/passwd", run.Path("final"))) },
	"final unsigned": func(t *testing.T, run *Run) {
		rec := longstop.Record{Version: envelopeVersion, RunID: run.id, State: longstop.WorkloadFinished, Sequence: 9,
			Result: &longstop.Result{ExitCode: new(int)}, Writer: longstop.Writer{Kind: longstop.WriterSuccessor}}
		must(t, os.WriteFile(run.Path("final"), seal(kindRecord, 9, wire.Sign(rec, nil)), 0600))
	},
}

func TestTheResultIsKnownWhateverTheWorkDidToItsFolder(t *testing.T) {
	t.Parallel()
	for name, act := range sabotage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folder(t)
			run := locked(t, f, "k")
			running := longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}
			_, err := run.Write(&running, []byte("secret"), true)
			must(t, err)
			act(t, run)
			code := 5
			last := longstop.Record{State: longstop.WorkloadFinished, Main: main24182(), Result: &longstop.Result{ExitCode: &code}, FinishedAt: longstop.At(time.Now())}
			raw, err := run.Finish(&last, []byte("secret"))
			must(t, err)
			if _, err := run.Finish(&last, []byte("secret")); err != ErrFinal {
				t.Errorf("a second time: %v", err)
			}
			id := run.ID()
			run.Close()
			for _, when := range []string{"at once", "after collection"} {
				got := readAs(t, f, id, []byte("secret"))
				if got.State != longstop.WorkloadFinished || got.Result == nil || *got.Result.ExitCode != 5 || got.Sequence != 2 {
					t.Fatalf("%s: %+v", when, got)
				}
				again, err := f.Run(id)
				must(t, err)
				if kept, _, err := again.Read(); err != nil || !bytes.Equal(kept, raw) {
					t.Errorf("%s: other bytes than were written (%v)", when, err)
				}
				must(t, again.Collect())
				again.Close()
			}
			if left, err := f.Unresolved(); err != nil || len(left) != 0 {
				t.Errorf("unresolved: %v, %v", left, err)
			}
		})
	}
}

func TestAForgedFinalRecordIsKeptAside(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	must(t, os.WriteFile(run.Path("final"), []byte("garbage"), 0600))
	finish(t, run)
	entries, err := os.ReadDir(run.Path("."))
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "final.forged.") {
			if data, err := os.ReadFile(run.Path(e.Name())); err == nil && string(data) == "garbage" {
				return
			}
		}
	}
	t.Errorf("it is gone: %v", entries)
}

// An heir goes on from its owner's last record, whatever lies where the final one goes.
func TestAnHeirPassesAForgedFinalRecord(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	running := longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}
	_, err := run.Write(&running, []byte("secret"), true)
	must(t, err)
	must(t, os.WriteFile(run.Path("final"), []byte("garbage"), 0600))
	id := run.ID()
	run.Close()
	heir, err := f.Run(id)
	must(t, err)
	defer heir.Close()
	_, err = heir.Lock()
	must(t, err)
	finish(t, heir)
	if got := readAs(t, f, id, []byte("secret")); got.State != longstop.WorkloadFinished || got.Sequence != 2 {
		t.Errorf("%+v", got)
	}
}

// A file that is cut back while it is read must not show an older record than was seen before.
func TestARecordFileCutShortIsNoRecord(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	for range 2 {
		_, err := run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}, []byte("secret"), true)
		must(t, err)
	}
	must(t, os.Truncate(f.Path("claims", string(run.ID())), headSize+slotSize))
	if _, rec, err := run.Read(); longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A final record that could not be made durable is none: Finish is called again until it is.
func TestAFinalRecordThatCouldNotBeFlushed(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	defer run.Close()
	last := longstop.Record{State: longstop.WorkloadFinished, Result: &longstop.Result{ExitCode: new(int)}}
	runs, claims := f.runs, f.claims
	closed, err := os.Open(f.Path("runs"))
	must(t, err)
	closed.Close()
	f.runs, f.claims = closed, closed // neither in its place, nor in the record file, can it be durable
	for range 2 {
		if _, err := run.Finish(&last, []byte("secret")); err == nil || err == ErrFinal {
			t.Fatalf("folders that cannot be flushed: %v", err)
		}
	}
	f.runs, f.claims = runs, claims
	if run.Final() {
		t.Error("it has its name, and was not flushed")
	}
	flushes := f.Flushes()
	raw, err := run.Finish(&last, []byte("secret"))
	must(t, err)
	if read, _, err := run.Read(); !bytes.Equal(read, raw) || err != nil || f.Flushes() == flushes {
		t.Errorf("not flushed, or another record: %s, then %s, %v", raw, read, err)
	}
	if _, err := run.Finish(&last, []byte("secret")); err != ErrFinal {
		t.Errorf("once durable: %v", err)
	}
}
