package sshlink

import (
	"context"
	"sync"
	"time"
)

// settleTime is how long a place is kept after its session's end. sshd frees its own only when it
// has handled our close and come round its loop; a new session asked for in the same breath would
// meet the old one still counted.
const settleTime = 10 * time.Millisecond

// places counts the sessions of one connection, so that the server is never asked for more than
// it allows: a refused session does not just fail, it makes OpenSSH's master exit with the next
// disconnect.
type places struct {
	mu       sync.Mutex
	limit    int // taken at most
	server   int // what the server is taken to allow, settling ones included
	taken    int
	settling int
	lastEnd  time.Time
	moved    chan struct{} // closed and made anew when one has settled
}

// newPlaces allows max sessions; 0: eight, where a stock sshd allows ten.
func newPlaces(limit int) *places {
	p := &places{limit: limit, server: limit, moved: make(chan struct{})}
	if limit <= 0 {
		p.limit, p.server = 8, 10
	}
	return p
}

// take takes a place, waiting for one that settles; false: all are taken, or ctx ended.
func (p *places) take(ctx context.Context) bool {
	for {
		p.mu.Lock()
		full, settled, moved := p.taken >= p.limit, p.taken+p.settling < p.server, p.moved
		if !full && settled {
			p.taken++
		}
		p.mu.Unlock()
		if full || settled {
			return !full
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// leave gives back the place of a session that ended.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.settling++
	p.lastEnd = time.Now()
	time.AfterFunc(settleTime, p.settle)
}

func (p *places) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settling--
	close(p.moved)
	p.moved = make(chan struct{})
}

// cancel gives back a place whose session the connection never carried.
func (p *places) cancel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
}

// refused gives back the place of a session that the server refused, and says whether that may be
// because it still counted one that has ended here. If not, its limit is what was open beside.
func (p *places) refused() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if again = time.Since(p.lastEnd) < 100*settleTime; !again && p.taken > 0 {
		p.limit = min(p.limit, p.taken)
		p.server = p.limit
	}
	return again
}

// count is of the sessions that the server may still count.
func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken + p.settling
}

func (p *places) most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}
