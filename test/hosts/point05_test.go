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

// failing makes a host on which every process of Longstop fails as planned (package fault).
func failing(t *testing.T, plan string) *rig.Host {
	t.Helper()
	h := rig.New(t)
	h.WriteFile(t, "/etc/environment", 0o644, []byte("LONGSTOP_FAULT="+plan+"\n"))
	h.Sh(t, "mkdir /home/deploy/p5; chown deploy /home/deploy/p5")
	return h
}

// Each kind is tried 200 times: 20 batches of 10 launches at once.
const p5Batches, p5Each = 20, 10

func p5Seed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LONGSTOP_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("repeat with LONGSTOP_SEED=%d", seed)
	return seed
}

// launchUnder starts a run of one line under a key.
func (g *gateway) launchUnder(t *testing.T, h *rig.Host, key string) *running {
	t.Helper()
	return g.start(t, "run", "-d", "--detached", "--deadline", "1h", "--key", key, h.Name, "-c", "echo line >>/home/deploy/p5/"+key)
}

// linesOf counts how often the work of each key ran.
func linesOf(t *testing.T, h *rig.Host) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for line := range strings.Lines(h.Sh(t, "cd /home/deploy/p5 && grep -c line -- * /dev/null || :")) {
		key, count, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines[key], _ = strconv.Atoi(count)
	}
	delete(lines, "/dev/null")
	return lines
}

// settled waits until the gateway knows what became of every key, and holds it against the files.
func (g *gateway) settled(t *testing.T, h *rig.Host, keys []string) {
	t.Helper()
	asked := map[string]bool{}
	for _, key := range keys {
		asked[key] = true
	}
	var all []longstop.Action
	end := time.Now().Add(2 * time.Minute)
	for open := true; open; {
		all, open = nil, false
		g.ask(t, &all, "ps", "-a", "-n", "1000")
		for _, a := range all {
			if !asked[a.IdempotencyKey] {
				continue
			}
			if a.Outcome == longstop.OutcomeNotStarted && a.Launch.State != longstop.LaunchRejected && a.Workload.State != longstop.WorkloadLaunchFailed {
				t.Fatalf("not_started with launch %s, workload %s:\n%s", a.Launch.State, a.Workload.State, pretty(a))
			}
			if !(a.Workload.State.Final() || a.Launch.State == longstop.LaunchRejected) {
				open = true
				if time.Now().After(end) {
					t.Fatalf("still not known after two minutes:\n%s", pretty(a))
				}
			}
		}
	}
	lines := linesOf(t, h)
	counts := map[longstop.Outcome]int{}
	for _, a := range all {
		if !asked[a.IdempotencyKey] {
			continue
		}
		counts[a.Outcome]++
		ran := lines[a.IdempotencyKey]
		switch {
		case ran > 1:
			t.Errorf("ran %d times:\n%s", ran, pretty(a))
		case ran == 1 && a.Outcome == longstop.OutcomeNotStarted:
			t.Errorf("not_started, and it ran:\n%s", pretty(a))
		case ran == 0 && a.Outcome == longstop.OutcomeSucceeded:
			t.Errorf("succeeded, and it did not run:\n%s", pretty(a))
		}
		delete(asked, a.IdempotencyKey)
	}
	for key := range asked {
		t.Errorf("key %s has no action, and ran %d times", key, lines[key])
	}
	t.Logf("%d keys: %v", len(keys), counts)
}

// TestPoint5ConnectionLost has the ssh master killed at moments around the submit.
func TestPoint5ConnectionLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, plan string
		// The master is killed at most so long after some of the batch have come this far: "asked"
		// (the gateway has the action), or have their place in that folder of the host's state.
		come  string
		after time.Duration
	}{
		{"answer lost after acceptance", "gate.byte=delay:500", "keys", 400 * time.Millisecond},
		{"lost before", "", "asked", 20 * time.Millisecond},
		{"remote start slow", "record.claim.named=delay:200,gate.planned=delay:600", "runs", 700 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, g := failing(t, c.plan), newGateway(t).withFaults()
			random := rand.New(rand.NewPCG(p5Seed(t), 5))
			g.enrol(t, h)
			state := fmt.Sprintf("/proc/%d/root/home/deploy/.local/state/longstop", h.PID(t))
			var keys []string
			for batch := range p5Batches {
				before := came(nil, state, c.come)
				var runs []*running
				for i := range p5Each {
					key := fmt.Sprintf("k%d-%d", batch, i)
					keys = append(keys, key)
					runs = append(runs, g.launchUnder(t, h, key))
				}
				some, end := before+1+random.IntN(p5Each), time.Now().Add(20*time.Second)
				for came(runs, state, c.come) < some && time.Now().Before(end) && !allOver(runs) {
					time.Sleep(time.Millisecond)
				}
				select {
				case <-time.After(time.Duration(random.Int64N(int64(c.after)))):
				case <-runs[len(runs)-1].ended:
				}
				for _, pid := range g.masters(t) {
					syscall.Kill(pid, syscall.SIGKILL)
				}
				for _, r := range runs {
					r.end(t, time.Minute)
				}
			}
			g.settled(t, h, keys)
		})
	}
}

// came counts how many launches have come so far: of a batch, those whose action was told; of all,
// those that have their place in the host's folders (looked at past the host, at once).
func came(batch []*running, state, where string) int {
	if where != "asked" {
		entries, _ := os.ReadDir(filepath.Join(state, where))
		return len(entries)
	}
	asked := 0
	for _, r := range batch {
		if strings.Contains(r.stderr.String(), "act_") {
			asked++
		}
	}
	return asked
}

func allOver(runs []*running) bool {
	for _, r := range runs {
		if !r.over() {
			return false
		}
	}
	return true
}

// TestPoint5KilledBetweenSteps kills whoever passes a step of submit, at every step.
func TestPoint5KilledBetweenSteps(t *testing.T) {
	t.Parallel()
	steps := []string{"record.build.filled", "record.claim.named", "record.claim.indexed", "record.claim.linked",
		"record.write.starting", "record.write.running", "gate.planned", "gate.ready", "gate.byte", "gate.opened"}
	for lane := range 2 {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for i, step := range steps {
				if i%2 != lane {
					continue
				}
				t.Run(step, func(t *testing.T) {
					h, g := failing(t, step+"=kill"), newGateway(t).withFaults()
					g.enrol(t, h)
					var keys []string
					for batch := range 2 {
						var runs []*running
						for i := range p5Each {
							key := fmt.Sprintf("k%d-%d", batch, i)
							keys = append(keys, key)
							runs = append(runs, g.launchUnder(t, h, key))
						}
						for _, r := range runs {
							r.end(t, 2*time.Minute)
						}
					}
					g.settled(t, h, keys)
				})
			}
		})
	}
}

// TestPoint5TwoSubmitsOfOneKey has two gateways that know nothing of each other, and two commands
// of each, submit one key at the same moment.
func TestPoint5TwoSubmitsOfOneKey(t *testing.T) {
	t.Parallel()
	h := failing(t, "")
	gateways := []*gateway{newGateway(t), newGateway(t)}
	for _, g := range gateways {
		g.enrol(t, h)
	}
	const keys, atOnce = 200, 5
	for first := 0; first < keys; first += atOnce {
		var runs []*running
		for key := first; key < first+atOnce; key++ {
			for _, g := range gateways {
				runs = append(runs, g.launchUnder(t, h, fmt.Sprintf("k%d", key)), g.launchUnder(t, h, fmt.Sprintf("k%d", key)))
			}
		}
		for _, r := range runs {
			r.end(t, time.Minute)
		}
	}
	eventually(t, 20*time.Second, "every key to have run", func() bool { return len(linesOf(t, h)) >= keys })
	for key, count := range linesOf(t, h) {
		if count != 1 {
			t.Errorf("key %s ran %d times", key, count)
		}
	}
}
