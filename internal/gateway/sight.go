package gateway

import (
	"errors"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// sight is what was last seen of the host itself. It stands for every run that the present
// channel has shown: a heartbeat says that nothing changed.
type sight struct {
	at      longstop.Time
	by      string
	because longstop.UnknownReason // why the host cannot be seen now, since when, in words
	code    longstop.Code
	message string
	since   longstop.Time
}

// overlay lays what is seen of the host now over an unresolved action's stored observation: nothing
// is written while nothing changes.
func (h *host) overlay(a *longstop.Action) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[a.ID]
	if r == nil || a.Launch.State == longstop.LaunchNotAttempted || a.Request.Owner == longstop.OwnerNone {
		return
	}
	var o longstop.Observation
	if a.Observation != nil {
		o = *a.Observation
	}
	if r.seen && h.sight.at.After(o.At.Time) {
		o.At, o.By, o.Source = h.sight.at, h.sight.by, longstop.Live
	}
	if h.sight.because != "" && o.Because == "" && !r.held {
		o.Because, o.Message, o.Since = h.sight.because, h.sight.message, h.sight.since
	}
	if o != (longstop.Observation{}) {
		a.Observation = &o
	}
	a.Output.StdoutBytes = max(a.Output.StdoutBytes, r.output.StdoutBytes)
	a.Output.StderrBytes = max(a.Output.StderrBytes, r.output.StderrBytes)
	if seen := r.output; seen.DroppedBytes > a.Output.DroppedBytes {
		a.Output.DroppedBytes, a.Output.DropReason = seen.DroppedBytes, seen.DropReason
		a.Output.StdoutDropped, a.Output.StderrDropped = seen.StdoutDropped, seen.StderrDropped
	}
	if kept := &r.action.Workload; kept.Sequence > a.Workload.Sequence {
		a.Workload.Progress, a.Workload.Evidence = kept.Progress, kept.Evidence
	}
	r.lease.overlay(a)
}

// seen is the sight as it is stored and shown. h.mu is held.
func (h *host) seen() *longstop.Observation {
	s := h.sight
	if s == (sight{}) {
		return nil
	}
	o := &longstop.Observation{At: s.at, By: s.by, Because: s.because, Message: s.message, Since: s.since, Source: longstop.Cached}
	if lifecycle.Seen(&longstop.Observation{At: s.at, Source: longstop.Live, Because: s.because}, h.g.now().Time, h.g.stale()) {
		o.Source = longstop.Live
	}
	return o
}

// heard notes that the host is there.
func (h *host) heard(ch *channel) {
	now, clock := h.g.now(), ch.clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sight.at, h.sight.by, h.boot = now, h.by(), clock
}

// by names the serve channel as a witness.
func (h *host) by() string { return "serve@" + h.g.cfg.Name }

// canSee notes that the host answers, and journals it if it had not.
func (h *host) canSee(ch *channel) {
	h.heard(ch)
	h.mu.Lock()
	was := h.sight
	h.sight.because, h.sight.code, h.sight.message, h.sight.since = "", "", "", longstop.Time{}
	h.mu.Unlock()
	if was.because == "" {
		h.store(nil)
		return
	}
	h.store(&journal.Entry{Kind: journal.Reachable, By: h.g.by, Body: body(map[string]any{
		"was": was.because, "since": was.since, "channel": ch.id})})
	h.g.watchers.wakeAll(h.open())
}

// cannotSee notes why the host does not answer, once for each reason.
func (h *host) cannotSee(err error) {
	if h.ctx.Err() != nil {
		return
	}
	because, kind := whyUnseen(err)
	code := longstop.CodeOf(err)
	h.mu.Lock()
	known := h.sight.because == because && h.sight.code == code
	h.sight.because, h.sight.code, h.sight.message = because, code, err.Error()
	if h.sight.since.IsZero() {
		h.sight.since = h.g.now()
	}
	h.mu.Unlock()
	if known {
		return
	}
	h.store(&journal.Entry{Kind: kind, By: h.g.by, Body: body(map[string]any{
		"because": because, "code": code, "message": err.Error()})}, rawNoise(err)...)
	h.g.watchers.wakeAll(h.open())
}

// refuses is why the host lets nobody in, where that is known and looked at again in its time: whoever follows a run
// there is not to log in every second, which servers hold against everybody from here.
func (h *host) refuses() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.sight.code.Refusal() || len(h.runs) == 0 || h.channel != nil && h.channel.live() {
		return nil
	}
	return &longstop.Error{Code: h.sight.code, Message: h.sight.message}
}

// whyUnseen is what an error of the way to a host means for what can be said about its runs.
func whyUnseen(err error) (longstop.UnknownReason, journal.Kind) {
	switch longstop.CodeOf(err) {
	case longstop.CodeHostMismatch, longstop.CodeHostKeyChanged:
		return longstop.HostMismatch, journal.HostRefused
	case longstop.CodeAccessRefused, longstop.CodeNotAllowed:
		return longstop.AccessRefused, journal.HostRefused
	case longstop.CodeHostKeyUnknown, longstop.CodeNoRunner, longstop.CodeStateFolder, longstop.CodeVersionMismatch:
		return longstop.Unreachable, journal.HostRefused
	}
	return longstop.Unreachable, journal.Unreachable
}

// rawNoise is what the other side printed instead, to be kept beside the journal.
func rawNoise(err error) []sqlite.Raw {
	if said := noiseOf(err); said != "" {
		return []sqlite.Raw{{Kind: "noise", Bytes: []byte(said)}}
	}
	return nil
}

func noiseOf(err error) string {
	var e *longstop.Error
	if errors.As(err, &e) {
		return e.Noise
	}
	return ""
}
