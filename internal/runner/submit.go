package runner

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/gate"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/internal/wire"
)

// flight is a submit in hand; others of the same key wait for it.
type flight struct{ landed chan struct{} }

// submit accepts a run and starts it, or answers with the one that its key has. Submits of one key
// are taken one after the other.
func (k *keeper) submit(sub wire.Submit, from login, kind systemd.Kind) reply {
	key := record.KeyHash(sub.Key)
	for {
		k.mu.Lock()
		other := k.flights[key]
		if other == nil {
			k.flights[key] = &flight{make(chan struct{})}
			k.mu.Unlock()
			break
		}
		k.mu.Unlock()
		<-other.landed
	}
	defer func() {
		k.mu.Lock()
		close(k.flights[key].landed)
		delete(k.flights, key)
		k.mu.Unlock()
		k.stir()
	}()
	answer, err := k.accept(sub, from, kind)
	if err != nil {
		return reply{Error: told(err)}
	}
	return answer
}

// accept does the steps of a submit that are a keeper's.
//
//  1. A key that has something already is answered with that, and starts nothing.
//  2. The run's folder is built, complete, while an owner stands by. Nothing leads to it yet.
//  3. The key is claimed, create-only. From here on the run is accepted; whoever else claims the key
//     is told of it.
//  4. The owner gets the run. One in a unit (kind) is started no earlier.
func (k *keeper) accept(sub wire.Submit, from login, kind systemd.Kind) (reply, error) {
	claim, err := k.folder.Find(sub.Key)
	if err != nil {
		return reply{}, err
	}
	existing := claim.Found
	if existing {
		answer, err := k.existing(claim, sub)
		if err != nil || answer.Record != nil {
			return answer, err
		}
		// Claimed and never begun: whoever accepted it died between steps 3 and 4. Its own
		// submitter asks again, in time, and may have it.
	}
	if err := inTime(sub); err != nil {
		return reply{}, err
	}
	var w *ward
	if kind == "" {
		if w, err = k.standBy(); err != nil {
			return reply{}, err
		}
	}
	claim, err = k.claim(sub)
	if err != nil || !claim.Mine && !existing {
		if w != nil {
			k.putBack(w)
		}
		if err != nil {
			return reply{}, err
		}
		return k.existing(claim, sub)
	}
	var answer reply
	if w != nil {
		answer, err = k.begin(w, sub, from)
	} else {
		answer, err = k.beginUnit(sub, from, kind)
	}
	answer.Existing = existing
	if err != nil {
		go k.succeedTo(sub.RunID) // if nobody asks again
	}
	return answer, err
}

// claim does steps 2 and 3.
func (k *keeper) claim(sub wire.Submit) (record.Claim, error) {
	run, err := k.folder.Build(sub)
	if err != nil {
		return record.Claim{}, err
	}
	defer run.Close()
	fault.At("submit.built")
	claim, err := k.folder.Claim(run, sub.Key)
	fault.At("submit.claimed")
	return claim, err
}

// existing answers a submit whose key has something. No record and no error: it is this very run,
// which nobody has begun and nobody answers for.
func (k *keeper) existing(claim record.Claim, sub wire.Submit) (reply, error) {
	if err := claim.Refusal(sub.Request.Digest); err != nil {
		return reply{}, err
	}
	run, err := k.folder.Run(claim.RunID)
	if err != nil {
		return reply{}, err
	}
	defer run.Close()
	// Somebody may be about to write the first record, or only be looking whether anybody does.
	for deadline := time.Now().Add(time.Second); ; time.Sleep(2 * time.Millisecond) {
		raw, _, err := run.Read()
		if err == nil {
			return reply{Record: raw, Existing: true}, nil
		}
		if !errors.Is(err, record.ErrNoRecord) {
			return reply{}, err
		}
		held, err := run.Locked()
		if err == nil && !held && claim.RunID == sub.RunID {
			return reply{}, nil
		}
		if err != nil || time.Now().After(deadline) {
			break
		}
	}
	return reply{}, &longstop.Error{Code: longstop.CodeTimeout,
		Message: "the key's run, " + string(claim.RunID) + ", was accepted and has not begun yet",
		Hint:    "Ask again: the answer does not start anything twice."}
}

// inTime refuses a submit that comes too late: whoever sent it has stopped waiting.
func inTime(sub wire.Submit) error {
	late := ""
	switch now := boundary.BootNow(); {
	case sub.BootID != boundary.BootID():
		late = "it was meant for another boot of this host"
	case now > sub.NotAfter:
		late = fmt.Sprintf("it came %s after the time in which it might start", now.Sub(sub.NotAfter).Round(time.Millisecond))
	case sub.Request.Lifetime == longstop.Leased && now >= sub.LeaseUntil:
		late = "its lease has run out already"
	default:
		return nil
	}
	return &longstop.Error{Code: longstop.CodeExpired, Message: "the submit is refused: " + late, Hint: "Nothing was started. Start again under a new key."}
}

// begin gives a run that is accepted to its owner and returns what that answers. Should it die
// without a word, the keeper answers in its place, once it knows whether anything ran.
func (k *keeper) begin(w *ward, sub wire.Submit, from login) (reply, error) {
	if err := k.assign(w, sub, from); err != nil {
		w.stream.close()
		w.close()
		return reply{}, err
	}
	fault.At("submit.assigned")
	var said verdict
	err := w.stream.receive(&said)
	w.stream.close()
	if err == nil {
		fault.At("submit.answered")
		go func() { // whoever submitted is told first
			if !said.Over {
				k.began(w, said)
			}
			k.spareSoon(w)
		}()
		if said.Error != nil {
			return reply{}, said.Error
		}
		return reply{Record: said.Record}, nil
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		return reply{}, fmt.Errorf("hear from the run's owner: %w", err)
	}
	<-w.gone
	return k.afterOwner(w.id, w.custody)
}

// assign makes a run's pipes and gives it to an owner that stands by. From then on the keeper is
// there to inherit it; an owner that is dead by now leaves a run of which nothing ran.
func (k *keeper) assign(w *ward, sub wire.Submit, from login) error {
	outputs, inputs, err := outputEnds(sub.Request, sub.Terminal)
	if err != nil {
		return err
	}
	w.outputs = outputs
	for _, fd := range inputs {
		defer unix.Close(fd)
	}
	report, err := gate.NewReport()
	if err != nil {
		return err
	}
	k.mu.Lock()
	w.id, w.secret, w.report = sub.RunID, sub.Secret, report
	w.overdue, w.rec.Leftover = overdue(firstRecord(sub, longstop.Writer{})), sub.Request.Leftover // until it answers
	w.dead = k.standbys[w.owner] == nil
	delete(k.standbys, w.owner)
	k.wards[w.id] = w
	k.mu.Unlock()
	given := assignment{StateDir: k.folder.Dir(), Home: k.home, Submit: sub, Login: from}
	k.setGuard()
	err = w.stream.send(given, w.outputs[0], inputs[0], w.outputs[1], inputs[1], report)
	if w.dead {
		select {
		case k.ended <- unix.SIGCHLD: // its end was seen before it was this run's: look again
		default:
		}
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		k.reaper.Signal(w.owner, unix.SIGKILL)
	}
	return nil
}

// began keeps what the owner answered, and lets go of what only a launch needs.
func (k *keeper) began(w *ward, said verdict) {
	defer k.setGuard()
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.passed {
		return
	}
	if err := wire.Tolerant(said.Record, &w.rec); err != nil || w.rec.State.Final() {
		return
	}
	w.overdue = overdue(w.rec)
	if w.rec.Main == nil {
		return // it is queued, or its preflight is asked: whether its work began is still to be told
	}
	unix.Close(w.report)
	w.report = -1
}

// afterOwner answers a submit whose owner died: as soon as it is sure whether the work ran.
func (k *keeper) afterOwner(id longstop.RunID, c *custody) (reply, error) {
	if c != nil {
		select {
		case <-c.done:
		case <-time.After(2 * time.Second):
		}
	}
	run, err := k.folder.Run(id)
	if err != nil {
		return reply{}, err
	}
	defer run.Close()
	raw, _, err := run.Read()
	if err != nil {
		return reply{}, fmt.Errorf("the run's owner died: %w", err)
	}
	return reply{Record: raw}, nil
}
