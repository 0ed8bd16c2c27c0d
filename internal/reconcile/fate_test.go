package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
)

// host is as much of a host as one run needs: a key that is claimed or void, a submit that may
// still be under way, a run that goes on by chance.
type host struct {
	random   *rand.Rand
	underWay bool // the submit has not arrived, and may
	claimed  bool
	void     bool
	ran      bool
	records  []longstop.Record
	down     bool
}

func (h *host) state() longstop.WorkloadState {
	if len(h.records) == 0 {
		return longstop.WorkloadNone
	}
	return h.records[len(h.records)-1].State
}

func (h *host) write(s longstop.WorkloadState) {
	h.records = append(h.records, record(uint64(len(h.records)+1), s))
	h.ran = h.ran || s == longstop.WorkloadRunning
}

// tick lets time pass there.
func (h *host) tick() {
	h.down = h.random.IntN(3) == 0
	if h.underWay && h.random.IntN(4) == 0 {
		h.underWay = false
		h.claimed = h.claimed || !h.void // a void key refuses
		return
	}
	if !h.claimed || h.state().Final() || h.random.IntN(2) == 0 {
		return
	}
	switch h.state() {
	case longstop.WorkloadNone:
		h.write(longstop.WorkloadStarting)
	case longstop.WorkloadStarting:
		h.write(longstop.WorkloadRunning)
	default:
		if h.random.IntN(5) == 0 {
			h.write(longstop.WorkloadFinished)
		}
	}
}

func (h *host) sight(at time.Time) reconcile.Sight {
	switch {
	case h.void:
		return reconcile.Voided{}
	case !h.claimed:
		return reconcile.NotFound{}
	case len(h.records) == 0:
		return reconcile.Claimed{}
	}
	seen := saw(h.records[len(h.records)-1])
	seen.Sighting.At = longstop.At(at)
	return seen
}

// answer performs what the gateway would send, and says what it learns by it.
func (h *host) answer(a *longstop.Action, step reconcile.Step, at time.Time) reconcile.Sight {
	gone := reconcile.Blocked{Because: longstop.Unreachable}
	if h.down {
		if _, asked := step.(reconcile.AskCancel); asked && lifecycle.Cancels.Allows(a.Cancel.State, longstop.CancelUnconfirmed) {
			a.Cancel.State = longstop.CancelUnconfirmed
		}
		return gone
	}
	lost := h.random.IntN(5) == 0 // it is done, and the answer does not arrive
	switch step.(type) {
	case reconcile.Void:
		h.void = h.void || !h.claimed
	case reconcile.AskCancel:
		if !h.state().Final() && h.claimed {
			h.write(longstop.WorkloadCancelled)
		}
	}
	if lost {
		return gone
	}
	return h.sight(at)
}

// Whatever is lost on the way: once the host can be reached often enough, every action ends where
// its host says, the gateway never says not started of work that ran or could still start, and a
// wanted cancel leaves nothing running.
func TestLaws3And5And10EveryFateIsSettledAsTheHostHasIt(t *testing.T) {
	t.Parallel()
	fates := map[string]int{}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 2))
		h := &host{random: random, underWay: true}
		a := action([]longstop.LaunchState{longstop.LaunchSent, longstop.LaunchUnknown}[random.IntN(2)])
		at, cancelAt := now, random.IntN(40)
		settled := false
		for turn := 0; turn < 500 && !settled; turn++ {
			at = at.Add(time.Second)
			h.tick()
			if turn == cancelAt && random.IntN(2) == 0 && a.Launch.State != longstop.LaunchRejected {
				a.Cancel = longstop.Cancel{State: longstop.CancelRequested, At: longstop.At(at)}
			}
			if err := settle(h, &a, at); err != nil {
				t.Fatalf("seed %d, turn %d: %v", seed, turn, err)
			}
			settled = !a.Unresolved()
			v := lifecycle.Judge(&a, at, time.Minute)
			if v.Outcome == longstop.OutcomeNotStarted && (h.ran || h.claimed || !h.void) {
				t.Fatalf("seed %d: %+v, and the host has %+v", seed, v, h)
			}
		}
		if !settled {
			t.Fatalf("seed %d: launch %s, workload %s, cancel %s, host %+v", seed, a.Launch.State, a.Workload.State, a.Cancel.State, h)
		}
		if a.Launch.State == longstop.LaunchAccepted && a.Workload.State != h.state() {
			t.Fatalf("seed %d: workload %s, the host has %s", seed, a.Workload.State, h.state())
		}
		switch a.Cancel.State {
		case longstop.CancelNone, longstop.CancelConfirmed, longstop.CancelTooLate:
		default:
			t.Fatalf("seed %d: settled with a cancel %s", seed, a.Cancel.State)
		}
		fates[fmt.Sprint(a.Launch.State, " ", a.Workload.State, " ", a.Cancel.State)]++
	}
	for _, fate := range []string{"rejected none none", "rejected none confirmed", "accepted finished none", "accepted finished too_late", "accepted cancelled confirmed"} {
		if fates[fate] == 0 {
			t.Errorf("no seed ended as %s: %v", fate, fates)
		}
	}
}

// settle is one round of the gateway: decide, do, learn, until the rules say to wait.
func settle(h *host, a *longstop.Action, at time.Time) error {
	var sight reconcile.Sight = reconcile.NotAsked{}
	for range 10 {
		var next reconcile.Sight
		for _, step := range reconcile.Decide(*a, sight, at) {
			switch step := step.(type) {
			case reconcile.MarkUnknown:
				state, err := lifecycle.Launches.Step(a.Launch.State, longstop.LaunchUnknown)
				if err != nil {
					return err
				}
				a.Launch.State = state
			case reconcile.Accept:
				state, err := lifecycle.Launches.Step(a.Launch.State, longstop.LaunchAccepted)
				if err != nil {
					return err
				}
				a.Launch.State = state
			case reconcile.ApplyRecord:
				if _, says := lifecycle.Observe(a, step.Seen.Record, step.Seen.Sighting); says != "" {
					return fmt.Errorf("a contradiction: %s", says)
				}
			case reconcile.Reject:
				if err := lifecycle.Reject(a, step.Because, step.Message, longstop.At(at)); err != nil {
					return err
				}
			case reconcile.CannotSee:
				lifecycle.CannotSee(a, step.Because, step.Message, longstop.At(at))
			case reconcile.Find, reconcile.Look, reconcile.Void, reconcile.AskCancel:
				next = h.answer(a, step, at)
			}
		}
		if next == nil {
			return nil
		}
		sight = next
	}
	return nil
}
