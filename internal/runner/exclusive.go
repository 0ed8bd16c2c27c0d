package runner

import (
	"errors"
	"fmt"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// deciding is how long a name may be between two runs: its holder's heir is about to say what is left,
// or somebody is just taking it or letting it go.
const deciding = 2 * time.Second

// askForName takes the name that the run asks for, or has it queued; or says who has the name.
func (s *stages) askForName() *longstop.LaunchError {
	req, rec := &s.o.given.Submit.Request, &s.o.rec
	rec.Exclusive = &longstop.Exclusive{Name: req.Exclusive}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		got, sure, err := s.take(rec)
		switch {
		case err != nil:
			return launchError("exclusive", "", err)
		case got:
			return nil
		case req.ExclusiveWaitS > 0:
			s.at, s.until = inQueue, boundary.BootNow().Add(time.Duration(req.ExclusiveWaitS*float64(time.Second)))
			s.next = boundary.BootNow()
			return nil
		case sure, time.Since(began) > deciding:
			return refusedName(rec.Exclusive, "")
		}
	}
}

// take tries to take the name. Sure says that whoever has it is there to be named.
//
// The record says that the run has it before others' are looked at: of two that locked different files,
// because one was removed, at least one sees the other.
func (s *stages) take(rec *longstop.Record) (got, sure bool, err error) {
	e := *rec.Exclusive
	look := func() (free bool) {
		var holder *longstop.Record
		var answered bool
		if holder, answered, err = s.folder.Holder(e.Name, s.o.run.ID()); holder != nil {
			sure = answered && itself(holder.Writer)
			e.HeldBy, e.HeldSince = holder.ActionID, holder.Exclusive.Since
		}
		rec.Exclusive = &longstop.Exclusive{Name: e.Name, HeldBy: e.HeldBy, HeldSince: e.HeldSince}
		return holder == nil && err == nil
	}
	if !look() {
		return false, sure, err
	}
	lock, err := s.folder.LockName(e.Name)
	if errors.Is(err, record.ErrHeld) {
		return false, false, nil
	} else if err != nil {
		return false, false, err
	}
	had := longstop.Exclusive{Name: e.Name, Since: longstop.At(time.Now())}
	rec.Exclusive = &had
	if _, err = s.o.run.Write(rec, s.o.given.Submit.Secret, false); err == nil && look() {
		s.lock, rec.Exclusive = lock, &had
		return true, true, nil
	}
	lock.Unlock()
	if _, writeErr := s.o.run.Write(rec, s.o.given.Submit.Secret, false); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	return false, sure, err
}

// itself reports whether an owner is there to answer for its run. An heir of one that is dead, reaped by
// now or not, may be about to say that nothing of it is left.
func itself(by longstop.Writer) bool {
	owner, err := boundary.Look(by.PID)
	return err == nil && !owner.Dead() && by.Kind == longstop.WriterOwner && by.BootID == boundary.BootID()
}

func refusedName(e *longstop.Exclusive, after string) *longstop.LaunchError {
	whose := "another run has had"
	if e.HeldBy != "" {
		whose = fmt.Sprintf("%s has had since %s", e.HeldBy, e.HeldSince.Format(time.RFC3339))
	}
	return &longstop.LaunchError{Step: "exclusive", Message: fmt.Sprintf("it asks for the name %s alone, which %s%s", e.Name, whose, after)}
}

// wait looks whether a queued run has its turn.
func (s *stages) wait(c *custody, now longstop.BootTime) {
	if now < s.next {
		return
	}
	before := *c.rec.Exclusive
	got, _, err := s.take(&c.rec)
	switch {
	case err != nil:
		s.failed = launchError("exclusive", "", err)
	case got:
		s.at = inPreflight
		c.enter(longstop.WorkloadStarting)
		c.write(false)
	case now >= s.until:
		waited := s.o.given.Submit.Request.ExclusiveWaitS * float64(time.Second)
		s.failed = refusedName(c.rec.Exclusive, fmt.Sprintf(": waited for %s", time.Duration(waited).Round(time.Second/10)))
	default:
		if c.rec.Exclusive.HeldBy != before.HeldBy {
			c.write(false)
		}
		s.next = min(now.Add(queuePace), max(s.until, now+1))
	}
}

// keepName has an heir hold the lock, too. What its record says is enough, where somebody else is just
// looking.
func (k *keeper) keepName(c *custody) {
	if e := c.rec.Exclusive; e != nil && !e.Since.IsZero() {
		c.name, _ = k.folder.LockName(e.Name)
	}
}

// letGo gives the name back.
func (c *custody) letGo() {
	if s := c.stages; s != nil && s.lock != nil {
		c.name, s.lock = s.lock, nil
	}
	if c.name != nil {
		c.name.Unlock()
		c.name = nil
	}
}
