package sshlink

import (
	"context"
	"sync"
	"time"
)

// settleTime is how long a place is kept after its session's end. sshd frees its own only when it
// has handled our close and come round its loop; a new session asked for in the same breath would
// meet the old one still counted. A busy sshd may take longer: then the session is asked for again, and
// places of this connection are kept for longer from then on.
const (
	settleTime    = 10 * time.Millisecond
	longestSettle = 32 * settleTime
)

// placePatience is how long an opening waits for a session to end that is about to. A background
// process may hold one for as long as it likes.
const placePatience = time.Second

// keptPlaces are the last of a connection's sessions, which ExecKept alone may take: where all others
// are in use there is still a way to stop something. A connection with one session keeps none.
const keptPlaces = 1

// Limit is what is known of how many sessions a server allows on one connection. Connections to the
// same server share it, so that its limit is met once, and by no later one.
type Limit struct {
	mu    sync.Mutex
	most  int // it refused more than these; 0: it has refused none
	shown int // it has had so many at once
}

// NewLimit starts from what an earlier connection learnt; 0: nothing.
func NewLimit(most int) *Limit { return &Limit{most: most} }

// Known is how many sessions the server allows, as far as it has refused one more; 0: not known.
func (l *Limit) Known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// tried reports whether the server is known to allow n sessions at once.
func (l *Limit) tried(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n <= max(l.shown, l.most)
}

func (l *Limit) show(open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = max(l.shown, open)
}

func (l *Limit) refuse(beside int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == 0 || beside < l.most {
		l.most = beside
	}
	l.shown = min(l.shown, l.most)
}

// places counts the sessions of one connection, so that the server is never asked for more than
// it allows: a refused session does not just fail, it makes OpenSSH's master exit with the next
// disconnect. Beyond what the server has shown to allow, one session at a time is asked for: the
// first that it refuses tells its limit.
type places struct {
	limit  *Limit
	most   int // taken at most
	server int // what the server is taken to allow, settling ones included

	mu       sync.Mutex
	taken    int
	open     int  // of those taken: the server has confirmed them
	ending   int  // of those taken: the command is known to have ended, or was given up
	trying   bool // of those taken: one that is beyond what the server has shown to allow
	settling int
	ends     int // sessions that have ended
	freed    int // of those: the server answered what was asked after, so that it counts them no more
	lastEnd  time.Time
	settle   time.Duration
	moved    chan struct{} // closed and made anew when a place may have become free
}

// place is one that was taken. It is given back once: by leave, by cancel, or by a refusal that is final.
type place struct {
	of           *places
	trial, shown bool
	ends, freed  int // those of places when its session was asked for
	refusals     int // that no session's end explains
}

// newPlaces allows max sessions; 0: eight, where a stock sshd allows ten.
func newPlaces(max int, limit *Limit) *places {
	if limit == nil {
		limit = NewLimit(0)
	}
	p := &places{limit: limit, most: max, server: max, settle: settleTime, moved: make(chan struct{})}
	if max <= 0 {
		p.most, p.server = 8, 10
	}
	return p
}

// bounds are most and server with what is known of the server.
func (p *places) bounds(kept bool) (most, server int) {
	most, server = p.most, p.server
	if known := p.limit.Known(); known > 0 {
		most, server = min(most, known), min(server, known)
	}
	if !kept && most > keptPlaces {
		most -= keptPlaces
	}
	return most, server
}

// take takes a place. Where none is free but one is about to be, it waits for that, a while; and for
// the server's word on a session beyond what it has shown to allow. Nil: sessions that go on have all
// of them, or ctx ended.
func (p *places) take(ctx context.Context, kept bool) *place {
	patience := time.NewTimer(placePatience)
	defer patience.Stop()
	for {
		p.mu.Lock()
		most, server := p.bounds(kept)
		free := p.taken < most && p.taken+p.settling < server
		trial := !p.limit.tried(p.taken + 1)
		if free && !(trial && p.trying) {
			p.taken++
			p.trying = p.trying || trial
			p.mu.Unlock()
			return &place{of: p, trial: trial}
		}
		hope, moved := free || p.ending+p.settling > 0, p.moved
		p.mu.Unlock()
		over := patience.C
		if free {
			over = nil
		}
		if !hope {
			return nil
		}
		select {
		case <-moved:
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// change changes the counts, and has those who wait look again.
func (p *places) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.moved)
	p.moved = make(chan struct{})
}

// ask notes that the session is about to be asked for.
func (one *place) ask() {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	one.ends, one.freed = one.of.ends, one.of.freed
}

// confirm notes that the server has opened the session.
func (one *place) confirm() {
	one.of.change(func() {
		one.shown = true
		one.of.freed = max(one.of.freed, one.ends)
		one.of.open++
		one.of.limit.show(one.of.open)
		one.decided()
	})
}

// decided ends a trial. The lock of places is held.
func (one *place) decided() {
	if one.trial {
		one.trial, one.of.trying = false, false
	}
}

// end notes that a session is about to end: its place will be free when the server says so.
func (one *place) end() {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	one.of.ending++
}

// leave gives back the place of a session that ended, which was noted before.
func (one *place) leave() {
	p := one.of
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.ending--
	if one.shown {
		p.open--
	}
	one.decided()
	p.settling++
	p.ends++
	p.lastEnd = time.Now()
	time.AfterFunc(p.settle, func() { p.change(func() { p.settling-- }) })
}

// cancel gives back a place whose session the connection never carried.
func (one *place) cancel() {
	one.of.change(func() { one.of.taken--; one.decided() })
}

// refused says whether a session that the server refused is to be asked for again, because it may still have
// counted one that has ended here. If not, the place is given back, and the server's limit is what was open beside.
func (one *place) refused() (again bool) {
	p := one.of
	p.change(func() {
		p.freed = max(p.freed, one.ends)
		unfreed := p.ends > one.freed
		if unfreed {
			p.settle = min(2*p.settle, longestSettle)
		} else {
			one.refusals++ // of a server that is no sshd one alone may prove nothing
		}
		if again = unfreed || one.refusals < 2 && time.Since(p.lastEnd) < 100*settleTime; again {
			return
		}
		p.taken--
		one.decided()
		if p.taken > 0 {
			p.limit.refuse(p.taken)
		}
	})
	return again
}

// count is of the sessions that the server may still count.
func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken + p.settling
}

func (p *places) mostFor(kept bool) int {
	most, _ := p.bounds(kept)
	return most
}
