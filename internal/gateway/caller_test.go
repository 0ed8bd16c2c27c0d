package gateway_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestC137CallersGo: who stops waiting, or goes in the middle of a launch, changes nothing about the work, and leaves
// nobody here who waits for him. Stopping is asked for, and not for what is over or unknown.
func TestC137CallersGo(t *testing.T) {
	b := newBench(t, sshtest.Options{}) // not beside others: goroutines are counted
	a := b.run(script("sleep 300"))
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		all.Go(func() {
			if seen, err := b.Wait(ctx, string(a.ID)); !errors.Is(err, context.Canceled) || seen.ID != a.ID || seen.Alive != longstop.AliveYes || seen.Next == "" {
				t.Errorf("%v\n%s", err, pretty(seen))
			}
		})
		all.Go(leave)
	}
	all.Wait()
	left := b.launchAndLeave(script("sleep 300")).ID
	for _, id := range []longstop.ActionID{a.ID, left} {
		b.until(id, "it runs on", func(a longstop.Action) bool {
			return a.Workload.State == longstop.WorkloadRunning && a.Alive == longstop.AliveYes && a.Cancel.State == longstop.CancelNone
		})
	}
	sshtest.Eventually(t, "nobody waits here any more", func() bool { return runtime.NumGoroutine() <= before+5 })

	for _, id := range []longstop.ActionID{a.ID, left} {
		if over := b.cancel(id, nil); over.Outcome != longstop.OutcomeCancelled {
			t.Errorf("%s", pretty(over))
		}
	}
	c := b.run(script("exit 3"))
	b.wait(c.ID)
	if c = b.cancel(c.ID, nil); c.Outcome != longstop.OutcomeFailed || c.Cancel.State != longstop.CancelNone {
		t.Errorf("a cancel of what is over:\n%s", pretty(c))
	}
	if _, err := b.Cancel(t.Context(), "act_0NE0NE0NE0NE0NE", operator, nil); longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Errorf("a cancel of what nobody knows: %v", err)
	}
}

// TestC143TimesAreEchoed: what was asked for is in the action, or is refused; nothing is put in its place.
func TestC143TimesAreEchoed(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	for _, deadline := range []float64{0, 0.5, 1, 29, 31, 300, 86400, 1e9} {
		req := script("sleep 0.2")
		req.Request.DeadlineS, req.Request.GraceS, req.Request.LeaseS = deadline, 7, 90
		a := b.run(req)
		if got := a.Request; got.DeadlineS != deadline || got.GraceS != 7 || got.LeaseS != 90 {
			t.Errorf("asked for %g: %s", deadline, pretty(got))
		}
		if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded {
			t.Errorf("%s", pretty(a))
		}
	}
	for _, deadline := range []float64{-1, 1e12} {
		req := script("true")
		req.Request.DeadlineS = deadline
		if a, err := b.Run(t.Context(), req, operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeUsage || a.ID != "" {
			t.Errorf("a deadline of %g: %v\n%s", deadline, err, pretty(a))
		}
	}
	// How long one waits is another matter: it bounds the wait.
	a := b.run(script("sleep 300"))
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if a, err := b.Wait(ctx, string(a.ID)); !errors.Is(err, context.DeadlineExceeded) || a.Alive != longstop.AliveYes || time.Since(began) > 20*time.Second {
		t.Errorf("%v\n%s", err, pretty(a))
	}
	b.cancel(a.ID, nil)
}
