//go:build hosts && faults

package runner

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// Laws 2, 4 and 5 for a run in a unit, on a host that systemd runs: at every step of a launch the process
// that passes it dies. It is as with an owner of the keeper's, but that an owner's death, once its run may
// have begun, is lost: the manager ends the rest.
func TestLiveLaw5DeathAtEveryStepInAUnit(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Fatal("this test is for a host that systemd runs")
	}
	for _, w := range append(slices.Clone(Windows), UnitStarted) {
		for _, tries := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%s/%d", w.Who, w.Point, tries), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.plan(w.Who, w.Point+"=kill")
				sub := l.script("echo ran >> ran; sleep 0.05; (sleep 0.2 &); exit 7")
				sub.Request.Owner = longstop.OwnerSystemd
				if tries == 1 {
					sub.NotAfter -= 57 * longstop.BootTime(1e9) // nobody asks again: it is soon too late
				}
				rec, void := l.converge(sub, tries)
				ran := len(l.lines("ran"))
				t.Logf("void %v, %s by %s, ran %d", void, rec.State, rec.Writer.Kind, ran)
				begun := w.Who == "gate" || w.Who == "owner"
				switch {
				case void && ran == 0, rec.State == longstop.WorkloadLaunchFailed && ran == 0, exited(rec, 7) && ran == 1:
				case begun && rec.State == longstop.WorkloadLost && rec.LostBecause == longstop.OwnerLost && ran <= 1:
				case w.Who == "gate" && rec.State == longstop.WorkloadFinished && rec.Result.Signal == "KILL":
				default:
					t.Errorf("void %v, ran %d times: %s", void, ran, show(rec))
				}
				if _, err := l.trySubmit(sub); err == nil {
					l.final(sub.RunID)
				}
				if again := len(l.lines("ran")); again != ran {
					t.Errorf("asked again, it ran again: %d", again)
				}
				eventually(t, "the end of all", func() bool { return len(boundary.Marked(sub.RunID, 0)) == 0 })
			})
		}
	}
}
