package sqlite

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

func TestPages(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	var all []longstop.ActionID // newest first
	for i := range 30 {
		a := newAction(fmt.Sprintf("web-%d", i%3))
		a.SessionID = longstop.SessionID(fmt.Sprintf("ses_%d", i%2))
		switch {
		case i%10 == 1: // lost
			a.Launch.State, a.Workload.State, a.Outcome = longstop.LaunchAccepted, longstop.WorkloadLost, longstop.OutcomeUnknown
		case i%5 != 0:
			a.Launch.State = longstop.LaunchRejected
		}
		put(t, s, a, journal.Requested)
		all = append([]longstop.ActionID{a.ID}, all...)
	}
	numberOf := func(i int) int { return len(all) - 1 - i } // the loop's number of all[i]
	isOpen := func(n int) bool { return n%5 == 0 || n%10 == 1 }
	for name, c := range map[string]struct {
		filter Filter
		want   func(n int) bool
		index  string // that the plan must use
	}{
		"all":               {Filter{}, func(int) bool { return true }, "PRIMARY KEY"},
		"host":              {Filter{Host: "web-1"}, func(n int) bool { return n%3 == 1 }, "actions_host"},
		"session":           {Filter{SessionID: "ses_1"}, func(n int) bool { return n%2 == 1 }, "actions_session"},
		"open":              {Filter{Open: true}, isOpen, "actions_unresolved"},
		"lost":              {Filter{Open: true}, isOpen, "actions_unknown"},
		"open of a host":    {Filter{Open: true, Host: "web-1"}, func(n int) bool { return isOpen(n) && n%3 == 1 }, "actions_unknown"},
		"open of a session": {Filter{Open: true, SessionID: "ses_1"}, func(n int) bool { return isOpen(n) && n%2 == 1 }, "actions_unknown"},
		"host not there":    {Filter{Host: "web"}, func(int) bool { return false }, "actions_host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got []longstop.ActionID
			for i, id := range all {
				if c.want(numberOf(i)) {
					want = append(want, id)
				}
			}
			for f := (Filter{Host: c.filter.Host, SessionID: c.filter.SessionID, Open: c.filter.Open, Limit: 4}); ; {
				page, err := s.Actions(t.Context(), f)
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range page {
					got = append(got, a.ID)
				}
				if len(page) < f.Limit {
					break
				}
				f.Before = page[len(page)-1].ID
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
			if plan := planOf(t, s, c.filter); !strings.Contains(plan, c.index) {
				t.Errorf("the plan does not use %s:\n%s", c.index, plan)
			}
		})
	}
	if _, err := s.Actions(t.Context(), Filter{Before: "act_none"}); longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Errorf("before an action that is not there: %v", err)
	}
}

func planOf(t *testing.T, s *Store, f Filter) string {
	query, args := f.query(1000)
	return s.plan(t, query, args)
}

// plan is how SQLite goes about a query.
func (s *Store) plan(t *testing.T, query string, args []any) string {
	var plan strings.Builder
	err := s.each(t.Context(), "EXPLAIN QUERY PLAN "+query, args, func(r row) error {
		var id, parent, unused int
		var detail string
		err := r.Scan(&id, &parent, &unused, &detail)
		fmt.Fprintln(&plan, detail)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

func TestUnresolved(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	var want []string
	for i := range 6 {
		a := newAction(fmt.Sprintf("web-%d", i%2))
		put(t, s, a, journal.Requested)
		want = append(want, string(a.ID)+" secret of "+string(a.RunID))
	}
	for host, want := range map[string][]string{"web-0": {want[0], want[2], want[4]}, "": want, "web-2": nil} {
		pending, err := s.Unresolved(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range pending {
			got = append(got, string(p.Action.ID)+" "+string(p.Secret))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("host %q: got %v, want %v", host, got, want)
		}
	}
	if hosts, unresolved, err := s.Counts(t.Context()); err != nil || hosts != 0 || unresolved != 6 {
		t.Errorf("counts %d, %d, %v", hosts, unresolved, err)
	}
}

func TestByKeyAndRun(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	for name, read := range map[string]func() (*longstop.Action, error){
		"run": func() (*longstop.Action, error) { return s.ByRun(t.Context(), a.RunID) },
		"key in an update": func() (got *longstop.Action, err error) {
			uerr := s.Update(t.Context(), func(tx *Tx) error { got, err = tx.ActionByKey(a.IdempotencyKey); return nil })
			return got, firstOf(err, uerr)
		},
		"id in an update": func() (got *longstop.Action, err error) {
			uerr := s.Update(t.Context(), func(tx *Tx) error { got, err = tx.Action(a.ID); return nil })
			return got, firstOf(err, uerr)
		},
	} {
		if got, err := read(); err != nil || got == nil || got.ID != a.ID {
			t.Errorf("by %s: %v, %v", name, got, err)
		}
	}
	err := s.Update(t.Context(), func(tx *Tx) error {
		got, err := tx.ActionByKey("other")
		if got != nil {
			t.Errorf("by another key: %v", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if got, err := s.ByRun(t.Context(), "run_other"); got != nil || err != nil {
		t.Errorf("by another run: %v, %v", got, err)
	}
	if secret, err := s.Secret(t.Context(), a.RunID); err != nil || string(secret) != "secret of "+string(a.RunID) {
		t.Errorf("secret %q, %v", secret, err)
	}
	if secret, err := s.Secret(t.Context(), "run_other"); err != nil || secret != nil {
		t.Errorf("another run's secret %q, %v", secret, err)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestHosts(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	h := &Host{Host: longstop.Host{Name: "web-1", StateID: "st", UID: 1000, EnrolledAt: longstop.At(clock),
		Hello: &longstop.HostHello{Kernel: "6.18"}}}
	update := func(fn func(tx *Tx) error) {
		t.Helper()
		if err := s.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *Tx) error { return tx.PutHost(h, enrolled) })
	h.MaxSessions, h.Hello.Kernel = 10, "6.19"
	update(func(tx *Tx) error { return tx.PutHost(h, enrolled) })
	put(t, s, newAction("web-1"), journal.Requested)
	h.Unresolved = 1
	if got, err := s.Host(t.Context(), "web-1"); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := s.Hosts(t.Context()); err != nil || !reflect.DeepEqual(got, []Host{*h}) {
		t.Errorf("got %+v, %v", got, err)
	}
	update(func(tx *Tx) error {
		if got, err := tx.Host("web-1"); err != nil || got.MaxSessions != 10 {
			t.Errorf("got %+v, %v", got, err)
		}
		return tx.DeleteHost("web-1")
	})
	if _, err := s.Host(t.Context(), "web-1"); longstop.CodeOf(err) != longstop.CodeHostUnknown {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestEntries(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a, b := newAction("web-1"), newAction("web-2")
	for i := range 10 {
		put(t, s, a, journal.Observed)
		put(t, s, b, journal.Observed)
		a.Revision, b.Revision = int64(i+2), int64(i+2)
	}
	for name, c := range map[string]struct {
		filter EntryFilter
		want   []int64
	}{
		"first page":       {EntryFilter{Limit: 3}, []int64{0, 1, 2}},
		"from":             {EntryFilter{From: 18}, []int64{18, 19}},
		"action":           {EntryFilter{Action: b.ID, Limit: 3}, []int64{1, 3, 5}},
		"action from":      {EntryFilter{Action: a.ID, From: 15}, []int64{16, 18}},
		"action not there": {EntryFilter{Action: "act_none"}, nil},
		"past the end":     {EntryFilter{From: 20}, nil},
	} {
		entries, err := s.Entries(t.Context(), c.filter)
		var got []int64
		for _, e := range entries {
			got = append(got, e.Index)
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

func TestProof(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	for i := range 21 {
		a.Revision = int64(i + 1)
		put(t, s, a, journal.Observed)
	}
	entries, err := s.Entries(t.Context(), EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		proof, head, err := s.Proof(t.Context(), e.Index)
		if err != nil {
			t.Fatal(err)
		}
		data, err := journal.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(proof, head.Size, head.Hash, e.Index, tlog.RecordHash(data)); err != nil {
			t.Errorf("entry %d: %v", e.Index, err)
		}
	}
	if _, _, err := s.Proof(t.Context(), 21); longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Errorf("an entry that is not there: %v", err)
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	long := bytes.Repeat([]byte("x"), MaxRaw+10)
	put(t, s, a, journal.LaunchAnswered, Raw{"submit_answer", []byte("\xff\x00 answer")}, Raw{"noise", nil}, Raw{"stderr", long})
	got, err := s.Raw(t.Context(), a.ID)
	want := []RawAnswer{
		{0, "submit_answer", longstop.At(clock), []byte("\xff\x00 answer"), 9},
		{0, "noise", longstop.At(clock), nil, 0},
		{0, "stderr", longstop.At(clock), long[:MaxRaw], MaxRaw + 10},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d raws, %v", len(got), err)
	}
	verify(t, s)

	// Deleted bytes break nothing; what the entry says of them stays.
	if _, err := s.conn.ExecContext(t.Context(), `DELETE FROM raws WHERE place = 0`); err != nil {
		t.Fatal(err)
	}
	verify(t, s)
	entries, err := s.Entries(t.Context(), EntryFilter{})
	if err != nil || len(entries) != 1 || len(entries[0].Raw) != 3 || entries[0].Raw[0].Kind != "submit_answer" || entries[0].Raw[0].Bytes != 9 {
		t.Errorf("got %+v, %v", entries, err)
	}
}
