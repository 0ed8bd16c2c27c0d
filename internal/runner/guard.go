package runner

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// An owner enforces its run's lease and deadline. Should it be stopped or stuck, its keeper finds
// that nothing was done about one that passed, and ends the owner, which makes the keeper answer for
// the run and do it.

// lateBy is how long after a lease or deadline and the grace an owner may take to have begun.
const lateBy = 5 * time.Second

// overdue is when a run that nothing was done about is its keeper's business; 0: never.
func overdue(rec longstop.Record) longstop.BootTime {
	if rec.Cancel != nil || rec.State.Final() {
		return 0
	}
	at := rec.LeaseUntil
	if rec.DeadlineUntil > 0 && (at == 0 || rec.DeadlineUntil < at) {
		at = rec.DeadlineUntil
	}
	if at == 0 {
		return 0
	}
	return at.Add(time.Duration(rec.GraceMS)*time.Millisecond + lateBy)
}

// guard looks after wards that are overdue, for as long as the keeper lives.
func (k *keeper) guard() {
	for range k.clock.rang {
		now := boundary.BootNow()
		k.mu.Lock()
		var late []*ward
		for _, w := range k.wards {
			if !w.dead && w.overdue > 0 && w.overdue <= now {
				late = append(late, w)
			}
		}
		k.mu.Unlock()
		for _, w := range late {
			k.checkOwner(w, now)
		}
		k.setGuard()
	}
}

// checkOwner reads what the owner has done meanwhile, renewals among it, and ends it if it should
// have done more.
func (k *keeper) checkOwner(w *ward, now longstop.BootTime) {
	at := now.Add(lateBy) // the record cannot be read: look again
	if run, err := k.folder.Run(w.id); err == nil {
		if _, rec, err := run.Read(); err == nil {
			at = overdue(rec)
		}
		run.Close()
	}
	if at > 0 && at <= now {
		k.reaper.Signal(w.owner, unix.SIGKILL)
		at = 0
	}
	k.mu.Lock()
	w.overdue = at
	k.mu.Unlock()
}

// setGuard sets the keeper's clock to the next ward that will be overdue.
func (k *keeper) setGuard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var next longstop.BootTime
	for _, w := range k.wards {
		if w.overdue > 0 && !w.dead && (next == 0 || w.overdue < next) {
			next = w.overdue
		}
	}
	k.clock.set(next)
}
