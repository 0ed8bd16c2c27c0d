package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

const (
	// stopWithin is how long past its grace a run is waited for on the cancel's channel; what is
	// left then is named in the answer, and the reconciler asks again.
	stopWithin = 20 * time.Second
	// haltLongest bounds one cancel channel, however long the grace.
	haltLongest = 10 * time.Minute
)

// Cancel stops the run and waits until nothing is left, the host refused, the host did not answer
// or cannot end what is left, or ctx ends. The cancellation itself goes on without its caller, until
// the host answers. The action is returned beside any error.
func (g *Gateway) Cancel(ctx context.Context, id string, by longstop.Requester, note func(string)) (longstop.Action, error) {
	a, err := g.Action(ctx, id)
	if err != nil {
		return a, err
	}
	a, err = g.change(ctx, a.ID, func(d *draft) error { return requestCancel(d, words(by)) })
	if err != nil {
		return a, err
	}
	if !cancelPending(&a) {
		return g.shown(a), nil
	}
	if _, err := g.pursueCancel(&a); err != nil {
		return g.shown(a), err
	}
	a, err = g.await(ctx, a, note, func(a longstop.Action, _ bool) bool { return !cancelPending(&a) || cancelStuck(&a) })
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil // who left is told nothing; who waits is answered above
	}
	return a, err
}

// pursueCancel has the host asked to stop a run for which a cancel is wanted.
func (g *Gateway) pursueCancel(a *longstop.Action) (*host, error) {
	h, err := g.host(a.Host)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Request.Owner == longstop.OwnerNone:
		g.cutDirect(a.ID)
	case a.Launch.State == longstop.LaunchAccepted:
		g.goes(func() { h.halt(a.ID) })
	default:
		h.decideAgain(a.ID, 0) // found and stopped, or its key burnt
		h.nudge()
	}
	return h, nil
}

// words names a requester in journal entries.
func words(r longstop.Requester) string {
	if r.Name == "" {
		return r.Kind
	}
	return r.Kind + " " + r.Name
}

// requestCancel notes the wish before anything is sent. Nothing is noted for what has ended.
func requestCancel(d *draft, by string) error {
	switch {
	case d.Launch.State == longstop.LaunchRejected, beyondStopping(&d.Action), cancelPending(&d.Action):
		return nil
	}
	state, err := lifecycle.Cancels.Step(d.Cancel.State, longstop.CancelRequested)
	if err != nil {
		return err
	}
	d.Cancel = longstop.Cancel{State: state, By: by, At: d.at}
	d.note(journal.CancelRequested, by, nil)
	if d.Launch.State != longstop.LaunchNotAttempted {
		return nil
	}
	return rejectDraft(d, by, longstop.CodeExpired, "cancelled before it was sent")
}

// beyondStopping reports whether the host has told the run's end, so that no cancel changes anything:
// the record has said what became of the one that was asked.
func beyondStopping(a *longstop.Action) bool {
	if a.Request.Owner == longstop.OwnerNone && a.Launch.State != longstop.LaunchNotAttempted {
		return !a.Unresolved()
	}
	return a.Workload.State.Final() && !a.ReleasedAlive()
}

// cancelPending reports whether a wish to stop is open.
func cancelPending(a *longstop.Action) bool {
	switch a.Cancel.State {
	case longstop.CancelRequested, longstop.CancelDelivered, longstop.CancelUnconfirmed:
		return a.Launch.State != longstop.LaunchRejected
	}
	return false
}

// cancelStuck reports whether a caller of Cancel has nothing to wait for: the host does not answer,
// says what it cannot end, or has told an end that proves nothing of the cancel (lost).
func cancelStuck(a *longstop.Action) bool {
	return beyondStopping(a) || a.Cancel.State == longstop.CancelUnconfirmed || a.Cancel.Because != "" ||
		a.Workload.State == longstop.WorkloadCancelling && len(a.Workload.Survivors) > 0
}

// halt asks the host to stop a run, and notes what it answers.
func (h *host) halt(id longstop.ActionID) {
	a, begun := h.beginHalt(id)
	if !begun {
		return
	}
	defer h.endHalt(id)
	secret := h.secret(id) // now: once a push has told of the end, it is let go
	within := min(seconds(a.Request.GraceS)+stopWithin, haltLongest)
	over, got, err := h.askHalt(wire.CancelRequest{RunID: a.RunID, GraceMS: -1, WaitMS: within.Milliseconds()}, within+answerWithin)
	if err != nil {
		h.unconfirmed(id, err)
		return
	}
	h.cancelAnswered(id, secret, over, got)
}

// wayWithin is how long a cancel tries for a channel of its own while there is the serve channel.
const wayWithin = 3 * time.Second

// askHalt asks on a channel of its own, and where none is to be had over the serve channel: there is
// always a way through.
func (h *host) askHalt(req wire.CancelRequest, within time.Duration) (longstop.ChannelID, reply, error) {
	ctx, cancel := h.ctx, context.CancelFunc(func() {})
	if h.current() != nil {
		ctx, cancel = context.WithTimeout(h.ctx, wayWithin)
	}
	side, err := h.openAside(ctx, wire.VerbCancel)
	cancel()
	if err == nil {
		defer side.close()
		got, err := side.ask(h.ctx, req, within)
		return side.id, got, err
	}
	if ch := h.current(); ch != nil {
		got, err := ch.ask(h.ctx, wire.VerbCancel, req, within)
		return ch.id, got, err
	}
	return "", reply{}, &unanswered{Err: err}
}

// beginHalt keeps two cancels of one run from being asked at once.
func (h *host) beginHalt(id longstop.ActionID) (longstop.Action, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[id]
	if r == nil || r.stopping || h.ctx.Err() != nil {
		return longstop.Action{}, false
	}
	r.stopping = true
	return r.action, true
}

func (h *host) endHalt(id longstop.ActionID) {
	h.mu.Lock()
	if r := h.runs[id]; r != nil {
		r.stopping = false
		r.decideAt = time.Now().Add(reconcile.Backoff(r.halts, h.seed()))
		r.halts++
	}
	h.mu.Unlock()
	h.nudge()
}

// unconfirmed notes that no readable answer came: the run may have been stopped, or not. A cancel
// that never left this machine stays requested, and says why.
func (h *host) unconfirmed(id longstop.ActionID, cause error) {
	if h.ctx.Err() != nil {
		return // the gateway is closing: the next one asks again
	}
	sent := maySent(cause)
	var raws []sqlite.Raw
	var u *unanswered
	if errors.As(cause, &u) && len(u.Raw) > 0 {
		raws = append(raws, sqlite.Raw{Kind: "cancel_answer", Bytes: u.Raw})
	}
	h.g.change(context.WithoutCancel(h.ctx), id, func(d *draft) error { return unconfirm(d, h.g.by, cause, sent, raws...) })
}

// unconfirm does what unconfirmed says, inside a change.
func unconfirm(d *draft, by string, cause error, sent bool, raws ...sqlite.Raw) error {
	same := d.Cancel.Because == cause.Error() && (!sent || d.Cancel.State == longstop.CancelUnconfirmed)
	if !cancelPending(&d.Action) || same {
		return nil
	}
	d.Cancel.Because = cause.Error()
	say := map[string]any{"cancel": d.Cancel.State, "code": longstop.CodeOf(cause), "message": cause.Error()}
	if !sent {
		d.note(journal.Unreachable, by, say)
		return nil
	}
	if d.Cancel.State != longstop.CancelUnconfirmed {
		state, err := lifecycle.Cancels.Step(d.Cancel.State, longstop.CancelUnconfirmed)
		if err != nil {
			return err
		}
		d.Cancel.State = state
	}
	say["cancel"] = d.Cancel.State
	d.note(journal.CancelUnconfirmed, by, say, raws...)
	return nil
}

// cancelAnswered notes the host's answer: the record that ended the run, what still lives, or why
// nothing was signalled.
func (h *host) cancelAnswered(id longstop.ActionID, secret []byte, over longstop.ChannelID, got reply) {
	raw := sqlite.Raw{Kind: "cancel_answer", Bytes: got.raw}
	var answer wire.CancelAnswer
	if err := got.read(&answer); err != nil {
		switch longstop.CodeOf(err) {
		case longstop.CodeRefused, longstop.CodeNotAllowed:
			answer.Refused = err.Error()
		default:
			h.unconfirmed(id, &unanswered{Sent: true, Raw: got.raw, Err: err})
			return
		}
	}
	h.g.change(context.WithoutCancel(h.ctx), id, func(d *draft) error {
		before := d.Cancel.State
		if len(answer.Record) > 0 {
			seen, err := examine(&d.Action, secret, answer.Record)
			if err != nil {
				cannotSee(d, longstop.UnreadableRecord, err.Error(), h.g.by, answer.Record)
				return unconfirm(d, h.g.by, err, true, raw)
			}
			observe(d, reconcile.Seen{Record: seen.record, Sighting: lifecycle.Sighting{
				At: d.at, By: "cancel@" + h.g.cfg.Name, Signed: seen.signed}}, seen.raw)
			h.tellCancel(id, seen.record)
		}
		to := longstop.CancelDelivered
		if answer.Refused != "" {
			to = longstop.CancelRefused
		}
		if cancelPending(&d.Action) && d.Cancel.State != to && !beyondStopping(&d.Action) {
			for _, state := range lifecycle.Cancels.Path(d.Cancel.State, to) {
				d.Cancel.State = state
			}
			d.Cancel.Because = answer.Refused
		}
		if cancelPending(&d.Action) && d.Workload.State.Final() && len(answer.Survivors) > 0 {
			d.Cancel.Because = outlived(answer.Survivors) // a final record does not say it
		}
		if d.Cancel.State == before && len(d.entries) == 0 {
			return nil
		}
		kind := journal.CancelAnswered
		if d.Cancel.State == longstop.CancelDelivered {
			kind = journal.CancelDelivered
		}
		d.note(kind, h.g.by, map[string]any{"cancel": d.Cancel.State, "refused": answer.Refused,
			"survivors": len(answer.Survivors), "channel": over}, raw)
		return nil
	})
}

// outlived names released processes that a cancel could not end.
func outlived(survivors []longstop.Process) string {
	var who []string
	for _, p := range survivors {
		who = append(who, fmt.Sprintf("%d %s: %s", p.PID, p.Command, p.Why))
	}
	return "released, and cannot be stopped: " + strings.Join(who, ", ")
}

// cancelSaid is what whoever waits for a cancel was told of its course.
type cancelSaid struct{ signalled, killed, empty bool }

// tellCancel tells the course of a cancel to whoever waits for it.
func (h *host) tellCancel(id longstop.ActionID, rec longstop.Record) {
	log := rec.Cancel
	if log == nil {
		return
	}
	h.mu.Lock()
	r := h.runs[id]
	var lines []string
	if r != nil {
		lines = r.said.next(log)
	}
	h.mu.Unlock()
	for _, line := range lines {
		h.g.watchers.tell(id, line)
	}
}

func (s *cancelSaid) next(log *longstop.CancelLog) (lines []string) {
	if !log.SignalledAt.IsZero() && !s.signalled {
		s.signalled = true
		lines = append(lines, fmt.Sprintf("%s to %s …", log.Signal, processes(log.Signalled)))
	}
	if !log.KilledAt.IsZero() && !s.killed {
		s.killed = true
		lines = append(lines, fmt.Sprintf("KILL to %s after %v …", processes(log.Killed), log.KilledAt.Sub(log.SignalledAt.Time).Round(100*time.Millisecond)))
	}
	if !log.EmptyAt.IsZero() && !s.empty {
		s.empty = true
		lines = append(lines, "nothing is left")
	}
	return lines
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
