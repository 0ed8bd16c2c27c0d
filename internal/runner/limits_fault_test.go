//go:build faults

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/systemd"
)

// What a kernel with the controllers of cgroup v2 would show lies as plain files in a folder of the test's:
// they take what is written to them, and the workloads write what the kernel would. Nothing holds a limit
// here; that the kernel's do is TestLimitsOfARunOnThisKernel's, where they are.

// standIn makes those files for a run whose cgroup is below another, and returns the run's.
func standIn(t *testing.T, sub longstop.RunID, home string) (dir string) {
	t.Helper()
	root := t.TempDir()
	t.Setenv("LONGSTOP_FAULT_FILES", root)
	dir = filepath.Join(root, home, string(sub))
	if err := os.MkdirAll(dir, 0755); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
		for name, content := range map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "", "memory.max": "max",
			"memory.oom.group": "0", "cpu.max": "max 100000", "pids.max": "max"} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// oomKilled plays the kernel: it kills the work in the middle of it, and counts.
func oomKilled(dir string) string {
	return fmt.Sprintf("echo ran > ran; until [ -e go ]; do sleep .01; done; printf 'max 3\\noom 1\\noom_kill 2\\n' > %s/memory.events; kill -9 $$", dir)
}

var limitsOfAll = &longstop.Limits{MemoryBytes: 64 << 20, CPUPercent: 50, Tasks: 9}

func checkLimited(t *testing.T, dir string) {
	t.Helper()
	for name, want := range map[string]string{"memory.max": "67108864", "memory.oom.group": "1", "cpu.max": "50000 100000", "pids.max": "9"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestLimitsAndOOMWithAStandInForTheKernelsFiles(t *testing.T) {
	home, err := cgroupHome()
	if err != nil {
		t.Skipf("skipped: no cgroup can be made here (it can as root): %v", err)
	}
	for _, who := range []longstop.WriterKind{longstop.WriterOwner, longstop.WriterKeeper} {
		t.Run(string(who), func(t *testing.T) {
			l := newLab(t)
			sub := l.request(longstop.Request{Argv: []string{"true"}, Limits: limitsOfAll, Owner: longstop.OwnerRunner})
			dir := standIn(t, sub.RunID, home.Dir)
			sub.Request.Argv, sub.Request.Script = nil, oomKilled(dir)
			rec := l.submit(sub)
			l.has("ran", 1)
			checkLimited(t, dir)
			if rec.Boundary.Kind != longstop.BoundaryCgroup || rec.OOM != nil {
				t.Errorf("%s", show(rec))
			}
			if who == longstop.WriterKeeper {
				boundary.Signal(l.mustOwner(sub.RunID), unix.SIGKILL)
				l.state(sub.RunID, longstop.WorkloadOrphaned)
			}
			os.WriteFile(l.path("go"), nil, 0600)
			rec = l.final(sub.RunID)
			if rec.Writer.Kind != who || rec.Result == nil || rec.Result.Signal != "KILL" || rec.OOM == nil || *rec.OOM != (longstop.OOM{Kills: 2, AtLimit: true}) {
				t.Errorf("%s", show(rec))
			}
		})
	}
}

// A limit that was promised and then cannot be set begins nothing.
func TestALimitThatCannotBeSetWithAStandInForTheKernelsFiles(t *testing.T) {
	home, err := cgroupHome()
	if err != nil {
		t.Skipf("skipped: no cgroup can be made here (it can as root): %v", err)
	}
	l := newLab(t)
	sub := l.request(longstop.Request{Script: "echo ran > ran", Limits: limitsOfAll, Owner: longstop.OwnerRunner})
	dir := standIn(t, sub.RunID, home.Dir)
	os.Remove(filepath.Join(dir, "pids.max"))
	l.submit(sub)
	rec := l.final(sub.RunID)
	if e := rec.LaunchError; rec.State != longstop.WorkloadLaunchFailed || e == nil || e.Step != "limits" || !strings.Contains(e.Message, "tasks: this limit cannot be held here") || len(l.lines("ran")) > 0 {
		t.Errorf("%s", show(rec))
	}
	if _, err := os.Stat(filepath.Join(home.Dir, string(sub.RunID))); !os.IsNotExist(err) {
		t.Errorf("its cgroup is left: %v", err)
	}
}

// In a unit the owner steps out of the way, for real; the controllers are the stand-in's.
func TestLiveLimitsInAUnitWithAStandInForTheKernelsFiles(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("skipped: this test is for a host that systemd runs (test/hosts)")
	}
	h, err := boundary.FindHierarchy()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	sub := l.request(longstop.Request{Argv: []string{"true"}, Limits: limitsOfAll, Owner: longstop.OwnerSystemd})
	manager, slice := h.Mount, "system.slice"
	if id := itoa(os.Geteuid()); id != "0" {
		manager, slice = filepath.Join(h.Mount, "user.slice", "user-"+id+".slice", "user@"+id+".service"), "app.slice"
	}
	dir := standIn(t, sub.RunID, filepath.Join(manager, slice, systemd.ServiceName(sub.RunID)))
	os.WriteFile(filepath.Join(os.Getenv("LONGSTOP_FAULT_FILES"), manager, "cgroup.controllers"), []byte("cpu memory pids"), 0644)
	sub.Request.Argv, sub.Request.Script = nil, oomKilled(dir)
	rec := l.submit(sub)
	l.has("ran", 1)
	checkLimited(t, dir)
	if rec.Boundary.Kind != longstop.BoundarySystemd {
		t.Errorf("%s", show(rec))
	}
	unit := filepath.Dir(rec.Boundary.Path)
	own, _ := os.ReadFile(filepath.Join(unit, "cgroup.procs"))
	aside, _ := os.ReadFile(filepath.Join(unit, "servants", "cgroup.procs"))
	if owner := itoa(l.mustOwner(sub.RunID).PID); len(own) > 0 || !slices.Contains(strings.Fields(string(aside)), owner) {
		t.Errorf("in the unit's own cgroup: %q; beside the run's: %q; the owner is %s", own, aside, owner)
	}
	os.WriteFile(l.path("go"), nil, 0600)
	rec = l.final(sub.RunID)
	if rec.Writer.Kind != longstop.WriterOwner || rec.Result == nil || rec.Result.Signal != "KILL" || rec.OOM == nil || rec.OOM.Kills != 2 {
		t.Errorf("%s", show(rec))
	}
	eventually(t, "the unit's end", func() bool { _, err := os.Stat(unit); return os.IsNotExist(err) })
}
