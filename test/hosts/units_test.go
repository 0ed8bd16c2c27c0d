//go:build hosts

package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Runs whose owner is the main process of a unit: root's are the system manager's, those of a user who
// lingers that user's own manager's.

// unitHost is a host on which deploy lingers, and its two accounts that get units.
func unitHost(t *testing.T, options ...rig.Option) (h *rig.Host, g *gateway, names map[string]string) {
	t.Helper()
	h, g = rig.New(t, options...), newGateway(t)
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	return h, g, map[string]string{"system": g.enrolAs(t, h, "root"), "user": g.enrolAs(t, h, "deploy")}
}

// inUnit starts a detached run and returns it once it runs in a unit of that manager.
func (g *gateway) inUnit(t *testing.T, manager, name, script string) longstop.Action {
	t.Helper()
	id := g.launch(t, "--detached", "--deadline", "10m", "--grace", "2s", name, "-c", script)
	a := g.await(t, id, 20*time.Second, "a look at its unit", func(a longstop.Action) bool { return a.Workload.Unit != nil })
	b := a.Workload.Boundary
	if b.Kind != longstop.BoundarySystemd || b.Manager != manager || !strings.HasPrefix(b.Unit, "longstop-run_") || !strings.Contains(b.Path, "/"+b.Unit+"/"+string(a.RunID)) {
		t.Fatalf("not in a unit:\n%s", pretty(a))
	}
	return a
}

// unitOver waits for the last word about an action's unit.
func (g *gateway) unitOver(t *testing.T, id longstop.ActionID) (longstop.Action, longstop.Unit) {
	t.Helper()
	a := g.await(t, id, 30*time.Second, "the end of its unit", func(a longstop.Action) bool {
		return a.Workload.State.Final() && a.Workload.Unit != nil && (a.Workload.Unit.Ended() || a.Workload.Unit.Forgotten)
	})
	return a, *a.Workload.Unit
}

func systemctl(h *rig.Host, t *testing.T, manager string, words ...string) string {
	t.Helper()
	if manager == "user" {
		words = append([]string{"--user", "-M", "deploy@"}, words...)
	}
	return h.Exec(t, append([]string{"systemctl"}, words...)...)
}

func TestUnitRuns(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	for manager, name := range names {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			r := g.longstop(t, "run", "--owner", "systemd", name, "-c", "echo out; echo err >&2; exit 7")
			if r.status != 7 || r.stdout != "out\n" || !strings.Contains(r.stderr, "err\n") {
				t.Errorf("%s", r)
			}

			a := g.inUnit(t, manager, name, "sleep 1; exit 3")
			a, u := g.unitOver(t, a.ID)
			wantExit(t, a, 3)
			if u.ActiveState != "inactive" || u.Result != "success" || u.MainCode != "exited" || u.MainStatus == nil || *u.MainStatus != 0 ||
				u.InvocationID == "" || u.MainPID != a.Workload.Writer.PID || u.EndedAt.IsZero() || u.Manager != manager {
				t.Errorf("its unit: %s", pretty(u))
			}
			if show := g.must(t, "show", string(a.ID)).stdout; !strings.Contains(show, "unit") || !strings.Contains(show, u.Name) {
				t.Errorf("show: %s", show)
			}

			// Whatever is in the boundary is stopped: a daemon, and who ignores TERM.
			a = g.inUnit(t, manager, name, `setsid sh -c 'trap "" TERM; while :; do sleep .1; done' & sleep 600`)
			if r := g.must(t, "cancel", string(a.ID)); len(ofRun(t, h, a.RunID)) > 0 {
				t.Errorf("left after %s: %v", r, ofRun(t, h, a.RunID))
			}
			a, _ = g.unitOver(t, a.ID)
			if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseRequest || a.Workload.Writer.Kind != longstop.WriterOwner {
				t.Errorf("cancelled:\n%s", pretty(a))
			}
			if said := g.must(t, "activity", "--json").stdout; strings.Contains(said, "unreadable_record") || !strings.Contains(said, "detached_accepted") || !strings.Contains(said, "unit_seen") {
				t.Errorf("the journal: %s", said)
			}
		})
	}
}

func TestUnitStoppedFromOutside(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	for manager, name := range names {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			a := g.inUnit(t, manager, name, `trap 'echo heard; sleep .3; echo tidied; exit 0' TERM; echo ready; while :; do sleep .05; done`)
			eventually(t, 10*time.Second, "the trap", func() bool { return g.must(t, "logs", string(a.ID)).stdout == "ready\n" })
			systemctl(h, t, manager, "stop", a.Workload.Boundary.Unit)
			a, u := g.unitOver(t, a.ID)
			if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseShutdown || a.Outcome != longstop.OutcomeCancelled ||
				a.Workload.Writer.Kind != longstop.WriterOwner || u.Result != "success" {
				t.Errorf("stopped:\n%s", pretty(a))
			}
			if out := g.must(t, "logs", string(a.ID)).stdout; out != "ready\nheard\ntidied\n" {
				t.Errorf("it was not given its grace: %q", out)
			}
		})
	}
}

// Who dies, in a unit: an owner's death ends the rest, and is lost; a keeper's changes nothing.
func TestUnitDeaths(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	for manager, name := range names {
		t.Run(manager, func(t *testing.T) {
			lost := func(a longstop.Action) {
				t.Helper()
				a = g.final(t, a.ID, 30*time.Second)
				if w := a.Workload; w.State != longstop.WorkloadLost || w.LostBecause != longstop.OwnerLost || w.Result != nil || a.Outcome != longstop.OutcomeUnknown ||
					!strings.Contains(strings.Join(w.Anomalies, " "), "is gone: the service manager ends what that leaves") {
					t.Errorf("its owner is dead:\n%s", pretty(a))
				}
				eventually(t, 10*time.Second, "the end of the rest", func() bool { return len(ofRun(t, h, a.RunID)) == 0 })
			}
			work := `setsid sh -c 'trap "" TERM HUP; while :; do sleep .1; done' & sleep 600`
			a := g.inUnit(t, manager, name, work)
			kill(t, h, "KILL", g.inspect(t, a.ID).Owner)
			lost(a)
			if a, u := g.unitOver(t, a.ID); u.Result != "signal" || u.MainCode != "killed" || u.MainStatus == nil || *u.MainStatus != 9 {
				t.Errorf("what the manager says of it:\n%s", pretty(a.Workload))
			}

			a = g.inUnit(t, manager, name, "until [ -e /tmp/go-"+manager+" ]; do sleep .05; done; exit 5")
			kill(t, h, "KILL", g.inspect(t, a.ID).Keeper)
			h.Exec(t, "touch", "/tmp/go-"+manager)
			wantExit(t, g.final(t, a.ID, 20*time.Second), 5)

			a = g.inUnit(t, manager, name, work)
			i := g.inspect(t, a.ID)
			kill(t, h, "KILL", i.Keeper)
			kill(t, h, "KILL", i.Owner)
			lost(a)
			if _, u := g.unitOver(t, a.ID); u.InvocationID == "" {
				t.Errorf("what was seen of the unit is gone: %s", pretty(u))
			}
		})
	}
}

// C055: the keeper is dead, the unit over and collected: the record stands, and what is said of the unit is
// what was seen, and that it was forgotten.
func TestC055UnitCollectedBeforeAnyoneLooked(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	for manager, name := range names {
		a := g.inUnit(t, manager, name, "until [ -e /tmp/go ]; do sleep .05; done; exit 4")
		keeper := g.inspect(t, a.ID).Keeper
		g.kill9(t)
		kill(t, h, "KILL", keeper)
		h.Exec(t, "touch", "/tmp/go")
		eventually(t, 20*time.Second, "the unit forgotten", func() bool {
			return strings.Contains(systemctl(h, t, manager, "show", "-p", "LoadState", a.Workload.Boundary.Unit), "not-found")
		})
		b, u := g.unitOver(t, a.ID)
		wantExit(t, b, 4)
		if !u.Forgotten || u.Ended() || u.InvocationID != a.Workload.Unit.InvocationID || u.MainCode != "" {
			t.Errorf("%s: %s", manager, pretty(u))
		}
		h.Exec(t, "rm", "/tmp/go")
	}
}

func TestUnitThroughReexecAndReboot(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	runs := map[string]longstop.Action{}
	script := `trap 'sleep .3; echo tidied; exit 0' TERM; echo ready; while :; do sleep .05; done`
	for manager, name := range names {
		runs[manager] = g.inUnit(t, manager, name, script)
		systemctl(h, t, manager, "daemon-reexec")
		a := g.inUnit(t, manager, name, "exit 6")
		a, u := g.unitOver(t, a.ID)
		wantExit(t, a, 6)
		if u.Result != "success" {
			t.Errorf("%s: a unit started after daemon-reexec: %s", manager, pretty(u))
		}
	}
	h.Reboot(t)
	for manager, a := range runs {
		a = g.final(t, a.ID, 60*time.Second)
		if w := a.Workload; w.State != longstop.WorkloadCancelled || w.Cause != longstop.CauseShutdown || w.Writer.Kind != longstop.WriterOwner {
			t.Errorf("%s: after an orderly reboot:\n%s", manager, pretty(a))
		}
		if out := g.must(t, "logs", string(a.ID)).stdout; out != "ready\ntidied\n" {
			t.Errorf("%s: it was not given its grace: %q", manager, out)
		}
	}
	for manager, name := range names {
		runs[manager] = g.inUnit(t, manager, name, script)
	}
	h.Crash(t)
	for manager, a := range runs {
		a = g.final(t, a.ID, 60*time.Second)
		if w := a.Workload; w.State != longstop.WorkloadLost || w.LostBecause != longstop.Rebooted || a.Alive != longstop.AliveNo {
			t.Errorf("%s: after a crash:\n%s", manager, pretty(a))
		}
	}
}

// A user whom polkit lets manage the system's units has detached runs there, as himself, though his own
// manager ends with his last logout.
func TestUnitOfTheSystemsByPolkit(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t, rig.KillUserProcesses()), newGateway(t)
	h.WriteFile(t, "/etc/polkit-1/rules.d/50-test.rules", 0o644, []byte(
		`polkit.addRule(function(a, s) { if (a.id == "org.freedesktop.systemd1.manage-units" && s.user == "deploy") return polkit.Result.YES; });`))
	h.Exec(t, "systemctl", "start", "polkit")
	name := g.enrolAs(t, h, "deploy")
	a := g.inUnit(t, "system", name, "id -un; until [ -e /tmp/go ]; do sleep .05; done; exit 9")
	g.must(t, "daemon", "stop")
	loggedOut(t, h, "deploy")
	h.Exec(t, "touch", "/tmp/go")
	wantExit(t, g.final(t, a.ID, 20*time.Second), 9)
	if out := g.must(t, "logs", string(a.ID)).stdout; out != "deploy\n" {
		t.Errorf("it ran as %q", out)
	}
}

// C058: a detached run survives logouts, or is refused before anything of it runs, with the remedy.
func TestC058DetachedAndLogout(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t, rig.KillUserProcesses())
	runs := map[string]longstop.Action{}
	for manager, name := range names {
		runs[manager] = g.inUnit(t, manager, name, "sleep 600")
	}
	other := g.enrolAs(t, h, "other")
	refused := g.longstop(t, "run", "-d", "--detached", "--key", "c058", other, "-c", "touch /tmp/c058; sleep 600")
	if refused.status != 251 || !strings.Contains(refused.stderr, "would be killed when this user logs out") || !strings.Contains(refused.stderr, "loginctl enable-linger other") {
		t.Errorf("a user who does not linger: %s", refused)
	}
	if r := g.longstop(t, "run", "--boundary", "cgroup", other, "--", "true"); r.status != 251 || !strings.Contains(r.stderr, "loginctl enable-linger other") {
		t.Errorf("a cgroup of a user who does not linger: %s", r)
	}
	var host longstop.Host
	g.ask(t, &host, "host", "check", names["user"])
	if b := host.Hello.Boundaries; b[0].Kind != longstop.BoundarySystemd || !b[0].Can || b[0].Manager != "user" || b[1].Kind != longstop.BoundaryCgroup || !b[1].Can {
		t.Errorf("what is offered to a user who lingers: %s", pretty(b))
	}

	leased := g.launch(t, "--lease", "10m", g.enrolAs(t, h, "zsh"), "-c", "sleep 600; exit 0")
	g.must(t, "daemon", "stop") // its channels are the last logins
	for _, account := range []string{"root", "deploy", "other", "zsh"} {
		loggedOut(t, h, account)
	}
	if a := g.final(t, leased, time.Minute); a.Workload.Result != nil && a.Workload.Result.ExitCode != nil || a.Outcome == longstop.OutcomeSucceeded || len(ofRun(t, h, a.RunID)) > 0 {
		t.Errorf("a leased run whose session was torn down:\n%s", pretty(a))
	}
	for manager, a := range runs {
		a = g.await(t, a.ID, 20*time.Second, "live sight", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
		if a.Workload.State != longstop.WorkloadRunning || len(ofRun(t, h, a.RunID)) == 0 {
			t.Errorf("%s: after the last logout:\n%s", manager, pretty(a))
		}
		g.must(t, "cancel", string(a.ID))
	}
	if h.Exists(t, "/tmp/c058") {
		t.Error("what was refused ran")
	}

	// The remedy remedies, at once.
	g.must(t, "run", other, "--", "true") // its keeper is there, and stays with the channel
	h.Exec(t, "loginctl", "enable-linger", "other")
	t.Cleanup(func() { h.Try(context.Background(), "loginctl", "disable-linger", "other") })
	g.must(t, "cancel", string(g.inUnit(t, "user", other, "sleep 600").ID))
	// That keeper has no place for cgroups, and takes a unit.
	id := g.launch(t, "--lease", "1m", "--boundary", "cgroup", other, "--", "sleep", "600")
	if a := g.show(t, id); a.Workload.Boundary.Kind != longstop.BoundarySystemd {
		t.Errorf("at least a cgroup, of a keeper that has none:\n%s", pretty(a))
	}
	g.must(t, "cancel", string(id))
	// Runs that are in no unit are in a cgroup, of a scope.
	id = g.launch(t, "--lease", "1m", "--boundary", "cgroup", names["user"], "--", "sleep", "600")
	a := g.show(t, id)
	if b := a.Workload.Boundary; b.Kind != longstop.BoundaryCgroup || !strings.Contains(b.Path, "/user@") || !strings.Contains(b.Path, ".scope/longstop/"+string(a.RunID)) {
		t.Errorf("a leased run of a user who lingers:\n%s", pretty(a))
	}
	g.must(t, "cancel", string(id))
	if left := strings.TrimSpace(h.Sh(t, fmt.Sprintf("ls -d %s 2>/dev/null || :", a.Workload.Boundary.Path))); left != "" {
		t.Errorf("its cgroup is still there: %s", left)
	}
}

const faultTests = "/var/tmp/longstop-runner.test"

// TestLaw5UnitDeathAtEveryStep runs a test of internal/runner on a host: it needs fault hooks and a
// service manager.
func TestLaw5UnitDeathAtEveryStep(t *testing.T) {
	t.Parallel()
	faultTestsOnHost(t, rig.New(t), "LiveLaw5")
}

// faultTestsOnHost runs tests of internal/runner as root and as a user who lingers.
func faultTestsOnHost(t *testing.T, h *rig.Host, run string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runner.test")
	build := exec.Command("go", "test", "-c", "-tags", "hosts,faults", "-o", path, "../../internal/runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	h.WriteFile(t, faultTests, 0o755, binary)
	for _, account := range []string{"root", "deploy"} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			out, status, errs, err := h.SSH(t.Context(), account, "cd /tmp; "+faultTests+" -test.v -test.parallel 8 -test.timeout 100s -test.run "+run)
			if err != nil || status != 0 || !strings.Contains(out, "\nPASS") || !strings.Contains(out, "--- PASS") {
				t.Errorf("exit %d, %v\n%s%s", status, err, tail([]byte(out), 8000), errs)
			}
		})
	}
}
