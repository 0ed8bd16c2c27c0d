//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestPoint4StoppedAtRandom stops (SIGSTOP), for good and at random moments, what TestPoint4KilledAtRandom
// kills: nothing hangs for longer than its deadline.
func TestPoint4StoppedAtRandom(t *testing.T) {
	t.Parallel()
	seed := p5Seed(t)
	lanes := sideBySide{places: make(chan struct{}, 4)}
	defer lanes.all.Wait()
	for _, victim := range []string{"master", "keeper", "verb", "owner"} {
		lanes.run(t, victim, func(t *testing.T) {
			l := newLane(t, victim, true)
			l.stops = true
			for batch := 0; l.moments() < 2; batch++ {
				l.batch(t, fmt.Sprintf("p4s-%d-%s-%d", seed, victim, batch), 1, rand.New(rand.NewPCG(seed, uint64(len(victim))<<32|uint64(batch))))
				if t.Failed() {
					t.Fatalf("repeat with: LONGSTOP_SEED=%d go test -tags hosts -run 'TestPoint4StoppedAtRandom/%s' ./test/hosts", seed, victim)
				}
			}
			l.end(t)
		})
	}
}
