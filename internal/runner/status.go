package runner

import (
	"context"
	"errors"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// maxAsked bounds the runs of one request, and so its answer's size.
const maxAsked = 1000

// status tells what the host knows of each run asked about, in their order.
func status(ctx context.Context, s *session, request wire.RunRequest) (wire.StatusAnswer, error) {
	if len(request.RunIDs) > maxAsked {
		return wire.StatusAnswer{}, &longstop.Error{Code: longstop.CodeUsage,
			Message: "a request names at most " + itoa(maxAsked) + " runs", Hint: "Ask in parts."}
	}
	answer := wire.StatusAnswer{Runs: make([]wire.RunStatus, 0, len(request.RunIDs))}
	if err := s.tell(ctx, request.RunIDs, &answer.Runs); err != nil {
		return wire.StatusAnswer{}, err
	}
	answer.BootNow, answer.Now = boundary.BootNow(), longstop.At(time.Now())
	return answer, nil
}

// list tells of unresolved runs and those resolved after the request's cursor.
func list(ctx context.Context, s *session, request wire.ListRequest) (wire.ListAnswer, error) {
	limit := request.Max
	if limit <= 0 || limit > maxAsked {
		limit = maxAsked
	}
	page, err := s.folder.List(request.Cursor, limit)
	if err != nil {
		return wire.ListAnswer{}, err
	}
	answer := wire.ListAnswer{Runs: make([]wire.RunStatus, 0, len(page.Runs)), Cursor: page.Cursor, More: page.More}
	if err := s.tell(ctx, page.Runs, &answer.Runs); err != nil {
		return wire.ListAnswer{}, err
	}
	return answer, nil
}

// tell adds what the host knows of runs. Where nobody answers for one of them, a keeper is asked
// first to look after it: whoever asks next may learn how it ended.
func (s *session) tell(ctx context.Context, ids []longstop.RunID, to *[]wire.RunStatus) error {
	healed := false
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		status, rec := runStatus(s.folder, id)
		if status.Orphaned && !healed {
			healed = true
			s.heal(ctx)
			status, rec = runStatus(s.folder, id)
		}
		if rec.State.Final() {
			status.Unit = unitNow(s.folder, id, namedUnit(status.Unit, rec.Boundary))
		}
		*to = append(*to, status)
	}
	return nil
}

// healWithin bounds how long an answer waits for a keeper; it comes all the same.
const healWithin = 2 * time.Second

func (s *session) heal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	Heal(ctx, s.folder)
}

// runStatus is what the folder, and the process table for released processes, say of one run now.
// The record is empty where there is none to be read.
func runStatus(folder *record.Folder, id longstop.RunID) (status wire.RunStatus, rec longstop.Record) {
	status.RunID = id
	run, err := folder.Run(id)
	if err != nil {
		status.Error = told(err)
		return status, longstop.Record{}
	}
	defer run.Close()
	// The lock is asked before the record is read: an owner that ends in between has written its
	// final record first, so a run never looks orphaned because it ended.
	held, lockErr := run.Locked()
	raw, rec, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) {
		status.Orphaned = lockErr == nil && !held
		err = &longstop.Error{Code: longstop.CodeNotFound, Message: "the run was accepted; its owner has written no record yet"}
	}
	if err != nil {
		status.Error = told(err)
		return status, longstop.Record{}
	}
	status.Record = raw
	status.Output = run.Outputs(rec.Output)
	status.Unit = unitOf(run, rec.Boundary)
	if rec.State.Final() {
		folder.Mend(id)
		if status.Released = releasedAlive(rec); len(status.Released) == 0 {
			if hidden := releasedHidden(rec); len(hidden) > 0 {
				status.ReleasedUnseen = hidden[0].Why
			}
		}
		return status, rec
	}
	status.Orphaned = lockErr == nil && !held
	// On a read-only disk nobody can look whether the lock is held.
	if !status.Orphaned && trails(rec) {
		if raw, last := lastWord(folder, run); last.State.Final() {
			status.Record, status.Output = raw, run.Outputs(last.Output)
			return status, last
		}
	}
	return status, rec
}

// trails reports whether a record has not followed the end of its main process for a while.
func trails(rec longstop.Record) bool {
	m := rec.Main
	return m != nil && boundary.BootNow().Sub(rec.BootAt) > time.Second && !boundary.Is(boundary.Identity{PID: m.PID, Start: m.StartTime})
}

// toldWithin is how long whoever answers for a run may take to say how it ended.
const toldWithin = 500 * time.Millisecond

// lastWord is the final record of a run that its owner, or its keeper, has and no disk takes.
func lastWord(folder *record.Folder, run *record.Run) ([]byte, longstop.Record) {
	if raw, rec, told := wordOf(run.DirFD(), ownerSocket, run.ID()); told {
		return raw, rec
	}
	for _, name := range append([]string{keeperSocket()}, otherKeepers(folder)...) {
		if raw, rec, told := wordOf(folder.FD(), name, run.ID()); told {
			return raw, rec
		}
	}
	return nil, longstop.Record{}
}

// wordOf is the newest record of a run that whoever listens on a socket has.
func wordOf(dir int, name string, id longstop.RunID) (raw []byte, rec longstop.Record, told bool) {
	l, err := dial(dir, name)
	if err != nil {
		return nil, rec, false
	}
	defer l.close()
	l.file.SetDeadline(time.Now().Add(toldWithin))
	var r reply
	told = l.send(ask{Verb: askRenew, RunID: id, Yours: true}) == nil && l.receive(&r) == nil && wire.Tolerant(r.Record, &rec) == nil
	return r.Record, rec, told
}
