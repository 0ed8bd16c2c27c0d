package boundary

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Enclosure joins reaper and cgroup for the tests of both, as the runner's own does: either alone can be
// left, so it is empty only if both are, and what is in either is the run's.
type Enclosure struct {
	Reaper *Reaper
	Cgroup *Cgroup // nil: its kind is tree

	struck bool // the cgroup was killed as one
}

// Settle reaps what has ended and reports whether nothing is left. An error says that the cgroup
// could not be asked; it is not known to be empty then.
func (e *Enclosure) Settle(witness func(Exit)) (empty bool, err error) {
	empty = e.Reaper.Reap(witness)
	if e.Cgroup == nil || !empty {
		return empty, nil
	}
	populated, err := e.Cgroup.Populated()
	return !populated && err == nil, err
}

// Walk visits every process of the work, parents before their children. The cgroup is listed first:
// what somebody in it starts in answer to a signal sent on the way is not met by that.
func (e *Enclosure) Walk(visit func(Stat) (descend bool)) {
	var listed []Stat
	if e.Cgroup != nil {
		listed, _, _ = e.Cgroup.Procs() // what cannot be listed keeps it populated
	}
	var children []int
	for _, s := range e.Reaper.Children() {
		children = append(children, s.PID)
	}
	seen := map[Identity]bool{}
	Walk(os.Getpid(), children, func(s Stat) bool {
		seen[s.Identity] = true
		return visit(s)
	})
	for _, s := range listed {
		if !seen[s.Identity] {
			visit(s)
		}
	}
}

// Signal sends a signal to one of those that Walk visits.
func (e *Enclosure) Signal(id Identity, sig unix.Signal) error { return e.Reaper.Signal(id, sig) }

// Term sends TERM, then CONT, to everybody once: what is stopped or frozen cannot hear TERM. It
// returns how many it reached, and those that may not be signalled.
func (e *Enclosure) Term() (reached int, refused map[Identity]error) {
	refused = map[Identity]error{}
	e.Walk(func(s Stat) bool {
		if s.Dead() {
			return true
		}
		switch err := e.Signal(s.Identity, unix.SIGTERM); {
		case err == nil:
			reached++
			e.Signal(s.Identity, unix.SIGCONT)
		case !errors.Is(err, ErrGone):
			refused[s.Identity] = err
		}
		return true
	})
	if e.Cgroup != nil {
		e.Cgroup.Thaw()
	}
	return reached, refused
}

// Kill is one round of KILL, to be repeated, after a pause, until Settle says that nothing is left. The
// first goes to the cgroup as one, which misses nobody who forks meanwhile, and is left to do its
// work: to look at a hundred who are on their way out takes longer than their going. The next ones go
// to each that Walk visits too, and tell whom they met, with why where that one could not be killed.
func (e *Enclosure) Kill() (met map[Identity]error) {
	if full := e.Cgroup != nil && e.killCgroup(); full && !e.struck {
		e.struck = true
		return nil
	}
	met = map[Identity]error{}
	e.Walk(func(s Stat) bool {
		if s.Dead() {
			return true
		}
		if err := e.Signal(s.Identity, unix.SIGKILL); !errors.Is(err, ErrGone) {
			met[s.Identity] = err
		}
		return true
	})
	return met
}

// killCgroup reports whether there was anybody to kill and it could be done at once.
func (e *Enclosure) killCgroup() bool {
	full, err := e.Cgroup.Populated()
	return full && err == nil && e.Cgroup.Kill() == nil
}
