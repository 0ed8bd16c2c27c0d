package gateway

import (
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// leaseSight is the last renewal that the host took.
type leaseSight struct {
	until   longstop.BootTime
	renewed longstop.Time
	expires longstop.Time
}

func (l leaseSight) overlay(a *longstop.Action) {
	if l.renewed.IsZero() || a.Workload.Lease == nil || a.Workload.Lease.RenewedAt.After(l.renewed.Time) {
		return
	}
	lease := *a.Workload.Lease
	lease.RenewedAt, lease.ExpiresAt = l.renewed, l.expires
	a.Workload.Lease = &lease
}

// leased reports whether the run's lease is to be renewed: the host has it, it needs word, nobody took its
// approval back, and nobody wants it stopped.
func (r *run) leased() bool {
	a := &r.action
	return a.Request.Lifetime == longstop.Leased && a.Request.Owner != longstop.OwnerNone && a.Launch.State == longstop.LaunchAccepted &&
		!a.Workload.State.Final() && a.Approval.State != longstop.ApprovalRevoked && (a.Cancel.State == longstop.CancelNone || a.Cancel.State == longstop.CancelRefused)
}

// renews reports whether a lease is kept: it is to be renewed, and who let the run begin still lets it go on.
func (h *host) renews(r *run) bool { return r.leased() && h.g.authorised(&r.action) }

func (r *run) leaseLength() time.Duration { return seconds(r.action.Request.LeaseS) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// keepLeases renews the host's leases for as long as the channel lives. It goes on beside attend, whose
// questions may be waited for longer than a lease lasts, and beside a renewal that is still unanswered:
// each names an instant of its own, and an old one changes nothing.
func (h *host) keepLeases(ch *channel) {
	defer signal(h.leased) // what was meant for the next channel's
	var renewed time.Time
	for ch.live() {
		pause := time.Minute // there is none: h.leased tells of the first
		if every := h.renewEvery(); every > 0 {
			if time.Since(renewed) >= every {
				renewed = time.Now()
				h.g.goes(func() { h.renew(ch) })
			}
			pause = every - time.Since(renewed)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.leased:
		case <-ch.done:
		}
		timer.Stop()
	}
}

// renewEvery is how often this host's leases are renewed: a third of the shortest, so that one lost
// renewal ends nothing. Zero: there is none.
func (h *host) renewEvery() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var every time.Duration
	for _, r := range h.runs {
		if h.renews(r) && (every == 0 || r.leaseLength()/3 < every) {
			every = r.leaseLength() / 3
		}
	}
	return every
}

// renew sends one request for all leases. Each names an instant of the host's boot clock: one that
// is stuck in a dying link arrives stale and changes nothing. Nothing is sent into a channel that
// has been silent.
func (h *host) renew(ch *channel) {
	clock := ch.clock()
	if ch.silence() > 2*h.g.cfg.Heartbeat {
		return
	}
	req := wire.RenewRequest{BootID: clock.bootID}
	until := map[longstop.RunID]leaseSight{}
	now, bootNow := h.g.now(), clock.now()
	h.mu.Lock()
	for _, r := range h.runs {
		if h.renews(r) {
			end := bootNow.Add(r.leaseLength())
			req.Leases = append(req.Leases, wire.RunLease{RunID: r.action.RunID, Until: end})
			until[r.action.RunID] = leaseSight{end, now, longstop.At(now.Add(r.leaseLength()))}
		}
	}
	h.mu.Unlock()
	if len(req.Leases) == 0 {
		return
	}
	var answer wire.RenewAnswer
	got, err := ch.ask(h.ctx, wire.VerbRenew, req, answerWithin)
	if err == nil {
		err = got.read(&answer)
	}
	if err != nil {
		return // the channel's end is told by itself, and the host's refusal by the next status
	}
	ch.tell(clock.bootID, answer.BootNow)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range answer.Renewed {
		if r := h.byRun[id]; r != nil && until[id].until > r.lease.until {
			r.lease = until[id]
		}
	}
}
