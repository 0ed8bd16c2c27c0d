package lifecycle_test

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

func nothingToDo(r *longstop.Record) {
	r.Main, r.Result = nil, nil
	r.Preflight = &longstop.Check{State: longstop.CheckNothingToDo, ExitCode: ptr(longstop.PreflightDone)}
}

func proven(r *longstop.Record) {
	r.EffectProof, r.Verify = longstop.ProofPassed, &longstop.Check{State: longstop.CheckPassed, ExitCode: ptr(0)}
}

// A preflight's word is the outcome of work that did not run, and of no other.
func TestNothingToDoIsASuccessWithoutAResult(t *testing.T) {
	t.Parallel()
	a := action()
	if changed, says := lifecycle.Observe(a, record(3, longstop.WorkloadFinished, nothingToDo), look()); !changed || says != "" {
		t.Fatalf("changed %t, %q", changed, says)
	}
	p := lifecycle.Project(*a, now, stale)
	if p.Outcome != longstop.OutcomeSucceeded || p.Alive != longstop.AliveNo || lifecycle.ExitStatus(&p) != 0 || !p.Retry.Allowed {
		t.Errorf("%s, alive %s, exit %d, %+v", p.Outcome, p.Alive, lifecycle.ExitStatus(&p), p.Retry)
	}
	for name, wrong := range map[string]func(*longstop.Record){
		"it ran":            func(r *longstop.Record) { r.Main = &longstop.Main{PID: 2, StartTime: 3, ExitCode: ptr(0)} },
		"a result":          func(r *longstop.Record) { r.Result = &longstop.Result{ExitCode: ptr(0)} },
		"another code":      func(r *longstop.Record) { r.Preflight.ExitCode = ptr(0) },
		"no code":           func(r *longstop.Record) { r.Preflight.ExitCode = nil },
		"something is left": func(r *longstop.Record) { r.Boundary.Empty = nil },
	} {
		if err := lifecycle.CheckRecord(record(3, longstop.WorkloadFinished, nothingToDo, wrong)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// An effect is called proven by a verify that passed after work that succeeded, and it changes no outcome.
func TestEffectProofStandsBesideTheResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rec  longstop.Record
		want bool
	}{
		"proven":            {record(3, longstop.WorkloadFinished, proven), true},
		"the work failed":   {record(3, longstop.WorkloadFinished, result(1), proven), false},
		"no verify":         {record(3, longstop.WorkloadFinished, proven, func(r *longstop.Record) { r.Verify = nil }), false},
		"the verify failed": {record(3, longstop.WorkloadFinished, proven, func(r *longstop.Record) { r.Verify.ExitCode = ptr(1) }), false},
		"it did not run":    {record(3, longstop.WorkloadLaunchFailed, proven), false},
	} {
		if err := lifecycle.CheckRecord(c.rec); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := action()
	lifecycle.Observe(a, record(3, longstop.WorkloadFinished, func(r *longstop.Record) {
		r.EffectProof, r.Verify = longstop.ProofFailed, &longstop.Check{State: longstop.CheckFailed, ExitCode: ptr(1)}
	}), look())
	if p := lifecycle.Project(*a, now, stale); p.Outcome != longstop.OutcomeSucceeded || p.Workload.EffectProof != longstop.ProofFailed {
		t.Errorf("%s, %s", p.Outcome, p.Workload.EffectProof)
	}
}

// How far the work says it is moves by itself; what it said at its end is news.
func TestProgressAloneChangesNothing(t *testing.T) {
	t.Parallel()
	a := action()
	lifecycle.Observe(a, record(3, longstop.WorkloadRunning), look())
	far := record(4, longstop.WorkloadRunning, func(r *longstop.Record) {
		r.Progress, r.Evidence = &longstop.Progress{Line: "half"}, map[string]string{"a": "1"}
	})
	if changed, says := lifecycle.Observe(a, far, look()); changed || says != "" || a.Workload.Progress.Line != "half" || a.Workload.Evidence["a"] != "1" {
		t.Errorf("changed %t, %q, %+v", changed, says, a.Workload)
	}
	if changed, _ := lifecycle.Observe(a, record(5, longstop.WorkloadFinished), look()); !changed {
		t.Error("an end is no change")
	}
}

// Law 3: that nobody answers for a run any more does not say that its work had begun.
func TestLaw3ADeadOwnerHadNotBegunByThat(t *testing.T) {
	t.Parallel()
	gone := look()
	gone.Orphaned = true
	unsigned := look()
	unsigned.Signed = false
	never := record(3, longstop.WorkloadLaunchFailed, by(longstop.WriterSuccessor))
	a := action()
	lifecycle.Observe(a, record(2, longstop.WorkloadStarting), gone)
	if _, says := lifecycle.Observe(a, never, unsigned); says != "" || a.Workload.State != longstop.WorkloadLaunchFailed {
		t.Errorf("%q, %s", says, a.Workload.State)
	}
	ran := action()
	lifecycle.Observe(ran, record(2, longstop.WorkloadRunning), gone)
	if _, says := lifecycle.Observe(ran, never, unsigned); says == "" || ran.Workload.State != longstop.WorkloadOrphaned {
		t.Errorf("of work that ran: %q, %s", says, ran.Workload.State)
	}
}
