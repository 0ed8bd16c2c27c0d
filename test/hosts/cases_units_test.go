//go:build hosts

package hosts

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K6: what systemd forgets, mixes up, rewrites or takes along. They share a host on which deploy
// lingers, with other units in systemd_test.go and units_test.go.

func unitCases(t *testing.T) (h *rig.Host, g *gateway, names map[string]string) {
	t.Helper()
	h, g = rig.Up(t, "k6"), newGateway(t)
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	return h, g, map[string]string{"system": g.enrolAs(t, h, "root"), "user": g.enrolAs(t, h, "deploy")}
}

// TestC056OneKeyTwentyCallers: one unit for all of them, and each is told whose run it is.
func TestC056OneKeyTwentyCallers(t *testing.T) {
	t.Parallel()
	h, g, names := unitCases(t)
	for manager, name := range names {
		file := "/tmp/c056-" + manager
		h.Exec(t, "rm", "-f", file)
		var all []*running
		for range 20 {
			all = append(all, g.start(t, "run", "-d", "--owner", "systemd", "--key", "c056-"+manager, name, "-c", "echo ran >>"+file+"; sleep 1"))
		}
		ids, existing := map[string]bool{}, 0
		for _, r := range all {
			end := r.end(t, time.Minute)
			ids[strings.TrimSpace(end.stdout)] = true
			if strings.Contains(end.stderr, "nothing new is started") {
				existing++
			}
			if end.status != 0 {
				t.Error(end)
			}
		}
		if len(ids) != 1 || existing != 19 {
			t.Errorf("%s: %d actions, %d times existing: %v", manager, len(ids), existing, ids)
		}
		wantExit(t, g.final(t, g.newest(t), 20*time.Second), 0)
		if ran := string(h.ReadFile(t, file)); ran != "ran\n" {
			t.Errorf("%s: it ran %q", manager, ran)
		}
	}
}

// TestC059ManagerLost: a user's manager that is killed takes owner and work along. That is known, and nothing is
// made of what the next manager says of a unit that it never had.
func TestC059ManagerLost(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "k6"), newGateway(t)
	h.Exec(t, "loginctl", "enable-linger", "other")
	name := g.enrolAs(t, h, "other")
	id := g.launch(t, "--detached", "--deadline", "10m", name, "--", "sleep", "600")
	a := g.await(t, id, 20*time.Second, "its unit", func(a longstop.Action) bool { return a.Workload.Unit != nil })
	h.Sh(t, "systemctl kill -s KILL user@$(id -u other).service")
	a = g.final(t, a.ID, time.Minute)
	if w := a.Workload; w.State != longstop.WorkloadLost || w.LostBecause != longstop.OwnerLost || w.Result != nil || a.Outcome != longstop.OutcomeUnknown || w.FinishedAt.IsZero() {
		t.Errorf("%s", pretty(a))
	}
	eventually(t, 20*time.Second, "the end of the work", func() bool { return len(ofRun(t, h, a.RunID)) == 0 })
}

// TestC061OftenStarted: no limit on how often a unit may be started refuses a run or has it inherit another's result.
func TestC061OftenStarted(t *testing.T) {
	t.Parallel()
	_, g, names := unitCases(t)
	for manager, name := range names {
		units := map[string]bool{}
		for i := range 12 {
			r := g.longstop(t, "run", "--owner", "systemd", name, "-c", fmt.Sprint("exit ", 1+i%2))
			a := g.show(t, g.newest(t))
			wantExit(t, a, 1+i%2)
			units[a.Workload.Boundary.Unit] = true
			if r.status != 1+i%2 || a.Workload.Boundary.Manager != manager {
				t.Errorf("start %d: %s", i, r)
			}
		}
		if len(units) != 12 {
			t.Errorf("%s: %d units for 12 runs", manager, len(units))
		}
	}
}

// TestC061RefusedStart: a start that the manager refuses, skips or fails is a launch that failed, with why; no status
// of a unit's is taken for the work's.
func TestC061RefusedStart(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	name := g.enrolAs(t, h, "root")
	g.must(t, "run", "--owner", "systemd", name, "--", "true")
	const dir = "/etc/systemd/system/longstop-.service.d" // for all units of that prefix, systemd.unit(5)
	for _, c := range []string{"[Unit]\nRefuseManualStart=yes\n", "[Unit]\nConditionPathExists=/nowhere\n", "[Unit]\nAssertPathExists=/nowhere\n",
		"[Unit]\nRequires=nowhere.service\nAfter=nowhere.service\n", "[Service]\nExecStartPre=/bin/false\n"} {
		h.Exec(t, "mkdir", "-p", dir)
		h.WriteFile(t, dir+"/refuse.conf", 0o644, []byte(c))
		h.Exec(t, "systemctl", "daemon-reload")
		r := g.longstop(t, "run", "--owner", "systemd", name, "--", "touch", "/tmp/c061")
		a := g.show(t, g.newest(t))
		if r.status != longstop.ExitNotStarted || a.Workload.Result != nil || a.Outcome != longstop.OutcomeNotStarted || r.took > 20*time.Second || h.Exists(t, "/tmp/c061") {
			t.Errorf("%q: %s\n%s", c, r, pretty(a))
		} else {
			t.Logf("%q: %s", c, r.stderr)
		}
	}
	h.Sh(t, "rm -r "+dir+"; systemctl daemon-reload")
	if r := g.longstop(t, "run", "--owner", "systemd", name, "-c", "exit 3"); r.status != 3 {
		t.Error(r)
	}
}

// TestC062SshdIsStopped: an sshd whose sessions are in its own cgroup takes them along when it is stopped. Work in a
// cgroup or a unit of its own stays; what goes has gone by a signal from outside, and no result is made up.
func TestC062SshdIsStopped(t *testing.T) {
	t.Parallel()
	h := rig.New(t)
	g := newGateway(t)
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	config, _ := ownConfig(t, h)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	other := fmt.Sprintf("Host %s %s-*\n  Port 2228\n  HostKeyAlias %s\n", h.Name, h.Name, h.Addr)
	if err := os.WriteFile(config, append([]byte(other), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Sh(t, `printf '[Service]\nExecStart=/usr/sbin/sshd -D -o Port=2228 -o UsePAM=no -o PidFile=none\n' >/run/systemd/system/sshd2.service
systemctl daemon-reload; systemctl start sshd2; until ss -Htln 'sport = :2228' | grep -q .; do sleep 0.05; done`)
	for _, account := range []string{"root", "deploy", "other"} {
		g.must(t, "host", "add", h.Account(account), "--ssh-config", config)
	}
	stays := []longstop.ActionID{g.launch(t, "--lease", "10m", h.Account("root"), "--", "sleep", "600"),
		g.launch(t, "--detached", "--deadline", "10m", h.Account("deploy"), "--", "sleep", "600")}
	goes := g.launch(t, "--lease", "10m", h.Account("other"), "--", "sleep", "600")
	if a := g.show(t, goes); a.Workload.Boundary.Kind != longstop.BoundaryTree {
		t.Fatalf("it is not in sshd's cgroup:\n%s", pretty(a))
	}
	h.Exec(t, "systemctl", "stop", "sshd2")
	for _, id := range stays {
		if a := g.show(t, id); len(ofRun(t, h, a.RunID)) != 1 {
			t.Errorf("gone with sshd:\n%s", pretty(a))
		}
	}
	h.Exec(t, "systemctl", "start", "sshd2")
	a := g.final(t, goes, time.Minute)
	// Everybody in the cgroup is sent TERM at once: its owner may see the work end by that before it hears its own.
	switch w := a.Workload; {
	case w.FinishedAt.IsZero() || w.Result != nil && w.Result.ExitCode != nil:
		t.Errorf("a result is made up:\n%s", pretty(a))
	case w.State == longstop.WorkloadCancelled && w.Cause == longstop.CauseSignal, w.State == longstop.WorkloadLost,
		w.State == longstop.WorkloadFinished && w.Result.Signal == "TERM" && a.Outcome == longstop.OutcomeFailed:
	default:
		t.Errorf("ended from outside:\n%s", pretty(a))
	}
	for _, id := range stays {
		a := g.await(t, id, time.Minute, "live sight", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
		if a.Workload.State != longstop.WorkloadRunning {
			t.Errorf("%s", pretty(a))
		}
		g.must(t, "cancel", string(id))
	}
}

// TestC064ScopeIsNotEmpty: in a cgroup of a scope of the user's manager, too, the main process's status is known at
// once, what is left is told beside it, and neither comes from the scope's state.
func TestC064ScopeIsNotEmpty(t *testing.T) {
	t.Parallel()
	h, g, names := unitCases(t)
	id := g.launch(t, "--lease", "5m", "--boundary", "cgroup", names["user"], "-c", "setsid sleep 88 & exit 4")
	a := g.lingering(t, id)
	if m := a.Workload.Main; m.ExitCode == nil || *m.ExitCode != 4 || a.Workload.Result != nil || a.Alive != longstop.AliveYes || !strings.Contains(a.Workload.Boundary.Path, ".scope/") {
		t.Errorf("%s", pretty(a))
	}
	a = g.emptied(t, h, id)
	if m := a.Workload.Main; m.ExitCode == nil || *m.ExitCode != 4 {
		t.Errorf("%s", pretty(a))
	}
	r := g.longstop(t, "run", "--leftover", "kill", "--boundary", "cgroup", names["user"], "-c", "setsid sleep 88 & exit 4")
	if r.status != 4 {
		t.Error(r)
	}
}

// TestC065NothingIsRewritten: by way of a unit, a command and what it prints are byte for byte what they are without.
func TestC065NothingIsRewritten(t *testing.T) {
	t.Parallel()
	_, g, names := unitCases(t)
	const script = `printf '%s\n' '$$' '${USER}' "%n" 100%% '\x41' "a;b" "$1" "$X" "$USER"`
	words := []string{"$$", "${USER}", "%n", "%%", `\x41`, ";", "a;b", "$HOME", "", "é\n"}
	const value = `X=$HOME %n 100%% \x41 ;`
	for manager, name := range names {
		plain := g.longstop(t, "run", "--owner", "runner", "--env", value, name, "-c", script)
		unit := g.longstop(t, "run", "--owner", "systemd", "--env", value, name, "-c", script)
		if unit.status != 0 || unit.stdout != plain.stdout || !strings.HasPrefix(unit.stdout, "$$\n${USER}\n%n\n100%%\n") {
			t.Errorf("%s: %s\nwithout a unit: %s", manager, unit, plain)
		}
		r := g.longstop(t, append([]string{"run", "--owner", "systemd", name, "--", "printf", `[%s]`}, words...)...)
		if want := "[" + strings.Join(words, "][") + "]"; r.stdout != want {
			t.Errorf("%s: %q, want %q", manager, r.stdout, want)
		}
	}
}
