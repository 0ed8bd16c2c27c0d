package runner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/gate"
	"github.com/longstop/longstop/internal/record"
)

// stages are what an owner does around the work of a run that asks for it: it waits for a name, asks a
// preflight, starts the work, and verifies. A preflight and a verify (asides) run in the run's own
// boundary, one after the other and never beside the work. Nobody goes on with them after their owner:
// an heir never starts anything.
type stages struct {
	o      *owner
	folder *record.Folder
	at     stage
	errs   *os.File // where asides write to; nil: nowhere, or into the run's file
	next   longstop.BootTime
	until  longstop.BootTime // of the waiting
	aside  *aside
	lock   *record.Lock          // of the name
	failed *longstop.LaunchError // the work is not to be started
	done   bool                  // nothing is left to do
}

type stage int

const (
	inQueue stage = iota
	inPreflight
	inWork
	inVerify
)

// aside is a preflight or a verify that runs.
type aside struct {
	check *longstop.Check
	id    boundary.Identity
	until longstop.BootTime
	ended bool
	dying []boundary.Identity // told to go, from among those that are to be released
}

// queuePace is how often a run that is queued looks whether its name is free.
const queuePace = 250 * time.Millisecond

func staged(req *longstop.Request) bool {
	return req.Exclusive != "" || req.Preflight != "" || req.Verify != ""
}

// stage is what becomes of launch where there are stages. A run whose work is to start at once is
// answered for as any other; one that is queued or has a preflight is answered as that, durably, and
// goes on by itself.
func (o *owner) stage(folder *record.Folder) (*custody, verdict) {
	req := &o.given.Submit.Request
	s := &stages{o: o, folder: folder, at: inPreflight}
	if req.Exclusive != "" {
		if failure := s.askForName(); failure != nil {
			return nil, o.fail(failure)
		}
	}
	if err := s.keepErrs(); err != nil {
		return nil, o.fail(launchError("stderr", "", err))
	}
	if s.at != inQueue && req.Preflight == "" {
		s.at = inWork
		enter(&o.rec, longstop.WorkloadStarting)
		c, answer := o.start()
		if c != nil {
			c.stages = s
		}
		return c, answer
	}
	if s.at == inPreflight {
		enter(&o.rec, longstop.WorkloadStarting)
	}
	o.run.Settle()
	if failure := o.enclose(); failure != nil {
		return nil, o.fail(failure)
	}
	raw, err := o.run.Write(&o.rec, o.given.Submit.Secret, true)
	if err != nil {
		return nil, o.fail(launchError("record", "", err))
	}
	c, err := o.custody(raw)
	if err != nil {
		return nil, verdict{Error: told(err)}
	}
	c.stages = s
	fault.At("owner.staged")
	return c, verdict{Record: raw}
}

// keepErrs keeps the end of stderr's pipe that the work's birth closes. On a terminal, which is hung up
// when the work ends, asides write to nowhere.
func (s *stages) keepErrs() error {
	req := &s.o.given.Submit.Request
	if req.Preflight == "" && req.Verify == "" || req.PTY || s.o.rec.Leftover == longstop.LeftoverRelease {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(s.o.inputs[1]), unix.F_DUPFD_CLOEXEC, 4)
	if err == nil {
		s.errs = os.NewFile(uintptr(fd), "stderr")
	}
	return err
}

// pending reports whether an empty boundary is not the end of the run.
func (s *stages) pending(c *custody) bool {
	switch {
	case s == nil || s.failed != nil || s.done || c.isStopping.Load():
		return false
	case s.at == inWork:
		return s.toVerify(c)
	}
	return true
}

// toVerify reports whether the work has succeeded by itself and is to be verified.
func (s *stages) toVerify(c *custody) bool {
	return s != nil && s.at == inWork && s.o.given.Submit.Request.Verify != "" && c.mainEnded && !c.isStopping.Load() &&
		c.rec.Main.ExitCode != nil && *c.rec.Main.ExitCode == 0
}

// verifying reports whether the work is over and only its verify is not.
func (s *stages) verifying() bool { return s != nil && s.at == inVerify }

// step goes on with what comes next, once nothing of the stage before is left. It reports whether the
// run's end, or the end of its leftovers, is not yet to be looked at.
func (s *stages) step(c *custody, now longstop.BootTime) (wait bool) {
	if s == nil || c.isStopping.Load() || s.failed != nil || s.done {
		return false
	}
	empty := func() bool { e, _ := c.within.settle(c.sawEnd); return e }
	switch s.at {
	case inQueue:
		if s.wait(c, now); s.at != inQueue || s.failed != nil {
			c.nudge() // to go on with what follows
		}
	case inPreflight:
		switch {
		case s.aside == nil && s.o.given.Submit.Request.Preflight == "":
			s.work(c)
		case s.aside == nil:
			s.begin(c, &c.rec.Preflight, s.o.given.Submit.Request.Preflight)
		case s.over(c, now) && empty():
			c.stop = nil
			s.judge(c)
		}
	case inWork:
		if !s.toVerify(c) || c.rec.Leftover != longstop.LeftoverRelease && !empty() {
			return false
		}
		c.stop, s.at = nil, inVerify
		c.enter(longstop.WorkloadLingering)
		s.begin(c, &c.rec.Verify, s.o.given.Submit.Request.Verify)
	case inVerify:
		if !s.over(c, now) {
			return true
		}
		s.prove(c)
		return !s.among(c)
	}
	return true
}

// work starts the work.
func (s *stages) work(c *custody) {
	o := s.o
	if c.output != nil {
		c.rec.Output = c.output.now()
	}
	o.rec, s.at = c.rec, inWork
	raw, failure := o.begin()
	c.rec = o.rec
	if failure != nil {
		s.failed = failure
		c.stop = newStopping("", 0) // the gate, on its way out
		return
	}
	c.publish(raw)
}

// begin starts an aside. That it is about to is on record before it can do anything.
func (s *stages) begin(c *custody, to **longstop.Check, script string) {
	check := &longstop.Check{State: longstop.CheckRunning, StartedAt: longstop.At(time.Now())}
	*to = check
	c.write(s.at == inVerify)
	fault.At("owner.aside.recorded")
	within := time.Duration(s.o.given.Submit.Request.CheckS * float64(time.Second))
	if within <= 0 {
		within = longstop.DefaultCheckS * time.Second
	}
	s.aside = &aside{check: check, until: boundary.BootNow().Add(within)}
	failure := s.birth(script)
	if failure == nil {
		fault.At("owner.aside.started")
		return
	}
	s.aside.ended = true
	check.State, check.Because, check.EndedAt = longstop.CheckUnknown, failure.Message, longstop.At(time.Now())
	if s.at == inPreflight {
		s.failed = failure
	}
}

// birth makes the process of an aside, as the work's is made, but with the run's stderr alone.
func (s *stages) birth(script string) *longstop.LaunchError {
	p, failure := s.o.plan()
	if failure != nil {
		return failure
	}
	p.Argv, p.Terminal = []string{shell, "-c", script}, false
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return launchError("stdin", "", err)
	}
	defer null.Close()
	errs := s.errs
	if s.o.rec.Leftover == longstop.LeftoverRelease {
		if errs, err = s.o.run.File("stderr", unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
			return launchError("stderr", s.o.run.Path("stderr"), err)
		}
		defer errs.Close()
	}
	if errs == nil {
		errs = null
	}
	p.Files = [3]int{int(null.Fd()), int(errs.Fd()), int(errs.Fd())}
	report, err := gate.NewReport()
	if err != nil {
		return launchError("gate", "", err)
	}
	defer unix.Close(report)
	b, failure := s.o.place(p, report)
	if b != nil {
		s.aside.id = b.stat.Identity
	}
	if failure == nil {
		return b.open(report)
	}
	if b != nil {
		b.stream.close() // the gate goes
	}
	return failure
}

// over reports whether the aside has ended; one that takes too long is ended, with what it has left.
func (s *stages) over(c *custody, now longstop.BootTime) bool {
	a := s.aside
	if !a.ended && now >= a.until && a.check.Because == "" {
		a.check.Because = "it took longer than it may"
	}
	if a.ended && !s.among(c) || !a.ended && a.check.Because != "" {
		s.clear(c)
	}
	return a.ended && !slices.ContainsFunc(a.dying, alive)
}

func alive(id boundary.Identity) bool {
	now, err := boundary.Look(id.PID)
	return err == nil && now.Identity == id && !now.Dead()
}

// among reports whether an aside is among processes that are to be released.
func (s *stages) among(c *custody) bool {
	return s.at == inVerify && c.rec.Leftover == longstop.LeftoverRelease
}

// clear stops what there is of an aside.
func (s *stages) clear(c *custody) {
	switch {
	case s.among(c):
		for _, p := range append(boundary.Descendants(s.aside.id.PID), boundary.Stat{Identity: s.aside.id}) {
			if c.within.signal(p.Identity, unix.SIGKILL) == nil && !slices.Contains(s.aside.dying, p.Identity) {
				s.aside.dying = append(s.aside.dying, p.Identity)
			}
		}
	case c.stop == nil:
		if empty, _ := c.within.settle(c.sawEnd); !empty {
			c.stop = newStopping("", c.grace())
		}
	}
}

// concerns is custody's.
func (s *stages) concerns(pid int) bool {
	return s != nil && s.aside != nil && !s.aside.ended && pid == s.aside.id.PID
}

// sawEnd takes note of the end of an aside, and reports whether it was one.
func (s *stages) sawEnd(exit boundary.Exit) bool {
	if s == nil || s.aside == nil || s.aside.ended || exit.Identity != s.aside.id {
		return false
	}
	a := s.aside
	a.ended = true
	var how longstop.Main
	endMain(&how, exit)
	a.check.ExitCode, a.check.Signal, a.check.EndedAt = how.ExitCode, how.Signal, how.EndedAt
	switch {
	case a.check.Because != "":
		a.check.State = longstop.CheckUnknown
	case how.ExitCode != nil && *how.ExitCode == 0:
		a.check.State = longstop.CheckPassed
	case how.ExitCode != nil && *how.ExitCode == longstop.PreflightDone && s.at == inPreflight:
		a.check.State = longstop.CheckNothingToDo
	default:
		a.check.State = longstop.CheckFailed
	}
	return true
}

// judge does what a preflight said.
func (s *stages) judge(c *custody) {
	fault.At("owner.preflight.ended")
	check := s.aside.check
	s.aside = nil
	switch check.State {
	case longstop.CheckPassed:
		s.work(c)
	case longstop.CheckNothingToDo:
		s.done = true
	default:
		s.failed = &longstop.LaunchError{Step: "preflight", Message: "its preflight refused: " + howEnded(check) + "; the command was not run"}
	}
}

// prove says what a verify has shown.
func (s *stages) prove(c *custody) {
	switch s.aside.check.State {
	case longstop.CheckPassed:
		c.rec.EffectProof = longstop.ProofPassed
	case longstop.CheckFailed:
		c.rec.EffectProof = longstop.ProofFailed
	}
	s.done = true
	fault.At("owner.verify.ended")
}

func howEnded(check *longstop.Check) string {
	switch {
	case check.Because != "":
		return check.Because
	case check.Signal != "":
		return "killed by " + check.Signal
	case check.ExitCode != nil:
		return fmt.Sprintf("exit %d", *check.ExitCode)
	}
	return string(check.State)
}

// giveUp ends a verify early. The work was over before: that it is stopped changes nothing about it.
func (s *stages) giveUp(c *custody, cause longstop.Cause) {
	if s.aside.ended || s.aside.check.Because != "" {
		return
	}
	s.aside.check.Because = "it was ended: " + string(cause)
	s.clear(c)
}

// givenUp reports whether nothing that is due can end the run any sooner.
func (s *stages) givenUp() bool { return s.verifying() && s.aside.check.Because != "" }

// outcome tells the end of a run what became of its stages: whether its work began, and why not.
func (s *stages) outcome(c *custody) (ran bool, why *longstop.LaunchError) {
	switch {
	case s == nil || s.failed == nil && !s.done && s.at >= inWork, s.done && s.at == inVerify:
		return true, nil
	case s.failed != nil:
		c.rec.StartedAt = longstop.Time{}
		return false, s.failed
	}
	if c.isStopping.Load() {
		c.enter(longstop.WorkloadCancelling)
		if check := c.rec.Preflight; check != nil && check.State == longstop.CheckFailed {
			check.State, check.Because = longstop.CheckUnknown, "it was ended: "+string(c.rec.Cause)
		}
	}
	return true, nil
}

// due is when something of the stages is to be looked at.
func (s *stages) due(next longstop.BootTime) longstop.BootTime {
	switch {
	case s == nil:
	case s.at == inQueue:
		return min(next, s.next)
	case s.aside != nil && !s.aside.ended && s.aside.check.Because == "":
		return min(next, s.aside.until)
	}
	return next
}

// nothing reports whether the preflight found nothing to do.
func (s *stages) nothing() bool { return s != nil && s.done && s.at == inPreflight }

// closeErrs lets the stream of errors end.
func (s *stages) closeErrs() {
	if s != nil && s.errs != nil {
		s.errs.Close()
		s.errs = nil
	}
}

// inheritChecks says of what a dead owner was asking that nobody knows, and stops what is left of it.
func (c *custody) inheritChecks() {
	for _, check := range []*longstop.Check{c.rec.Preflight, c.rec.Verify} {
		if check != nil && check.State == longstop.CheckRunning {
			check.State, check.Because = longstop.CheckUnknown, "its owner died"
			if released := c.rec.Main != nil && c.rec.Leftover == longstop.LeftoverRelease; c.stop == nil && !released {
				c.stop = newStopping("", c.grace())
			}
		}
	}
}
