package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// keep enrols a host and puts a finished action of it, kept since some hours after clock.
func keep(t *testing.T, s *Store, hours int, stdout int64) *longstop.Action {
	t.Helper()
	a := newAction("web-1")
	a.Launch.State, a.Workload.State, a.Output.StdoutBytes = longstop.LaunchAccepted, longstop.WorkloadFinished, stdout
	put(t, s, a, journal.Observed)
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		if err := tx.PutHost(&Host{Host: longstop.Host{Name: "web-1", StateID: "state"}}, enrolled); err != nil {
			return err
		}
		return tx.Keep(a, at(hours))
	}))
	return a
}

func at(hours int) longstop.Time {
	return longstop.At(clock.Add(time.Duration(hours) * time.Hour))
}

func (s *Store) due(t *testing.T, f DueFilter) (ids []longstop.RunID) {
	t.Helper()
	for f.StateID, f.Limit = "state", 2; ; {
		page, err := s.Due(t.Context(), f)
		must(t, err)
		for _, k := range page {
			ids = append(ids, k.RunID)
		}
		if len(page) < f.Limit {
			return ids
		}
		f.After = &page[len(page)-1]
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	silent, unread, read, young := keep(t, s, 1, 0), keep(t, s, 1, 5), keep(t, s, 2, 5), keep(t, s, 9, 0)
	update := func(fn func(tx *Tx) error) {
		t.Helper()
		must(t, s.Update(t.Context(), fn))
	}
	update(func(tx *Tx) error { return tx.Keep(silent, at(100)) }) // known already
	update(func(tx *Tx) error { return tx.WasRead(read.RunID, Stdout) })
	filter := DueFilter{Read: at(5).Time}
	if due := s.due(t, filter); len(due) != 0 {
		t.Errorf("due before they were collected: %v", due)
	}
	if left, err := s.Uncollected(t.Context(), "state", 10); err != nil || len(left) != 4 {
		t.Errorf("uncollected: %v, %v", left, err)
	}
	if left, err := s.Uncollected(t.Context(), "another state", 10); err != nil || len(left) != 0 {
		t.Errorf("uncollected of another state folder: %v, %v", left, err)
	}
	for _, a := range []*longstop.Action{silent, unread, read, young} {
		update(func(tx *Tx) error { return tx.Collected(a.RunID, at(10)) })
	}
	for name, c := range map[string]struct {
		filter DueFilter
		want   []*longstop.Action
	}{
		"read":   {filter, []*longstop.Action{silent, read}},
		"unread": {DueFilter{Read: at(5).Time, Unread: at(1).Time}, []*longstop.Action{silent, unread, read}},
		"any":    {DueFilter{Any: at(10).Time}, []*longstop.Action{silent, unread, read, young}},
		"none":   {DueFilter{}, nil},
	} {
		var want []longstop.RunID
		for _, a := range c.want {
			want = append(want, a.RunID)
		}
		got := s.due(t, c.filter)
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	oldest, err := s.Oldest(t.Context(), "state")
	if err != nil || !oldest.Read.Equal(at(1).Time) || !oldest.Any.Equal(at(1).Time) || oldest.Waiting {
		t.Errorf("oldest: %+v, %v", oldest, err)
	}
	update(func(tx *Tx) error { return tx.Unkeep(silent.RunID) })
	if oldest, err := s.Oldest(t.Context(), "state"); err != nil || !oldest.Read.Equal(at(2).Time) {
		t.Errorf("oldest, once it is gone: %+v, %v", oldest, err)
	}
	if oldest, err := s.Oldest(t.Context(), "another state"); err != nil || oldest != (Oldest{}) {
		t.Errorf("oldest of a state folder of which nothing is kept: %+v, %v", oldest, err)
	}
}

// C149: what earlier versions left on hosts is taken up.
func TestC149RunsOfEarlierVersionsAreKept(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := keep(t, s, 1, 7)
	running := newAction("web-1")
	running.Launch.State, running.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
	put(t, s, running, journal.Observed)
	migration, err := migrations.ReadFile("migrations/00003_kept.sql")
	must(t, err)
	_, err = s.conn.ExecContext(t.Context(), "DROP TABLE kept; "+string(migration))
	must(t, err)
	left, err := s.Uncollected(t.Context(), "state", 10)
	if err != nil || !slices.Equal(left, []longstop.RunID{a.RunID}) {
		t.Errorf("taken up: %v, %v; want %s", left, err, a.RunID)
	}
}
