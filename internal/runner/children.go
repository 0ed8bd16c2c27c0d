package runner

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// child is an inherited child, and whose it can be: one run's, or, where it cannot be known, one of
// several dead owners'. Nobody's: it came from a run that released it.
type child struct {
	stat  boundary.Stat
	of    []*ward
	came  int               // the how manieth
	asked longstop.BootTime // when it was last tried to find out whose it is
}

// concerns reports of which children more is to be known, when they end, than that they were adopted. k.mu is held.
func (k *keeper) concerns() func(pid int) bool {
	some, all := map[int]bool{}, false
	for id := range k.standbys {
		some[id.PID] = true
	}
	for _, w := range k.wards {
		if !w.dead {
			some[w.owner.PID] = true
		}
		if m := w.rec.Main; m != nil {
			some[m.PID] = true
		} else { // its record may be yet to be read
			all = true
		}
	}
	return func(pid int) bool { return all || some[pid] }
}

// sawEnd is told of each child that ended, while it is still a zombie. k.mu is held.
func (k *keeper) sawEnd(exit boundary.Exit) {
	for _, w := range k.wards {
		if exit.Identity == w.owner {
			w.dead = true
			return
		}
	}
	if k.standbyEnded(exit.Identity) {
		return
	}
	k.forget(exit.PID)
	if exit.Start == 0 { // no concern of anybody's
		return
	}
	for _, w := range k.wards {
		if w.isMain(exit.Identity) {
			w.main, w.touched = &exit, true
			return
		}
	}
	// It may turn out to be the main process of a run whose record is yet to be read.
	k.strays = append(k.strays, exit)
	k.strays = k.strays[max(0, len(k.strays)-256):]
}

func (w *ward) isMain(id boundary.Identity) bool {
	m := w.rec.Main
	return m != nil && m.PID == id.PID && m.StartTime == id.Start
}

// askAgain is how long a child that several runs can have is left alone: in the middle of an exec it shows no
// mark, and may by now.
const askAgain = 50 * time.Millisecond

// sort finds out whose the children are that are new, of all that there are. k.mu is held.
func (k *keeper) sort(children []int) {
	there := map[int]bool{}
	for _, pid := range children {
		there[pid] = true
	}
	for pid := range k.adopted {
		if !there[pid] {
			k.forget(pid)
		}
	}
	owners, dying := k.owners(there)
	candidates, now := k.candidates(dying), boundary.BootNow()
	for _, pid := range children {
		c := k.adopted[pid]
		switch {
		case owners[pid]:
			continue
		case c == nil:
			k.cameIn++
			c = &child{came: k.cameIn, of: candidates}
			k.adopted[pid] = c
			if s := c.look(pid); !allKilling(candidates) { // else it is to go, whosever it is
				c.of = whose(s, candidates)
			}
			touch(c.of)
		case len(c.of) > 1 && now.Sub(c.asked) >= askAgain:
			if of := whose(c.look(pid), c.of); len(of) < len(c.of) {
				touch(c.of)
				c.of = of
			}
		default:
			continue
		}
		c.asked = now
	}
	k.forgetFreed() // not before: a new child may be the last that such a run has left
}

// look reads what the child is now. That it is there is known otherwise.
func (c *child) look(pid int) boundary.Stat {
	s, err := boundary.Look(pid)
	if err != nil && c.stat.PID == 0 {
		s.PID = pid
	}
	if s.PID == pid {
		c.stat = s
	}
	return c.stat
}

// owners are those of the children that are owners, and the dying are their wards of whose ends we have not been
// told, though their children are ours by now.
func (k *keeper) owners(there map[int]bool) (owners map[int]bool, dying []*ward) {
	owners = map[int]bool{}
	for id := range k.standbys {
		if owners[id.PID] = there[id.PID]; there[id.PID] {
			wake(id)
		}
	}
	for _, w := range k.wards {
		if w.dead || !there[w.owner.PID] {
			continue
		}
		owners[w.owner.PID] = true
		switch s, err := boundary.Look(w.owner.PID); {
		case err != nil:
		case s.State == 'Z' || s.Exiting: // that is enough: what is left of it has let go of its children
			dying = append(dying, w)
		case s.State == 'T':
			k.reaper.Signal(s.Identity, unix.SIGCONT) // see wake; of a stop the parent is told, as of an end
		}
	}
	return owners, dying
}

// forget lets go of a child that is none any more. k.mu is held.
func (k *keeper) forget(pid int) {
	if c := k.adopted[pid]; c != nil {
		touch(c.of)
		delete(k.adopted, pid)
	}
}

// touch has the custodies of these runs look again, and no others: one run that forks without end costs
// the rest nothing.
func touch(wards []*ward) {
	for _, w := range wards {
		w.touched = true
	}
}

// candidates are the runs that a new child can be of: those whose owner is dead, and those that
// released processes.
func (k *keeper) candidates(dying []*ward) []*ward {
	all := append(slices.Clone(k.freed), dying...)
	for _, w := range k.wards {
		if w.dead {
			all = append(all, w)
		}
	}
	return all
}

// whose tells whose a child is: the only one's that it can be; that of the run whose mark it
// carries; that of the run in whose session it is, since nobody enters another's session. Else it
// may be any one's.
func whose(s boundary.Stat, candidates []*ward) []*ward {
	if len(candidates) <= 1 {
		return candidates
	}
	mark := longstop.RunID("")
	if !s.Dead() { // it has none any more
		mark = boundary.Mark(s.PID)
	}
	var inSession []*ward
	for _, w := range candidates {
		if mark != "" && w.id == mark {
			return []*ward{w}
		}
		if m := w.rec.Main; m != nil && m.SID == s.SID && s.Start >= m.StartTime {
			inSession = append(inSession, w)
		}
	}
	if len(inSession) == 1 {
		return inSession
	}
	return candidates
}

// forgetFreed drops the runs of whose released processes none is our child any more.
func (k *keeper) forgetFreed() {
	k.freed = slices.DeleteFunc(k.freed, func(w *ward) bool {
		for _, c := range k.adopted {
			if slices.Contains(c.of, w) {
				return false
			}
		}
		return true
	})
}
