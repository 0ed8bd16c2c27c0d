package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

const (
	minHeartbeat = 100 * time.Millisecond
	maxHeartbeat = time.Minute

	// pollEvery is how often records are read where changes are not told.
	pollEvery = 200 * time.Millisecond

	// gatherFor is how long changed records are left alone, since one is often followed by another.
	// An end is told at once.
	gatherFor = 3 * time.Millisecond

	// maxPushed bounds the runs of one pushed frame.
	maxPushed = 64
)

// watcher finds what changed in one state folder. It compares levels, not edges: a change that was
// told only makes it look sooner. What it finds is each run's newest record; records in between may
// be skipped, a final one is not, and is found once.
type watcher struct {
	folder    *record.Folder
	answering *answering
	cursor    string
	known     map[longstop.RunID]sight // of runs that are not final, or of which released processes live
	// Final ones told since the last look at all, and since the one before: a change that they are
	// named by may be told late.
	ended, before map[longstop.RunID]bool
}

// sight is what was last told of a run.
type sight struct {
	record   string
	code     longstop.Code
	orphaned bool
	released string            // those that live
	unit     string            // what its service manager says
	overAt   longstop.BootTime // when it was first seen to be final, if its unit was not over by then
}

// unitEndsWithin is how long after a run's end its unit's is told of.
const unitEndsWithin = 10 * time.Second

func unitWords(u *longstop.Unit) string {
	if u == nil {
		return ""
	}
	return u.InvocationID + " " + u.ActiveState + " " + u.SubState + " " + u.Result + " " + u.MainCode + " " + strconv.FormatBool(u.Forgotten)
}

// watch pushes all unresolved runs, then every run whose record changed, and a heartbeat whenever
// nothing did for a while, until the channel ends. A channel has one watch.
func (s *server) watch(ctx context.Context, request wire.Request) {
	var asked wire.WatchRequest
	err := s.host.permit.admit(request.Verb)
	if err == nil {
		err = readBody(request.Body, &asked)
	}
	if err == nil && !s.watching.TryLock() {
		err = &longstop.Error{Code: longstop.CodeUsage, Message: "this channel has a watch already"}
	}
	if err != nil {
		s.send(failed(request.Nonce, err))
		return
	}
	defer s.watching.Unlock()
	folder, err := s.host.folder(request)
	if err == nil {
		err = s.push(ctx, request, folder, heartbeat(asked.HeartbeatMS))
	}
	s.send(failed(request.Nonce, err))
}

func heartbeat(ms int64) time.Duration {
	if ms <= 0 {
		return 5 * time.Second
	}
	return min(max(time.Duration(ms)*time.Millisecond, minHeartbeat), maxHeartbeat)
}

// push is watch's loop. It ends with an error: the channel's end, or a folder that went away.
func (s *server) push(ctx context.Context, request wire.Request, folder *record.Folder, beat time.Duration) error {
	// Records are written by way of their names in claims, and a run leaves unresolved when it is
	// final; both are watched before they are first read, so that nothing falls between.
	records := s.changes.watch(folder.Path("claims"), unix.IN_MODIFY)
	defer records.stop()
	index := s.changes.watch(folder.Path("unresolved"), unix.IN_DELETE)
	defer index.stop()
	pause := beat
	if !records.told() || !index.told() {
		pause = min(beat, pollEvery)
	}
	answered := s.changes.answering.told
	s.changes.answering.watched(true)
	defer s.changes.answering.watched(false)
	w := &watcher{folder: folder, answering: s.changes.answering, known: map[longstop.RunID]sight{}, ended: map[longstop.RunID]bool{}}
	ensuring := make(chan struct{}, 1)
	var number uint64
	var lookedAtAll, pushed time.Time
	var gathered <-chan time.Time // when the records that changed are looked at
	for {
		names, missed := index.take()
		told, _ := answered.take()
		maps.Copy(names, told)
		if gathered == nil {
			more, alsoMissed := records.take()
			maps.Copy(names, more)
			missed = missed || alsoMissed
		}
		all := missed || time.Since(lookedAtAll) >= pause
		if all {
			lookedAtAll = time.Now()
			if _, err := s.host.folder(request); err != nil { // wiped or moved meanwhile
				return err
			}
			// A keeper is there as long as this channel is, so that a launch need not wait for one
			// to start, and a run whose owner died has an heir. Without one a launch says why.
			select {
			case ensuring <- struct{}{}:
				go func() { EnsureKeeper(ctx, folder); <-ensuring }()
			default: // one that does not come is waited for once
			}
		}
		runs, err := w.look(names, all)
		if err != nil {
			return err
		}
		if len(runs) > 0 || time.Since(pushed) >= beat {
			for part := range chunks(runs) {
				number++
				if err := s.pushed(request.Nonce, number, part); err != nil {
					return err
				}
			}
			pushed = time.Now()
		}
		timer := time.NewTimer(max(0, min(pause-time.Since(lookedAtAll), beat-time.Since(pushed))))
		select {
		case <-records.changed:
			if gathered == nil {
				gathered = time.After(gatherFor)
			}
		case <-index.changed:
		case <-answered.changed:
		case <-gathered:
			gathered = nil
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Stop()
	}
}

// chunks cuts runs into what one frame carries; no runs are one frame, a heartbeat.
func chunks(runs []wire.RunStatus) func(func([]wire.RunStatus) bool) {
	if len(runs) == 0 {
		return func(yield func([]wire.RunStatus) bool) { yield(nil) }
	}
	return slices.Chunk(runs, maxPushed)
}

func (s *server) pushed(nonce string, number uint64, runs []wire.RunStatus) error {
	body, err := json.Marshal(wire.Pushed{Runs: runs, BootNow: boundary.BootNow(), Now: longstop.At(time.Now())})
	if err != nil {
		return err
	}
	return s.send(wire.Answer{Nonce: nonce, Number: number, Body: body})
}

// look reads the runs that may have changed and returns those to tell of. With all, they are every
// unresolved run and those resolved since the last look at all; else those named.
func (w *watcher) look(names map[string]bool, all bool) ([]wire.RunStatus, error) {
	ids := map[longstop.RunID]bool{}
	for name := range names {
		if id, err := longstop.ParseRunID(name); err == nil {
			ids[id] = true
		}
	}
	if all {
		page, err := w.folder.List(w.cursor, 0)
		if err != nil {
			return nil, err
		}
		w.cursor = page.Cursor
		for _, id := range page.Runs {
			ids[id] = true
		}
		for id := range w.known { // one that is in no list any more was removed by hand
			ids[id] = true
		}
	}
	var changed []wire.RunStatus
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if status, ok := w.read(id, all); ok {
			changed = append(changed, status)
		}
	}
	if all {
		w.ended, w.before = map[longstop.RunID]bool{}, w.ended
	}
	return changed, nil
}

// read reads one run; ok if there is something new to tell. That a run is starting is told only if
// it still is at the next look at all: the submit's answer is on its way.
func (w *watcher) read(id longstop.RunID, all bool) (status wire.RunStatus, ok bool) {
	if w.answering.quiet(id) {
		return status, false
	}
	answered := w.answering.take(id)
	if w.ended[id] || w.before[id] {
		return status, false
	}
	before, known := w.known[id]
	if !known {
		before.record = answered
	}
	status, rec := runStatus(w.folder, id)
	state, unit := rec.State, namedUnit(status.Unit, rec.Boundary)
	now := sight{record: string(status.Record), orphaned: status.Orphaned, unit: unitWords(status.Unit), overAt: before.overAt}
	for _, p := range status.Released {
		now.released += fmt.Sprintln(p.PID, p.StartTime)
	}
	if state.Final() && unitOpen(unit) {
		if now.overAt == 0 {
			now.overAt = boundary.BootNow()
		}
		if boundary.BootNow().Sub(now.overAt) < unitEndsWithin {
			w.known[id] = now
			return status, before != now
		}
		status.Unit = unitNow(w.folder, id, unit)
	}
	switch {
	case state.Final() && now.released == "":
		delete(w.known, id)
		w.ended[id] = true
		return status, known || before != now
	case status.Error != nil && status.Error.Code == longstop.CodeNotFound && !known:
		return status, false // accepted a moment ago: there is nothing to tell yet
	case state == longstop.WorkloadStarting && !all:
		return status, false
	case status.Error != nil:
		now.code = status.Error.Code
	}
	w.known[id] = now
	return status, before != now
}
