//go:build faults

package runner

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// An owner that hangs is bypassed: its keeper ends it, and does what is due itself.

func TestLaw10HungOwnerIsBypassed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.plan("owner", "owner.attending=delay:120000")
	sub := l.script("trap 'echo heard >> got; exit 0' TERM; echo up > up; while :; do sleep 0.05; done")
	l.submit(sub)
	l.has("up", 1)
	_, rec := l.cancel(sub.RunID, 2*time.Second, 15*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || rec.Writer.Kind != longstop.WriterKeeper || len(l.lines("got")) != 1 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// Whether or not it answered.
func TestC113HungOwnerAndTheLease(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"owner.running", "owner.attending"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", point+"=delay:120000")
			sub := l.leased("echo up >> up; sleep 60", 300*time.Millisecond)
			sub.Request.GraceS = 0.2
			l.submit(sub)
			rec := l.final(sub.RunID)
			if rec.Writer.Kind != longstop.WriterKeeper || point == "owner.attending" && !cancelled(rec, longstop.CauseLease) ||
				point == "owner.running" && rec.State != longstop.WorkloadLaunchFailed {
				t.Errorf("%s", show(rec))
			}
			l.nobody(sub.RunID)
		})
	}
}
