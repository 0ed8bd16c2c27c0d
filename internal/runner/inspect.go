package runner

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// inspect tells every process of the boundaries of the runs asked about.
func inspect(ctx context.Context, s *session, request wire.RunRequest) (wire.InspectAnswer, error) {
	answer := wire.InspectAnswer{Complete: true, Processes: []longstop.Process{}}
	for _, id := range request.RunIDs {
		if err := ctx.Err(); err != nil {
			return wire.InspectAnswer{}, err
		}
		if err := inspectRun(s.folder, id, &answer); err != nil {
			return wire.InspectAnswer{}, err
		}
	}
	return answer, nil
}

func inspectRun(folder *record.Folder, id longstop.RunID, answer *wire.InspectAnswer) error {
	run, err := folder.Run(id)
	if err != nil {
		return err
	}
	defer run.Close()
	_, rec, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) {
		return nil // nothing of it was started
	}
	if err != nil {
		return err
	}
	if rec.State.Final() {
		answer.Processes = append(answer.Processes, releasedAlive(rec)...)
		return nil
	}
	if rec.Writer.BootID != boundary.BootID() {
		return nil // nothing survives a boot
	}
	look(rec, answer)
	return nil
}

// look finds the processes of a live run: the descendants of its owner, and, where that is gone,
// whoever carries the run's mark; those are not sure to be all.
func look(rec longstop.Record, answer *wire.InspectAnswer) {
	seen := map[int]bool{}
	add := func(stats []boundary.Stat) {
		for _, stat := range stats {
			if !seen[stat.PID] {
				seen[stat.PID] = true
				answer.Processes = append(answer.Processes, boundary.Describe(stat))
			}
		}
	}
	owner, err := boundary.Look(rec.Writer.PID)
	if rec.Writer.Kind == longstop.WriterOwner && err == nil && !owner.Dead() && ownerOf(owner, rec) {
		described := boundary.Describe(owner)
		answer.Owner = &described
		add(boundary.Descendants(owner.PID))
		if parent, err := boundary.Look(owner.PPID); err == nil && isRunner(parent) {
			described := boundary.Describe(parent)
			answer.Keeper = &described
		}
		return
	}
	answer.Complete = false
	add(boundary.Marked(rec.RunID, 0))
}

// ownerOf reports whether a process can be the one that wrote rec: it is a runner, and was there
// when the record was written.
func ownerOf(process boundary.Stat, rec longstop.Record) bool {
	return isRunner(process) && process.Start <= boundary.Ticks(rec.BootAt.Add(time.Second/100))
}

// isRunner reports whether a process goes by the name of a runner. Its file cannot be looked at: it
// is not dumpable.
func isRunner(process boundary.Stat) bool { return strings.HasPrefix(process.Name, "longstop") }
