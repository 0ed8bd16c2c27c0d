package sshlink

import (
	"context"
	"sync"
	"time"
)

// settleTime is how long a place is kept after its session's end. sshd frees its own only when it
// has handled our close and come round its loop; a new session asked for in the same breath would
// meet the old one still counted. A busy sshd may take longer: then Exec tries again.
const settleTime = 10 * time.Millisecond

// placePatience is how long an opening waits for a session to end that is about to. A background
// process may hold one for as long as it likes.
const placePatience = time.Second

// places counts the sessions of one connection, so that the server is never asked for more than
// it allows: a refused session does not just fail, it makes OpenSSH's master exit with the next
// disconnect.
type places struct {
	mu       sync.Mutex
	limit    int // taken at most
	server   int // what the server is taken to allow, settling ones included
	taken    int
	ending   int // of those taken: the command is known to have ended, or was given up
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

// take takes a place. Where none is free but one is about to be, it waits for that, a while;
// false: sessions that go on have all of them, or ctx ended.
func (p *places) take(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	for {
		p.mu.Lock()
		free := p.taken < p.limit && p.taken+p.settling < p.server
		hope := p.ending+p.settling > 0
		moved := p.moved
		if free {
			p.taken++
		}
		p.mu.Unlock()
		if free || !hope {
			return free
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// end notes that a session is about to end: its place will be free when the server says so.
func (p *places) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending++
}

// leave gives back the place of a session that ended, which was noted before.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.ending--
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
