//go:build faults

package runner

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// Laws 2, 4 and 5, at every step of what is asked beside the work: the owner that passes it dies. The
// work runs at most once, and what is said of it, of the preflight and of the proof is what was seen.
func TestLaw5DeathAtEveryStage(t *testing.T) {
	for _, c := range []struct {
		point  string
		before bool // the work cannot have run
	}{
		{"owner.locked", true}, {"record.write.queued", true}, {"owner.starting", true}, {"owner.staged", true},
		{"owner.aside.recorded", true}, {"owner.gate.started", true}, {"owner.gate.ready", true}, {"owner.opened", true},
		{"owner.aside.started", true}, {"owner.preflight.ended", true}, {"owner.gate.started:2", true}, {"owner.running", true}, {"owner.opened:2", false},
		{"owner.main.ended", false}, {"owner.aside.recorded:2", false}, {"owner.aside.started:2", false}, {"owner.verify.ended", false},
		{"owner.finish", false}, {"record.finish.renamed", false},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", c.point+"=kill")
			sub := l.script("echo ran >> ran; exit 0")
			r := &sub.Request
			r.Preflight, r.Verify, r.Exclusive = "echo asked >> asked", "echo verified >> verified", "db"
			sub.NotAfter -= 58 * longstop.BootTime(1e9)
			rec, void := l.converge(sub, 3)
			ran, asked, verified := len(l.lines("ran")), len(l.lines("asked")), len(l.lines("verified"))
			if err := lifecycle.CheckRecord(rec); !void && err != nil {
				t.Errorf("%v: %s", err, show(rec))
			}
			switch {
			case ran > 1 || asked > 1 || verified > 1 || ran > asked || verified > ran:
				t.Errorf("asked %d, ran %d, verified %d times: %s", asked, ran, verified, show(rec))
			case void && ran > 0, c.before && ran > 0:
				t.Errorf("it ran: %s", show(rec))
			case void:
			case rec.State == longstop.WorkloadLaunchFailed && ran == 0 && rec.EffectProof == "":
			case exited(rec, 0) && ran == 1 && (rec.EffectProof == longstop.ProofUnknown || rec.EffectProof == longstop.ProofPassed && verified == 1):
			default:
				t.Errorf("asked %d, ran %d, verified %d times: %s", asked, ran, verified, show(rec))
			}
			if !void && c.point != "record.finish.renamed" && rec.Writer.Kind != longstop.WriterKeeper {
				t.Errorf("the fault did not happen, or somebody else spoke: %s", show(rec))
			}
			l.nobody(sub.RunID)
			if keeper, there := l.keeper(); there {
				l.kill(keeper) // the next one's owners have no faults
			}
			id, _ := l.asking("true", func(r *longstop.Request) { r.Exclusive = "db" })
			if rec := l.ended(id); !exited(rec, 0) {
				t.Errorf("the name is still had: %s", show(rec))
			}
		})
	}
}
