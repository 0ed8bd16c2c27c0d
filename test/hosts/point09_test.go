//go:build hosts

package hosts

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// sevenWhenTold ends with 7 once the file appears.
func sevenWhenTold(file string) string {
	return "while [ ! -e " + file + " ]; do sleep 0.1; done; exit 7"
}

func TestPoint9OwnerKilled(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	const told = "/tmp/point9-owner"
	h.Exec(t, "rm", "-f", told)
	id := g.launch(t, "h1", "-c", sevenWhenTold(told))
	kill(t, h, "KILL", g.inspect(t, id).Owner)
	a := g.await(t, id, 20*time.Second, "inheritance", func(a longstop.Action) bool {
		return a.Workload.State == longstop.WorkloadOrphaned || a.Workload.Writer != nil && a.Workload.Writer.Kind == longstop.WriterKeeper
	})
	if a.Workload.State.Final() || len(ofRun(t, h, a.RunID)) == 0 {
		t.Errorf("the work did not go on:\n%s", pretty(a))
	}
	h.Exec(t, "touch", told)
	a = g.final(t, id, 20*time.Second)
	wantExit(t, a, 7)
	if a.Outcome != longstop.OutcomeFailed || a.Workload.Writer == nil || a.Workload.Writer.Kind != longstop.WriterKeeper || a.Workload.Unsigned {
		t.Errorf("finished by its heir:\n%s", pretty(a))
	}
}

func TestPoint9KeeperKilled(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	const told = "/tmp/point9-keeper"
	id := g.launch(t, h.Name, "-c", sevenWhenTold(told))
	kill(t, h, "KILL", g.inspect(t, id).Keeper)
	second := g.launch(t, h.Name, "--", "true") // starts another keeper
	wantExit(t, g.final(t, second, 20*time.Second), 0)
	h.Exec(t, "touch", told)
	a := g.final(t, id, 20*time.Second)
	wantExit(t, a, 7)
	if a.Workload.Writer == nil || a.Workload.Writer.Kind != longstop.WriterOwner {
		t.Errorf("finished by its owner:\n%s", pretty(a))
	}
}

func TestPoint9BothKilled(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, "--grace", "1s", h.Name, "--", "sleep", "600")
	i := g.inspect(t, id)
	kill(t, h, "KILL", i.Keeper)
	kill(t, h, "KILL", i.Owner)
	a := g.await(t, id, 30*time.Second, "orphaned", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadOrphaned })
	if a.Workload.State.Final() || a.Workload.Result != nil {
		t.Errorf("orphaned:\n%s", pretty(a))
	}
	r := g.longstop(t, "cancel", string(id))
	if left := ofRun(t, h, a.RunID); len(left) > 0 {
		t.Errorf("cancel left %q: %s", left, r)
	}
	a = g.final(t, id, 30*time.Second)
	if a.Workload.State != longstop.WorkloadLost || a.Workload.Result != nil || a.Outcome != longstop.OutcomeUnknown ||
		a.UnknownBecause != longstop.OwnerLost || a.Alive == longstop.AliveYes ||
		a.Workload.Writer == nil || a.Workload.Writer.Kind != longstop.WriterSuccessor {
		t.Errorf("nobody could see its status:\n%s", pretty(a))
	}
	if r.status != 0 && r.status != longstop.ExitUnknown {
		t.Error(r)
	}
}
