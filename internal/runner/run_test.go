package runner

import (
	"testing"

	"github.com/longstop/longstop"
)

func TestTrue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.argv("true")
	rec := l.submit(sub)
	if rec.State != longstop.WorkloadRunning && !rec.State.Final() {
		t.Errorf("answered with %s", show(rec))
	}
	rec = l.final(sub.RunID)
	if !exited(rec, 0) || rec.Writer.Kind != longstop.WriterOwner || rec.Boundary.Empty == nil || !*rec.Boundary.Empty {
		t.Errorf("final: %s", show(rec))
	}
}
