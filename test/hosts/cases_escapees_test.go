//go:build hosts

package hosts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K5: daemons, sessions and brokers that leave the job's group. What outlives its run
// in each boundary is in TestEscapes.

// lingering awaits the end of a run's main process with something of it left.
func (g *gateway) lingering(t *testing.T, id longstop.ActionID) longstop.Action {
	t.Helper()
	return g.await(t, id, 20*time.Second, "lingering", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadLingering })
}

// emptied cancels a run and checks that nothing of it is left, by the record and by the host.
func (g *gateway) emptied(t *testing.T, h *rig.Host, id longstop.ActionID) longstop.Action {
	t.Helper()
	r := g.must(t, "cancel", string(id))
	a := g.show(t, id)
	if b := a.Workload.Boundary; a.Workload.State != longstop.WorkloadCancelled || a.Alive != longstop.AliveNo || b.Empty == nil || !*b.Empty {
		t.Errorf("%s\n%s", r, pretty(a))
	}
	if left := ofRun(t, h, a.RunID); len(left) > 0 {
		t.Errorf("left after %s: %v", r, left)
	}
	return a
}

// TestC043SessionsOfTheirOwn: who calls setsid goes too, in every boundary, and which one it was is told.
func TestC043SessionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	names := map[string]string{"deploy": g.enrolAs(t, h, "deploy"), "root": g.enrolAs(t, h, "root")}
	for _, c := range []struct {
		account, owner string
		kind           longstop.BoundaryKind
	}{{"deploy", "auto", longstop.BoundaryTree}, {"root", "auto", longstop.BoundaryCgroup}, {"root", "systemd", longstop.BoundarySystemd}} {
		id := g.launch(t, "--owner", c.owner, names[c.account], "-c", "setsid sleep 70 & sleep 71 & wait")
		a := g.emptied(t, h, id)
		if a.Workload.Boundary.Kind != c.kind || !strings.Contains(g.must(t, "show", string(id)).stdout, "its "+string(c.kind)+" is empty") {
			t.Errorf("%s, --owner %s:\n%s", c.account, c.owner, pretty(a))
		}
	}
}

// TestC044DaemonisedServer: its launcher's status is known at once and the run is not over; a cancel ends the
// server. One that is released is known to live, and to be the run's.
func TestC044DaemonisedServer(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	const script = "redis-server --daemonize yes --port 0 --unixsocket $PWD/$LONGSTOP_RUN_ID.sock --dir /tmp >/dev/null; until test -e $LONGSTOP_RUN_ID.sock; do sleep 0.05; done"
	id := g.launch(t, h.Name, "-c", script)
	a := g.lingering(t, id)
	if m := a.Workload.Main; m.ExitCode == nil || *m.ExitCode != 0 || a.Workload.Result != nil || a.Alive != longstop.AliveYes {
		t.Errorf("the launcher has ended:\n%s", pretty(a))
	}
	server := g.inspect(t, id).Processes
	if len(server) != 1 || !strings.Contains(server[0].Command, "redis-server") || server[0].SID == a.Workload.Main.SID {
		t.Errorf("the server: %s", pretty(server))
	}
	a = g.emptied(t, h, id)
	if m := a.Workload.Main; m.ExitCode == nil || *m.ExitCode != 0 {
		t.Errorf("its launcher's status is gone:\n%s", pretty(a))
	}

	id = g.launch(t, "--leftover", "release", h.Name, "-c", script)
	a = g.final(t, id, 20*time.Second)
	wantExit(t, a, 0)
	if len(a.Workload.Released) != 1 || a.Alive != longstop.AliveYes {
		t.Errorf("released:\n%s", pretty(a))
	}
	g.must(t, "cancel", string(id))
	if left := ofRun(t, h, a.RunID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestC046ForksToTheBackground: a server that goes to the background is a success, and nothing starts it again;
// what would be the next attempt does not begin before the one before is empty.
func TestC046ForksToTheBackground(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.Exec(t, "rm", "-f", "/home/deploy/c046")
	args := []string{"--exclusive", "c046", h.Name, "-c", "echo started >>c046; setsid sleep 600 & exit 0"}
	first := g.launch(t, args...)
	a := g.lingering(t, first)
	if r := g.longstop(t, append([]string{"run"}, args...)...); r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "c046") {
		t.Errorf("another attempt, the first not empty: %s", r)
	}
	queued := g.launch(t, append([]string{"--exclusive-wait", "1m"}, args...)...)
	if b := g.show(t, queued); b.Workload.State != longstop.WorkloadQueued {
		t.Errorf("it does not wait:\n%s", pretty(b))
	}
	if ran := string(h.ReadFile(t, "/home/deploy/c046")); ran != "started\n" || len(ofRun(t, h, a.RunID)) != 1 {
		t.Errorf("started: %q, living: %v", ran, ofRun(t, h, a.RunID))
	}
	g.emptied(t, h, first)
	g.lingering(t, queued)
	g.emptied(t, h, queued)
	if ran := string(h.ReadFile(t, "/home/deploy/c046")); ran != "started\nstarted\n" {
		t.Errorf("started: %q", ran)
	}
}

// TestC047HandedToAtd: work that was handed to another owner is not the run's. Nothing claims so, and the journal
// has the words that handed it over.
func TestC047HandedToAtd(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.Sh(t, "systemctl start atd; rm -f /tmp/c047-*; mkfifo -m 666 /tmp/c047-go")
	// at(1) hands the environment on. The job's shell sets it, and what that starts has the run's mark: it waits itself.
	id := g.launch(t, h.Name, "-c", `echo 'touch /tmp/c047-up; read until </tmp/c047-go; touch /tmp/c047-done' | at -M now 2>/dev/null; sleep 600`)
	eventually(t, 20*time.Second, "atd's work", func() bool { return h.Exists(t, "/tmp/c047-up") })
	for _, p := range g.inspect(t, id).Processes {
		if strings.Contains(p.Command, "c047") && strings.Contains(p.Command, "until") && p.PID != g.show(t, id).Workload.Main.PID {
			t.Errorf("atd's child is called the run's: %s", pretty(p))
		}
	}
	g.emptied(t, h, id)
	h.Sh(t, "echo >/tmp/c047-go")
	eventually(t, 20*time.Second, "atd's work to end by itself", func() bool { return h.Exists(t, "/tmp/c047-done") })
	if said := g.must(t, "activity", "--json", string(id)).stdout + pretty(g.show(t, id).Request); !strings.Contains(said, "at -M now") {
		t.Errorf("the journal does not say what was handed on: %s", said)
	}
}

// TestC049OneServerMoreEachTime: five runs that each leave a server behind. None is forgotten: killed with its run
// and named, waited for, or released and listed with its age.
func TestC049OneServerMoreEachTime(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	for _, leftover := range []longstop.Leftover{longstop.LeftoverKill, longstop.LeftoverWait, longstop.LeftoverRelease} {
		cancel := []string{"cancel"}
		for range 5 {
			id := g.launch(t, "--leftover", string(leftover), h.Name, "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 0")
			cancel = append(cancel, string(id))
		}
		var five []longstop.Action
		eventually(t, 20*time.Second, "the end of their main processes", func() bool {
			g.ask(t, &five, "ps", "-a", "-n", "5")
			return len(five) == 5 && !slices.ContainsFunc(five, func(a longstop.Action) bool {
				return !a.Workload.State.Final() && a.Workload.State != longstop.WorkloadLingering
			})
		})
		for _, a := range five {
			checkLeftover(t, h, g, a, leftover)
		}
		g.must(t, cancel...)
		for _, a := range five {
			if left := ofRun(t, h, a.RunID); len(left) > 0 {
				t.Errorf("%s, cancelled: %v", leftover, left)
			}
		}
	}
}

func checkLeftover(t *testing.T, h *rig.Host, g *gateway, a longstop.Action, leftover longstop.Leftover) {
	t.Helper()
	living := ofRun(t, h, a.RunID)
	if leftover == longstop.LeftoverKill {
		wantExit(t, a, 0)
		// It may have been killed on its way to what it was to become.
		if len(a.Workload.Left) != 1 || a.Workload.Left[0].Command == "" || len(living) > 0 {
			t.Errorf("kill: %v\n%s", living, pretty(a))
		}
		return
	}
	p := g.inspect(t, a.ID).Processes
	if len(living) != 1 || len(p) != 1 || !strings.Contains(p[0].Command, "sleep 1000") || p[0].StartTime == 0 {
		t.Errorf("%s: %v, inspect: %s", leftover, living, pretty(p))
	}
	if final := a.Workload.State.Final(); final != (leftover == longstop.LeftoverRelease) || a.Alive != longstop.AliveYes {
		t.Errorf("%s:\n%s", leftover, pretty(a))
	}
}

// TestC050SharedServer: a server that one run started goes with that run, and its record names it: who worked
// with it can learn why it went.
func TestC050SharedServer(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.Exec(t, "rm", "-f", "/tmp/c050.sock")
	first := g.launch(t, h.Name, "-c", "redis-server --daemonize yes --port 0 --unixsocket /tmp/c050.sock --dir /tmp >/dev/null; sleep 600")
	eventually(t, 20*time.Second, "the server", func() bool { return h.Exists(t, "/tmp/c050.sock") })
	second := g.launch(t, h.Name, "-c", "while redis-cli -s /tmp/c050.sock ping; do sleep 0.1; done; exit 6")
	eventually(t, 20*time.Second, "an answer", func() bool { return strings.HasPrefix(g.must(t, "logs", string(second)).stdout, "PONG\n") })
	a := g.emptied(t, h, first)
	wantExit(t, g.final(t, second, 20*time.Second), 6)
	if stopped := pretty(a.Workload.Left); !strings.Contains(stopped, "redis-server") || !strings.Contains(stopped, "sleep 600") || a.Workload.FinishedAt.IsZero() {
		t.Errorf("who went with it is not named:\n%s", pretty(a))
	}
	if shown := g.must(t, "show", string(first)).stdout; !strings.Contains(shown, "stopped with it: ") || !strings.Contains(shown, "redis-server") {
		t.Errorf("show: %s", shown)
	}
}

// TestC052ConnectionsDoNotPileUp: many who ask share what connects to the host, and it goes with the gateway, however
// that ends.
func TestC052ConnectionsDoNotPileUp(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	connections := func() int {
		return strings.Count(h.Sh(t, "ss -Htn state established '( sport = :22 )'"), "\n")
	}
	id := g.launch(t, h.Name, "--", "sleep", "600")
	var all []*running
	for i := range 20 {
		all = append(all, g.start(t, "show", string(id)), g.start(t, "run", h.Name, "-c", fmt.Sprint("echo ", i)))
	}
	follower := g.start(t, "logs", "-f", string(id))
	for _, r := range all {
		if end := r.end(t, time.Minute); end.status != 0 {
			t.Error(end)
		}
	}
	if n := connections(); n < 1 || n > 2 {
		t.Errorf("%d connections, with 40 commands over", n)
	}
	g.emptied(t, h, id)
	if end := follower.end(t, time.Minute); end.status != 0 {
		t.Error(end)
	}
	g.kill9(t)
	eventually(t, 20*time.Second, "the end of the connections with their gateway", func() bool { return connections() == 0 })
	g.must(t, "run", h.Name, "--", "true")
	g.must(t, "daemon", "stop")
	eventually(t, 20*time.Second, "the end of the connections of a gateway that was stopped", func() bool { return connections() == 0 })
}
