package runner

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// BenchmarkTrue is `true` from submit to its durable final record, on the host alone.
func BenchmarkTrue(b *testing.B) {
	l := newLab(&testing.T{})
	defer l.clear()
	if err := EnsureKeeper(context.Background(), l.f); err != nil {
		b.Fatal(err)
	}
	var answered, final time.Duration
	for b.Loop() {
		sub := l.argv("true")
		began := time.Now()
		if _, err := Submit(context.Background(), l.f, sub); err != nil {
			b.Fatal(err)
		}
		answered += time.Since(began)
		for {
			if _, err := os.Stat(l.f.Path("runs", string(sub.RunID), "final")); err == nil {
				break
			}
			time.Sleep(20 * time.Microsecond)
		}
		final += time.Since(began)
	}
	b.ReportMetric(float64(answered.Microseconds())/float64(b.N), "µs-answered/op")
	b.ReportMetric(float64(final.Microseconds())/float64(b.N), "µs-final/op")
}

// pss is a process's proportional set size in KiB.
func pss(id boundary.Identity) (n int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", id.PID))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			fmt.Sscan(rest, &n)
		}
	}
	return n
}

// BenchmarkIdle is what one idle run costs in memory, beside four others: its owner, and the keeper
// that they share. The test binary is larger than the runner's own.
func BenchmarkIdle(b *testing.B) {
	l := newLab(&testing.T{})
	defer l.clear()
	var ids []longstop.RunID
	for range 5 {
		sub := l.script("sleep 600")
		if _, err := Submit(context.Background(), l.f, sub); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, sub.RunID)
	}
	time.Sleep(spareFor + 2*recount) // until all of them rest
	for b.Loop() {
	}
	if keeper, ok := l.keeper(); ok {
		b.ReportMetric(float64(pss(keeper)), "KiB-keeper")
	}
	for _, id := range ids[:1] {
		if owner, ok := l.owner(id); ok {
			b.ReportMetric(float64(pss(owner)), "KiB-owner")
		}
	}
}
