package runner

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// bypassStranger deals with a run that the keeper neither has nor can take over: nobody has begun it
// yet, or it has an owner of an earlier keeper's.
func (k *keeper) bypassStranger(a ask) (*custody, error) {
	run, err := k.folder.Run(a.RunID)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	switch err := lockUnlessOwned(run); {
	case errors.Is(err, record.ErrFinal):
		return nil, nil
	case errors.Is(err, record.ErrHeld):
		return k.endStranger(a, run)
	}
	_, rec, err := run.Read()
	switch {
	case errors.Is(err, record.ErrNoRecord):
		if a.Verb == askCancel { // nobody begins it any more
			k.settle(run, unstarted(run.Claim()))
		}
		return nil, nil
	case err != nil:
		return nil, err
	case rec.State.Final():
		return nil, nil
	case rec.Writer.MachineID != boundary.MachineID():
		return nil, &longstop.Error{Code: longstop.CodeRefused, Message: "the run is another machine's: nothing was signalled"}
	}
	return nil, &longstop.Error{Code: longstop.CodeTimeout, Message: "the run has nobody who answers for it just now", Hint: "Ask again."}
}

// lockSoon takes a run's lock, also from a keeper that only looks whether anybody answers for the run:
// that one holds it for a moment.
func lockSoon(run *record.Run) error {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		_, err := run.Lock()
		if !errors.Is(err, record.ErrHeld) || time.Now().After(deadline) {
			return err
		}
	}
}

// lockUnlessOwned takes a run's lock. Where it is held and no owner has a socket, it is another look
// of ours, or an owner that is about to have one: soon over.
func lockUnlessOwned(run *record.Run) error {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, err := run.Lock()
		if !errors.Is(err, record.ErrHeld) || time.Now().After(deadline) {
			return err
		}
		l, dialErr := dial(run.DirFD(), ownerSocket)
		if dialErr == nil {
			l.close()
			return err
		}
	}
}

// endStranger ends an owner that was asked and does not answer, though it is not our child. First it
// is woken: it may only have been stopped. It is known by the socket that it listens on, which
// nobody else has and which ends with it.
func (k *keeper) endStranger(a ask, run *record.Run) (*custody, error) {
	if !a.Bypass {
		return nil, ownerFirst()
	}
	owner, known := listensAt(run.DirFD(), ownerSocket)
	if !known {
		return nil, ownerFirst()
	}
	id := owner.Identity
	boundary.Signal(id, unix.SIGCONT)
	if l, err := dial(run.DirFD(), ownerSocket); err == nil {
		l.send(ask{Verb: askRenew, RunID: a.RunID})         // changes nothing; any answer will do
		l.file.SetReadDeadline(time.Now().Add(heardWithin)) // ending it loses what it knows: be patient
		var r reply
		err = l.receive(&r)
		l.close()
		if err == nil {
			return nil, &longstop.Error{Code: longstop.CodeTimeout, Message: "the run's owner was stopped and goes on", Hint: "Ask again."}
		}
	}
	k.mu.Lock()
	k.seen[a.RunID] = boundary.Descendants(id.PID) // the last that is known of its tree
	k.mu.Unlock()
	if err := boundary.Signal(id, unix.SIGKILL); err != nil && !errors.Is(err, boundary.ErrGone) {
		return nil, err
	}
	for deadline := time.Now().Add(heardWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		k.succeedTo(a.RunID)
		k.mu.Lock()
		c := k.custody[a.RunID]
		k.mu.Unlock()
		if c != nil {
			return c, nil
		}
		if _, rec, err := run.Read(); err == nil && rec.State.Final() {
			return nil, nil
		}
	}
	return nil, &longstop.Error{Code: longstop.CodeTimeout, Message: "the run's owner does not answer and cannot be ended", Hint: "Ask again."}
}
