//go:build hosts

package hosts

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// TestPoint6LinkCutWhileWriting cuts the link for 30 s under a run that writes 200 MB at its own
// pace: what arrives is what was written, and nothing is called failed meanwhile.
func TestPoint6LinkCutWhileWriting(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	r := g.start(t, "run", h.Name, "--", "bash", "-c",
		`for i in $(seq 200); do head -c 1000000 /dev/urandom | tee -a /home/deploy/written; sleep 0.15; done; exit 4`)
	eventually(t, 20*time.Second, "the first 10 MB", func() bool { return r.stdout.Len() > 10e6 })
	id := g.newest(t)

	h.Cut(t)
	cut := time.Now()
	a := g.await(t, id, 25*time.Second, "alive unknown", func(a longstop.Action) bool {
		if a.Outcome == longstop.OutcomeFailed || a.Workload.State.Final() {
			t.Fatalf("%s, by nobody who could know:\n%s", a.Outcome, pretty(a))
		}
		return a.Alive == longstop.AliveUnknown
	})
	if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.Unreachable || a.Observation == nil ||
		a.Observation.Source != longstop.Cached || a.Observation.At.IsZero() || a.Observation.At.After(cut.Add(2*time.Second)) {
		t.Errorf("while cut:\n%s", pretty(a))
	}
	for time.Since(cut) < 30*time.Second {
		if a := g.show(t, id); a.Outcome != longstop.OutcomeUnknown {
			t.Fatalf("while cut:\n%s", pretty(a))
		}
		if r.over() {
			t.Fatalf("gave up while cut: %s", r.end(t, time.Second))
		}
	}
	h.Heal(t)

	end := r.end(t, 2*time.Minute)
	if end.status != 4 {
		t.Error(end.status, end.stderr)
	}
	sum := sha256.Sum256([]byte(end.stdout))
	here := hex.EncodeToString(sum[:])
	there := strings.Fields(h.Exec(t, "sha256sum", "/home/deploy/written"))[0]
	if here != there || len(end.stdout) != 200e6 {
		t.Errorf("%d bytes here with %s, %s there", len(end.stdout), here, there)
	}
	a = g.show(t, id)
	wantExit(t, a, 4)
	if a.Output.StdoutBytes != 200e6 || a.Output.DroppedBytes != 0 {
		t.Errorf("output: %s", pretty(a.Output))
	}
	t.Logf("stderr:\n%s", end.stderr)
}
