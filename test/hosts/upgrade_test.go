//go:build hosts

package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// builtAs are the commands, the daemon and the runner of another version.
func builtAs(t *testing.T, version string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for name, command := range map[string]string{"longstop": "longstop", "longstopd": "longstopd", "longstop-runner-linux-" + runtime.GOARCH: "longstop-runner"} {
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X github.com/longstop/longstop.Version="+version,
			"-o", filepath.Join(bin, name), "../../cmd/"+command)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return bin
}

// An upgrade of everything while runs go on: they keep the keeper and owners of the old version, are seen,
// stopped and inherited as before, and end as they truly end; what is new has the new version's.
func TestUpgradeUnderRunningWork(t *testing.T) {
	t.Parallel()
	const newer = "99.0.0-upgrade"
	h, g, names := unitHost(t)
	name := names["user"]
	runner := func() string {
		var host longstop.Host
		g.ask(t, &host, "host", "check", name)
		return host.Hello.Version
	}
	old := runner()
	waits := func(file, end string) string { return "until [ -e /tmp/" + file + " ]; do sleep .05; done; " + end }
	lease := []string{"--lease", "5m", name, "-c"}
	goesOn := g.launch(t, append(lease, waits("go-on", "echo through; exit 5"))...)
	inUnit := g.inUnit(t, "user", name, waits("go-unit", "exit 6")).ID
	stopped := g.launch(t, append(lease, `setsid sh -c 'trap "" TERM; sleep 600' & sleep 600`)...)
	bereft := g.launch(t, append(lease, waits("go-bereft", "exit 7"))...)
	bereftStopped := g.launch(t, append(lease, "sleep 600")...)
	keeper := g.inspect(t, goesOn).Keeper

	g.must(t, "daemon", "stop")
	defer func(bin string) {
		g.longstop(t, "daemon", "stop")
		g.bin = bin
	}(g.bin)
	g.bin = builtAs(t, newer)
	if now := runner(); now != newer || now == old {
		t.Fatalf("the host's runner is %s, after %s", now, old)
	}
	alive := func(a longstop.Action) bool { return a.Alive == longstop.AliveYes }
	for _, id := range []longstop.ActionID{goesOn, inUnit, stopped, bereft, bereftStopped} {
		if a := g.await(t, id, 20*time.Second, "it is seen", alive); a.Workload.Writer.Version != old {
			t.Errorf("another speaks for it:\n%s", pretty(a))
		}
	}

	// What is new is the new version's, and has a keeper of that.
	fresh := g.launch(t, append(lease, "sleep 600")...)
	i := g.inspect(t, fresh)
	if a := g.show(t, fresh); a.Workload.Writer.Version != newer || i.Keeper == nil || i.Keeper.PID == keeper.PID {
		t.Errorf("a new run, under keeper %v; the old one is %v:\n%s", i.Keeper, keeper, pretty(a))
	}
	if i := g.inspect(t, goesOn); i.Keeper == nil || i.Keeper.PID != keeper.PID || len(i.Processes) == 0 {
		t.Errorf("of the run that goes on: %s", pretty(i))
	}
	if a := g.final(t, g.launch(t, "--detached", "--deadline", "1m", name, "-c", "exit 8"), 20*time.Second); a.Workload.Writer.Version != newer {
		t.Errorf("in a unit: %s", pretty(a))
	} else {
		wantExit(t, a, 8)
	}

	// What is old ends as it ends, whoever is left to say so.
	was := func(id longstop.ActionID, kind longstop.WriterKind) (a longstop.Action) {
		t.Helper()
		a = g.final(t, id, 30*time.Second)
		if w := a.Workload.Writer; w.Version != old || w.Kind != kind || a.Workload.Unsigned {
			t.Errorf("said by %+v:\n%s", w, pretty(a))
		}
		return a
	}
	g.must(t, "cancel", string(stopped))
	if a := was(stopped, longstop.WriterOwner); a.Outcome != longstop.OutcomeCancelled || len(ofRun(t, h, a.RunID)) > 0 {
		t.Errorf("cancelled:\n%s", pretty(a))
	}
	for _, id := range []longstop.ActionID{bereft, bereftStopped} {
		kill(t, h, "KILL", g.inspect(t, id).Owner)
		g.await(t, id, 20*time.Second, "it is orphaned", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadOrphaned })
	}
	g.must(t, "cancel", string(bereftStopped))
	if a := was(bereftStopped, longstop.WriterKeeper); a.Outcome != longstop.OutcomeCancelled || len(ofRun(t, h, a.RunID)) > 0 {
		t.Errorf("cancelled without its owner:\n%s", pretty(a))
	}
	h.Exec(t, "touch", "/tmp/go-bereft", "/tmp/go-on", "/tmp/go-unit")
	wantExit(t, was(bereft, longstop.WriterKeeper), 7)
	wantExit(t, was(inUnit, longstop.WriterOwner), 6)
	wantExit(t, was(goesOn, longstop.WriterOwner), 5)
	if out := g.must(t, "logs", string(goesOn)).stdout; out != "through\n" {
		t.Errorf("its output: %q", out)
	}

	// The old keeper goes with its last run; the new one's runs are none of its business.
	eventually(t, 20*time.Second, "the old keeper's end", func() bool {
		return h.Sh(t, "kill -0 "+strconv.Itoa(keeper.PID)+" 2>/dev/null && echo there || :") == ""
	})
	if a := g.show(t, fresh); !alive(a) {
		t.Errorf("the new run:\n%s", pretty(a))
	}
	g.must(t, "cancel", string(fresh))
}
