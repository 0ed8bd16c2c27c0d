package runner

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/systemd"
)

// tree is a workload and its descendants as whoever answers for the run sees them: the owner its own
// descendants, a keeper those it inherited from a dead owner, a successor those it can identify.
type tree interface {
	// settle takes note of what has ended, and says whether nothing is left, and whether that is
	// proven or only that nothing can be seen.
	settle(ended func(boundary.Exit)) (empty, proven bool)
	// walk visits what is surely the run's, parents before their children.
	walk(visit func(boundary.Stat) (descend bool))
	signal(id boundary.Identity, sig unix.Signal, following ...unix.Signal) error
	// kill sends KILL to what walk visits, and tells of each that was living: before where it can be, and after.
	kill(before func(boundary.Stat), after func(struck))
	// doubts are living processes that may be the run's, and why they are not signalled.
	doubts() []longstop.Process
	// pace is how often to look where nobody tells; rest is called when nothing is going on.
	pace() time.Duration
	rest()
}

// enclosure is what encloses a workload: a tree, and the run's own cgroup where it has one. Either alone
// can be left: the cgroup by way of a service manager, or by whoever may write to another; a tree by
// nobody, but an heir sees it less well. So it is empty only if both are, and what is in either is the
// run's.
type enclosure struct {
	tree
	group *boundary.Cgroup // nil: none
	still func()           // ends its waking
}

// settle: a cgroup that cannot be asked is not known to be empty; one that was removed is.
func (e *enclosure) settle(ended func(boundary.Exit)) (empty, proven bool) {
	empty, proven = e.tree.settle(ended)
	if e.group == nil || !empty {
		return empty, proven
	}
	populated, err := e.group.Populated()
	return !populated && (err == nil || errors.Is(err, boundary.ErrCgroupGone)), proven
}

// walk lists the cgroup first: what somebody in it starts in answer to a signal is not met by that.
func (e *enclosure) walk(visit func(boundary.Stat) bool) {
	others := e.numbers()
	e.tree.walk(func(s boundary.Stat) bool {
		delete(others, s.PID)
		return visit(s)
	})
	for _, s := range e.among(others) {
		visit(s)
	}
}

// kill is of both as well.
func (e *enclosure) kill(before func(boundary.Stat), after func(struck)) {
	others := e.numbers()
	e.tree.kill(before, func(s struck) {
		delete(others, s.PID)
		after(s)
	})
	for _, s := range e.among(others) {
		killOne(e.tree, s, before, after)
	}
}

// killEach is the kill of a tree that nobody shares.
func killEach(t tree, before func(boundary.Stat), after func(struck)) {
	t.walk(func(s boundary.Stat) bool {
		if !s.Dead() {
			killOne(t, s, before, after)
		}
		return true
	})
}

func killOne(t tree, s boundary.Stat, before func(boundary.Stat), after func(struck)) {
	before(s)
	after(struck{s, t.signal(s.Identity, unix.SIGKILL)})
}

// numbers are of those in the cgroup. Who cannot be listed keeps it populated.
func (e *enclosure) numbers() map[int]bool {
	if e.group == nil {
		return nil
	}
	numbers, _ := e.group.Numbers()
	return numbers
}

// among are those of the numbers whom the tree did not show.
func (e *enclosure) among(numbers map[int]bool) []boundary.Stat {
	if len(numbers) == 0 {
		return nil
	}
	procs, _, _ := e.group.Among(numbers)
	return procs
}

// strike kills the cgroup as one, which misses nobody who forks meanwhile, and returns whom it met. Not
// done: there is none, or nobody in it.
func (e *enclosure) strike() (met []boundary.Stat, done bool) {
	met = e.among(e.numbers())
	return met, len(met) > 0 && e.group.Kill() == nil
}

// thaw lets go on what the work itself may have frozen: it cannot hear TERM.
func (e *enclosure) thaw() {
	if e.group != nil {
		e.group.Thaw()
	}
}

// wake has changed called when the cgroup becomes empty, of which no child's end need tell.
func (e *enclosure) wake(changed func()) {
	if e.group == nil {
		return
	}
	if still, err := e.group.Watch(changed); err == nil {
		e.still = still
	}
}

// close lets go of the cgroup, and removes it unless somebody is in it who was released: then whoever
// sweeps its home removes it one day.
func (e *enclosure) close() {
	if e.still != nil {
		e.still()
	}
	if e.group != nil {
		e.group.Remove(0)
		e.group.Close()
	}
}

// enclose makes the cgroup of a run in a home.
func enclose(id longstop.RunID, home boundary.Home) (*boundary.Cgroup, longstop.Boundary, error) {
	group, err := home.Create(id)
	if err != nil {
		return nil, longstop.Boundary{Kind: longstop.BoundaryTree}, err
	}
	at := group.Place()
	return group, longstop.Boundary{Kind: longstop.BoundaryCgroup, Path: at.Path, Number: at.Number, Top: at.Top}, nil
}

// encloseInUnit makes the cgroup of a run below that of the unit whose main process this is. The unit
// ends with its main process, and takes with it what is left in there. Where the run is limited this process
// leaves the unit's own cgroup, so that limits on the work do not bind it.
func encloseInUnit(id longstop.RunID, kind systemd.Kind, limited bool) (*boundary.Cgroup, longstop.Boundary, error) {
	h, err := boundary.FindHierarchy()
	unit := systemd.ServiceName(id)
	if err == nil && filepath.Base(h.Self) != unit {
		err = fmt.Errorf("this process is in %q, not in its unit's cgroup", h.Self)
	}
	if err != nil {
		return nil, longstop.Boundary{Kind: longstop.BoundaryTree}, err
	}
	home := boundary.Home{Dir: h.Self, Unit: true}
	if limited {
		if err := home.StepAside(); err != nil {
			return nil, longstop.Boundary{Kind: longstop.BoundaryTree}, err
		}
	}
	group, at, err := enclose(id, home)
	if err == nil {
		at.Kind, at.Manager, at.Unit = longstop.BoundarySystemd, string(kind), unit
	}
	return group, at, err
}

// strength orders the kinds of boundary.
var strength = map[longstop.BoundaryKind]int{longstop.BoundaryTree: 1, longstop.BoundaryCgroup: 2, longstop.BoundarySystemd: 3, longstop.BoundarySlurm: 3}

// least is the weakest boundary that a request takes.
func least(req longstop.Request) longstop.BoundaryKind {
	switch {
	case req.Owner == longstop.OwnerSystemd:
		return longstop.BoundarySystemd
	case req.Limits.OfRun() != nil && strength[req.BoundaryMin] < strength[longstop.BoundaryCgroup]:
		return longstop.BoundaryCgroup
	}
	return req.BoundaryMin
}

// oom is what the memory killer did to the run's work, as far as its cgroup tells.
func (e *enclosure) oom() *longstop.OOM {
	if e.group == nil {
		return nil
	}
	oom, _ := e.group.OOM()
	return oom
}

// enclosed is a tree with the cgroup of its run's record, for an heir.
func enclosed(t tree, b longstop.Boundary) (e *enclosure, doubt string) {
	e = &enclosure{tree: t}
	if b.Path == "" {
		return e, ""
	}
	group, err := boundary.OpenCgroup(boundary.Place{Path: b.Path, Number: b.Number, Top: b.Top})
	if err == nil {
		e.group = group
	} else if !errors.Is(err, boundary.ErrCgroupGone) {
		doubt = "the run's cgroup could not be looked into by whoever took over from its owner: " + err.Error()
	}
	return e, doubt
}

// cgroupHome is where runs' cgroups can be made, or why nowhere. It starts a child, for a process that
// reaps nobody yet.
var cgroupHome = sync.OnceValues(boundary.FindHome)

// sweepHome removes the cgroups that dead owners and released processes left empty.
func (k *keeper) sweepHome() {
	if k.home != "" {
		boundary.Home{Dir: k.home}.Sweep()
	}
}
