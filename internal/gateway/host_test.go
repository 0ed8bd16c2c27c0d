package gateway

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// TestResolvedStaysResolved: commits are told in any order, and the one that resolved an action may be
// told before an earlier one. Waiters read what is kept here: they would wait for ever.
func TestResolvedStaysResolved(t *testing.T) {
	h := newHost(&Gateway{ctx: t.Context()}, sqlite.Host{})
	a := longstop.Action{ID: "act_1", RunID: "run_1", Revision: 2, Launch: longstop.Launch{State: longstop.LaunchSent}}
	h.take(&run{action: a, secret: []byte("secret")})
	accepted, final := a, a
	accepted.Revision, accepted.Launch.State, accepted.Workload.State = 3, longstop.LaunchAccepted, longstop.WorkloadRunning
	final.Revision, final.Launch.State, final.Workload.State = 4, longstop.LaunchAccepted, longstop.WorkloadFinished
	h.keep(final)
	h.keep(accepted)
	if kept, is := h.kept(a.ID); is {
		t.Errorf("revision %d is kept as unresolved", kept.Revision)
	}
}
