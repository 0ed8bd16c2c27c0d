package runner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// A record names whom a run released. Whoever those start later, and leave behind, is the run's as well,
// whether known by its mark or, with none, by its cgroup; and goes with a cancel.
func TestReleasedStartOthers(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]string{"marked": "", "in its cgroup": "env -i "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			sub := l.request(longstop.Request{Leftover: longstop.LeftoverRelease,
				Script: "(while ! test -e go; do sleep 0.02; done; " + later + "setsid sleep 1235 >>later & echo >>later) &"})
			l.submit(sub)
			rec := l.final(sub.RunID)
			if later != "" && rec.Boundary.Kind != longstop.BoundaryCgroup {
				t.Skip("skipped: no cgroup can be made here")
			}
			l.touch("go")
			l.has("later", 1)
			eventually(t, "those of the record are gone", func() bool {
				for _, p := range rec.Released {
					if boundary.Is(boundary.Identity{PID: p.PID, Start: p.StartTime}) {
						return false
					}
				}
				return true
			})
			var alive []longstop.Process
			eventually(t, "the one that they started is seen", func() bool { // in the middle of an exec it has another name
				alive = releasedAlive(rec)
				return len(alive) == 1 && strings.Contains(alive[0].Command, "sleep 1235")
			}, func() string { return fmt.Sprintf("%+v", alive) })
			answer, _ := l.cancel(sub.RunID, time.Second, 10*time.Second)
			s, err := boundary.Look(alive[0].PID)
			if len(answer.Survivors) > 0 || err == nil && s.Start == alive[0].StartTime && !s.Dead() {
				t.Errorf("after a cancel: %+v, %+v", answer.Survivors, s)
			}
			l.nobody(sub.RunID)
		})
	}
}

// A watch tells when nobody lives any more of those that a run released.
func TestWatchTellsOfTheReleased(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("sleep 1236 & exit 0")
	sub.Request.Leftover = longstop.LeftoverRelease
	c := s.serve()
	watch := c.send(s.ask(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 200}))
	s.submit(sub)
	told := func(what string, living bool) longstop.Record {
		for {
			for _, run := range c.pushed(watch).Runs {
				if rec := s.verify(run.RunID, run.Record); run.RunID == sub.RunID && rec.State.Final() {
					if len(run.Released) > 0 != living {
						t.Fatalf("%s: %+v", what, run)
					}
					return rec
				}
			}
		}
	}
	rec := told("at the end", true)
	for _, p := range rec.Released {
		if err := boundary.Signal(boundary.Identity{PID: p.PID, Start: p.StartTime}, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	told("once it is gone", false)
}
