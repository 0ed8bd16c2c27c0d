package record

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

func list(t *testing.T, f *Folder, cursor string, limit int) Page {
	t.Helper()
	page, err := f.List(cursor, limit)
	must(t, err)
	return page
}

// all follows pages to their end.
func all(t *testing.T, f *Folder, cursor string, limit int) (ids []longstop.RunID, next string) {
	t.Helper()
	for {
		page := list(t, f, cursor, limit)
		if limit > 0 && len(page.Runs) > limit {
			t.Errorf("a page of %d runs, the limit is %d", len(page.Runs), limit)
		}
		ids, cursor = append(ids, page.Runs...), page.Cursor
		if !page.More {
			return ids, cursor
		}
	}
}

func TestListTellsWhatChanged(t *testing.T) {
	t.Parallel()
	f := folder(t)
	if page := list(t, f, "", 0); len(page.Runs) != 0 || page.More {
		t.Errorf("an empty folder: %+v", page)
	}
	var runs []*Run
	var ids []longstop.RunID
	for i := range 7 {
		run := locked(t, f, fmt.Sprint("key ", i))
		runs, ids = append(runs, run), append(ids, run.ID())
	}
	for _, limit := range []int{0, 1, 2, 7, 100} {
		got, _ := all(t, f, "", limit)
		if !same(got, ids) {
			t.Errorf("limit %d: %v, want the unresolved ones", limit, got)
		}
	}
	_, before := all(t, f, "", 0)
	finish(t, runs[0])
	finish(t, runs[1])
	got, after := all(t, f, before, 0)
	if !same(got, ids) {
		t.Errorf("after two ended: %v, want all seven", got)
	}
	if got, _ := all(t, f, after, 3); !same(got, ids[2:]) {
		t.Errorf("and then: %v, want the unresolved ones", got)
	}
	for _, run := range runs[2:] {
		finish(t, run)
	}
	for _, limit := range []int{0, 1, 2, 3} {
		got, end := all(t, f, after, limit)
		if !slices.Equal(got, ids[2:]) {
			t.Errorf("limit %d: %v, want those that ended, in that order", limit, got)
		}
		if page := list(t, f, end, limit); len(page.Runs) != 0 || page.More {
			t.Errorf("limit %d: after the end: %+v", limit, page)
		}
	}
	for _, cursor := range []string{"x", "-1.", "5", "1.2.3x\n"} {
		if _, err := f.List(cursor, 0); cursor != "1.2.3x\n" && longstop.CodeOf(err) != longstop.CodeUsage {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	// A cursor of a longer log, from before the folder was restored: everything may be new.
	if got, _ := all(t, f, "999999.", 2); !same(got, ids) {
		t.Errorf("a cursor beyond the end: %v, want all", got)
	}
}

// A run that ends between two pages is in a later one.
func TestListMissesNothingThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	f := folder(t)
	runs := map[longstop.RunID]*Run{}
	for i := range 9 {
		run := locked(t, f, fmt.Sprint("key ", i))
		runs[run.ID()] = run
	}
	seen := map[longstop.RunID]bool{}
	cursor := ""
	for {
		page := list(t, f, cursor, 2)
		for _, id := range page.Runs {
			seen[id] = true
		}
		if !page.More {
			break
		}
		cursor = page.Cursor
		unresolved, err := f.Unresolved()
		must(t, err)
		if len(unresolved) > 0 { // one that is not told yet, or was: either way
			finish(t, runs[unresolved[len(unresolved)-1]])
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d of 9 runs were told", len(seen))
	}
}

// A crash leaves a torn line, zeroes, or an owner's run in the index that is final.
func TestIndexesMend(t *testing.T) {
	t.Parallel()
	f := folder(t)
	first, second := locked(t, f, "1"), locked(t, f, "2")
	finish(t, first)
	log, err := os.OpenFile(f.Path(logName), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer log.Close()
	log.WriteString("run_0123\n" + string(make([]byte, 100)))
	finish(t, second)
	if got, _ := all(t, f, "0.", 1); !slices.Equal(got, []longstop.RunID{first.ID(), second.ID()}) {
		t.Errorf("with a torn log: %v", got)
	}
	// As if its owner had been killed right after the final record was durable.
	must(t, os.Link(f.Path("claims", string(second.ID())), f.Path("unresolved", string(second.ID()))))
	if got, _ := f.Unresolved(); len(got) != 1 {
		t.Errorf("unresolved: %v", got)
	}
	f.Mend(second.ID())
	if got, _ := f.Unresolved(); len(got) != 0 {
		t.Errorf("unresolved after mending: %v", got)
	}
}

func same(a, b []longstop.RunID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func TestIndexesAreRebuiltAfterABoot(t *testing.T) {
	t.Parallel()
	f := folder(t)
	ended, running := locked(t, f, "1"), locked(t, f, "2")
	finish(t, ended)
	must(t, os.Remove(f.Path("unresolved", string(running.ID()))))
	must(t, os.Truncate(f.Path(logName), 0))
	_, cursor := all(t, f, "", 0)
	again, err := open(f.Dir(), "another boot")
	must(t, err)
	defer again.Close()
	if got, _ := all(t, again, cursor, 0); !same(got, []longstop.RunID{ended.ID(), running.ID()}) {
		t.Errorf("after a boot: %v, want both", got)
	}
	info, err := os.Stat(f.Path(logName))
	must(t, err)
	third, err := open(f.Dir(), "another boot")
	must(t, err)
	defer third.Close()
	if after, _ := os.Stat(f.Path(logName)); after.Size() != info.Size() {
		t.Error("the index was rebuilt twice in one boot")
	}
}

func TestCollectAndRemove(t *testing.T) {
	t.Parallel()
	f := folder(t)
	now := time.Now()
	kept, collected := locked(t, f, "kept"), locked(t, f, "collected")
	running := locked(t, f, "running")
	if err := running.Collect(); longstop.CodeOf(err) != longstop.CodeRefused {
		t.Errorf("collect of a run that is not final: %v", err)
	}
	_, err := running.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}, nil, false)
	must(t, err)
	if err := running.Collect(); longstop.CodeOf(err) != longstop.CodeRefused {
		t.Errorf("collect of a running run: %v", err)
	}
	finish(t, kept)
	raw := finish(t, collected)
	must(t, os.Mkdir(collected.Path("made by the work"), 0700))
	must(t, os.WriteFile(collected.Path("made by the work/file"), nil, 0600))
	must(t, collected.Collect())
	must(t, collected.Collect())
	gc := func(later time.Duration, retention Retention) []longstop.RunID {
		t.Helper()
		retention.Now = now.Add(later)
		gone, _, err := f.GC(retention)
		must(t, err)
		return gone
	}
	every := []longstop.RunID{kept.ID(), collected.ID(), running.ID()}
	if gone := gc(time.Minute, Retention{MaxAge: time.Hour}); len(gone) != 0 {
		t.Errorf("removed %v, which nobody named", gone)
	}
	inUse := func(longstop.Record) bool { return true }
	if gone := gc(time.Hour, Retention{Runs: every, MaxAge: 1, InUse: inUse}); len(gone) != 0 {
		t.Errorf("removed %v in use", gone)
	}
	// What nobody collected stays, for ever or until MaxAge, whoever names it.
	if gone := gc(1000*time.Hour, Retention{Runs: every}); !slices.Equal(gone, []longstop.RunID{collected.ID()}) {
		t.Errorf("removed %v, want the collected run alone", gone)
	}
	if gone := gc(1000*time.Hour, Retention{Runs: every, MaxAge: 2000 * time.Hour}); !slices.Equal(gone, []longstop.RunID{collected.ID()}) {
		t.Errorf("gone is %v before the other's greatest age", gone)
	}
	if gone := gc(50*365*24*time.Hour, Retention{MaxAge: 500 * time.Hour}); len(gone) != 0 {
		t.Errorf("removed %v by a clock that is not set", gone)
	}
	if gone := gc(1000*time.Hour, Retention{MaxAge: 500 * time.Hour}); !slices.Equal(gone, []longstop.RunID{kept.ID()}) {
		t.Errorf("removed %v, want the run that nobody collected", gone)
	}
	if gone := gc(10000*time.Hour, Retention{Runs: every, MaxAge: 1}); !slices.Equal(gone, every[:2]) {
		t.Errorf("gone is %v, want those removed before", gone)
	}
	checkExpired(t, f, "collected", collected.ID(), raw)
}

// checkExpired checks that a run that was removed is known by its record and its key.
func checkExpired(t *testing.T, f *Folder, key string, id longstop.RunID, raw []byte) {
	t.Helper()
	if exists(f.runs, string(id)) {
		t.Error("the run's folder is there")
	}
	claim, err := f.Find(key)
	if err != nil || !claim.Expired || claim.RunID != id {
		t.Errorf("find: %+v, %v", claim, err)
	}
	if err := claim.Refusal("sha256:1"); longstop.CodeOf(err) != longstop.CodeExpired {
		t.Errorf("refusal: %v", err)
	}
	sub := submission(key)
	run, err := f.Build(sub)
	must(t, err)
	defer run.Close()
	if claim, err := f.Claim(run, key); err != nil || claim.Mine || !claim.Expired {
		t.Errorf("a new submit: %+v, %v", claim, err)
	}
	tomb, err := f.Run(id)
	must(t, err)
	defer tomb.Close()
	got, rec, err := tomb.Read()
	if err != nil || string(got) != string(raw) || !rec.State.Final() {
		t.Errorf("the tombstone: %s, %v", got, err)
	}
	if _, err := tomb.Lock(); err != ErrFinal {
		t.Errorf("lock: %v, want ErrFinal", err)
	}
}

// The same submit sent again long after its run was removed finds the run's end, and starts nothing.
func TestTheSameSubmitAfterItsRunWasRemoved(t *testing.T) {
	t.Parallel()
	f := folder(t)
	sub := submission("k")
	run, err := f.Build(sub)
	must(t, err)
	_, err = f.Claim(run, "k")
	must(t, err)
	_, err = run.Lock()
	must(t, err)
	finish(t, run)
	must(t, run.Collect())
	for round := range 2 {
		again, err := f.Build(sub)
		must(t, err)
		claim, err := f.Claim(again, "k")
		if err != nil || claim.Mine || claim.RunID != sub.RunID || claim.Expired != (round == 1) {
			t.Errorf("round %d: %+v, %v", round, claim, err)
		}
		if _, err := again.Lock(); round == 0 && err != ErrFinal && err != nil {
			t.Errorf("round %d: lock: %v", round, err)
		}
		if _, rec, err := again.Read(); err != nil || !rec.State.Final() {
			t.Errorf("round %d: read %+v, %v", round, rec, err)
		}
		again.Close()
		_, _, err = f.GC(Retention{Runs: []longstop.RunID{sub.RunID}, Now: time.Now()})
		must(t, err)
	}
}

func TestLeftoversOfDeadSubmitsAreSwept(t *testing.T) {
	t.Parallel()
	f := folder(t)
	built, err := f.Build(submission("built"))
	must(t, err)
	built.Close()
	_, err = f.Spool(longstop.NewRunID(), 0, []byte("x"))
	must(t, err)
	must(t, f.writeVoid("void.left", Claim{Version: 1}))
	named, err := f.Build(submission("named")) // killed between its two names
	must(t, err)
	must(t, link(named.dir, named.built, f.claims, string(named.ID())))
	must(t, link(f.claims, string(named.ID()), f.unresolved, string(named.ID())))
	named.Close()
	live := claimed(t, f, "live")
	for _, at := range []time.Duration{time.Hour, 25 * time.Hour} {
		claims, err := names(f.claims)
		must(t, err)
		f.sweepAll(claims, time.Now().Add(at))
		f.sweep(time.Now().Add(at))
		spools, _ := names(f.spool)
		runs, _ := names(f.runs)
		claims, _ = names(f.claims)
		unresolved, _ := f.Unresolved()
		got := fmt.Sprint(len(spools), len(runs), len(claims), len(unresolved))
		if want := map[time.Duration]string{time.Hour: "1 3 4 2", 25 * time.Hour: "0 1 2 1"}[at]; got != want {
			t.Errorf("after %v: %s (spools, runs, claims, unresolved), want %s", at, got, want)
		}
	}
	if _, _, err := live.Read(); err != ErrNoRecord {
		t.Errorf("the live run: %v", err)
	}
}

// What is too old goes whether it was collected or not, and the log is gone through once: what it said of
// removed runs is given back, and cursors into it go on.
func TestRemovedForTheirAge(t *testing.T) {
	t.Parallel()
	f := folder(t)
	const old, young = 230, 5
	var ids []longstop.RunID
	var cursor string
	for i := range old + young {
		run := locked(t, f, fmt.Sprint(i))
		ended := time.Now()
		if i < old {
			ended = ended.Add(-240 * time.Hour)
		}
		_, err := run.Finish(&longstop.Record{State: longstop.WorkloadLost, FinishedAt: longstop.At(ended)}, nil)
		must(t, err)
		if i%3 == 0 {
			must(t, run.Collect())
		}
		if ids = append(ids, run.ID()); i == 10 {
			page, err := f.List("", 0)
			must(t, err)
			cursor = page.Cursor
		}
		run.Close()
	}
	gone, more, err := f.GC(Retention{MaxAge: 120 * time.Hour, Now: time.Now()})
	slices.Sort(gone)
	want := slices.Sorted(slices.Values(ids[:old]))
	if err != nil || more || !slices.Equal(gone, want) {
		t.Errorf("%d gone, more %v, %v; want %d", len(gone), more, err, old)
	}
	log, err := openAt(f.root, logName, unix.O_RDONLY)
	must(t, err)
	defer log.Close()
	if start := logStart(log); start != 4096 {
		t.Errorf("the log begins at %d, want 4096", start)
	}
	if gone, _, err := f.GC(Retention{MaxAge: 120 * time.Hour, Now: time.Now()}); err != nil || len(gone) > 0 {
		t.Errorf("once more: %v, %v", gone, err)
	}
	page, err := f.List(cursor, 0)
	if err != nil || !slices.Equal(page.Runs[len(page.Runs)-young:], ids[old:]) {
		t.Errorf("from an old cursor: %v, %v", page.Runs, err)
	}
	if left, _ := names(f.runs); len(left) != young {
		t.Errorf("%d folders are left", len(left))
	}
}

// A removal that was interrupted leaves what nobody sees, and the next one ends it.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := locked(t, f, "k")
	finish(t, run)
	must(t, os.WriteFile(run.Path("stdout"), []byte("x"), 0600))
	must(t, run.Collect())
	must(t, f.bury(run.ID()))
	must(t, unix.Renameat(int(f.runs.Fd()), string(run.ID()), int(f.spool.Fd()), goneName+string(run.ID())))
	gone, _, err := f.GC(Retention{Runs: []longstop.RunID{run.ID()}, Now: time.Now()})
	if err != nil || len(gone) != 1 {
		t.Errorf("gone is %v, %v", gone, err)
	}
	if left, _ := names(f.spool); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if claim, err := f.Find("k"); err != nil || !claim.Expired {
		t.Errorf("find: %+v, %v", claim, err)
	}
}
