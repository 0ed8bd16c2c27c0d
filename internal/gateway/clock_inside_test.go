package gateway

import (
	"sync"
	"time"
)

// stoodClock stands where it is put.
type stoodClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *stoodClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stoodClock) put(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}
