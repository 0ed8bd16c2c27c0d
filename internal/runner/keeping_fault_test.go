//go:build faults

package runner

import "testing"

// The owner dies between declaring a hole and making it, and just after it: what its heir keeps is what
// was to be kept, and no more.
func TestBoundedOutputWhenItsOwnerDiesCutting(t *testing.T) {
	for _, plan := range []string{"capture.declared=kill", "capture.declared:4=kill", "capture.cut=kill", "capture.cut:9=kill"} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", plan)
			const lines, most = 2_000_000, 256 << 10
			sub := l.bounded(numbered(lines)+"; exit 2", most)
			l.submit(sub)
			rec := l.final(sub.RunID)
			if !exited(rec, 2) || rec.Writer.Kind != "keeper" {
				t.Errorf("%s", show(rec))
			}
			l.checkBounded(rec, "stdout", lines*16, most)
		})
	}
}
