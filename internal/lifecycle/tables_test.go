package lifecycle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop/internal/lifecycle"
)

// What the design says of each fact, in its own notation: "a b > c d" allows c and d after a and b.
// Written apart from the tables; every pair of states is tried against both.
var (
	approvals = `pending > granted denied expired; granted > consumed expired revoked; consumed > revoked`
	launches  = `not_attempted > sent rejected; sent > accepted rejected unknown; unknown > accepted rejected`
	channels  = `not_opened > carried lost open; open > exited signaled no_status lost`
	workloads = `none > queued starting running lingering cancelling; queued > starting running lingering cancelling;
		starting > running lingering cancelling; running > lingering cancelling; lingering > cancelling;
		starting running > launch_failed; starting running lingering > finished; cancelling > cancelled;
		starting running lingering cancelling > orphaned; orphaned > finished cancelled lost`
	cancels = `none > requested; requested > delivered; delivered > confirmed refused too_late;
		requested delivered > unconfirmed; unconfirmed > delivered confirmed refused too_late;
		refused too_late > requested`
)

func TestApprovals(t *testing.T)   { t.Parallel(); allPairs(t, lifecycle.Approvals, approvals) }
func TestLaunches(t *testing.T)    { t.Parallel(); allPairs(t, lifecycle.Launches, launches) }
func TestSSHCommands(t *testing.T) { t.Parallel(); allPairs(t, lifecycle.SSHCommands, channels) }
func TestWorkloads(t *testing.T)   { t.Parallel(); allPairs(t, lifecycle.Workloads, workloads) }
func TestCancels(t *testing.T)     { t.Parallel(); allPairs(t, lifecycle.Cancels, cancels) }

func allPairs[S ~string](t *testing.T, table *lifecycle.Table[S], rules string) {
	t.Helper()
	allowed := map[[2]string]bool{}
	named := map[string]bool{}
	for rule := range strings.SplitSeq(rules, ";") {
		from, to, _ := strings.Cut(rule, ">")
		for _, f := range strings.Fields(from) {
			for _, s := range strings.Fields(to) {
				allowed[[2]string{f, s}] = true
				named[f], named[s] = true, true
			}
		}
	}
	for _, s := range table.Initial {
		named[string(s)] = true
	}
	if len(named) != len(table.States) {
		t.Errorf("%s has states %v, the rules name %v", table.Name, table.States, named)
	}
	for _, from := range table.States {
		if !named[string(from)] {
			t.Errorf("%s: the rules do not name %s", table.Name, from)
		}
		for _, to := range table.States {
			want := allowed[[2]string{string(from), string(to)}]
			if got := table.Allows(from, to); got != want {
				t.Errorf("%s: %s to %s is allowed: %t, want %t", table.Name, from, to, got, want)
			}
			got, err := table.Step(from, to)
			switch {
			case want && (err != nil || got != to):
				t.Errorf("%s: Step(%s, %s) = %s, %v", table.Name, from, to, got, err)
			case !want && (err == nil || got != from || !strings.Contains(err.Error(), string(from)) || !strings.Contains(err.Error(), string(to))):
				t.Errorf("%s: Step(%s, %s) = %s, %v", table.Name, from, to, got, err)
			}
		}
	}
	checkTable(t, table)
}

// checkTable: states are reached, edges are between states, said once and explained; paths are made
// of edges.
func checkTable[S ~string](t *testing.T, table *lifecycle.Table[S]) {
	t.Helper()
	seen := map[[2]S]bool{}
	for _, e := range table.Edges {
		if seen[[2]S{e.From, e.To}] || e.From == e.To || e.Why == "" || !slices.Contains(table.States, e.From) || !slices.Contains(table.States, e.To) {
			t.Errorf("%s: edge %+v", table.Name, e)
		}
		seen[[2]S{e.From, e.To}] = true
	}
	for _, s := range table.States {
		begins := slices.Contains(table.Initial, s)
		reached := slices.ContainsFunc(table.Initial, func(i S) bool { return table.Reaches(i, s) })
		if !begins && !reached {
			t.Errorf("%s: nothing leads to %s", table.Name, s)
		}
		for _, to := range table.States {
			at := s
			path := table.Path(s, to)
			for _, next := range path {
				if !table.Allows(at, next) {
					t.Errorf("%s: the path from %s to %s is %v", table.Name, s, to, path)
				}
				at = next
			}
			if len(path) > 0 && at != to || table.Reaches(s, to) != (len(path) > 0) || table.Allows(s, to) && len(path) != 1 {
				t.Errorf("%s: the path from %s to %s is %v", table.Name, s, to, path)
			}
		}
	}
}

// The words know which states of a workload are final without the tables.
func TestLaw2FinalStatesOfAWorkloadHaveNoWayOut(t *testing.T) {
	t.Parallel()
	for _, s := range lifecycle.Workloads.States {
		if s.Final() != slices.Contains(finals(lifecycle.Workloads), s) {
			t.Errorf("%s: Final() is %t, the table's final states are %v", s, s.Final(), finals(lifecycle.Workloads))
		}
	}
}

// Stopping has a way through from wherever it is not confirmed.
func TestLaw10EveryCancelCanStillBeConfirmed(t *testing.T) {
	t.Parallel()
	for _, s := range lifecycle.Cancels.States {
		if s != "confirmed" && !lifecycle.Cancels.Reaches(s, "confirmed") {
			t.Errorf("no way from %s to confirmed", s)
		}
	}
}
