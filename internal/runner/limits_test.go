package runner

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/internal/wire"
)

// What the host's kernel cannot hold is refused before anything is begun, with why and what to do; what it
// can hold, holds.
func TestLimitsOfARunOnThisKernel(t *testing.T) {
	t.Parallel()
	home, err := cgroupHome()
	if err != nil {
		t.Skipf("skipped: no cgroup can be made here (it can as root): %v", err)
	}
	h, err := boundary.FindHierarchy()
	if err != nil {
		t.Fatal(err)
	}
	busy := `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done
		sed -n "s/^nr_throttled //p" ` + h.Mount + `$(sed -n s/^0:://p /proc/self/cgroup)/cpu.stat; exit 3`
	for _, c := range []struct {
		name, script string
		limits       longstop.Limits
		held         func(l *lab, r longstop.Record) bool
	}{
		{"memory_bytes", "tail /dev/zero", longstop.Limits{MemoryBytes: 32 << 20}, func(_ *lab, r longstop.Record) bool {
			return r.Result != nil && r.Result.Signal == "KILL" && r.OOM != nil && r.OOM.Kills > 0 && r.OOM.AtLimit
		}},
		{"tasks", "for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; echo all; exit 7", longstop.Limits{Tasks: 5}, func(l *lab, r longstop.Record) bool {
			return r.Result != nil && !exited(r, 7) && l.stdout(r.RunID) == ""
		}},
		{"cpu_percent", busy, longstop.Limits{CPUPercent: 10}, func(l *lab, r longstop.Record) bool {
			throttled, err := strconv.Atoi(strings.TrimSpace(l.stdout(r.RunID)))
			return exited(r, 3) && err == nil && throttled > 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			sub := l.request(longstop.Request{Script: "echo ran > ran; " + c.script, Limits: &c.limits, Leftover: longstop.LeftoverKill, Owner: longstop.OwnerRunner})
			_, err := l.trySubmit(sub)
			all := boundary.Holdable(home.Dir[:strings.LastIndexByte(home.Dir, '/')])
			offer := all[slices.IndexFunc(all, func(o longstop.LimitOffer) bool { return o.Name == c.name })]
			if offer.Can {
				if rec := l.final(sub.RunID); err != nil || !c.held(l, rec) {
					t.Errorf("%v, %q, %s", err, l.stdout(sub.RunID), show(rec))
				}
				return
			}
			if longstop.CodeOf(err) != longstop.CodeUnsupported || !strings.Contains(err.Error(), offer.Because) || !strings.Contains(err.Error(), c.name) {
				t.Errorf("%v; it was to be refused because %s", err, offer.Because)
			}
			if claim, err := l.f.Find(sub.Key); err != nil || claim.Found || len(l.lines("ran")) > 0 {
				t.Errorf("something was begun: %+v, %v", claim, err)
			}
		})
	}
}

// A limit on memory that is too small for exec itself ends the work, and not its owner, whose memory the work's gate
// would share without one.
func TestLimitsOfMemoryTooSmallToExecute(t *testing.T) {
	t.Parallel()
	home, err := cgroupHome()
	if err != nil {
		t.Skipf("skipped: no cgroup can be made here (it can as root): %v", err)
	}
	all := boundary.Holdable(home.Dir[:strings.LastIndexByte(home.Dir, '/')])
	if offer := all[slices.IndexFunc(all, func(o longstop.LimitOffer) bool { return o.Name == "memory_bytes" })]; !offer.Can {
		t.Skip("skipped: " + offer.Because)
	}
	l := newLab(t)
	sub := l.request(longstop.Request{Argv: append([]string{"/bin/true"}, slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 10)...),
		Limits: &longstop.Limits{MemoryBytes: 128 << 10}, Leftover: longstop.LeftoverKill, Owner: longstop.OwnerRunner})
	l.trySubmit(sub) // its launch may fail
	if rec := l.final(sub.RunID); rec.Writer.Kind != longstop.WriterOwner || rec.State == longstop.WorkloadLost {
		t.Errorf("%s", show(rec))
	}
}

// What hello says of each boundary names every limit once, and why where it cannot be held.
func TestHelloSaysWhichLimitsHold(t *testing.T) {
	t.Parallel()
	for _, b := range offers(surveyed(false)) {
		if (len(b.Limits) == 7) != b.Can || !b.Can && b.Limits != nil {
			t.Errorf("%+v", b)
		}
		for _, o := range b.Limits {
			if o.Can == (o.Because != "") {
				t.Errorf("%s: %+v", b.Kind, o)
			}
			if b.Kind == longstop.BoundaryTree && slices.Contains(longstop.LimitsOfRun[:], o.Name) && o.Can {
				t.Errorf("a tree holds %s", o.Name)
			}
		}
	}
}

// The same in a unit, on a host whose service manager has the controllers (test/uml): the owner, whom a limit on
// the unit would bind too, steps aside and is there to say what became of the work.
func TestLiveLimitsInAUnit(t *testing.T) {
	can := map[string]bool{}
	for _, b := range offers(surveyed(true)) {
		for _, o := range b.Limits {
			can[o.Name] = can[o.Name] || o.Can && b.Kind == longstop.BoundarySystemd
		}
	}
	if !can["memory_bytes"] || !can["tasks"] {
		t.Skip("skipped: no service manager holds limits here")
	}
	l := newLab(t)
	submit := func(owner longstop.OwnerKind, script string, limits longstop.Limits) wire.Submit {
		sub := l.request(longstop.Request{Script: script, Limits: &limits, Leftover: longstop.LeftoverKill, Owner: owner})
		want := map[longstop.OwnerKind]longstop.BoundaryKind{longstop.OwnerSystemd: longstop.BoundarySystemd, longstop.OwnerRunner: longstop.BoundaryCgroup}[owner]
		if rec := l.submit(sub); rec.Boundary.Kind != want {
			t.Errorf("%s", show(rec))
		}
		return sub
	}
	for _, owner := range []longstop.OwnerKind{longstop.OwnerSystemd, longstop.OwnerRunner} { // the latter's, of a user, in a scope
		over := submit(owner, "tail /dev/zero", longstop.Limits{MemoryBytes: 32 << 20})
		if rec := l.final(over.RunID); rec.Writer.Kind != longstop.WriterOwner || rec.Result == nil || rec.Result.Signal != "KILL" || rec.OOM == nil || !rec.OOM.AtLimit {
			t.Errorf("over its memory: %s", show(rec))
		}
	}
	// Somebody else's limit, on the unit.
	free := submit(longstop.OwnerSystemd, waitForGo+"tail /dev/zero", longstop.Limits{})
	l.has("up", 1)
	words := []string{"set-property", "--runtime", systemd.ServiceName(free.RunID), "MemoryMax=40M"}
	if os.Geteuid() != 0 {
		words = append([]string{"--user"}, words...)
	}
	if out, err := exec.Command("systemctl", words...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.touch("go")
	if rec := l.final(free.RunID); rec.Writer.Kind != longstop.WriterOwner || rec.OOM == nil {
		t.Errorf("at its unit's limit: %s", show(rec))
	}
	storm := submit(longstop.OwnerSystemd, "f() { f | f & }; f; sleep 600", longstop.Limits{Tasks: 30})
	l.state(storm.RunID, longstop.WorkloadRunning)
	if _, rec := l.cancel(storm.RunID, 0, 20*time.Second); rec.State != longstop.WorkloadCancelled || rec.Writer.Kind != longstop.WriterOwner {
		t.Errorf("a fork storm: %s", show(rec))
	}
	l.nobody(storm.RunID)
	slow := l.request(longstop.Request{Script: "exit 3", Limits: &longstop.Limits{CPUPercent: 50}, Owner: longstop.OwnerSystemd})
	if _, err := l.trySubmit(slow); can["cpu_percent"] == (longstop.CodeOf(err) == longstop.CodeUnsupported) {
		t.Errorf("cpu_percent, which can be held: %v: %v", can["cpu_percent"], err)
	} else if err == nil && !exited(l.final(slow.RunID), 3) {
		t.Errorf("%s", show(l.record(slow.RunID)))
	}
}
