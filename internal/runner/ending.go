package runner

import (
	"errors"
	"runtime"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// ending is a final record that waits for a disk.
type ending struct{ pause time.Duration }

// release lets the rest live on, names it, and ends the run with the main process's result. A
// successor, whom anybody may have told of that, says lost.
func (c *custody) release() {
	for n := 0; len(c.rec.Released) == 0 && n < looks; n++ {
		if c.rec.Released = c.living(); len(c.rec.Released) == 0 && c.settled() {
			return
		}
	}
	if c.secret == nil {
		c.lose(longstop.OwnerLost, false)
	} else {
		c.enter(longstop.WorkloadFinished)
		c.rec.Result = result(c.rec.Main)
	}
	c.rec.Output = c.sizes()
	c.rec.Output.AfterEnd = true
	c.rec.Output.StdoutAtEnd, c.rec.Output.StderrAtEnd = c.rec.Output.StdoutBytes, c.rec.Output.StderrBytes
	left := len(c.rec.Released)
	c.rec.Boundary.Processes, c.rec.Boundary.Empty = &left, nil
	c.finish()
}

// end writes the final record of a run of which nothing is left, or nothing can be seen.
func (c *custody) end(proven bool) {
	c.stages.closeErrs()
	c.rec.Output = c.lastOutput()
	c.rec.Survivors = nil
	c.rec.Boundary.Processes, c.rec.Boundary.Empty = nil, nil
	if proven {
		none, empty := 0, true
		c.rec.Boundary.Processes, c.rec.Boundary.Empty = &none, &empty
	}
	if log := c.rec.Cancel; log != nil && !log.SignalledAt.IsZero() {
		log.EmptyAt = longstop.At(time.Now())
	}
	ran, why := true, (*longstop.LaunchError)(nil)
	if c.opened != nil {
		ran, why = c.opened()
	} else if c.stages != nil {
		ran, why = c.stages.outcome(c)
	}
	switch {
	case !ran && c.rec.State != longstop.WorkloadCancelling:
		c.rec.Main, c.rec.LaunchError, c.rec.EffectProof = nil, why, ""
		c.enter(longstop.WorkloadLaunchFailed)
	case proven && c.stages.nothing():
		c.enter(longstop.WorkloadFinished)
	case proven && c.stopped():
		c.enter(longstop.WorkloadCancelled)
	case proven && c.mainEnded:
		c.enter(longstop.WorkloadFinished)
		c.rec.Result, c.rec.Cause = result(c.rec.Main), ""
	default:
		c.lose(longstop.OwnerLost, proven)
	}
	c.finish()
}

func (c *custody) lastOutput() longstop.Output {
	if c.output == nil {
		return c.sizes()
	}
	out := c.output.end()
	c.output = nil
	return out
}

// stopped reports whether the run ends as cancelled: a signal of ours reached it, or the system that
// is going down ended it. Where nobody was left to signal, the cancel came too late.
func (c *custody) stopped() bool {
	if c.rec.State == longstop.WorkloadCancelling || c.rec.Cancel != nil && !c.rec.Cancel.SignalledAt.IsZero() {
		if c.rec.Cause == longstop.CauseSignal && goingDown(c.rec.Boundary) {
			c.rec.Cause = longstop.CauseShutdown
		}
		return true
	}
	if !c.mainEnded {
		return false
	}
	switch c.rec.Main.Signal { // not ours: those that go down with the system hear of it all at once
	case "TERM", "HUP", "KILL":
		if goingDown(c.rec.Boundary) {
			c.enter(longstop.WorkloadCancelling)
			c.rec.Cause = longstop.CauseShutdown
			return true
		}
	}
	return false
}

// lose is the end of a run whose main process's status nobody can know any more.
func (c *custody) lose(because longstop.UnknownReason, proven bool) {
	c.enter(longstop.WorkloadOrphaned)
	c.enter(longstop.WorkloadLost)
	c.rec.LostBecause, c.rec.EmptyProven = because, proven
	c.rec.Result = nil
}

// finish makes the final record durable. A disk that does not take it is asked again for as long as
// this process lives; the result is meanwhile told to whoever asks.
func (c *custody) finish() {
	c.hear(true)
	c.rec.OOM = c.within.oom()
	now := time.Now()
	c.rec.FinishedAt = longstop.At(now)
	c.stamp(now)
	fault.At("owner.finish")
	if err := c.seal(); err != nil {
		c.rec.Anomalies = append(c.rec.Anomalies, "the final record could not be written at first: "+err.Error())
		c.publish(wire.Sign(c.rec, c.secret))
		c.waiting = &ending{pause: time.Second}
		c.clock.set(boundary.BootNow().Add(c.waiting.pause))
		return
	}
	fault.At("owner.finished")
}

// seal writes the final record, or takes the one that somebody entitled to it wrote first.
func (c *custody) seal() error {
	raw, err := c.run.Finish(&c.rec, c.secret)
	if errors.Is(err, record.ErrFinal) {
		var rec longstop.Record
		if raw, rec, err = c.run.Read(); err == nil {
			c.rec = rec
		}
	}
	if err != nil {
		return err
	}
	c.ended(raw)
	c.letGo()
	return nil
}

// ended tells whoever waits that the run has its final record.
func (c *custody) ended(raw []byte) {
	if c.final {
		return
	}
	c.final = true
	c.publish(raw)
	close(c.done)
	runtime.Gosched() // they are told before things are put in order
	if c.awaited.Load() {
		time.Sleep(tidyAfter)
	}
}

// tidyAfter is how long what is put in order leaves the machine to the answer that is on its way.
const tidyAfter = 2 * time.Millisecond

func (c *custody) finishAgain(now longstop.BootTime) {
	if c.seal() == nil {
		return
	}
	c.waiting.pause = min(2*c.waiting.pause, 30*time.Second)
	c.clock.set(now.Add(c.waiting.pause))
}

func result(m *longstop.Main) *longstop.Result {
	return &longstop.Result{ExitCode: m.ExitCode, Signal: m.Signal}
}
