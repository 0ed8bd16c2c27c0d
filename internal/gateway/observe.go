package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// examined is a record that was read strictly and found to be the run's own.
type examined struct {
	raw    []byte
	record longstop.Record
	signed bool
}

// examine reads a record for an action. Only one that bears the MAC of the run's secret, or a
// successor's without any, and that names this run, action, key and request is evidence.
func examine(a *longstop.Action, secret, raw []byte) (examined, error) {
	rec, signed, err := wire.Verify(raw, secret)
	unreadable := func(format string, args ...any) (examined, error) {
		return examined{}, &longstop.Error{Code: longstop.CodeUnreadable, ActionID: a.ID,
			Message: fmt.Sprintf(format, args...), Hint: "longstop show --raw " + string(a.ID)}
	}
	if err != nil {
		// Another gateway's run bears the MAC of another secret: nobody need have altered it.
		var other longstop.Record
		if wire.Tolerant(raw, &other) == nil && other.RunID != a.RunID {
			return unreadable("the record is of run %s, not of %s", other.RunID, a.RunID)
		}
		return examined{}, err
	}
	key := sha256.Sum256([]byte(a.IdempotencyKey))
	switch {
	case !signed && rec.Writer.Kind != longstop.WriterSuccessor:
		return unreadable("the record says that the %s wrote it and bears no MAC: it was altered", rec.Writer.Kind)
	case rec.RunID != a.RunID:
		return unreadable("the record is of run %s, not of %s", rec.RunID, a.RunID)
	case rec.ActionID != a.ID:
		return unreadable("the record is of action %s, not of %s", rec.ActionID, a.ID)
	case rec.KeyHash != hex.EncodeToString(key[:]):
		return unreadable("the record is of another idempotency key")
	case rec.Digest != a.Request.Digest:
		return unreadable("the record is of another request: %s, not %s", rec.Digest, a.Request.Digest)
	}
	return examined{raw, rec, signed}, nil
}

// sightOf makes of a status what the rules can read.
func (h *host) sightOf(a *longstop.Action, secret []byte, s wire.RunStatus, now longstop.BootTime, by string) (reconcile.Sight, []byte) {
	if s.Error != nil {
		switch s.Error.Code {
		case longstop.CodeNotFound:
			return reconcile.NotFound{}, nil
		case longstop.CodeExpired:
			return reconcile.Expired{}, nil
		case longstop.CodeUnreadable:
			return reconcile.Blocked{Because: longstop.UnreadableRecord, Message: s.Error.Error()}, nil
		case longstop.CodeHostMismatch:
			return reconcile.Blocked{Because: longstop.HostMismatch, Message: s.Error.Error()}, nil
		}
		return reconcile.Blocked{Because: longstop.Unreachable, Message: s.Error.Error()}, nil
	}
	seen, err := examine(a, secret, s.Record)
	if err != nil {
		return reconcile.Blocked{Because: longstop.UnreadableRecord, Message: err.Error()}, s.Record
	}
	return reconcile.Seen{Record: seen.record, Sighting: lifecycle.Sighting{
		At: h.g.now(), By: by, Signed: seen.signed, BootNow: now,
		Status: true, Released: s.Released, Unseen: s.ReleasedUnseen, Orphaned: s.Orphaned, Output: s.Output, Unit: s.Unit,
	}}, seen.raw
}

// observe applies a record to an action inside a change, and journals what it changed with the
// record's bytes beside it.
func observe(d *draft, seen reconcile.Seen, raw []byte) {
	by := seen.Sighting.By
	launched, unit := d.Launch.State, d.Workload.Unit
	changed, contradiction := lifecycle.Observe(&d.Action, seen.Record, seen.Sighting)
	noteDetached(d, launched, by)
	if now := d.Workload.Unit; now != nil && (now.Ended() || now.Forgotten) && (unit == nil || !unit.Ended() && !unit.Forgotten) {
		d.note(journal.UnitSeen, by, map[string]any{"unit": now})
	}
	kept := sqlite.Raw{Kind: "record", Bytes: raw}
	if contradiction != "" {
		d.note(journal.Contradiction, by, map[string]any{"says": contradiction, "sequence": seen.Record.Sequence}, kept)
	}
	if changed {
		d.note(journal.Observed, by, map[string]any{
			"state": d.Workload.State, "sequence": seen.Record.Sequence, "writer": seen.Record.Writer.Kind, "signed": seen.Sighting.Signed}, kept)
	}
}

// noteDetached journals that a host has taken a run that nobody's lease ends.
func noteDetached(d *draft, before longstop.LaunchState, by string) {
	if d.Request.Lifetime != longstop.Detached || before == longstop.LaunchAccepted || d.Launch.State != longstop.LaunchAccepted ||
		d.Workload.State == longstop.WorkloadLaunchFailed {
		return
	}
	b := d.Workload.Boundary
	say := map[string]any{"boundary": b.Kind}
	if b.Unit != "" {
		say["manager"], say["unit"] = b.Manager, b.Unit
	}
	d.note(journal.DetachedAccepted, by, say)
}

// cannotSee notes inside a change that the host's answer is no sight of the run.
func cannotSee(d *draft, because longstop.UnknownReason, message, by string, raw []byte) {
	if !lifecycle.CannotSee(&d.Action, because, message, d.at) {
		return
	}
	say := map[string]any{"because": because, "message": message}
	if raw == nil {
		d.note(journal.Observed, by, say)
		return
	}
	d.note(journal.Observed, by, say, sqlite.Raw{Kind: "record", Bytes: raw})
}

// gatherFor is how long a pushed record that is not final waits for others, so that what a short run
// writes in a row costs one flush. A final record never waits, nor does a submit's answer: its host has
// kept it back for as long (answerSoon in internal/runner).
//
// Whoever loses power meanwhile loses what nobody was told of. The intent is durable, so the run is asked
// about again, and its host has it; a result is told once it is durable here.
const gatherFor = 5 * time.Millisecond

// takePushes applies what a channel pushes, everything that has come meanwhile in one transaction.
func (h *host) takePushes(ch *channel, pushes <-chan wire.Pushed) {
	for {
		select {
		case p := <-pushes:
			h.look(ch, gather(p, pushes), p.BootNow, h.by())
		case <-ch.done:
			return
		}
	}
}

// gather joins a push and those that follow closely: the last status of each run.
func gather(p wire.Pushed, pushes <-chan wire.Pushed) []wire.RunStatus {
	statuses := p.Runs
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	for !slices.ContainsFunc(statuses, func(s wire.RunStatus) bool { return isFinal(s.Record) }) {
		select {
		case next := <-pushes:
			statuses = merge(statuses, next.Runs)
		case <-timer.C:
			return statuses
		}
	}
	for {
		select {
		case next := <-pushes:
			statuses = merge(statuses, next.Runs)
		default:
			return statuses
		}
	}
}

func merge(old, newer []wire.RunStatus) []wire.RunStatus {
	replaced := map[longstop.RunID]bool{}
	for _, s := range newer {
		replaced[s.RunID] = true
	}
	for _, s := range old {
		if !replaced[s.RunID] {
			newer = append(newer, s)
		}
	}
	return newer
}

// isFinal peeks at a record, in which no other state comes before its own. Nothing but whether others
// are waited for rests on it.
func isFinal(record []byte) bool {
	_, rest, _ := bytes.Cut(record, []byte(`"state":"`))
	state, _, _ := bytes.Cut(rest, []byte(`"`))
	return longstop.WorkloadState(state).Final()
}

// look applies statuses that a live channel gave.
func (h *host) look(ch *channel, statuses []wire.RunStatus, now longstop.BootTime, by string) {
	var looked []looked
	var changes []change
	for _, s := range statuses {
		one := h.lookAt(s, now, by)
		if one.change != nil {
			changes = append(changes, *one.change)
		}
		looked = append(looked, one)
	}
	if len(changes) > 0 {
		if _, err := h.g.changeAll(context.WithoutCancel(h.ctx), changes); err != nil {
			// Nothing was noted of what the host said. The same is said again on the next channel.
			ch.fail(fmt.Errorf("keep what %s says: %w", h.name, err))
			return
		}
		h.nudge()
	}
	for _, one := range looked {
		if one.same != nil {
			h.keep(*one.same)
		}
		if one.seen != "" {
			h.hasLooked(one.seen, one.fingerprint)
		}
	}
}

// looked is what one status changes, if anything, and which action it is a sight of. What was looked at
// is remembered only once the change is durable.
type looked struct {
	change      *change
	same        *longstop.Action // looks as it did, but for what moves by itself: that is not written
	seen        longstop.ActionID
	fingerprint [32]byte
}

// lookAt says what a status changes. One that says what the last one said costs nothing.
func (h *host) lookAt(s wire.RunStatus, now longstop.BootTime, by string) looked {
	fingerprint := fingerprintOf(s)
	h.mu.Lock()
	r := h.byRun[s.RunID]
	if r == nil {
		h.mu.Unlock()
		return looked{change: h.lookAtOther(s, now, by)}
	}
	a, secret := r.action, r.secret
	if r.held && a.Launch.State == longstop.LaunchSent && s.Error == nil {
		r.early = &earlyStatus{s, now} // the launch applies it with the submit's own answer
		h.mu.Unlock()
		return looked{}
	}
	r.output = s.Output
	same := r.record == fingerprint && s.Error == nil
	h.mu.Unlock()
	if same {
		return looked{seen: a.ID, fingerprint: fingerprint}
	}
	sight, raw := h.sightOf(&a, secret, s, now, by)
	switch sight := sight.(type) {
	case reconcile.Seen:
		h.tellCancel(a.ID, sight.Record)
		if changed, contradiction := lifecycle.Observe(&a, sight.Record, sight.Sighting); !changed && contradiction == "" {
			return looked{seen: a.ID, fingerprint: fingerprint, same: &a}
		}
		return looked{seen: a.ID, fingerprint: fingerprint, change: &change{a.ID, func(d *draft) error {
			observe(d, sight, raw)
			return nil
		}}}
	case reconcile.Blocked:
		return looked{change: &change{a.ID, func(d *draft) error {
			cannotSee(d, sight.Because, sight.Message, by, raw)
			return nil
		}}}
	}
	return looked{} // not found, expired: the reconciler asks and decides
}

// earlyStatus is a status that was pushed before the submit's answer was applied.
type earlyStatus struct {
	status wire.RunStatus
	now    longstop.BootTime
}

// takeEarly takes what was pushed about a run whose submit was under way.
func (h *host) takeEarly(id longstop.ActionID) *earlyStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[id]
	if r == nil || r.early == nil {
		return nil
	}
	early := r.early
	r.early = nil
	return early
}

// fingerprintOf is the same for statuses that say the same.
func fingerprintOf(s wire.RunStatus) [32]byte {
	sum := sha256.New()
	sum.Write(s.Record)
	fmt.Fprint(sum, s.Orphaned, len(s.Released), s.ReleasedUnseen)
	if u := s.Unit; u != nil {
		fmt.Fprint(sum, " ", u.InvocationID, u.ActiveState, u.SubState, u.Result, u.MainCode, u.Forgotten)
	}
	for _, p := range s.Released {
		fmt.Fprint(sum, " ", p.PID, " ", p.StartTime)
	}
	return [32]byte(sum.Sum(nil))
}

// hasLooked notes that a record was applied, so that the same one pushed costs nothing, and is a sight.
func (h *host) hasLooked(id longstop.ActionID, fingerprint [32]byte) {
	h.mu.Lock()
	if r := h.runs[id]; r != nil {
		r.record = fingerprint
	}
	h.mu.Unlock()
	h.hasSeen(id)
}

// hasSeen notes that the present channel has shown the run: from now on its heartbeats count.
func (h *host) hasSeen(id longstop.ActionID) {
	h.mu.Lock()
	r := h.runs[id]
	woke := r != nil && !r.seen
	if woke {
		r.seen = true
	}
	h.mu.Unlock()
	if woke {
		h.g.watchers.wake(id)
	}
}

// lookAtOther is for a run that no unresolved action claims: one that is settled here, whose late
// word may contradict, or nobody's.
func (h *host) lookAtOther(s wire.RunStatus, now longstop.BootTime, by string) *change {
	a, err := h.g.store.ByRun(h.ctx, s.RunID)
	if err != nil {
		return nil
	}
	if a == nil {
		h.unclaimed(s)
		return nil
	}
	if s.Error != nil {
		return nil
	}
	secret, err := h.g.store.Secret(h.ctx, s.RunID)
	if err != nil {
		return nil
	}
	sight, raw := h.sightOf(a, secret, s, now, by)
	seen, ok := sight.(reconcile.Seen)
	if !ok {
		return nil
	}
	return &change{a.ID, func(d *draft) error {
		observe(d, seen, raw)
		return nil
	}}
}

// unclaimed journals, once, a run that no action claims. It is left alone: it may be another
// gateway's, on the same account.
func (h *host) unclaimed(s wire.RunStatus) {
	h.mu.Lock()
	known := h.alien[s.RunID]
	h.alien[s.RunID] = true
	h.mu.Unlock()
	if known {
		return
	}
	entry := journal.Entry{At: h.g.now(), Kind: journal.UnclaimedRun, RunID: s.RunID, Host: h.name, By: h.g.by}
	h.g.store.Update(context.WithoutCancel(h.ctx), func(tx *sqlite.Tx) error {
		_, err := tx.Append(entry, sqlite.Raw{Kind: "record", Bytes: s.Record})
		return err
	})
}
