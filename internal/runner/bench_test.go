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

// TestFootprint prints what an idle run costs.
func TestFootprint(t *testing.T) {
	l := newLab(t)
	var ids []longstop.RunID
	for range 5 {
		sub := l.script("sleep 60")
		l.submit(sub)
		ids = append(ids, sub.RunID)
	}
	time.Sleep(500 * time.Millisecond)
	t.Logf("keeper %d KiB", pss(l.mustKeeper()))
	for _, id := range ids {
		t.Logf("owner %d KiB", pss(l.mustOwner(id)))
	}
}
