//go:build hosts

package hosts

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

func TestPoint8PowerLost(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, h.Name, "--", "sleep", "600")
	h.Crash(t)
	a := g.final(t, id, time.Minute)
	if a.Workload.State != longstop.WorkloadLost || a.Workload.LostBecause != longstop.Rebooted || a.Alive != longstop.AliveNo ||
		a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.Rebooted || a.Workload.Result != nil {
		t.Errorf("after power loss:\n%s", pretty(a))
	}
	if r := g.longstop(t, "wait", string(id)); r.status != longstop.ExitUnknown {
		t.Error(r)
	}
	// The host is as good as before.
	if r := g.longstop(t, "run", h.Name, "--", "echo", "again"); r.status != 0 || r.stdout != "again\n" {
		t.Error(r)
	}
}

func TestPoint8OrderlyReboot(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, h.Name, "--", "sleep", "600")
	h.Reboot(t)
	a := g.final(t, id, time.Minute)
	switch {
	case a.Workload.State == longstop.WorkloadCancelled && a.Workload.Cause == longstop.CauseShutdown && a.Outcome == longstop.OutcomeCancelled:
	case a.Workload.State == longstop.WorkloadLost && a.Workload.LostBecause == longstop.Rebooted && a.Outcome == longstop.OutcomeUnknown:
		t.Log("the record was not durable in time")
	default:
		t.Errorf("after a reboot:\n%s", pretty(a))
	}
	if a.Alive != longstop.AliveNo {
		t.Errorf("alive is %s", a.Alive)
	}
}

// TestPoint8AnotherHost has another machine, or another state folder, answer under the same name.
func TestPoint8AnotherHost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"machine":      `head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >/etc/machine-id; echo >>/etc/machine-id`,
		"state folder": `mv /home/deploy/.local/state/longstop /home/deploy/elsewhere`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, g := rig.New(t), newGateway(t)
			g.enrol(t, h)
			id := g.launch(t, h.Name, "--", "sleep", "600")
			h.Sh(t, change)
			h.Crash(t) // the same name, another host: no channel of the old one is left
			a := g.await(t, id, time.Minute, "host_mismatch", func(a longstop.Action) bool {
				return a.UnknownBecause == longstop.HostMismatch
			})
			if a.Alive != longstop.AliveUnknown || a.Outcome != longstop.OutcomeUnknown || a.Workload.State.Final() {
				t.Errorf("after the change:\n%s", pretty(a))
			}
			r := g.longstop(t, "run", "--json", h.Name, "--", "touch", "/home/deploy/ran")
			if r.status != longstop.ExitNotStarted || h.Exists(t, "/home/deploy/ran") {
				t.Errorf("launched on another host: %s", r)
			}
			if b := g.show(t, g.newest(t)); b.Launch.State == longstop.LaunchAccepted || b.Outcome != longstop.OutcomeNotStarted {
				t.Errorf("the refused launch:\n%s", pretty(b))
			}
		})
	}
}
