package runner

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/boundary"
)

// A keeper may have inherited many runs whose children it cannot tell apart, one of which forks without
// end, and be told to stop them all at once. So it does nothing for one run that serves them all: a list
// of its children, and a round of KILL, are for everybody who asked before they began.

// sweeps is how a keeper's runs share its looks at its children.
type sweeps struct {
	asked    atomic.Uint64 // times that somebody wanted to know who is left
	answered uint64        // those of them that were before the newest list

	striking sync.Mutex // held through a round of KILL
	next     *round     // the one that has not begun
}

// round is one round of KILL.
type round struct{ over bool }

// struck is a process that a round of KILL met.
type struck struct {
	boundary.Stat
	err error // why it was not sent KILL
}

// lookAgain returns with k.mu held, and all children in a list that was begun after it was called.
func (k *keeper) lookAgain() {
	ticket := k.sweeps.asked.Add(1)
	k.mu.Lock()
	if k.sweeps.answered < ticket {
		k.sweep()
	}
}

// reap takes note of every child that ended, and takes over from owners that did.
func (k *keeper) reap() {
	k.lookAgain()
	k.mu.Unlock()
}

// sweep reaps who has ended, finds out whose the new children are, and has whoever is concerned look
// again. k.mu is held throughout: nobody sees that somebody ended and not the children that he left us.
//
// The list misses nobody (boundary.Reaper.Children), which is what makes it a proof: a run of which
// no child is in it has nothing left, since whatever lives of it descends from one that would be.
func (k *keeper) sweep() {
	k.sweeps.answered = k.sweeps.asked.Load()
	var children []int
	if none := k.reaper.ReapMany(k.concerns(), k.sawEnd); !none {
		children = k.reaper.ChildNumbers()
	}
	k.sort(children)
	for _, w := range k.wards {
		if w.dead && !w.passed {
			w.passed = true
			go k.inherit(w)
		}
		if w.custody != nil && w.touched {
			w.touched = false
			w.custody.nudge()
		}
	}
}

// strike returns whom a round of KILL met that began after it was called, and those before it of which
// nobody asked.
func (k *keeper) strike(w *ward) map[boundary.Identity]struck {
	k.mu.Lock()
	w.killing = true
	if k.sweeps.next == nil {
		k.sweeps.next = &round{}
	}
	r := k.sweeps.next
	k.mu.Unlock()
	k.sweeps.striking.Lock()
	defer k.sweeps.striking.Unlock()
	if !r.over { // nobody else did it meanwhile
		k.strikeAll()
		r.over = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	met := w.struck
	w.struck = nil
	return met
}

// strikeAll sends KILL to what descends from the children of all runs whose grace is over. A child that
// can be several runs' is met once, for all of them, and when the graces of all are over.
//
//  1. The children themselves, in the moment in which they were listed and the newest first: of those who
//     fork and go the next is a child of ours already when the one before is looked at.
//  2. What descends from those that are not dead by then.
func (k *keeper) strikeAll() {
	roots := k.strikeChildren()
	for _, c := range roots {
		met := map[boundary.Identity]struck{}
		k.reaper.Walk([]int{c.stat.PID}, func(p boundary.Stat) bool {
			if p.Identity != c.stat.Identity && !p.Dead() {
				met[p.Identity] = struck{p, k.reaper.Signal(p.Identity, unix.SIGKILL)}
			}
			return true
		})
		if len(met) == 0 {
			continue
		}
		k.mu.Lock()
		for _, w := range c.of {
			maps.Copy(w.struck, met)
		}
		k.mu.Unlock()
	}
}

// strikeChildren does step 1 of strikeAll. From here on none of their runs is empty before it was told whom
// a round met.
func (k *keeper) strikeChildren() (met []child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweeps.next = nil // who asks from here on asks for another
	k.sweep()
	for _, c := range k.adopted {
		if len(c.of) > 0 && allKilling(c.of) {
			met = append(met, *c)
		}
	}
	slices.SortFunc(met, func(a, b child) int { return b.came - a.came })
	for _, c := range met {
		err := k.reaper.Signal(c.stat.Identity, unix.SIGKILL)
		for _, w := range c.of {
			if w.struck == nil {
				w.struck = map[boundary.Identity]struck{}
			}
			w.struck[c.stat.Identity] = struck{c.stat, err}
		}
	}
	return met
}

// allKilling reports whether the graces of all these runs are over.
func allKilling(wards []*ward) bool {
	return !slices.ContainsFunc(wards, func(w *ward) bool { return !w.killing })
}
