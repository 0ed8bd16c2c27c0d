//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// C119: after a loss of power the run is over, and how it would have ended nobody knows. What it wrote is there;
// nothing starts it again, neither by itself nor by its key.
func TestPoint8C119PowerLost(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	args := []string{"--key", "c119", h.Name, "-c", "echo ran >>/home/deploy/c119; sync; echo last words; sleep 600"}
	id := g.launch(t, args...)
	eventually(t, 20*time.Second, "its line", func() bool { return g.must(t, "logs", string(id)).stdout == "last words\n" })
	h.Crash(t)
	a := g.final(t, id, time.Minute)
	if a.Workload.State != longstop.WorkloadLost || a.Workload.LostBecause != longstop.Rebooted || a.Alive != longstop.AliveNo ||
		a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.Rebooted || a.Workload.Result != nil || a.Retry.Allowed {
		t.Errorf("after power loss:\n%s", pretty(a))
	}
	if r := g.longstop(t, "wait", string(id)); r.status != longstop.ExitUnknown {
		t.Error(r)
	}
	if r := g.must(t, "logs", "-t", string(id)); !strings.HasSuffix(r.stdout, " last words\n") || !strings.HasPrefix(r.stdout, "20") {
		t.Errorf("when it wrote last: %s", r)
	}
	if r := g.longstop(t, "cancel", string(id)); !strings.Contains(r.stderr, "rebooted") {
		t.Error(r)
	}
	if r := g.longstop(t, append([]string{"run", "-d"}, args...)...); r.status != longstop.ExitUnknown || strings.TrimSpace(r.stdout) != string(id) {
		t.Errorf("asked for again by its key: %s", r)
	}
	var all []longstop.Action
	if g.ask(t, &all, "ps", "-a"); len(all) != 1 || all[0].UnknownBecause != longstop.Rebooted {
		t.Errorf("the list: %s", pretty(all))
	}
	if ran := string(h.ReadFile(t, "/home/deploy/c119")); ran != "ran\n" {
		t.Errorf("it ran %q", ran)
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
