package runner

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/boundary"
)

// A standby is an owner without a run. Two processes have to start for a launch, the owner and the
// gate; while a keeper puts a run on disk and claims its key, both do, and after a launch the keeper
// has the next owner started, in case another follows soon.

// prepare tells a standby that a run is about to come: it starts its gate.
type prepare struct{}

// spareFor is how long an owner is kept that no run came for.
const spareFor = 30 * time.Second

// standBy returns an owner for a run to come, and lets it start its gate.
func (k *keeper) standBy() (*ward, error) {
	k.mu.Lock()
	w := k.spare
	k.spare = nil
	k.mu.Unlock()
	if w != nil {
		w.expiry.Stop()
	}
	if w != nil && w.stream.send(prepare{}) == nil {
		return w, nil
	}
	w, err := k.startOwner()
	if err != nil {
		return nil, err
	}
	return w, w.stream.send(prepare{})
}

// putBack keeps an owner that got no run after all.
func (k *keeper) putBack(w *ward) { w.stream.close() } // its gate has begun to age: the next starts a new one

// spareOne has an owner started for the next run.
func (k *keeper) spareOne() {
	k.mu.Lock()
	wanted := k.spare == nil && !k.leaving
	k.mu.Unlock()
	if !wanted {
		return
	}
	w, err := k.startOwner()
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spare != nil {
		w.stream.close()
		return
	}
	k.spare = w
	w.expiry = time.AfterFunc(spareFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.spare == w {
			k.spare = nil
			w.stream.close()
		}
	})
}

// startOwner starts an owner. The keeper's lock is held meanwhile, so that its end is not seen
// before it is known whose it is.
func (k *keeper) startOwner() (*ward, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stream, id, err := startServant(k.reaper, "owner")
	if err != nil {
		return nil, fmt.Errorf("start the run's owner: %w", err)
	}
	w := &ward{owner: id, stream: stream, gone: make(chan struct{}), report: -1, outputs: [2]int{-1, -1}}
	k.standbys[w.owner] = w
	return w, nil
}

// standbyEnded takes note that an owner without a run ended. Its gate, if it had one, goes by
// itself, and meanwhile is the keeper's child and no run's.
func (k *keeper) standbyEnded(id boundary.Identity) bool {
	w := k.standbys[id]
	if w == nil {
		return false
	}
	delete(k.standbys, id)
	if k.spare == w {
		k.spare = nil
	}
	k.freed = append(k.freed, w)
	return true
}

// outputPipe makes a pipe whose reading end is never waited at. Its room is larger than the usual
// where the system allows: a workload then waits less often for us.
func outputPipe() (read, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("make a pipe: %w", err)
	}
	unix.SetNonblock(fds[0], true)
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, 256<<10)
	return fds[0], fds[1], nil
}
