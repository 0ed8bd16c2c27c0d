package reconcile

import (
	"math/rand/v2"
	"time"
)

const (
	leastBackoff = time.Second
	mostBackoff  = 2 * time.Minute
)

// Backoff is how long to wait before the attempt with this number, from 0: doubling from a second
// to two minutes, each cut by up to a half by chance, so that hosts that went together do not come
// back together. The same seed gives the same times.
func Backoff(attempt int, seed uint64) time.Duration {
	after := mostBackoff
	if attempt < 7 { // 2^7 seconds are more than two minutes
		after = leastBackoff << max(attempt, 0)
	}
	return jitter(after, seed, uint64(attempt))
}

// jitter cuts up to a half off.
func jitter(d time.Duration, seed, turn uint64) time.Duration {
	chance := rand.New(rand.NewPCG(seed, turn)).Float64()
	return d - time.Duration(chance*float64(d)/2)
}
