//go:build hosts

package hosts

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// TestPoint7GatewayStoppedForGood kills the gateway: a leased run ends on its host by itself, a
// detached one goes on, and a later gateway learns both.
func TestPoint7GatewayStoppedForGood(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	detached := g.launch(t, "--detached", "--deadline", "10m", "h1", "--", "sleep", "600")
	leased := g.launch(t, "--lease", "6s", "--grace", "1s", "h1", "--", "bash", "-c", `trap "" TERM; while :; do sleep 0.2; done`)
	runs := map[longstop.ActionID]longstop.RunID{detached: g.show(t, detached).RunID, leased: g.show(t, leased).RunID}
	// Renewed for as long as somebody is there to renew it.
	for began := time.Now(); time.Since(began) < 9*time.Second; {
		if len(ofRun(t, h, runs[leased])) == 0 {
			t.Fatalf("ended although its gateway lives:\n%s", pretty(g.show(t, leased)))
		}
	}

	g.kill9(t)
	killed := time.Now()
	eventually(t, 30*time.Second, "the leased run's end on its host", func() bool { return len(ofRun(t, h, runs[leased])) == 0 })
	if took := time.Since(killed); took > 6*time.Second+time.Second+3*time.Second {
		t.Errorf("lease 6 s and grace 1 s, and it ended %s after the gateway's death", took)
	}
	if len(ofRun(t, h, runs[detached])) != 1 {
		t.Error("the detached run did not go on")
	}

	a := g.final(t, leased, 20*time.Second) // show starts a new gateway
	if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseLease || a.Outcome != longstop.OutcomeCancelled ||
		a.Workload.Writer == nil || a.Workload.Writer.Kind != longstop.WriterOwner {
		t.Errorf("the leased run:\n%s", pretty(a))
	}
	b := g.await(t, detached, 20*time.Second, "live sight", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	if b.Workload.State != longstop.WorkloadRunning {
		t.Errorf("the detached run:\n%s", pretty(b))
	}
	g.must(t, "cancel", string(detached))
}

// TestPoint7RenewalInACutLink has the gateway renew into a link that is cut: the run ends when its
// last lease does, and what arrives when the link is healed changes nothing.
func TestPoint7RenewalInACutLink(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, "--lease", "8s", "--grace", "1s", h.Name, "--", "sleep", "600")
	run := g.show(t, id).RunID
	h.Cut(t)
	cut := time.Now()
	eventually(t, 30*time.Second, "the run's end on its host", func() bool { return len(ofRun(t, h, run)) == 0 })
	if took := time.Since(cut); took > 8*time.Second+time.Second+3*time.Second {
		t.Errorf("lease 8 s and grace 1 s, and it ended %s after the link was cut", took)
	}
	h.Heal(t)
	a := g.final(t, id, time.Minute)
	if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseLease {
		t.Errorf("after healing:\n%s", pretty(a))
	}
}
