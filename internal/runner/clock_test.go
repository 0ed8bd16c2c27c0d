package runner

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// C116: the wall clock is set while a run goes on: times jump with it, how long it ran does not, and by how much it was
// set is on record. The clock of the machine is not a test's to set: records of other times stand in for that.
func TestC116TheWallClockIsSet(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := &custody{rec: longstop.Record{At: longstop.At(began), StartedAt: longstop.At(began), BootAt: boundary.BootNow()}}
	day := 24 * time.Hour
	for _, set := range []time.Duration{0, 400 * time.Millisecond, day, -day, -2 * day} {
		c.stamp(time.Now().Add(set))
		if got := time.Duration(c.rec.ClockSetMS) * time.Millisecond; (got - set).Abs() > time.Second {
			t.Errorf("set by %v: %v", set, got)
		}
	}
	c.rec.FinishedAt = c.rec.At
	if ran := c.rec.FinishedAt.Sub(c.rec.StartedAt.Time) - time.Duration(c.rec.ClockSetMS)*time.Millisecond; ran.Abs() > 3*time.Second {
		t.Errorf("it ran for %v", ran)
	}

	// Nobody sets it in between: nothing is said.
	l := newLab(t)
	sub := l.script("sleep 1.2; exit 4")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 4) || rec.ClockSetMS != 0 {
		t.Errorf("%s", show(rec))
	}
}
