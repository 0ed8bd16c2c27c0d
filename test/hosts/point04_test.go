//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// masters finds the ssh processes that this home's gateway has started.
func (g *gateway) masters(t *testing.T) (pids []int) {
	t.Helper()
	for _, daemon := range g.daemons(t) {
		children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", daemon))
		for _, file := range children {
			list, _ := os.ReadFile(file)
			for word := range strings.FieldsSeq(string(list)) {
				pid, _ := strconv.Atoi(word)
				if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "ssh" {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// TestPoint4KilledAtRandom kills the command, the gateway or the ssh master at random moments of a
// run's life. LONGSTOP_SEED repeats a failure.
func TestPoint4KilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LONGSTOP_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	const lanes, each = 5, 10
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(lane)))
			h, g := rig.Up(t, "h1"), newGateway(t)
			g.enrol(t, h)
			for i := range each {
				what := []string{"command", "gateway", "master"}[random.IntN(3)]
				k := killing{name: fmt.Sprintf("p4-%d-%d-%d", seed, lane, i), victim: what, code: random.IntN(100),
					work: time.Duration(random.IntN(700)) * time.Millisecond, after: time.Duration(random.IntN(900)) * time.Millisecond}
				k.try(t, h, g)
				if t.Failed() {
					t.Fatalf("repeat with: LONGSTOP_SEED=%d go test -tags hosts -run 'TestPoint4KilledAtRandom/lane_%d' ./test/hosts", seed, lane)
				}
			}
		})
	}
}

// killing is one moment of one run.
type killing struct {
	name, victim string
	code         int
	work, after  time.Duration
}

func (k killing) try(t *testing.T, h *rig.Host, g *gateway) {
	t.Helper()
	file := "/home/deploy/" + k.name
	r := g.start(t, "run", "--key", k.name, h.Name, "-c", fmt.Sprintf("echo line >>%s; sleep %.3f; exit %d", file, k.work.Seconds(), k.code))
	select { // the moment
	case <-time.After(k.after):
	case <-r.ended:
	}
	switch k.victim {
	case "command":
		r.Process.Kill()
	case "gateway":
		for _, pid := range g.daemons(t) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	case "master":
		for _, pid := range g.masters(t) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	r.end(t, time.Minute)

	a, asked := g.byKey(t, k.name)
	if !asked { // killed before the gateway had made an action of it
		if h.Exists(t, file) {
			t.Errorf("%+v: it ran, and no action knows", k)
		}
		return
	}
	a = g.await(t, a.ID, time.Minute, fmt.Sprintf("the owner's result (%+v)", k), func(a longstop.Action) bool {
		return a.Workload.State.Final() || a.Launch.State == longstop.LaunchRejected
	})
	lines := 0
	if h.Exists(t, file) {
		lines = strings.Count(string(h.ReadFile(t, file)), "line\n")
	}
	switch {
	case lines > 1:
		t.Errorf("%+v: ran %d times", k, lines)
	case a.Outcome == longstop.OutcomeNotStarted && lines != 0:
		t.Errorf("%+v: not_started, and it ran:\n%s", k, pretty(a))
	case a.Launch.State == longstop.LaunchAccepted && lines != 1:
		t.Errorf("%+v: accepted, and it did not run:\n%s", k, pretty(a))
	case a.Workload.State == longstop.WorkloadCancelled: // a killed command may leave a lease to end
	case a.Launch.State == longstop.LaunchAccepted:
		wantExit(t, a, k.code)
	}
}

// byKey finds the action of an idempotency key.
func (g *gateway) byKey(t *testing.T, key string) (longstop.Action, bool) {
	t.Helper()
	var all []longstop.Action
	g.ask(t, &all, "ps", "-a")
	for _, a := range all {
		if a.IdempotencyKey == key {
			return a, true
		}
	}
	return longstop.Action{}, false
}

// TestPoint4StoppedMaster stops the ssh master: nothing hangs for longer than its deadline.
func TestPoint4StoppedMaster(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, "h1", "--", "sleep", "600")
	masters := g.masters(t)
	if len(masters) == 0 {
		t.Fatal("the gateway has no ssh")
	}
	for _, pid := range masters {
		syscall.Kill(pid, syscall.SIGSTOP)
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
	for _, args := range [][]string{{"show", string(id)}, {"inspect", string(id)}, {"run", "h1", "--", "true"}, {"cancel", string(id)}} {
		if r := g.longstop(t, args...); r.took > 45*time.Second {
			t.Errorf("hung: %s", r)
		} else {
			t.Logf("longstop %s: exit %d after %s", args[0], r.status, r.took)
		}
	}
	a := g.final(t, id, time.Minute)
	if a.Workload.State != longstop.WorkloadCancelled {
		t.Errorf("%s", pretty(a))
	}
}
