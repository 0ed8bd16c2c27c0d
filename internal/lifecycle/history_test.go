package lifecycle_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// history is the records of one run, from its first to its final one, by the table.
func history(random *rand.Rand) []longstop.Record {
	var records []longstop.Record
	sequence := uint64(random.IntN(2)) // whether a writer counts from 0 or 1
	for s := longstop.WorkloadNone; !s.Final(); sequence++ {
		var next []longstop.WorkloadState
		for _, to := range lifecycle.Workloads.States {
			if lifecycle.Workloads.Allows(s, to) {
				next = append(next, to)
			}
		}
		s = next[random.IntN(len(next))]
		records = append(records, record(sequence, s))
	}
	return records
}

// However records arrive — late, in any order, repeated, some never — the facts are those of the
// newest that came, nothing contradicts, and once the final one came nothing changes any more.
func TestLaw2FinalStatesNeverChangeHoweverRecordsArrive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		records := history(random)
		a := action(launch(longstop.LaunchUnknown), cancel(longstop.CancelRequested))
		newest := -1
		for range 2 * len(records) {
			i := random.IntN(len(records))
			before := *a
			_, says := lifecycle.Observe(a, records[i], live())
			if says != "" {
				t.Fatalf("seed %d: %s", seed, says)
			}
			if before.Workload.State.Final() && !reflect.DeepEqual(before.Workload, a.Workload) {
				t.Fatalf("seed %d: %+v became %+v", seed, before.Workload, a.Workload)
			}
			newest = max(newest, i)
			if a.Workload.State != records[newest].State || a.Workload.Sequence != records[newest].Sequence {
				t.Fatalf("seed %d: %s of record %d, want %s", seed, a.Workload.State, a.Workload.Sequence, records[newest].State)
			}
			if why := broken(a, lifecycle.Judge(a, now, stale)); why != "" {
				t.Fatalf("seed %d: %s", seed, why)
			}
		}
	}
}

// A second end is told, and changes nothing, whenever it was written and whoever wrote it.
func TestLaw2ASecondEndIsAContradiction(t *testing.T) {
	t.Parallel()
	ends := finals(lifecycle.Workloads)
	for _, first := range ends {
		for _, second := range ends {
			if first == second {
				continue
			}
			for _, sequence := range []uint64{2, 3, 4} {
				a := action()
				lifecycle.Observe(a, record(3, first), live())
				before := *a
				changed, says := lifecycle.Observe(a, record(sequence, second), live())
				if changed || says == "" || !reflect.DeepEqual(before, *a) {
					t.Errorf("%s, then %s with number %d: changed %t, %q", first, second, sequence, changed, says)
				}
			}
		}
	}
}

// What a channel did says nothing about the work.
func TestLaw1C025ALostChannelSaysNothingAboutTheWork(t *testing.T) {
	t.Parallel()
	a := action(work(longstop.WorkloadRunning), func(a *longstop.Action) {
		a.SSHCommand = longstop.SSHCommand{State: longstop.SSHLost}
	})
	if v := lifecycle.Judge(a, now, stale); v.Outcome != longstop.OutcomePending || v.Alive != longstop.AliveYes {
		t.Errorf("judged %+v", v)
	}
	lifecycle.CannotSee(a, longstop.Unreachable, "", ago(0))
	if v := lifecycle.Judge(a, now, stale); v.Outcome != longstop.OutcomeUnknown || v.Alive != longstop.AliveUnknown {
		t.Errorf("not seen: judged %+v", v)
	}
	lifecycle.Observe(a, record(9, longstop.WorkloadFinished, result(4)), live())
	p := lifecycle.Project(*a, now, stale)
	if lifecycle.ExitStatus(&p) != 4 || p.SSHCommand.State != longstop.SSHLost {
		t.Errorf("exit %d, ssh_command %s", lifecycle.ExitStatus(&p), p.SSHCommand.State)
	}
}

func TestCheckRecord(t *testing.T) {
	t.Parallel()
	for _, s := range lifecycle.Workloads.States {
		err := lifecycle.CheckRecord(record(1, s))
		if (err == nil) == (s == longstop.WorkloadNone) {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, c := range []struct {
		name   string
		rec    longstop.Record
		change func(*longstop.Record)
		want   string
	}{
		{"of a later version", record(1, longstop.WorkloadRunning), func(r *longstop.Record) { r.Version = 2 }, "version 2"},
		{"of no version", record(1, longstop.WorkloadRunning), func(r *longstop.Record) { r.Version = 0 }, "version 0"},
		{"of a later state", record(1, "paused"), func(*longstop.Record) {}, "no state"},
		{"by nobody", record(1, longstop.WorkloadRunning), by(""), "writes records"},
		{"by a gateway", record(1, longstop.WorkloadRunning), by("gateway"), "writes records"},
		{"running with a result", record(1, longstop.WorkloadRunning), result(0), "running with a result"},
		{"lingering with a result", record(1, longstop.WorkloadLingering), result(0), "lingering with a result"},
		{"lost with a result", record(1, longstop.WorkloadLost), func(r *longstop.Record) { r.Result = &longstop.Result{ExitCode: ptr(0)} }, "lost with a result"},
		{"cancelled with a result", record(1, longstop.WorkloadCancelled), func(r *longstop.Record) { r.Result = &longstop.Result{Signal: "TERM"} }, "cancelled with a result"},
		{"lingering, main running", record(1, longstop.WorkloadLingering), func(r *longstop.Record) { r.Main.ExitCode = nil }, "has not ended"},
		{"two ends", record(1, longstop.WorkloadLingering), func(r *longstop.Record) { r.Main.Signal = "TERM" }, "two ways"},
		{"finished without a result", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Result = nil }, "one result"},
		{"finished with an empty result", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Result = &longstop.Result{} }, "one result"},
		{"finished, main running", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Main.ExitCode = nil }, "has not ended"},
		{"finished without a main", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Main = nil }, "has not ended"},
		{"a made-up code", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Main.ExitCode = ptr(1) }, "not how the main"},
		{"a made-up code for a signal", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Main.ExitCode, r.Main.Signal = nil, "KILL" }, "not how the main"},
		{"finished, not empty", record(1, longstop.WorkloadFinished), func(r *longstop.Record) { r.Boundary.Empty = nil }, "not proven empty"},
		{"cancelled, not empty", record(1, longstop.WorkloadCancelled), func(r *longstop.Record) { r.Boundary.Empty = ptr(false) }, "not proven empty"},
		{"cancelled by nothing", record(1, longstop.WorkloadCancelled), func(r *longstop.Record) { r.Cause = "" }, "without a cause"},
		{"failed without an error", record(1, longstop.WorkloadLaunchFailed), func(r *longstop.Record) { r.LaunchError = nil }, "without an error"},
		{"lost without a reason", record(1, longstop.WorkloadLost), func(r *longstop.Record) { r.LostBecause = "" }, "lost because"},
		{"lost for want of a network", record(1, longstop.WorkloadLost), func(r *longstop.Record) { r.LostBecause = longstop.Unreachable }, "lost because"},
	} {
		c.change(&c.rec)
		if err := lifecycle.CheckRecord(c.rec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for _, change := range []func(*longstop.Record){releasing, func(r *longstop.Record) { r.Boundary.Empty, r.Leftover = nil, longstop.LeftoverRelease }} {
		if err := lifecycle.CheckRecord(record(1, longstop.WorkloadFinished, change)); err != nil {
			t.Errorf("finished, releasing: %v", err)
		}
	}
}
