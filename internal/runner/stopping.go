package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
)

// stopping is the stopping of a run: TERM to all of its boundary, CONT (a stopped process cannot
// hear TERM), the grace, then KILL again and again until the boundary is empty. What cannot be
// killed is named, and tried again for as long as somebody answers for the run.
type stopping struct {
	cause   longstop.Cause // empty: the main process ended by itself, and leftovers are to be killed
	log     *longstop.CancelLog
	killAt  longstop.BootTime // the grace ends
	next    longstop.BootTime // something is due
	termed  bool
	struck  bool              // the cgroup was killed as one
	settles longstop.BootTime // until then, that has its time
	rounds  int               // of KILL, since somebody new was met
	met     map[boundary.Identity]error
}

func newStopping(cause longstop.Cause, grace time.Duration) *stopping {
	now := boundary.BootNow()
	return &stopping{cause: cause, killAt: now.Add(max(grace, 0)), next: now, met: map[boundary.Identity]error{}}
}

// ask begins to stop the run, or presses on with it: a shorter grace than the present one counts, and
// survivors are tried again. A run that has ended by now is left to end so.
func (c *custody) ask(cause longstop.Cause, grace time.Duration) {
	if c.settled() {
		return
	}
	if c.stages.verifying() {
		c.stages.giveUp(c, cause)
		return
	}
	now := boundary.BootNow()
	if c.stop != nil && c.stop.cause != "" {
		c.stop.killAt = min(c.stop.killAt, now.Add(max(grace, 0)))
		c.stop.rounds, c.stop.next = 0, now
		return
	}
	if c.rec.Cancel == nil {
		c.rec.Cancel = &longstop.CancelLog{RequestedAt: longstop.At(time.Now())}
	}
	c.rec.Cause = cause
	c.stopFor(grace)
	c.write(true) // intent before effect
	fault.At("cancel.recorded")
}

// stopFor begins to stop the run for the cause that its record names, or goes on with it. What an owner was
// about to signal when it wrote that down, and died, counts as signalled.
func (c *custody) stopFor(grace time.Duration) {
	c.stop = newStopping(c.rec.Cause, grace)
	c.stop.log = c.rec.Cancel
	if log := c.rec.Cancel; log.Signal != "" && log.SignalledAt.IsZero() {
		log.SignalledAt = c.rec.At
	}
	c.isStopping.Store(true)
}

// due begins to stop a run whose lease or deadline has passed.
func (c *custody) due(now longstop.BootTime) {
	switch {
	case c.over() || c.stop != nil && c.stop.cause != "":
	case c.rec.DeadlineUntil > 0 && now >= c.rec.DeadlineUntil:
		c.ask(longstop.CauseDeadline, c.grace())
	case c.rec.LeaseUntil > 0 && now >= c.rec.LeaseUntil:
		c.ask(longstop.CauseLease, c.grace())
	}
}

// press does what is due of stopping.
func (c *custody) press(now longstop.BootTime) {
	s := c.stop
	if !s.termed {
		s.termed = true
		c.term()
		fault.At("cancel.termed")
	}
	if wait := max(s.killAt, s.settles); now < wait {
		s.next = wait
		return
	}
	c.kill(now)
}

// term sends TERM, then CONT, to every process of the boundary, a parent before its children: a
// shell that hears of its own end first does not go on to its next command. It is one pass: what a
// process starts in answer to TERM is its cleaning up, and has the grace for it.
//
// That it begins is written before: the work may be over by that, and this process dead, before it could
// say whom it reached.
func (c *custody) term() {
	s := c.stop
	n := 0
	c.within.walk(func(p boundary.Stat) bool {
		if p.Dead() {
			return true
		}
		c.nameStopped(p)
		if s.log != nil && s.log.Signal == "" {
			s.log.Signal = "TERM"
			c.write(false)
			fault.At("cancel.terming")
		}
		if err := c.within.signal(p.Identity, unix.SIGTERM, unix.SIGCONT); err == nil {
			n++
		} else if !errors.Is(err, boundary.ErrGone) {
			s.met[p.Identity] = err
		}
		return true
	})
	c.within.thaw()
	fault.At("cancel.signalled")
	switch {
	case s.log == nil:
		return
	case n == 0 && len(s.met) == 0:
		if s.log.SignalledAt.IsZero() { // who was there went before
			s.log.Signal = ""
		}
		return
	}
	s.log.Signalled = n
	c.signalled()
	c.write(false)
}

// mostNamed is how many are named of those that are stopped: to describe one takes longer than to signal it.
const mostNamed = 16

// nameStopped puts on record who is stopped with a run beside its main process: whoever needed a server that the
// run had started learns where it went.
func (c *custody) nameStopped(p boundary.Stat) {
	is := func(known longstop.Process) bool { return known.PID == p.PID && known.StartTime == p.Start }
	if m := c.rec.Main; c.stop.log == nil || len(c.rec.Left) >= mostNamed || m != nil && m.PID == p.PID && m.StartTime == p.Start ||
		slices.ContainsFunc(c.rec.Left, is) {
		return
	}
	c.rec.Left = append(c.rec.Left, boundary.Describe(p))
}

// signalled notes that the first signal was sent. An orphan stays one until it is over.
func (c *custody) signalled() {
	if log := c.stop.log; log != nil && log.SignalledAt.IsZero() {
		log.SignalledAt = longstop.At(time.Now())
		if c.rec.State != longstop.WorkloadOrphaned && c.opened == nil {
			c.enter(longstop.WorkloadCancelling)
		}
	}
}

// Between two rounds of KILL, while those who were told to go still go.
const (
	killPause    = 500 * time.Microsecond
	strikePause  = 20 * time.Millisecond
	longestPause = 5 * time.Second
	// surviving is how long KILL may take before whoever is left is called a survivor.
	surviving = time.Second
)

// kill sends KILL to everybody, in rounds that follow each other at once while they meet somebody
// new (a process that forks and goes), and ever more slowly while they do not.
func (c *custody) kill(now longstop.BootTime) {
	s := c.stop
	fault.At("cancel.kill")
	if c.strike() {
		s.settles = now.Add(strikePause)
		s.next = s.settles
		return
	}
	for fresh := true; fresh; {
		if fresh = c.killRound(); fresh {
			s.rounds = 0
		}
		if c.settled() {
			return
		}
	}
	s.next = now.Add(min(killPause<<min(s.rounds, 14), longestPause))
	s.rounds++
	if now.Sub(s.killAt) >= surviving {
		c.nameSurvivors()
	}
}

// strike kills a cgroup as one, the first time, and leaves that to do its work: to look at a hundred
// who are on their way out takes longer than their going.
func (c *custody) strike() bool {
	s := c.stop
	if s.struck {
		return false
	}
	s.struck = true
	struck, done := c.within.strike()
	if len(struck) > 0 {
		c.killed(len(struck))
	}
	for _, p := range struck {
		c.nameStopped(p)
		s.met[p.Identity] = nil
	}
	return done
}

// killed notes how many were sent KILL.
func (c *custody) killed(n int) {
	log := c.stop.log
	if log == nil || n == 0 {
		return
	}
	if log.KilledAt.IsZero() {
		log.KilledAt = longstop.At(time.Now())
	}
	log.Killed += n
	c.signalled()
}

// killRound reports whether it met a process that no round before it had met.
func (c *custody) killRound() (fresh bool) {
	s := c.stop
	killed := 0
	c.within.kill(c.nameStopped, func(p struck) {
		if _, known := s.met[p.Identity]; !known {
			fresh = true
			if p.err == nil {
				killed++
			}
		}
		s.met[p.Identity] = p.err
	})
	c.killed(killed)
	return fresh
}

// nameSurvivors puts whoever outlived KILL on record, with the reason.
func (c *custody) nameSurvivors() {
	var survivors []longstop.Process
	for _, p := range c.living() {
		err, met := c.stop.met[boundary.Identity{PID: p.PID, Start: p.StartTime}]
		p.Why = whyAlive(p, err)
		if !met {
			p.Why = "it was not sent KILL: it can be another run's, which is still in its grace, or has just come"
		}
		survivors = append(survivors, p)
	}
	survivors = append(survivors, c.within.doubts()...)
	if len(survivors) == 0 {
		c.doubt("something of the run is left that /proc does not show to this user")
	} else if sameProcesses(survivors, c.rec.Survivors) {
		return
	}
	c.rec.Survivors = survivors
	c.see()
	c.write(true)
}

func (c *custody) doubt(words string) {
	for _, known := range c.rec.Anomalies {
		if known == words {
			return
		}
	}
	c.rec.Anomalies = append(c.rec.Anomalies, words)
}

func whyAlive(p longstop.Process, err error) string {
	switch {
	case errors.Is(err, unix.EPERM) && p.State == string(boundary.Hidden):
		return "it may not be signalled by this user, from whom /proc hides it"
	case errors.Is(err, unix.EPERM):
		return fmt.Sprintf("it may not be signalled by this user: it runs as user %d", p.UID)
	case err != nil && !errors.Is(err, boundary.ErrGone):
		return err.Error()
	case p.State == "D":
		return "KILL was sent; it is in uninterruptible sleep, inside the kernel"
	}
	return "KILL was sent; it has not ended yet"
}

func sameProcesses(a, b []longstop.Process) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].PID != b[i].PID || a[i].StartTime != b[i].StartTime || a[i].Why != b[i].Why {
			return false
		}
	}
	return true
}
