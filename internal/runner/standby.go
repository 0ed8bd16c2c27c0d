package runner

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/boundary"
)

// A standby is an owner without a run. An owner has to start for a launch; it does while a keeper puts
// the run on disk and claims its key, or before: after a launch the keeper has the next owner started,
// in case another run follows soon.

const (
	// spareFor is how long an owner is kept that no run came for.
	spareFor = 10 * time.Second
	// spareAfter is how long a launch is left alone before a spare is started, unless it is over by
	// then: a process that starts would take from the work its first moments.
	spareAfter = 25 * time.Millisecond
	// spareCalm is how long one that is over is left alone: whoever waits for its end is being told.
	spareCalm = 4 * time.Millisecond
)

// standBy returns an owner for a run to come.
func (k *keeper) standBy() (*ward, error) {
	k.mu.Lock()
	w := k.spare
	k.spare = nil
	k.mu.Unlock()
	if w != nil {
		w.expiry.Stop()
		return w, nil
	}
	return k.startOwner()
}

// spareSoon has an owner started for the run after this one.
func (k *keeper) spareSoon(w *ward) {
	select {
	case <-w.gone:
		time.Sleep(spareCalm)
	case <-time.After(spareAfter):
	}
	k.spareOne()
}

// spareOne has an owner started for the next run.
func (k *keeper) spareOne() {
	k.mu.Lock()
	wanted := k.spare == nil && !k.leaving
	k.mu.Unlock()
	if !wanted {
		return
	}
	k.folder.Prepare() // what cannot be made ahead is made, or said, when it is needed
	if w, err := k.startOwner(); err == nil {
		k.putBack(w)
	}
}

// putBack keeps an owner that has no run.
func (k *keeper) putBack(w *ward) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spare != nil || k.leaving {
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
	stream, id, err := startServant(k.reaper, "owner", k.folder.Dir())
	if err != nil {
		return nil, fmt.Errorf("start the run's owner: %w", err)
	}
	w := &ward{owner: id, stream: stream, gone: make(chan struct{}), report: -1, outputs: [2]int{-1, -1}}
	k.standbys[w.owner] = w
	return w, nil
}

// standbyEnded takes note that an owner without a run ended. It had started nothing: no child can be of it.
func (k *keeper) standbyEnded(id boundary.Identity) bool {
	w := k.standbys[id]
	if w == nil {
		return false
	}
	delete(k.standbys, id)
	if k.spare == w {
		k.spare = nil
	}
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
