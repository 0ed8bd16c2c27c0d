package gateway_test

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestC115ClocksThatDisagree: a gateway whose clock is an hour off its host's. By how much is known, leases and
// deadlines do not go by it, what is told of them is by the gateway's own clock, and the order is that of asking.
func TestC115ClocksThatDisagree(t *testing.T) {
	t.Parallel()
	for name, shift := range map[string]time.Duration{"gateway ahead": 3601 * time.Second, "gateway behind": -3601 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sshtest.Options{})
			b.stop()
			b.shift = shift
			b.start()
			host, err := b.CheckHost(t.Context(), "loop", func(string) {})
			b.must(err)
			if off := time.Duration(host.Hello.ClockAheadMS)*time.Millisecond + shift; off.Abs() > time.Second {
				t.Errorf("the host's clock is said to be %d ms ahead, the gateway's is by %v", host.Hello.ClockAheadMS, shift)
			}
			leased := script("sleep 4; exit 4")
			leased.Request.LeaseS, leased.Request.GraceS = 1.5, 1
			first := b.run(leased)
			b.until(first.ID, "its lease, by the gateway's clock", func(a longstop.Action) bool {
				l := a.Workload.Lease
				return l != nil && l.ExpiresAt.Sub(time.Now().Add(shift)).Abs() < 10*time.Second
			})
			bounded := script("sleep 60")
			bounded.Request.DeadlineS, bounded.Request.GraceS = 1, 1
			second := b.run(bounded)
			if a := b.wait(second.ID); a.Outcome != longstop.OutcomeCancelled || a.Workload.Cause != longstop.CauseDeadline {
				t.Errorf("its deadline: %s", pretty(a))
			}
			if a := b.wait(first.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 { // it outlived its first lease
				t.Errorf("its lease: %s", pretty(a))
			}
			all, err := b.Actions(t.Context(), gateway.ActionFilter{All: true})
			b.must(err)
			if len(all) != 2 || all[0].ID != second.ID {
				t.Errorf("the order: %s", pretty(all))
			}
		})
	}
}
