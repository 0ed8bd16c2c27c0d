package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

func TestLimitsAreRead(t *testing.T) {
	t.Parallel()
	l, err := limits([]string{"open_files=7", "memory_bytes=512M", "cpu-percent=150", "tasks=20", "file_bytes=1000"})
	if err != nil || *l != (longstop.Limits{OpenFiles: 7, FileBytes: 1000, MemoryBytes: 512 << 20, CPUPercent: 150, Tasks: 20}) {
		t.Errorf("%+v, %v", l, err)
	}
	if got := limitTerms(l); got != "limits open_files=7 file_bytes=1000 memory_bytes=536870912 cpu_percent=150 tasks=20" {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"memory_bytes=", "memory_bytes=-1", "memory_bytes=0M", "memory_bytes=1X", "tasks=1K", "cpu_percent=1.5", "cpus=1", "tasks"} {
		if _, err := limits([]string{bad}); longstop.CodeOf(err) != longstop.CodeUsage {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if limitTerms(nil) != "" || limitTerms(&longstop.Limits{}) != "" {
		t.Error("limits that nobody asked for")
	}
}

func TestLimitOffers(t *testing.T) {
	t.Parallel()
	can := func(can bool) []longstop.LimitOffer {
		o := longstop.LimitOffer{Name: "tasks", Can: can}
		if !can {
			o.Because, o.Remedy = "no controller", "boot it otherwise"
		}
		return []longstop.LimitOffer{{Name: "open_files", Can: true}, o}
	}
	tree := longstop.BoundaryOffer{Kind: longstop.BoundaryTree, Can: true, Limits: can(false)}
	none := longstop.BoundaryOffer{Kind: longstop.BoundaryCgroup, Can: true, Limits: []longstop.LimitOffer{
		{Name: "memory_bytes", Because: "no memory", Remedy: "boot it otherwise"}, {Name: "tasks", Because: "no pids", Remedy: "boot it otherwise"}}}
	for _, c := range []struct {
		offers []longstop.BoundaryOffer
		want   []string
	}{
		{[]longstop.BoundaryOffer{none, tree}, []string{"no limit memory_bytes, tasks on a whole run: no memory · boot it otherwise"}},
		{[]longstop.BoundaryOffer{tree}, nil},
		{[]longstop.BoundaryOffer{{Kind: longstop.BoundaryCgroup, Can: true, Limits: can(false)}, tree}, []string{"no limit tasks on a whole run: no controller · boot it otherwise"}},
		{[]longstop.BoundaryOffer{{Kind: longstop.BoundarySystemd, Can: true, Limits: can(true)}, {Kind: longstop.BoundaryCgroup, Can: true, Limits: can(true)}, tree},
			[]string{"limits on a whole run: tasks (systemd, cgroup)"}},
	} {
		if got := limitOffers(c.offers); !slices.Equal(got, c.want) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// An end by the memory killer is named where the end is.
func TestOOMIsNamed(t *testing.T) {
	t.Parallel()
	a := longstop.Action{Outcome: longstop.OutcomeFailed, Alive: longstop.AliveNo, Workload: longstop.Workload{State: longstop.WorkloadFinished,
		Result: &longstop.Result{Signal: "KILL"}, OOM: &longstop.OOM{Kills: 2, AtLimit: true}}}
	const want = "the memory killer struck, at its own limit"
	for _, text := range []string{ending(&a), strings.Join(workloadWords(&a, time.Now()), " ")} {
		if !strings.Contains(text, want) {
			t.Errorf("%q", text)
		}
	}
	a.Workload.OOM = nil
	if text := ending(&a); strings.Contains(text, "memory") {
		t.Errorf("%q", text)
	}
}
