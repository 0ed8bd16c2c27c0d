package gateway

import (
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/reconcile"
)

// mind keeps the serve channel while there is a reason to, and asks about what is unresolved. It
// never starts work.
func (h *host) mind() {
	for failed, brief := 0, 0; h.ctx.Err() == nil; {
		if !h.needed() {
			if tidy := h.tidyNext(); tidy.IsZero() || time.Now().Before(tidy) {
				h.rest(tidy)
				failed, brief = 0, 0
				continue
			}
		}
		ch, err := h.reach(h.ctx, nil)
		if err != nil {
			h.letGo()
			h.tidyLater()
			h.pause(reconcile.Backoff(failed, h.seed()))
			failed++
			continue
		}
		failed = 0
		began := time.Now()
		h.attend(ch)
		switch brief++; {
		case ch.live() || time.Since(began) > steady:
			brief = 0
		case brief > 1: // one that ends at once is made anew at once, and then ever more slowly
			h.pause(min(reconcile.Backoff(brief-2, h.seed()), h.g.stale()))
		}
	}
}

// steady is how long a channel lives that does not end at once: making it anew is no hot loop.
const steady = 2 * time.Second

// needed reports whether the host has something unresolved.
func (h *host) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if r.action.Launch.State != longstop.LaunchNotAttempted && r.action.Request.Owner != longstop.OwnerNone {
			return true
		}
	}
	return h.channel != nil && h.channel.live()
}

// rest waits until something wants the host, or it is time to tidy it.
func (h *host) rest(tidy time.Time) {
	var due <-chan time.Time
	if !tidy.IsZero() {
		timer := time.NewTimer(time.Until(tidy))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-h.wake:
	case <-due:
	case <-h.ctx.Done():
	}
}

// waitersPause is the longest pause while somebody waits for an action of the host: whoever looks at a
// silent host is not to wait for minutes once it answers again. One that refuses is not asked more often for that.
const waitersPause = 5 * time.Second

// pause waits between attempts. A channel that a caller got meanwhile ends it.
func (h *host) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	waited := time.NewTicker(waitersPause)
	defer waited.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-waited.C:
			if h.refuses() == nil && h.g.watchers.any(h.open()) {
				return
			}
		case <-h.ctx.Done():
			return
		case <-h.wake:
			if h.current() != nil {
				return
			}
		}
	}
}

// attend is with a live channel until it ends, or has been idle for long enough.
func (h *host) attend(ch *channel) {
	h.lookAll(ch)
	h.beginChores(ch)
	looks := time.Now().Add(lookEvery)
	for h.ctx.Err() == nil && ch.live() {
		now := time.Now()
		if !now.Before(looks) {
			h.lookAll(ch)
			looks = now.Add(lookEvery)
		}
		round := now.Add(h.round(h.ctx, ch, h.undecided()))
		if h.idle(ch) {
			return
		}
		timer := time.NewTimer(time.Until(earliest(round, looks)))
		select {
		case <-timer.C:
		case <-h.wake:
		case <-ch.done:
		case <-h.ctx.Done():
		}
		timer.Stop()
	}
	if h.ctx.Err() == nil && !ch.live() {
		h.leave(ch.link)
	}
}

func earliest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.Before(first) {
			first = t
		}
	}
	return first
}

// idle closes a channel that nothing has needed for a while.
func (h *host) idle(ch *channel) bool {
	h.mu.Lock()
	unused := len(h.runs) == 0 && !h.chores.busy && time.Since(h.used) > h.g.cfg.Idle
	if unused {
		h.channel = nil
	}
	h.mu.Unlock()
	if unused {
		ch.fail(&longstop.Error{Code: longstop.CodeUnreachable, Message: "the channel to " + h.name + " was closed: nothing needed it"})
		h.drop(ch.link)
	}
	return unused
}
