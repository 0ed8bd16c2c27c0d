package gateway

import (
	"slices"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// Retention is how long hosts keep what they have of a run beside its record and its key, from when its
// final record was durable here. Record and key are kept for ever: here, and on the host.
type Retention struct {
	Keep   time.Duration // a run whose output was read to its end, or that has none; default 7 days
	Unread time.Duration // one whose output was not; default 30 days
	// MaxAge is when a host may remove any run, whoever submitted it and collected or not, by its own
	// clock and record; default 180 days.
	MaxAge time.Duration
	Every  time.Duration // how often a host is asked to remove what may go; default 1 hour
}

const day = 24 * time.Hour

func (r Retention) withDefaults() Retention {
	for of, standard := range map[*time.Duration]time.Duration{
		&r.Keep: 7 * day, &r.Unread: 30 * day, &r.MaxAge: 180 * day, &r.Every: time.Hour} {
		if *of <= 0 {
			*of = standard
		}
	}
	return r
}

// chores is what is to be done about runs that a host keeps. What they are is in the store.
type chores struct {
	busy    bool                              // they are being done: the channel is in use
	collect bool                              // some may wait to be collected
	full    bool                              // a run lacked room, or may have, and enough was not made since
	tidyAt  time.Time                         // when to ask next for the removal of what may go
	reads   map[longstop.RunID]sqlite.Streams // read to their end, not noted in the store yet
}

// ended notes chores that a resolved action makes. h.mu is held.
func (h *host) ended(a *longstop.Action) {
	if keptByHost(a) {
		h.chores.collect = true
	}
	if lackedRoom(a) {
		h.chores.full, h.chores.tidyAt = true, time.Time{}
		h.nudge()
	}
}

// lackedRoom reports whether the host refused an action for what may be a lack of room, or could not keep
// all of its output: one that is full may still take a run.
func lackedRoom(a *longstop.Action) bool {
	refused := a.Launch.State == longstop.LaunchRejected && a.Launch.Because == string(longstop.CodeStateFolder)
	return refused || a.Output.DropReason == "ENOSPC" || a.Output.DropReason == "EDQUOT"
}

// keptByHost reports whether the host has a final record of the action that is durable here.
func keptByHost(a *longstop.Action) bool {
	return a.RunID != "" && a.Workload.State.Final() && !a.Unresolved() && a.Removed == nil
}

// haveRead notes that a stream was read to its end.
func (h *host) haveRead(id longstop.RunID, stream string, answer wire.OutputAnswer) {
	if !answer.End {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chores.reads == nil {
		h.chores.reads = map[longstop.RunID]sqlite.Streams{}
	}
	h.chores.reads[id] |= map[string]sqlite.Streams{"stdout": sqlite.Stdout, "stderr": sqlite.Stderr}[stream]
}

// noteReads notes in the store which streams were read to their end, of runs that are over: together,
// and not at once. What a crash loses is kept for longer.
func (h *host) noteReads() {
	reads := map[longstop.RunID]sqlite.Streams{}
	h.mu.Lock()
	for id, streams := range h.chores.reads {
		if h.byRun[id] == nil {
			reads[id] = streams
			delete(h.chores.reads, id)
		}
	}
	if len(reads) > 0 && h.chores.full { // more may go than when room was last asked for
		h.chores.tidyAt = time.Time{}
	}
	h.mu.Unlock()
	if len(reads) == 0 {
		return
	}
	h.g.store.Update(h.ctx, func(tx *sqlite.Tx) error {
		for id, streams := range reads {
			if err := tx.WasRead(id, streams); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *host) stateID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.row.StateID
}

// beginChores does chores for as long as the channel lives, beside attend, whose decisions wait for none.
func (h *host) beginChores(ch *channel) {
	busy := func(is bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.chores.busy = is
	}
	busy(true)
	h.g.goes(func() {
		for ch.live() && h.ctx.Err() == nil {
			busy(true)
			h.collect(ch)
			h.tidyIfDue(ch)
			busy(false)
			timer := time.NewTimer(collectEvery)
			select {
			case <-timer.C:
			case <-ch.done:
			case <-h.ctx.Done():
			}
			timer.Stop()
		}
	})
}

// collect tells the host which results are durable here. One that it cannot mark is tried again with
// the next tidying.
func (h *host) collect(ch *channel) {
	h.noteReads()
	h.mu.Lock()
	some := h.chores.collect
	h.chores.collect = false
	h.mu.Unlock()
	for some && ch.live() {
		ids, err := h.g.store.Uncollected(h.ctx, h.stateID(), runsAtOnce)
		if err != nil || len(ids) == 0 {
			return
		}
		var answer wire.CollectAnswer
		got, err := ch.ask(h.ctx, wire.VerbCollect, wire.RunRequest{RunIDs: ids}, answerWithin)
		if err != nil { // the next channel's
			h.mu.Lock()
			h.chores.collect = true
			h.mu.Unlock()
			return
		}
		if got.read(&answer) != nil || h.collected(answer.Collected) != nil {
			return
		}
		some = len(ids) == runsAtOnce && len(answer.Collected) == len(ids)
	}
}

func (h *host) collected(ids []longstop.RunID) error {
	now := h.g.now()
	return h.g.store.Update(h.ctx, func(tx *sqlite.Tx) error {
		for _, id := range ids {
			if err := tx.Collected(id, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// tidyIfDue has the host remove what may go, if it is time for that.
func (h *host) tidyIfDue(ch *channel) {
	h.mu.Lock()
	due := !time.Now().Before(h.chores.tidyAt)
	full := h.chores.full
	if due {
		h.chores.tidyAt, h.chores.full, h.chores.collect = time.Now().Add(h.g.cfg.Retention.Every), false, true
	}
	h.mu.Unlock()
	if !due {
		return
	}
	h.collect(ch)
	now, keep := h.g.now(), h.g.cfg.Retention
	may := sqlite.DueFilter{StateID: h.stateID(), Limit: gcAtOnce,
		Read: now.Add(-keep.Keep), Unread: now.Add(-keep.Unread), Any: now.Add(-keep.MaxAge)}
	short := h.remove(ch, may, full, longstop.RemovedRetention)
	if short {
		may.Read, may.Limit = now.Time, 10 // and then no more than it takes
		short = h.remove(ch, may, full, longstop.RemovedHostFull)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !ch.live(): // whatever was not answered is asked by way of the next
		h.chores.full, h.chores.tidyAt = h.chores.full || full, time.Time{}
	case short:
		h.chores.full = true
	}
}

// gcAtOnce is how many runs one gc names.
const gcAtOnce = 200

// remove has the host remove runs, oldest first: all of them, or once it is short of room as many as it
// takes. It reports whether the host still is.
func (h *host) remove(ch *channel, may sqlite.DueFilter, full bool, because longstop.RemovalReason) (short bool) {
	for ch.live() {
		due, err := h.g.store.Due(h.ctx, may)
		if err != nil {
			return false
		}
		request := wire.GCRequest{MaxAgeS: h.g.cfg.Retention.MaxAge.Seconds(), Short: full}
		for _, k := range due {
			request.RunIDs = append(request.RunIDs, k.RunID)
		}
		var answer wire.GCAnswer
		got, err := ch.ask(h.ctx, wire.VerbGC, request, gcWithin)
		if err != nil || got.read(&answer) != nil || h.removed(due, answer.Removed, because) != nil {
			return false
		}
		over := len(due) < may.Limit && !answer.More
		if over || because == longstop.RemovedHostFull && !answer.Short {
			return answer.Short
		}
		if len(due) > 0 {
			may.After = &due[len(due)-1]
		}
	}
	return false
}

// gcWithin is how long one gc is waited for: large output takes its time to be removed.
const gcWithin = time.Minute

// changesAtOnce bounds how long the store is busy with what was removed.
const changesAtOnce = 50

// removed notes which of the runs that were due are gone.
func (h *host) removed(due []sqlite.Kept, gone []longstop.RunID, because longstop.RemovalReason) error {
	went := map[longstop.RunID]bool{}
	for _, id := range gone {
		went[id] = true
	}
	var changes []change
	for _, k := range due {
		if went[k.RunID] {
			changes = append(changes, change{k.ActionID, func(d *draft) error {
				d.Removed = &longstop.Removal{At: d.at, Because: because}
				d.note(journal.RetentionApplied, h.g.by, map[string]any{"because": because, "kept_since": k.Since, "unread": k.Unread != 0})
				return nil
			}})
		}
	}
	for some := range slices.Chunk(changes, changesAtOnce) {
		if _, err := h.g.changeAll(h.ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// tidyNext is when the host is to be asked for the sake of what it keeps though nothing else needs it;
// zero: nothing is foreseen.
func (h *host) tidyNext() time.Time {
	kept, err := h.g.store.Oldest(h.ctx, h.stateID())
	if err != nil || kept.Any.IsZero() {
		return time.Time{}
	}
	h.mu.Lock()
	next := h.chores.tidyAt
	h.mu.Unlock()
	now, keep := h.g.now().Time, h.g.cfg.Retention
	due := now
	if !kept.Waiting {
		due = kept.Any.Add(keep.Unread)
		if !kept.Read.IsZero() && kept.Read.Add(keep.Keep).Before(due) {
			due = kept.Read.Add(keep.Keep)
		}
	}
	if at := time.Now().Add(due.Sub(now)); at.After(next) {
		return at
	}
	return next
}

// tidyLater puts tidying off, of a host that does not answer.
func (h *host) tidyLater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.chores.tidyAt = time.Now().Add(h.g.cfg.Retention.Every)
}

// notRemoved is an error that says when and why output is gone, where it is.
func notRemoved(a *longstop.Action) error {
	if a.Removed == nil || a.Output.StdoutBytes == 0 && a.Output.StderrBytes == 0 {
		return nil
	}
	why := "after it had been kept for as long as was promised"
	if a.Removed.Because == longstop.RemovedHostFull {
		why = "after it had been read, since the host was short of room"
	}
	from := a.Host
	if a.Request.Owner == longstop.OwnerNone {
		from = "the gateway, which alone had it,"
	}
	return &longstop.Error{Code: longstop.CodeExpired, ActionID: a.ID,
		Message: "the output of " + string(a.ID) + " was removed from " + from + " by " + a.Removed.At.Format(time.RFC3339) + ", " + why,
		Hint:    "longstop show " + string(a.ID) + " has its result and all else that is known"}
}
