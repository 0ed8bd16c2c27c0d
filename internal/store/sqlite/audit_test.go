package sqlite

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// finished makes an action that ran to its end.
func finished(change func(*longstop.Action)) *longstop.Action {
	a := newAction("web-1")
	a.Approval.State, a.Launch.State, a.Outcome, a.Cancel.State = longstop.ApprovalNotRequired, longstop.LaunchAccepted, longstop.OutcomeSucceeded, longstop.CancelNone
	a.Workload.State = longstop.WorkloadFinished
	change(a)
	return a
}

// audited are actions, each a hit of some queries.
var audited = []struct {
	name string
	make func(*longstop.Action)
	hits []string
}{
	{name: "plain", make: func(a *longstop.Action) {}, hits: []string{"unapproved"}},
	{name: "approved", make: func(a *longstop.Action) { a.Approval.State = longstop.ApprovalConsumed }},
	{name: "revoked while it ran", make: func(a *longstop.Action) { a.Approval.State = longstop.ApprovalRevoked }, hits: []string{"unapproved", "unapproved-asked"}},
	{name: "denied", make: func(a *longstop.Action) {
		a.Approval.State, a.Launch.State, a.Workload.State = longstop.ApprovalDenied, longstop.LaunchRejected, longstop.WorkloadNone
	}},
	{name: "never began", make: func(a *longstop.Action) { a.Workload.State = longstop.WorkloadLaunchFailed }},
	{name: "running", make: func(a *longstop.Action) {
		a.Workload.State, a.Outcome = longstop.WorkloadRunning, longstop.OutcomePending
		a.Observation = &longstop.Observation{At: longstop.At(clock), Source: longstop.Live}
	}},
	{name: "not seen", make: func(a *longstop.Action) {
		a.Workload.State, a.Outcome, a.UnknownBecause = longstop.WorkloadRunning, longstop.OutcomeUnknown, longstop.Unreachable
	}, hits: []string{"missing", "unknown"}},
	{name: "overdue", make: func(a *longstop.Action) {
		a.Workload.State, a.Outcome, a.Workload.DeadlineAt = longstop.WorkloadRunning, longstop.OutcomePending, longstop.At(clock.Add(-time.Hour))
	}, hits: []string{"missing"}},
	{name: "accepted and no work", make: func(a *longstop.Action) { a.Workload.State, a.Outcome = longstop.WorkloadNone, longstop.OutcomePending },
		hits: []string{"missing"}},
	{name: "SSH said 0 and no launch is known", make: func(a *longstop.Action) {
		zero := 0
		a.Launch.State, a.Workload.State, a.Outcome = longstop.LaunchUnknown, longstop.WorkloadNone, longstop.OutcomeUnknown
		a.SSHCommand = longstop.SSHCommand{State: longstop.SSHExited, Status: &zero}
	}, hits: []string{"missing", "unknown"}},
	{name: "lost", make: func(a *longstop.Action) { a.Workload.State, a.Outcome = longstop.WorkloadLost, longstop.OutcomeUnknown },
		hits: []string{"missing", "unknown", "unapproved"}},
	{name: "unconfirmed", make: func(a *longstop.Action) {
		a.Cancel.State, a.Workload.State, a.Outcome = longstop.CancelUnconfirmed, longstop.WorkloadRunning, longstop.OutcomePending
	}, hits: []string{"unconfirmed"}},
	{name: "left", make: func(a *longstop.Action) { a.Workload.Left = []longstop.Process{{PID: 7}} }, hits: []string{"unapproved", "left"}},
	{name: "released", make: func(a *longstop.Action) { a.Workload.Released = []longstop.Process{{PID: 7}} }, hits: []string{"left"}},
	{name: "unsigned", make: func(a *longstop.Action) { a.Workload.Unsigned = true }, hits: []string{"unapproved", "unsigned"}},
	{name: "unreadable", make: func(a *longstop.Action) {
		a.Workload.State, a.Outcome, a.UnknownBecause = longstop.WorkloadRunning, longstop.OutcomeUnknown, longstop.UnreadableRecord
	}, hits: []string{"missing", "unknown", "unsigned"}},
	{name: "direct", make: func(a *longstop.Action) {
		zero := 0
		a.Request.Owner, a.Workload.State, a.Outcome, a.UnknownBecause = longstop.OwnerNone, longstop.WorkloadNone, longstop.OutcomeUnknown, longstop.NoOwner
		a.SSHCommand = longstop.SSHCommand{State: longstop.SSHExited, Status: &zero}
	}, hits: []string{"missing", "unapproved"}},
	{name: "resolved by hand", make: func(a *longstop.Action) {
		a.Workload.State, a.Outcome = longstop.WorkloadLost, longstop.OutcomeUnknown
		a.Resolution = &longstop.Resolution{By: "anna", Reason: "looked"}
	}, hits: []string{"unapproved", "resolved"}},
}

// Every query finds what it says, pages through all of it in order, and counts it; what earlier versions wrote
// is found as well.
func TestPointAuditFinds(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	want := map[string][]string{}
	for round := range 3 { // so that there are pages
		for _, c := range audited {
			a := finished(c.make)
			put(t, s, a, journal.Requested)
			for _, q := range c.hits {
				want[q] = append(want[q], string(a.ID))
			}
			want["session"] = append(want["session"], string(a.ID))
			_ = round
		}
	}
	found := func(when string) {
		for i := range Queries {
			q := &Queries[i]
			if len(q.Kinds) > 0 {
				continue
			}
			var got []string
			f := AuditFilter{Limit: 2, SessionID: "ses_0000000AAAAAAAA"}
			for {
				page, err := s.AuditActions(t.Context(), q, f)
				must(t, err)
				for j := range page {
					if q.Now == nil || q.Now(&page[j], clock) {
						got = append(got, string(page[j].ID))
					}
				}
				if len(page) < f.Limit {
					break
				}
				f.After = page[len(page)-1].ID
			}
			if !q.Oldest {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want[q.Name]) {
				t.Errorf("%s, %s: found %d, want %d:\n%v\n%v", when, q.Name, len(got), len(want[q.Name]), got, want[q.Name])
			}
			if n, err := s.Hits(t.Context(), q, 1000); q.Now == nil && !q.Given && (err != nil || n != len(got)) {
				t.Errorf("%s, %s: counted %d of %d, %v", when, q.Name, n, len(got), err)
			}
		}
	}
	found("as they were put")
	migration, err := migrations.ReadFile("migrations/00010_audit.sql")
	must(t, err)
	update := regexp.MustCompile(`(?s)UPDATE .*?;`).Find(migration)
	_, err = s.conn.ExecContext(t.Context(), `UPDATE actions SET traits = 0; `+string(update))
	must(t, err)
	found("as a migration has them")
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPointAuditFindsEntries(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	var want []int64
	for i, kind := range []journal.Kind{journal.SubmittedAgain, journal.Contradiction, journal.RequestedAgain, journal.Observed, journal.KeyConflict, journal.UnclaimedRun} {
		a.Revision++
		put(t, s, a, kind)
		if kind != journal.Contradiction && kind != journal.Observed && kind != journal.UnclaimedRun {
			want = append(want, int64(i+1))
		}
	}
	q, err := FindQuery("resubmitted")
	must(t, err)
	var got []int64
	for f := (AuditFilter{Limit: 2}); ; f.AfterIdx = got[len(got)-1] {
		page, err := s.AuditEntries(t.Context(), q, f)
		must(t, err)
		for _, e := range page {
			got = append(got, e.Index)
		}
		if len(page) < 2 {
			break
		}
	}
	if slices.Reverse(got); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	for name, n := range map[string]int{"resubmitted": 3, "contradictions": 1, "unclaimed": 1} {
		q, err := FindQuery(name)
		must(t, err)
		if hits, err := s.Hits(t.Context(), q, 10); err != nil || hits != n {
			t.Errorf("%s: %d hits, %v", name, hits, err)
		}
	}
	if _, err := FindQuery("nosuch"); longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Error(err)
	}
}

// Every page reads along an index, or along the log itself: none looks through all actions or entries.
func TestPointPagesAreIndexScans(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	type page struct {
		query string
		args  []any
	}
	pages := map[string]page{}
	add := func(name, query string, args []any) { pages[name] = page{query, args} }
	for i := range Queries {
		q := &Queries[i]
		query := q.page()
		if len(q.Kinds) > 0 {
			query = ofKinds(q.Kinds)
		}
		add("audit "+q.Name, query, q.args(1, AuditFilter{Limit: 10, SessionID: "ses_1"}))
	}
	for name, f := range map[string]Filter{"ps": {Open: true}, "ps -a": {}, "ps --host": {Host: "web-1", Open: true}, "ps -a --host": {Host: "web-1"},
		"ps --session": {SessionID: "ses_1", Open: true}, "ps -a --session": {SessionID: "ses_1"}} {
		query, args := f.query(1000)
		add(name, query, args)
	}
	for name, f := range map[string]EntryFilter{"activity": {Newest: true}, "activity ID": {Action: "act_1"}, "activity --session": {Session: "ses_1", Newest: true},
		"activity --host": {Host: "web-1", Newest: true}, "activity --kind": {Kind: journal.Contradiction, Newest: true},
		"activity --kind of a common one": {Kind: journal.Observed, Newest: true}, "activity --after": {From: 7},
		"activity of all": {Session: "ses_1", Host: "web-1", Kind: journal.Observed, Before: 100, Newest: true}} {
		query, args := f.query()
		add(name, query, args)
	}
	for name, p := range pages {
		for line := range strings.Lines(s.plan(t, p.query, p.args)) {
			whole := regexp.MustCompile(`SCAN (actions|entries)\b`).MatchString(line) && !strings.Contains(line, "INDEX")
			if whole {
				t.Errorf("%s: %s", name, line)
			}
		}
		// Of what is open there are few: those are sorted, by their numbers.
		if !strings.HasPrefix(name, "ps") && name != "audit missing" && name != "audit unknown" {
			if sorted := strings.Count(s.plan(t, p.query, p.args), "TEMP B-TREE"); sorted > 1 {
				t.Errorf("%s sorts %d times:\n%s", name, sorted, s.plan(t, p.query, p.args))
			}
		}
	}
}

// Filters of the log give what they say, in order, wherever they look: in filed blocks and behind them too.
func TestPointEntriesAreFiltered(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	var all []journal.Entry
	kinds := []journal.Kind{journal.Requested, journal.Observed, journal.Contradiction, journal.CancelRequested}
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		for i := range 2*fileEvery + 60 {
			e := journal.Entry{At: longstop.At(clock.Add(time.Duration(i) * time.Second)), Kind: kinds[i%4], Host: fmt.Sprintf("web-%d", i%3),
				SessionID: longstop.SessionID(fmt.Sprintf("ses_%d", i%5)), ActionID: longstop.ActionID(fmt.Sprintf("act_%d", i%7))}
			index, err := tx.Append(e)
			if err != nil {
				return err
			}
			e.Index = index
			all = append(all, e)
		}
		return nil
	}))
	for n := range 64 {
		f := EntryFilter{Limit: 3, Newest: n&1 != 0}
		if n&2 != 0 {
			f.Session = "ses_2"
		}
		if n&4 != 0 {
			f.Host = "web-1"
		}
		if n&8 != 0 {
			f.Kind = kinds[n%4]
		}
		if n&16 != 0 {
			f.From, f.Before = fileEvery-40, 2*fileEvery+8
		}
		if n&32 != 0 {
			f.Action = "act_3"
		}
		var want []int64
		for _, e := range all {
			if (f.Session == "" || f.Session == e.SessionID) && (f.Host == "" || f.Host == e.Host) && (f.Kind == "" || f.Kind == e.Kind) &&
				(f.Action == "" || f.Action == e.ActionID) && e.Index >= f.From && (f.Before == 0 || e.Index < f.Before) {
				want = append(want, e.Index)
			}
		}
		if len(want) > f.Limit && f.Newest {
			want = want[len(want)-f.Limit:]
		}
		want = want[:min(len(want), f.Limit)]
		got, err := s.Entries(t.Context(), f)
		must(t, err)
		var indexes []int64
		for _, e := range got {
			indexes = append(indexes, e.Index)
		}
		if !slices.Equal(indexes, want) {
			t.Errorf("%+v: %v, want %v", f, indexes, want)
		}
	}
	for seconds, want := range map[int]int64{-5: 0, 0: 0, 30: 30, 59: 59, 1000: 2*fileEvery + 60} {
		if got, err := s.Since(t.Context(), clock.Truncate(time.Microsecond).Add(time.Duration(seconds)*time.Second)); err != nil || got != want {
			t.Errorf("since %d s: %d, %v", seconds, got, err)
		}
	}
}
