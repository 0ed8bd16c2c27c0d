package hostsim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	simSeeds = flag.Int("sim.seeds", 200, "how many seeds are simulated")
	simTrace = flag.Bool("sim.trace", false, "tell what happens")
	simSeed  = flag.Uint64("sim.seed", 1, "the first of them")
)

// TestSimulation lets the real gateway, on its real store, live through trouble with simulated hosts, and
// holds it to the laws at every step.
func TestSimulation(t *testing.T) {
	one := lone(t)
	began := time.Now()
	tally, failed := map[string]int{}, 0
	for i := range uint64(*simSeeds) {
		if i > 0 && i%1000 == 0 {
			t.Logf("%d seeds in %v", i, time.Since(began).Round(time.Second))
		}
		seed := *simSeed + i
		broken, counted := one.simulate(t, seed, nil)
		for what, n := range counted {
			tally[what] += n
		}
		if len(broken) > 0 {
			var says strings.Builder
			for _, v := range broken {
				fmt.Fprintf(&says, "law %d: %s\n", v.law, v.says)
			}
			t.Errorf("seed %d:\n%srepeat: go test ./test/hostsim -run 'TestSimulation$' -sim.seed %d -sim.seeds 1 -count 10", seed, says.String(), seed)
			if failed++; failed == 5 {
				break
			}
		}
	}
	if testing.Verbose() {
		for _, what := range slices.Sorted(maps.Keys(tally)) {
			t.Logf("%8d %s", tally[what], what)
		}
	}
	t.Logf("%d seeds from %d in %v", *simSeeds, *simSeed, time.Since(began).Round(time.Second))
}

// simulator runs one seed after the other.
type simulator struct{ template, home string }

// lone makes a simulator for a test that has the process for itself: one goroutine at a time, and random
// numbers that the seed gives, so that a seed does nearly the same again.
func lone(t *testing.T) *simulator {
	processors, garbage := runtime.GOMAXPROCS(1), debug.SetGCPercent(400)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(processors)
		debug.SetGCPercent(garbage)
	})
	return &simulator{template(t, newHosts(nil, nil, Broken{})), folderOf(t)}
}

// simulate returns the laws that a seed shows broken.
func (s *simulator) simulate(t *testing.T, seed uint64, m *mutant) (broken []violation, tally map[string]int) {
	entries, err := os.ReadDir(s.home)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		os.RemoveAll(s.home + "/" + e.Name())
	}
	copyHome(t, s.template, s.home)
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, s.home, m)
		w.live()
		broken, tally = w.laws.broken, w.tally
	})
	return broken, tally
}
