package main

import (
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

func TestUnitLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit longstop.Unit
		want []string
	}{
		{longstop.Unit{Manager: "user", Name: "a.service", ActiveState: "active", SubState: "running", Result: "success"}, []string{"a.service of the user manager", "active (running)"}},
		{longstop.Unit{Manager: "system", Name: "a.service", ActiveState: "failed", SubState: "failed", Result: "signal"}, []string{"a.service of the system manager", "failed (failed)", "result signal"}},
		{longstop.Unit{Manager: "system", Name: "a\x1b.service", Forgotten: true}, []string{`a\x1b.service of the system manager`, "forgotten since"}},
	} {
		if got := unitLine(&c.unit); !slices.Equal(got, c.want) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

func TestBoundaryOffers(t *testing.T) {
	t.Parallel()
	tree := longstop.BoundaryOffer{Kind: longstop.BoundaryTree, Can: true}
	for _, c := range []struct {
		offers []longstop.BoundaryOffer
		want   []string
	}{
		{[]longstop.BoundaryOffer{tree, {Kind: longstop.BoundaryCgroup, Because: "read-only"}}, nil},
		{[]longstop.BoundaryOffer{{Kind: longstop.BoundarySystemd, Can: true, Manager: "user"}, {Kind: longstop.BoundaryCgroup, Can: true}, tree},
			[]string{"boundaries: systemd (its user manager's), cgroup, tree"}},
		{[]longstop.BoundaryOffer{tree, {Kind: longstop.BoundarySystemd, Remedy: "loginctl enable-linger deploy"}, {Kind: longstop.BoundaryCgroup, Remedy: "loginctl enable-linger deploy"}},
			[]string{"boundaries it could have, too, after loginctl enable-linger deploy there: systemd, cgroup"}},
	} {
		if got := boundaryOffers(c.offers); !slices.Equal(got, c.want) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// C115: how long a run has gone on is told by a clock that both ends of it are by.
func TestC115HowLongByOneClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		a := longstop.Action{CreatedAt: longstop.At(now.Add(-5 * time.Minute)), Launch: longstop.Launch{State: longstop.LaunchAccepted},
			Alive: longstop.AliveYes, Outcome: longstop.OutcomePending,
			Workload: longstop.Workload{State: longstop.WorkloadRunning, StartedAt: longstop.At(now.Add(off - 5*time.Minute))}}
		if got := lasted(&a, now); got != rough(5*time.Minute) {
			t.Errorf("the host's clock is %v ahead: it goes on for %s", off, got)
		}
	}
}
