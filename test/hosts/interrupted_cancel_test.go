//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// station is a part of the way that a cancel takes, and how it is interrupted there.
type station struct {
	name string
	// strike does the harm, once the wait from the start of the command is over; mend undoes what lasts.
	wait   time.Duration // at most
	strike func(t *testing.T, l *lane, random *rand.Rand) (mend func())
}

var stations = []station{
	{"decision", 15 * time.Millisecond, func(t *testing.T, l *lane, _ *rand.Rand) func() {
		l.signalAll(l.g.daemons(t))
		return nil
	}},
	{"gateway to ssh", 40 * time.Millisecond, func(t *testing.T, l *lane, random *rand.Rand) func() {
		l.signalAll(l.g.masters(t))
		if random.IntN(3) == 0 {
			l.signalAll(l.g.daemons(t))
		}
		return nil
	}},
	{"ssh to host", 30 * time.Millisecond, func(t *testing.T, l *lane, random *rand.Rand) func() {
		l.h.Cut(t)
		if random.IntN(2) == 0 {
			time.Sleep(upTo(random, 300*time.Millisecond))
			l.signalAll(l.g.masters(t))
		}
		return func() { l.h.Heal(t) }
	}},
	{"host to boundary", 400 * time.Millisecond, func(t *testing.T, l *lane, random *rand.Rand) func() {
		l.signalOne([]string{"owner", "verb", "verb", "keeper"}[random.IntN(4)], random)
		return nil
	}},
}

// TestLaw6CancelInterrupted interrupts cancels at each station of their way, on programs as they are shipped:
// what is shown is true of the host at once and in the end; a cancel that was taken ends with nothing left, and
// one that was not leaves the work alone. LONGSTOP_TRIES says how many at each station, LONGSTOP_SEED repeats.
func TestLaw6CancelInterrupted(t *testing.T) {
	t.Parallel()
	seed, tries := p5Seed(t), 8
	if n, err := strconv.Atoi(os.Getenv("LONGSTOP_TRIES")); err == nil {
		tries = n
	}
	var all sync.WaitGroup
	for n, at := range stations {
		all.Go(func() {
			t.Run(at.name, func(t *testing.T) {
				l := newLane(t, at.name, true)
				taken := 0
				for i := range tries {
					c := &interrupted{lane: l, at: at, key: fmt.Sprintf("law6-%d-%d-%d", seed, n, i), random: rand.New(rand.NewPCG(seed, uint64(n)<<32|uint64(i)))}
					if c.cancel(t) {
						taken++
					}
					if t.Failed() {
						t.Fatalf("repeat with: LONGSTOP_SEED=%d LONGSTOP_TRIES=%d go test -tags hosts -run TestLaw6CancelInterrupted ./test/hosts", seed, tries)
					}
				}
				t.Logf("%d of %d cancels were taken", taken, tries)
			})
		})
	}
	all.Wait()
}

// interrupted is one cancel of one run.
type interrupted struct {
	*lane
	at     station
	key    string
	random *rand.Rand
	effect longstop.Effect
	id     longstop.ActionID
	run    longstop.RunID
}

// stubborn is work of three processes that says when it is there. $T is how it takes TERM.
const stubborn = `trap "$T" TERM; (setsid sh -c 'trap "$T" TERM; while :; do sleep 0.05; done' &); setsid sleep 300 & echo ready; echo ready >%s; while :; do sleep 0.05; done`

// cancel runs it, and reports whether the cancel was taken.
func (c *interrupted) cancel(t *testing.T) (taken bool) {
	c.launch(t)
	command := c.g.start(t, "cancel", string(c.id))
	time.Sleep(upTo(c.random, c.at.wait))                 // the moment is the test's input
	if c.at.name == "decision" && c.random.IntN(2) == 0 { // and nobody asks again
		command.Process.Kill()
	}
	mend := c.at.strike(t, c.lane, c.random)
	if mend != nil {
		time.Sleep(upTo(c.random, time.Second))
		c.shown(t)
		mend()
	}
	a := c.shown(t)
	command.end(t, 90*time.Second)
	if a.Cancel.State == longstop.CancelNone {
		if a = c.g.show(t, c.id); a.Cancel.State == longstop.CancelNone { // the command may have asked again by now
			c.untouched(t)
			c.g.must(t, "cancel", string(c.id))
		}
	} else {
		taken = true
	}
	c.over(t, c.g.final(t, c.id, 90*time.Second))
	return taken
}

func (c *interrupted) launch(t *testing.T) {
	t.Helper()
	T := []string{"", "exit 0"}[c.random.IntN(2)]
	c.effect = []longstop.Effect{longstop.EffectOnce, longstop.EffectIdempotent}[c.random.IntN(2)]
	file := "/home/deploy/" + c.key
	c.id = c.g.launch(t, "--grace", "300ms", "--effect", string(c.effect), "--env", "T="+T, c.h.Name, "-c", fmt.Sprintf(stubborn, file))
	eventually(t, 20*time.Second, "three processes of "+c.key, func() bool { return c.in.lines(file) == 1 })
	c.run = c.g.show(t, c.id).RunID
}

// shown holds what is shown against the host, as it is just after: nobody comes back.
func (c *interrupted) shown(t *testing.T) longstop.Action {
	t.Helper()
	a := c.g.show(t, c.id)
	after := len(c.in.marked()[c.run])
	switch {
	case after > 0 && (a.Alive == longstop.AliveNo || a.Cancel.State == longstop.CancelConfirmed || a.Outcome == longstop.OutcomeCancelled):
		t.Errorf("%s, %s interrupted: said to be over, and %d processes live:\n%s", c.key, c.at.name, after, pretty(a))
	case after > 0 && (a.Retry == nil || a.Retry.Allowed):
		t.Errorf("%s, %s interrupted: said to be retried freely, and %d processes live:\n%s", c.key, c.at.name, after, pretty(a))
	case a.Outcome == longstop.OutcomeSucceeded, a.Outcome == longstop.OutcomeFailed, a.Outcome == longstop.OutcomeNotStarted:
		t.Errorf("%s, %s interrupted: %s", c.key, c.at.name, pretty(a))
	}
	return a
}

// untouched: nobody was told to stop anything.
func (c *interrupted) untouched(t *testing.T) {
	t.Helper()
	a := c.g.await(t, c.id, 60*time.Second, "a look at the host", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	if n := len(c.in.marked()[c.run]); n < 3 || a.Workload.State != longstop.WorkloadRunning && a.Workload.State != longstop.WorkloadOrphaned {
		t.Errorf("%s, %s interrupted: no cancel was taken, and %d processes live:\n%s", c.key, c.at.name, n, pretty(a))
	}
}

// over: nothing is left, the host says what is shown, the output is there, and whether it may run again is said.
func (c *interrupted) over(t *testing.T, a longstop.Action) {
	t.Helper()
	if pids := c.in.marked()[c.run]; len(pids) > 0 || a.Alive != longstop.AliveNo || a.Outcome != longstop.OutcomeCancelled ||
		a.Cancel.State != longstop.CancelConfirmed || a.Workload.Cause != longstop.CauseRequest {
		t.Errorf("%s, %s interrupted: in the end %d processes live, and\n%s", c.key, c.at.name, len(pids), pretty(a))
	}
	if rec := c.in.final(t, c.run); rec.State != a.Workload.State || rec.Sequence != a.Workload.Sequence {
		t.Errorf("%s: the host says %s\n%s", c.key, pretty(rec), pretty(a))
	}
	if r := c.g.longstop(t, "logs", string(c.id)); r.stdout != "ready\n" {
		t.Errorf("%s: its output: %s", c.key, r)
	}
	c.retried(t)
}

// retried: with nothing left of it, the effect decides, and a retry does what show says of it.
func (c *interrupted) retried(t *testing.T) {
	t.Helper()
	a := c.g.show(t, c.id)
	may := c.effect == longstop.EffectIdempotent
	if a.Retry == nil || a.Retry.Allowed != may {
		t.Errorf("%s: effect %s, and of a retry it is said\n%s", c.key, c.effect, pretty(a.Retry))
	}
	r := c.g.longstop(t, "retry", string(c.id), "-d", "--env", "T=exit 0")
	if !may {
		if r.status != 251 || !strings.Contains(r.stderr, a.Retry.Because) {
			t.Errorf("%s: a retry that show forbids: %s", c.key, r)
		}
		return
	}
	next := longstop.ActionID(strings.TrimSpace(r.stdout))
	if r.status != 0 || c.g.show(t, next).RetryOf != c.id {
		t.Fatalf("%s: a retry that show allows: %s", c.key, r)
	}
	c.g.must(t, "cancel", string(next))
}
