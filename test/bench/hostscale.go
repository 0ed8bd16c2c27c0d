package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// slowFlushes repeats launch and life with two milliseconds added to each flush. What they grow by, over
// two, counts the flushes that are waited for; a log has all of them, the ones beside the work as well.
func (h *host) slowFlushes(ctx context.Context) ([]row, error) {
	runner, log := filepath.Join(inside, "faults", "longstop-runner"), h.path("flushes")
	var sites []party
	for name, env := range map[string]string{"plain": "LONGSTOP_FLUSH_DELAY_MS=0", "slow": "LONGSTOP_FLUSH_DELAY_MS=2", "logged": "LONGSTOP_FLUSH_LOG=" + log} {
		s, err := openSite(ctx, runner, h.path("flush", name), 0, env)
		if err != nil {
			return nil, err
		}
		defer s.close()
		sites = append(sites, ours(s, longstop.Request{}))
		sites[len(sites)-1].name = name
	}
	slices.SortFunc(sites, func(a, b party) int { return strings.Compare(a.name, b.name) }) // logged, plain, slow
	starts, err := timed(h.rounds, sites[1:], func(p party) (time.Duration, error) { return launched(ctx, p) })
	if err != nil {
		return nil, err
	}
	lives, err := timed(h.rounds, sites[1:], func(p party) (time.Duration, error) { return lived(ctx, p) })
	if err != nil {
		return nil, err
	}
	before := flushesIn(log)
	if _, err := timed(10, sites[:1], func(p party) (time.Duration, error) { return lived(ctx, p) }); err != nil {
		return nil, err
	}
	flushed := (flushesIn(log) - before) / 12
	rows := []row{
		{"launch to durable `running`, 2 ms added to each flush", "the same without", starts[1], starts[0], "ms", ""},
		{"whole life of `true`, 2 ms added to each flush", "the same without", lives[1], lives[0], "ms", ""},
		{what: "flushes that a launch waits for", ours: (starts[1] - starts[0]) / 2, unit: "flushes"},
		{what: "flushes that a whole life waits for", ours: (lives[1] - lives[0]) / 2, unit: "flushes"},
	}
	traced, err := h.tracedFlushes(ctx)
	return append(rows, beside("flushes in a whole life, those that nobody waits for too", "by strace", flushed, traced, h.peers, "", "flushes")...), err
}

// tracedFlushes has each peer run `true` under strace, and counts its flushes. Systemd is what runs
// systemd-run's work, so that is traced, too.
func (h *host) tracedFlushes(ctx context.Context) ([]float64, error) {
	log := h.path("trace")
	strace := []string{"strace", "--daemonize", "-f", "-qq", "-A", "-o", log, "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync"}
	traced := &host{bench: &bench{dir: h.path("traced"), prefix: strace}}
	if err := traced.findPeers(ctx); err != nil {
		return nil, err
	}
	manager := exec.CommandContext(ctx, "strace", "-f", "-p", "1", "-A", "-o", log, "-e", strace[len(strace)-1])
	stderr, err := manager.StderrPipe()
	if err == nil {
		err = manager.Start()
	}
	if err != nil {
		return nil, err
	}
	defer func() { manager.Process.Signal(os.Interrupt); manager.Wait() }()
	if _, err := stderr.Read(make([]byte, 1)); err != nil { // it says that it is attached
		return nil, err
	}
	var counts []float64
	for _, p := range traced.peers {
		before := flushesIn(log)
		if _, err := lived(ctx, p); err != nil {
			return nil, fmt.Errorf("%s, traced: %w", p.name, err)
		}
		time.Sleep(time.Second) // some flush once their work has ended
		counts = append(counts, flushesIn(log)-before)
	}
	return counts, nil
}

// flushesIn counts the lines of a log that are of flushes: ours names the points, strace the calls.
func flushesIn(log string) (n float64) {
	content, _ := os.ReadFile(log)
	for line := range strings.Lines(string(content)) {
		// Not what strace says of ends, of signals, and of a call's second half.
		if !strings.Contains(line, "+++") && !strings.Contains(line, "---") && !strings.Contains(line, "resumed>") {
			n++
		}
	}
	return n
}

// amongFinished compares a folder in which many runs have finished with one in which few have.
func (h *host) amongFinished(ctx context.Context) ([]row, error) {
	var few, full *site
	for _, s := range []**site{&few, &full} {
		var err error
		if *s, err = openSite(ctx, h.runner(), h.path("finished", fmt.Sprint(few != nil)), 0); err != nil {
			return nil, err
		}
		defer (*s).close()
	}
	if err := errors.Join(fill(few.dir, 10), fill(full.dir, h.finished)); err != nil {
		return nil, err
	}
	listed, err := timed(2*h.rounds, []party{{name: few.dir, site: few}, {name: full.dir, site: full}}, func(p party) (time.Duration, error) { return p.site.listed() })
	if err != nil {
		return nil, err
	}
	started, err := timed(2*h.rounds, []party{ours(few, longstop.Request{}), ours(full, longstop.Request{})}, func(p party) (time.Duration, error) { return launched(ctx, p) })
	if err != nil {
		return nil, err
	}
	against := "the same among 10"
	among := fmt.Sprintf(" among %d finished runs", h.finished)
	return []row{{"`list`" + among, against, listed[1], listed[0], "ms", "≤ 1.1"},
		{"launch" + among, against, started[1], started[0], "ms", "≤ 1.1"}}, nil
}

// listed lists what changed since the last list twenty times.
func (s *site) listed() (time.Duration, error) {
	began := time.Now()
	for range 20 {
		var page wire.ListAnswer
		if err := s.ask(wire.VerbList, wire.ListRequest{Cursor: s.cursor}, &page); err != nil {
			return 0, err
		}
		s.cursor = page.Cursor
	}
	return time.Since(began), nil
}

// fill lays down finished runs as owners do, eight at once, but without the work. Three of four are collected.
func fill(dir string, runs int) error {
	folder, err := record.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	var all sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Pointer[error]
	for range 8 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(runs) && failed.Load() == nil; i = next.Add(1) {
				if err := layDown(folder, i%4 != 0); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("a finished run: %w", *err)
	}
	return nil
}

// layDown writes one finished run.
func layDown(folder *record.Folder, collect bool) error {
	sub := submission(longstop.Request{Argv: []string{"true"}})
	run, err := folder.Build(sub)
	if err != nil {
		return err
	}
	defer run.Close()
	if _, err := folder.Claim(run, sub.Key); err != nil {
		return err
	}
	if _, err := run.Lock(); err != nil {
		return err
	}
	main := &longstop.Main{PID: 1 << 21, PGID: 1 << 21, SID: 1 << 21, StartTime: 1}
	if _, err := run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main}, sub.Secret, true); err != nil {
		return err
	}
	end := &longstop.Record{State: longstop.WorkloadFinished, FinishedAt: longstop.At(time.Now()), Main: main, Result: &longstop.Result{ExitCode: new(int)}}
	if _, err := run.Finish(end, sub.Secret); err != nil || !collect {
		return err
	}
	return run.Collect()
}

// moved is how fast much output comes into the file that keeps it, beside cat into a file, at the same
// distance from whatever is still being written to the disk.
func (h *host) moved(ctx context.Context) ([]row, error) {
	const rounds = 3
	size := int64(h.megabytes) << 20
	var kept, durable, cut, cats []float64
	for range rounds {
		whole, err := h.movedByOwner(size, new(int64))
		if err != nil {
			return nil, err
		}
		bounded, err := h.movedByOwner(size, nil)
		if err != nil {
			return nil, err
		}
		cat, err := h.movedByCat(ctx, size)
		if err != nil {
			return nil, err
		}
		kept, durable, cut, cats = append(kept, whole.work), append(durable, whole.run), append(cut, bounded.work), append(cats, cat)
	}
	what, theirs := fmt.Sprintf("%d MiB of output into a run's file", h.megabytes), median(cats)
	return []row{
		{what + ", all of it kept", "`cat` into a file", median(kept), theirs, "MB/s", "≥ 0.8"},
		{"the same, until the final record is durable", "`cat` into a file", median(durable), theirs, "MB/s", ""},
		{what + ", all but 1 GiB cut out", "`cat` into a file", median(cut), theirs, "MB/s", "≥ 0.8"},
	}, nil
}

// speeds are of a run's output, in MB/s: while the work wrote it, and from submit to final record.
type speeds struct{ work, run float64 }

func (h *host) movedByOwner(size int64, bound *int64) (speeds, error) {
	unix.Sync()
	began := time.Now()
	id, err := h.site.submit(longstop.Request{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, OutputMax: bound})
	if err != nil {
		return speeds{}, err
	}
	if err := h.site.ended(id); err != nil {
		return speeds{}, err
	}
	took := time.Since(began)
	rec, err := h.site.record(id)
	if err != nil {
		return speeds{}, err
	}
	if rec.Output.StdoutBytes != size {
		return speeds{}, fmt.Errorf("%d bytes of output, not %d", rec.Output.StdoutBytes, size)
	}
	return speeds{rate(size, rec.Main.EndedAt.Sub(rec.StartedAt.Time)), rate(size, took)}, h.site.forget(id)
}

func (h *host) movedByCat(ctx context.Context, size int64) (float64, error) {
	name := h.path("copy")
	defer os.Remove(name)
	unix.Sync()
	began := time.Now()
	if err := h.run(ctx, "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | cat >%s", size, name)); err != nil {
		return 0, err
	}
	return rate(size, time.Since(began)), nil
}

func rate(size int64, took time.Duration) float64 { return float64(size) / 1e6 / took.Seconds() }
