package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// markdown is docs/states.md: the tables, a diagram of each, and what the facts add up to. It is
// made from the tables and from Judge; `go generate ./internal/lifecycle` writes it, a test compares.
func markdown() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from internal/lifecycle by go generate. Do not edit. -->

# Facts and their states

An action has five facts, each with a state of its own. No fact is evidence for another. Which
state may follow which is one table each, below; the code reads the same tables. Final states
never change: what contradicts one becomes an entry of the journal.

What people ask is computed from the facts, and stored nowhere else than in projections:
[is it still running, and what came of it?](#what-the-facts-add-up-to)

`)
	section(&b, lifecycle.Approvals)
	section(&b, lifecycle.Launches)
	section(&b, lifecycle.SSHCommands)
	section(&b, lifecycle.Workloads)
	section(&b, lifecycle.Cancels)
	verdicts(&b)
	return b.String()
}

// finals are the states of a table that nothing follows.
func finals[S ~string](t *lifecycle.Table[S]) []S {
	var final []S
	for _, s := range t.States {
		if !slices.ContainsFunc(t.Edges, func(e lifecycle.Edge[S]) bool { return e.From == s }) {
			final = append(final, s)
		}
	}
	return final
}

func section[S ~string](b *strings.Builder, t *lifecycle.Table[S]) {
	fmt.Fprintf(b, "## %s\n\n%s\n", t.Name, t.About)
	if len(t.Along) > 0 {
		fmt.Fprintf(b, "Of %s any may be skipped going forwards; the diagram leaves those steps out.\n", words(t.Along))
	}
	fmt.Fprintf(b, "A new action begins with %s; final: %s.\n\n", words(t.Initial), words(finals(t)))

	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range t.Initial {
		fmt.Fprintf(b, "    [*] --> %s\n", s)
	}
	for _, e := range t.Edges {
		if from, to := slices.Index(t.Along, e.From), slices.Index(t.Along, e.To); from >= 0 && to > from+1 {
			continue
		}
		fmt.Fprintf(b, "    %s --> %s\n", e.From, e.To)
	}
	for _, s := range finals(t) {
		fmt.Fprintf(b, "    %s --> [*]\n", s)
	}
	b.WriteString("```\n\n| from | to | when |\n|---|---|---|\n")
	for _, line := range grouped(t.Edges) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", words(line.from), line.to, line.why)
	}
	b.WriteString("\n")
}

// line is the edges to one state for one reason.
type line[S ~string] struct {
	from []S
	to   S
	why  string
}

func grouped[S ~string](edges []lifecycle.Edge[S]) []line[S] {
	var lines []line[S]
	for _, e := range edges {
		i := slices.IndexFunc(lines, func(l line[S]) bool { return l.to == e.To && l.why == e.Why })
		if i < 0 {
			i = len(lines)
			lines = append(lines, line[S]{to: e.To, why: e.Why})
		}
		lines[i].from = append(lines[i].from, e.From)
	}
	return lines
}

func words[S ~string](states []S) string {
	all := make([]string, len(states))
	for i, s := range states {
		all[i] = string(s)
	}
	return strings.Join(all, ", ")
}

// verdicts asks Judge about the facts of each line.
func verdicts(b *strings.Builder) {
	b.WriteString(`## What the facts add up to

*alive* answers whether it is still running, *outcome* what came of it. Where the host answers, an
observation is at most three heartbeats old; elsewhere it is cached, or there is a reason why there
is none. Of what is unknown the reason is named.

| facts | host answers | alive | outcome | what to type next |
|---|---|---|---|---|
`)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range shownCases() {
		for _, sight := range c.sights {
			a := longstop.Action{ID: "ID", Host: "HOST", Launch: longstop.Launch{State: longstop.LaunchAccepted, At: longstop.At(now.Add(-time.Hour))}}
			answers := "–"
			switch sight {
			case "yes":
				a.Observation, answers = &longstop.Observation{At: longstop.At(now), Source: longstop.Live}, "yes"
			case "no":
				a.Observation, answers = &longstop.Observation{Source: longstop.Cached, Because: longstop.Unreachable}, "no"
			case "host_mismatch", "access_refused", "unreadable_record", "record_expired":
				a.Observation, answers = &longstop.Observation{Source: longstop.Cached, Because: longstop.UnknownReason(sight)}, "with "+sight
			}
			c.facts(&a)
			v := lifecycle.Judge(&a, now, time.Second)
			outcome := string(v.Outcome)
			if v.UnknownBecause != "" {
				outcome += ": " + string(v.UnknownBecause)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | `%s` |\n", c.words, answers, v.Alive, outcome, v.Next)
		}
	}
}

// shownCase is one line or more of the page: facts, and how the host answers.
type shownCase struct {
	words  string
	sights []string
	facts  func(*longstop.Action)
}

func shownCases() []shownCase {
	yes, no := true, false
	launch := func(s longstop.LaunchState) func(*longstop.Action) {
		return func(a *longstop.Action) { a.Launch.State = s }
	}
	work := func(w longstop.Workload) func(*longstop.Action) { return func(a *longstop.Action) { a.Workload = w } }
	result := func(code int) *longstop.Result { return &longstop.Result{ExitCode: &code} }
	some := []longstop.Process{{PID: 1}}
	both := []string{"yes", "no"}
	running := work(longstop.Workload{State: longstop.WorkloadRunning})
	return []shownCase{
		{"approval denied, expired or revoked, nothing sent", []string{""}, func(a *longstop.Action) {
			a.Launch.State, a.Approval.State = longstop.LaunchNotAttempted, longstop.ApprovalDenied
		}},
		{"launch not_attempted", []string{""}, launch(longstop.LaunchNotAttempted)},
		{"launch sent, its answer awaited", []string{""}, func(a *longstop.Action) {
			a.Launch = longstop.Launch{State: longstop.LaunchSent, At: longstop.At(a.Launch.At.Add(time.Hour))}
		}},
		{"launch unknown", []string{"", "host_mismatch"}, launch(longstop.LaunchUnknown)},
		{"launch rejected", []string{""}, launch(longstop.LaunchRejected)},
		{"none, queued", both, work(longstop.Workload{State: longstop.WorkloadQueued})},
		{"starting, running, lingering, cancelling, orphaned", []string{"yes", "no", "host_mismatch", "access_refused", "unreadable_record", "record_expired"}, running},
		{"the same, a cancel unconfirmed", []string{"no"}, func(a *longstop.Action) {
			running(a)
			a.Cancel.State = longstop.CancelUnconfirmed
		}},
		{"cancelling, with survivors that cannot be killed", []string{"yes"}, work(longstop.Workload{State: longstop.WorkloadCancelling, Survivors: some})},
		{"finished 0, boundary empty", both, work(longstop.Workload{State: longstop.WorkloadFinished, Result: result(0), Boundary: longstop.Boundary{Empty: &yes}})},
		{"finished 3, boundary empty", both, work(longstop.Workload{State: longstop.WorkloadFinished, Result: result(3), Boundary: longstop.Boundary{Empty: &yes}})},
		{"finished 0, some released and alive when last seen", both, work(longstop.Workload{State: longstop.WorkloadFinished, Result: result(0), Released: some, Boundary: longstop.Boundary{Empty: &no}})},
		{"cancelled, boundary empty", both, work(longstop.Workload{State: longstop.WorkloadCancelled, Boundary: longstop.Boundary{Empty: &yes}})},
		{"launch_failed", both, work(longstop.Workload{State: longstop.WorkloadLaunchFailed})},
		{"lost, other boot", both, work(longstop.Workload{State: longstop.WorkloadLost, LostBecause: longstop.Rebooted})},
		{"lost, emptiness proven", both, work(longstop.Workload{State: longstop.WorkloadLost, LostBecause: longstop.OwnerLost, EmptyProven: true})},
		{"lost", both, work(longstop.Workload{State: longstop.WorkloadLost, LostBecause: longstop.OwnerLost})},
		{"none (direct action)", []string{""}, func(a *longstop.Action) { a.Request.Owner = longstop.OwnerNone }},
	}
}
