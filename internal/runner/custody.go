package runner

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/record"
)

// custody is the answering for one run: its lock, its record, its output, its lease and deadline,
// and the stopping of it. An owner has one, a keeper one for each run that it inherited. All of it
// happens in one goroutine (attend); others hand it work through do.
type custody struct {
	run    *record.Run // its lock is held
	rec    longstop.Record
	secret []byte // nil: a successor has none, and its records are not signed
	within *enclosure
	output *capture // nil: the work writes into files itself, or nobody holds its pipes any more
	clock  *alarm
	poke   chan struct{} // something may have ended
	inbox  chan func()
	done   chan struct{} // closed once the final record is durable

	accepted func() // an owner's: logs, once, that it took the run

	mainEnded bool
	stop      *stopping
	waiting   *ending // the final record is made and cannot be written yet
	final     bool    // the final record is durable
	counted   longstop.BootTime

	// opened tells an heir whether the gate opened before the owner died, once nothing is left of
	// the run; nil: it did.
	opened func() (bool, *longstop.LaunchError)
	// mainGone is a successor's, whom nobody tells that the main process ended, or how.
	mainGone func() bool

	stages   *stages      // nil: the work is all there is
	name     *record.Lock // that an heir holds
	evidence heard
	progress heard

	awaited    atomic.Bool // the answer to the submit waits for the run's end
	isStopping atomic.Bool // for a reason of its own, not only to clear up leftovers

	mu   sync.Mutex
	said []byte // the newest record as it was signed
}

func newCustody(run *record.Run, rec longstop.Record, secret []byte, within *enclosure) (*custody, error) {
	clock, err := newAlarm()
	if err != nil {
		return nil, err
	}
	c := &custody{run: run, rec: rec, secret: secret, within: within, clock: clock,
		poke: make(chan struct{}, 1), inbox: make(chan func()), done: make(chan struct{}), counted: boundary.BootNow().Add(settling - recount)}
	run.OnFinal = c.ended
	return c, nil
}

// nudge lets attend look again.
func (c *custody) nudge() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// do runs act between two looks, and reports whether it did; not if the run is final by then.
func (c *custody) do(act func()) bool {
	ran := make(chan struct{})
	select {
	case c.inbox <- func() { act(); close(ran) }:
		<-ran
		return true
	case <-c.done:
		return false
	}
}

// attend answers for the run until its final record is durable.
func (c *custody) attend() {
	defer c.clock.close()
	defer c.within.close()
	c.within.wake(c.nudge)
	for c.look(); !c.final; c.look() {
		select {
		case <-c.poke:
		case <-c.clock.rang:
		case act := <-c.inbox:
			act()
		}
	}
	if c.accepted != nil {
		c.accepted()
	}
	logEnd(c.rec)
}

// look brings the run to where it is by now: what has ended, what is due.
func (c *custody) look() {
	now := boundary.BootNow()
	switch {
	case c.final:
		return
	case c.waiting != nil:
		c.finishAgain(now)
		return
	case c.settled():
		return
	}
	c.gate()
	c.mainEnded = c.mainEnded || c.mainGone != nil && c.mainGone()
	if !c.stages.step(c, now) && c.mainEnded && c.stop == nil {
		c.linger()
	}
	c.due(now)
	if c.stop != nil && !c.over() {
		c.press(now)
	}
	// What the kernel has told meanwhile is not left for the next look.
	if c.over() || c.settled() {
		return
	}
	c.count(now)
	c.rearm(now)
}

// gate lets an heir find out that the work is through its gate: from then on it is an orphan's.
func (c *custody) gate() {
	if c.opened == nil {
		return
	}
	if ran, _ := c.opened(); ran {
		c.opened = nil
		c.enter(longstop.WorkloadOrphaned)
		c.write(false)
	}
}

// over reports whether the run's end has been decided.
func (c *custody) over() bool { return c.final || c.waiting != nil }

// settled takes note of what has ended, and ends the run if nothing is left.
func (c *custody) settled() bool {
	if c.over() {
		return true
	}
	empty, proven := c.within.settle(c.sawEnd)
	if !empty || c.stages.pending(c) {
		return false
	}
	c.end(proven)
	return true
}

// concerns reports whether sawEnd is about to do anything about a process of that number: of a hundred that
// end at once, it is one.
func (c *custody) concerns(pid int) bool {
	m := c.rec.Main
	return m != nil && !c.mainEnded && pid == m.PID || c.stages.concerns(pid)
}

// sawEnd takes note of one process's end, before the kernel forgets it.
func (c *custody) sawEnd(exit boundary.Exit) {
	if c.stages.sawEnd(exit) {
		return
	}
	m := c.rec.Main
	if m == nil || c.mainEnded || exit.PID != m.PID || exit.Start != m.StartTime {
		return
	}
	c.mainEnded = true
	endMain(m, exit)
	c.hungUp()
	// On record while the process is still a zombie: if the owner dies between reaping it and the
	// next record, its status must not be lost with it. In the page cache is safe enough for that.
	c.write(false)
	fault.At("owner.main.ended")
}

// endMain puts the way a process ended into the record's words.
func endMain(m *longstop.Main, exit boundary.Exit) {
	m.EndedAt = longstop.At(exit.At)
	if exit.Status.Signaled() {
		m.Signal = signalName(exit.Status.Signal())
		return
	}
	code := exit.Status.ExitStatus()
	m.ExitCode = &code
}

// linger is what becomes of processes that outlived the main one.
func (c *custody) linger() {
	switch {
	case c.rec.Leftover == longstop.LeftoverRelease:
		c.release()
	case c.rec.Leftover == longstop.LeftoverKill:
		c.rec.Left = append(c.rec.Left, c.living()...) // an heir goes on with its owner's list
		c.lingering()
		c.stop = newStopping("", c.grace())
	case c.rec.State == longstop.WorkloadRunning:
		c.lingering()
	}
}

func (c *custody) lingering() {
	if c.rec.State == longstop.WorkloadRunning {
		c.enter(longstop.WorkloadLingering)
	}
	c.see()
	c.write(true)
	fault.At("owner.lingering")
}

func (c *custody) grace() time.Duration { return time.Duration(c.rec.GraceMS) * time.Millisecond }

// enter moves the run on, through the states that the table has between.
func (c *custody) enter(to longstop.WorkloadState) { enter(&c.rec, to) }

// enter moves a record on. A state that cannot follow is not taken, and that is said.
func enter(rec *longstop.Record, to longstop.WorkloadState) {
	if rec.State == to {
		return
	}
	path := lifecycle.Workloads.Path(rec.State, to)
	if path == nil {
		rec.Anomalies = append(rec.Anomalies, fmt.Sprintf("the state %s was to follow %s, which it cannot", to, rec.State))
		return
	}
	for _, next := range path {
		state, err := lifecycle.Workloads.Step(rec.State, next)
		if err != nil {
			return
		}
		rec.State = state
	}
}

// write writes the record as it is. That it could not is said in the next one; the work goes on.
func (c *custody) write(flush bool) {
	if c.output != nil {
		c.rec.Output = c.output.now()
	}
	c.stamp(time.Now())
	raw, err := c.run.Write(&c.rec, c.secret, flush)
	if raw != nil {
		c.publish(raw)
	}
	if err != nil && len(c.rec.Anomalies) < 20 {
		c.rec.Anomalies = append(c.rec.Anomalies, "a record could not be written: "+err.Error())
	}
}

// stamp puts on record when it is. Between two records the wall clock and the boot clock go on alike, or
// somebody has set the first.
func (c *custody) stamp(now time.Time) {
	at, boot := longstop.At(now), boundary.BootNow()
	if step := at.Sub(c.rec.At.Time) - boot.Sub(c.rec.BootAt); !c.rec.At.IsZero() && step.Abs() >= time.Second {
		c.rec.ClockSetMS += step.Milliseconds()
	}
	c.rec.At, c.rec.BootAt = at, boot
}

func (c *custody) publish(raw []byte) {
	c.mu.Lock()
	c.said = raw
	c.mu.Unlock()
}

// boundaryNow is the run's boundary, for another goroutine than attend's: where it is never changes.
func (c *custody) boundaryNow() (b longstop.Boundary) {
	c.do(func() { b = c.rec.Boundary })
	return b
}

// newest is the newest record, as signed.
func (c *custody) newest() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// sizes are the bytes in the files that the work writes itself, or that nobody adds to any more.
func (c *custody) sizes() longstop.Output {
	out := c.run.Outputs(c.rec.Output)
	switch {
	case c.rec.Leftover == longstop.LeftoverRelease:
		out.Stream = longstop.StreamLive
	default:
		out.Stream = longstop.StreamCut
	}
	return out
}

// living describes what is in the boundary.
func (c *custody) living() []longstop.Process {
	var all []longstop.Process
	c.within.walk(func(s boundary.Stat) bool {
		if !s.Dead() {
			all = append(all, boundary.Describe(s))
		}
		return true
	})
	return all
}

// see counts what is in the boundary, and reports whether that is another number than before.
func (c *custody) see() bool {
	n := 0
	c.within.walk(func(s boundary.Stat) bool {
		if !s.Dead() {
			n++
		}
		return true
	})
	c.counted = boundary.BootNow()
	if old := c.rec.Boundary.Processes; old != nil && *old == n {
		return false
	}
	c.rec.Boundary.Processes = &n
	return true
}

const (
	// recount is how old the number of processes in a record may be, settling when it is first
	// looked at.
	recount  = 5 * time.Second
	settling = time.Second
)

func (c *custody) count(now longstop.BootTime) {
	if now.Sub(c.counted) < recount {
		return
	}
	news := c.hear(false)
	if c.see() || news {
		c.write(false)
	}
	c.within.rest()
}

// rearm sets the alarm to whatever comes next.
func (c *custody) rearm(now longstop.BootTime) {
	next := min(now.Add(c.within.pace()), c.counted.Add(recount))
	if c.opened != nil && (c.stop == nil || c.stop.cause != "") {
		next = now.Add(5 * time.Millisecond)
	}
	next = c.stages.due(next)
	for _, at := range []longstop.BootTime{c.rec.LeaseUntil, c.rec.DeadlineUntil} {
		if at > 0 && at < next && (c.stop == nil || c.stop.cause == "") && !c.stages.givenUp() {
			next = at
		}
	}
	if c.stop != nil {
		next = min(next, c.stop.next)
	}
	c.clock.set(max(next, now+1))
}

// signalName is a signal's name without SIG: "SEGV", "RTMIN+3".
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); len(name) > 3 {
		return name[3:]
	}
	if sig >= 34 {
		return fmt.Sprintf("RTMIN+%d", int(sig)-34)
	}
	return fmt.Sprintf("%d", int(sig))
}

// writerOf names this process as a record's writer.
func writerOf(kind longstop.WriterKind) longstop.Writer {
	return longstop.Writer{Kind: kind, Version: longstop.Version, PID: os.Getpid(), MachineID: boundary.MachineID(), BootID: boundary.BootID()}
}
