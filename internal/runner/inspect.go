package runner

import (
	"context"
	"errors"
	"slices"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// inspect tells every process of the boundaries of the runs asked about, as they are now.
func inspect(ctx context.Context, s *session, request wire.RunRequest) (wire.InspectAnswer, error) {
	look := inspection{seen: map[int]bool{}, answer: wire.InspectAnswer{Complete: true, Processes: []longstop.Process{}}}
	for _, id := range request.RunIDs {
		if err := ctx.Err(); err != nil {
			return wire.InspectAnswer{}, err
		}
		if err := look.run(s.folder, id); err != nil {
			return wire.InspectAnswer{}, err
		}
	}
	return look.answer, nil
}

// inspection gathers the processes of one answer, each once.
type inspection struct {
	seen   map[int]bool
	answer wire.InspectAnswer
}

func (i *inspection) run(folder *record.Folder, id longstop.RunID) error {
	run, err := folder.Run(id)
	if err != nil {
		return err
	}
	defer run.Close()
	_, rec, err := run.Read()
	switch {
	case errors.Is(err, record.ErrNoRecord):
		return nil // nothing of it was started
	case err != nil:
		return err
	case rec.State.Final():
		i.answer.Processes = append(append(i.answer.Processes, releasedAlive(rec)...), releasedHidden(rec)...)
		return nil
	case rec.Writer.BootID != boundary.BootID():
		return nil // nothing survives a boot
	}
	all := keepers(folder)
	if owner, ok := listensAt(run.DirFD(), ownerSocket); ok {
		described := boundary.Describe(owner)
		i.answer.Owner, i.answer.Keeper = &described, parentOf(owner, all)
		i.add(boundary.Descendants(owner.PID))
		return nil
	}
	// The keeper's children are of all runs that it inherited, and a successor has none: those are
	// told that carry the run's mark, and there may be others.
	i.answer.Complete, i.answer.Keeper = false, parentOf(boundary.Stat{}, all)
	for _, keeper := range all {
		for _, stat := range boundary.Descendants(keeper.PID) {
			if boundary.Mark(stat.PID) == id {
				i.add([]boundary.Stat{stat})
			}
		}
	}
	i.add(boundary.Marked(id, 0))
	return nil
}

// parentOf is the keeper that started an owner; of one in a unit, and of none, this binary's, if it is there.
func parentOf(owner boundary.Stat, keepers []boundary.Stat) *longstop.Process {
	if len(keepers) == 0 {
		return nil
	}
	at := max(0, slices.IndexFunc(keepers, func(k boundary.Stat) bool { return k.PID == owner.PPID }))
	described := boundary.Describe(keepers[at])
	return &described
}

func (i *inspection) add(stats []boundary.Stat) {
	for _, stat := range stats {
		if !i.seen[stat.PID] {
			i.seen[stat.PID] = true
			i.answer.Processes = append(i.answer.Processes, boundary.Describe(stat))
		}
	}
}
