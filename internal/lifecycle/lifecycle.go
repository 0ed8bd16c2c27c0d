// Package lifecycle holds the rules of the facts: which state may follow which (one transition
// table each, as data), what a host's record does to them (Observe), and what they add up to
// (Judge). Only its tables set a state. It is pure: no I/O and no clock, time comes in as a value.
//
// Which machine's state bears on another's is internal/reconcile's business, with one exception:
// a record is evidence for the launch, the workload and the cancel at once, and is applied as one.
package lifecycle

//go:generate go test -run TestStatesPage -update .

import (
	"fmt"
	"slices"
)

// Edge is one allowed step, and in a line for people why it happens.
type Edge[S ~string] struct {
	From, To S
	Why      string
}

// Table is the state machine of one fact.
type Table[S ~string] struct {
	Name    string // as in JSON: "workload"
	About   string // one line: what the fact says, and who may write it
	Initial []S    // where a new action begins
	States  []S    // in the order they are shown
	Edges   []Edge[S]
	Along   []S // of which any may be skipped going forwards; their edges are in Edges like all
}

// Allows reports whether the table has a step from one state to the other. A state does not follow
// itself: seeing the same again is not a step.
func (t *Table[S]) Allows(from, to S) bool {
	return slices.ContainsFunc(t.Edges, func(e Edge[S]) bool { return e.From == from && e.To == to })
}

// Step returns to, or an error that names both states where the table has no such step.
func (t *Table[S]) Step(from, to S) (S, error) {
	if !t.Allows(from, to) {
		return from, fmt.Errorf("%s cannot go from %q to %q", t.Name, from, to)
	}
	return to, nil
}

// Path returns the states of a shortest way, without from and with to, or nil where there is none:
// what a watcher of only some of the steps may conclude to have happened.
func (t *Table[S]) Path(from, to S) []S {
	came := map[S]S{}
	for queue := []S{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to && at != from {
			var path []S
			for ; at != from; at = came[at] {
				path = append(path, at)
			}
			slices.Reverse(path)
			return path
		}
		for _, e := range t.Edges {
			if _, seen := came[e.To]; e.From == at && e.To != from && !seen {
				came[e.To] = at
				queue = append(queue, e.To)
			}
		}
	}
	return nil
}

// Reaches reports whether to lies on some way from from.
func (t *Table[S]) Reaches(from, to S) bool { return len(t.Path(from, to)) > 0 }
