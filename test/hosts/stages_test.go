//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// What is asked beside the work, in every boundary of a real host: as an account that has only the
// tree, in a cgroup, and in a unit of the service manager's.
func TestStagesInEveryBoundary(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	deploy, root := g.enrolAs(t, h, "deploy"), g.enrolAs(t, h, "root")
	for kind, on := range map[longstop.BoundaryKind][]string{
		longstop.BoundaryTree:    {deploy},
		longstop.BoundaryCgroup:  {root},
		longstop.BoundarySystemd: {"--owner", "systemd", "--detached", "--deadline", "10m", root},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			name := "db-" + string(kind)
			with := func(args ...string) []string { return append(append([]string{"run"}, on...), args...) }

			r := g.longstop(t, with("--exclusive", name, "--preflight", "echo asked >&2", "--verify", `echo schema=42 >> "$LONGSTOP_EVIDENCE"`,
				"-c", `echo out; echo revision=4f2c > "$LONGSTOP_EVIDENCE"; echo 100% > "$LONGSTOP_PROGRESS"`)...)
			a := g.show(t, g.newestOf(t, name))
			w := a.Workload
			if r.status != 0 || r.stdout != "out\n" || !strings.Contains(r.stderr, "asked\n") || w.EffectProof != longstop.ProofPassed || w.Boundary.Kind != kind ||
				w.Evidence["schema"] != "42" || w.Evidence["revision"] != "4f2c" || w.Progress == nil || w.Progress.Line != "100%" || w.Exclusive.Since.IsZero() {
				t.Errorf("%s\n%s", r, pretty(a))
			}
			if r := g.longstop(t, with("--preflight", "exit 204", "--", "touch", "/tmp/ran-"+name)...); r.status != 0 || !strings.Contains(r.stderr, "nothing to do") {
				t.Errorf("%s", r)
			}

			holder := g.launch(t, with("--exclusive", name, "--", "sleep", "600")[1:]...)
			if r := g.longstop(t, with("--exclusive", name, "--", "true")...); r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, string(holder)) {
				t.Errorf("%s", r)
			}
			queued := g.launch(t, with("--exclusive", name, "--exclusive-wait", "10m", "--", "true")[1:]...)
			g.await(t, queued, 20*time.Second, "its place in the queue", func(a longstop.Action) bool {
				return a.Workload.State == longstop.WorkloadQueued && a.Workload.Exclusive.HeldBy == holder
			})
			g.longstop(t, "cancel", string(holder))
			if a := g.final(t, queued, 20*time.Second); a.Outcome != longstop.OutcomeSucceeded {
				t.Errorf("%s", pretty(a))
			}
		})
	}
}

// newestOf is the newest action that asks for a name.
func (g *gateway) newestOf(t *testing.T, name string) longstop.ActionID {
	t.Helper()
	var list []longstop.Action
	g.ask(t, &list, "ps", "-a")
	for _, a := range list {
		if a.Request.Exclusive == name {
			return a.ID
		}
	}
	t.Fatalf("nothing asks for %s", name)
	return ""
}

// C133: power is lost under a holder, one in the queue and one in its preflight. Nothing of them begins
// afterwards, and the name is free.
func TestC133PowerIsLostUnderAHolder(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	name := g.enrolAs(t, h, "root")
	holder := g.launch(t, "--detached", name, "--exclusive", "db", "--", "sleep", "600")
	queued := g.launch(t, "--detached", name, "--exclusive", "db", "--exclusive-wait", "10m", "--", "touch", "/root/ran")
	asked := g.launch(t, "--detached", name, "--preflight", "sleep 600", "--", "touch", "/root/ran")
	g.await(t, asked, 20*time.Second, "its preflight", func(a longstop.Action) bool { return a.Workload.Preflight != nil })
	h.Crash(t)
	if a := g.final(t, holder, 60*time.Second); a.Workload.State != longstop.WorkloadLost || a.UnknownBecause != longstop.Rebooted {
		t.Errorf("%s", pretty(a))
	}
	for _, id := range []longstop.ActionID{queued, asked} {
		if a := g.final(t, id, 60*time.Second); a.Outcome != longstop.OutcomeNotStarted || a.Workload.State != longstop.WorkloadLaunchFailed {
			t.Errorf("%s", pretty(a))
		}
	}
	if r := g.longstop(t, "run", name, "--exclusive", "db", "--", "test", "!", "-e", "/root/ran"); r.status != 0 {
		t.Errorf("%s", r)
	}
}
