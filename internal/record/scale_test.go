package record

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// finishedRuns is how many finished runs a folder has that is compared with an empty one.
const finishedRuns = 100_000

// BenchmarkAmongFinishedRuns measures what a folder with 100,000 finished runs, a quarter of them not
// collected, costs beside an empty one, in turn, and reports the ratio of the medians: of a list by
// cursor, of a submit up to its first durable record, and of a gc in which one run is due.
func BenchmarkAmongFinishedRuns(b *testing.B) {
	empty, full := folder(b), folder(b)
	populate(b, full, finishedRuns)
	populate(b, empty, 1) // without one there is no log to look at
	for name, measure := range map[string]func(testing.TB, *Folder) time.Duration{
		"list": listOnce, "submit": submitOnce, "gc": gcOnce,
	} {
		b.Run(name, func(b *testing.B) {
			var few, many []time.Duration
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 { // neither has the better place
					few = append(few, measure(b, empty))
				}
				many = append(many, measure(b, full))
				if i%2 == 1 {
					few = append(few, measure(b, empty))
				}
			}
			b.ReportMetric(float64(median(many))/float64(median(few)), "ratio")
			b.ReportMetric(float64(median(few).Microseconds()), "µs/empty")
			b.ReportMetric(float64(median(many).Microseconds()), "µs/full")
		})
	}
	b.Run("first open after a boot", func(b *testing.B) {
		began := time.Now()
		f, err := open(full.Dir(), randomName())
		must(b, err)
		f.Close()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/full")
	})
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// populate fills a folder with copies of one finished run, without flushes.
func populate(b testing.TB, f *Folder, runs int) {
	b.Helper()
	log, err := openAt(f.root, logName, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	must(b, err)
	defer log.Close()
	for i := range runs {
		id, hash := longstop.NewRunID(), KeyHash(fmt.Sprint("old ", i))
		claim := Claim{Version: envelopeVersion, KeyHash: hash, RunID: id, Digest: "sha256:1", BootID: f.bootID}
		record := []byte(fmt.Sprintf(`{"version":1,"run_id":%q,"sequence":3,"state":"finished","finished_at":%q,"result":{"exit_code":0}}`,
			id, time.Now().UTC().Format(time.RFC3339Nano)))
		dir := f.Path("runs", string(id))
		must(b, os.Mkdir(dir, 0700))
		must(b, os.WriteFile(dir+"/final", seal(kindRecord, 3, record), 0600))
		must(b, os.Link(dir+"/final", dir+"/final.reserved"))
		must(b, os.WriteFile(dir+"/request", record, 0600))
		must(b, os.WriteFile(dir+"/stdout", record, 0600))
		head := make([]byte, headSize)
		copy(head, claim.seal())
		must(b, os.WriteFile(f.Path("claims", hash), head, 0600))
		if i%4 == 0 {
			must(b, os.Link(f.Path("claims", hash), f.Path("claims", string(id))))
		}
		fmt.Fprintln(log, id)
	}
	unix.Syncfs(int(f.root.Fd()))
}

func listOnce(t testing.TB, f *Folder) time.Duration {
	page, err := f.List("", 0)
	must(t, err)
	began := time.Now()
	for range 20 {
		page, err = f.List(page.Cursor, 0)
		must(t, err)
	}
	return time.Since(began)
}

func submitOnce(t testing.TB, f *Folder) time.Duration {
	sub := submission(randomName())
	began := time.Now()
	run := submitted(t, f, sub)
	_, err := run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}, []byte("secret"), true)
	must(t, err)
	took := time.Since(began)
	finish(t, run)
	must(t, run.Collect())
	run.Close()
	return took
}

func submitted(t testing.TB, f *Folder, sub wire.Submit) *Run {
	run, err := f.Build(sub)
	must(t, err)
	_, err = f.Claim(run, sub.Key)
	must(t, err)
	_, err = run.Lock()
	must(t, err)
	return run
}

func gcOnce(t testing.TB, f *Folder) time.Duration {
	sub := submission(randomName())
	run := submitted(t, f, sub)
	finish(t, run)
	must(t, run.Collect())
	run.Close()
	began := time.Now()
	gone, _, err := f.GC(Retention{Runs: []longstop.RunID{sub.RunID}, MaxAge: time.Hour, Now: time.Now()})
	took := time.Since(began)
	if must(t, err); len(gone) != 1 {
		t.Fatalf("gone: %v", gone)
	}
	return took
}
