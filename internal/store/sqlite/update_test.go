package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// until waits for a condition that another goroutine brings about.
func until(t testing.TB, what string, holds func() bool) {
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Errorf("timed out: %s", what)
			return
		}
		runtime.Gosched()
	}
}

// together runs updates in one group: each begins once the next one waits for its turn.
func together(t testing.TB, s *Store, fns ...func(tx *Tx) error) []error {
	t.Helper()
	errs := make([]error, len(fns))
	began := make([]chan struct{}, len(fns)+1)
	for i := range began {
		began[i] = make(chan struct{})
	}
	close(began[0])
	var running sync.WaitGroup
	for i, fn := range fns {
		running.Go(func() {
			<-began[i]
			errs[i] = s.Update(context.Background(), func(tx *Tx) error {
				if i+1 < len(fns) {
					close(began[i+1])
					until(t, "the next update waits", func() bool { return s.waiting.Load() > 0 })
				}
				return fn(tx)
			})
		})
	}
	running.Wait()
	return errs
}

func create(a *longstop.Action) func(tx *Tx) error {
	return func(tx *Tx) error { return tx.PutAction(a, nil, entryFor(a, journal.Requested)) }
}

// wantStored checks that exactly these actions are there, each with one entry.
func wantStored(t testing.TB, s *Store, want ...*longstop.Action) {
	t.Helper()
	page, err := s.Actions(t.Context(), Filter{})
	if err != nil || len(page) != len(want) {
		t.Fatalf("%d actions, want %d (%v)", len(page), len(want), err)
	}
	for _, a := range want {
		if _, err := s.Action(t.Context(), string(a.ID)); err != nil {
			t.Error(err)
		}
	}
	if head := verify(t, s); head.Size != int64(len(want)) {
		t.Errorf("%d entries, want %d", head.Size, len(want))
	}
}

func TestUpdatesTogetherShareAFlush(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a, b, c := newAction("web-1"), newAction("web-1"), newAction("web-2")
	before := s.Flushes()
	for _, err := range together(t, s, create(a), create(b), create(c)) {
		if err != nil {
			t.Error(err)
		}
	}
	if n := s.Flushes() - before; n != 1 {
		t.Errorf("%d flushes, want 1", n)
	}
	wantStored(t, s, a, b, c)
}

func TestAnErrorTakesBackItsOwnUpdateOnly(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for at := range 3 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			s := openNew(t)
			var fns []func(*Tx) error
			var kept []*longstop.Action
			for i := range 3 {
				a := newAction("web-1")
				if i == at {
					fns = append(fns, func(tx *Tx) error { return errors.Join(create(a)(tx), mine) })
					continue
				}
				kept = append(kept, a)
				fns = append(fns, create(a))
			}
			for i, err := range together(t, s, fns...) {
				if errors.Is(err, mine) != (i == at) || (err != nil) != (i == at) {
					t.Errorf("update %d: %v", i, err)
				}
			}
			wantStored(t, s, kept...)
			again := newAction("web-1")
			put(t, s, again, journal.Requested)
			wantStored(t, s, append(kept, again)...)
		})
	}
}

func TestAPanicTakesBackItsOwnUpdateOnly(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a, b, c := newAction("web-1"), newAction("web-1"), newAction("web-1")
	panicking := func() (recovered any) {
		defer func() { recovered = recover() }()
		return s.Update(t.Context(), func(tx *Tx) error {
			if err := create(b)(tx); err != nil {
				return err
			}
			panic("at the worst moment")
		})
	}
	errs := together(t, s, func(tx *Tx) error {
		go func() {
			if got := panicking(); got != "at the worst moment" {
				t.Errorf("recovered %v", got)
			}
		}()
		until(t, "the panicking update waits too", func() bool { return s.waiting.Load() > 1 })
		return create(a)(tx)
	}, create(c))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(*Tx) error { return nil }); err != nil { // after the panicking one
		t.Fatal(err)
	}
	wantStored(t, s, a, c)
}

func TestAFailedCommitFailsAll(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	// A constraint that is checked at commit alone.
	_, err := s.conn.ExecContext(t.Context(), `CREATE TABLE late (entry INTEGER REFERENCES entries (idx) DEFERRABLE INITIALLY DEFERRED)`)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(tx *Tx) error {
		_, err := s.conn.ExecContext(context.Background(), `INSERT INTO late VALUES (1000)`)
		return err
	}
	for i, err := range together(t, s, create(newAction("web-1")), spoil, create(newAction("web-1"))) {
		if err == nil || !strings.Contains(err.Error(), "commit") {
			t.Errorf("update %d: %v", i, err)
		}
	}
	wantStored(t, s)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	wantStored(t, s, a)
}

// SQLite itself rolls back the whole transaction on some errors, such as a full disk.
func TestARolledBackGroupFailsAll(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	full := errors.New("full")
	rollBack := func(tx *Tx) error { return errors.Join(s.exec(s.stmt.rollback), full) }
	errs := together(t, s, create(newAction("web-1")), rollBack)
	if errs[0] == nil || !errors.Is(errs[1], full) {
		t.Errorf("got %v", errs)
	}
	wantStored(t, s)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	wantStored(t, s, a)
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	if _, err := s.conn.ExecContext(t.Context(), `PRAGMA max_page_count = 40`); err != nil {
		t.Fatal(err)
	}
	big := entryFor(a, journal.Observed)
	err := s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Append(big, Raw{Kind: "record", Bytes: make([]byte, MaxRaw)})
		return err
	})
	var told *longstop.Error
	if !errors.As(err, &told) || told.Code != longstop.CodeInternal || !strings.Contains(told.Message, "disk is full") || !strings.Contains(told.Hint, "df -h "+filepath.Dir(s.path)) {
		t.Fatalf("got %v", err)
	}
	wantStored(t, s, a)
	if _, err := s.conn.ExecContext(t.Context(), `PRAGMA max_page_count = 1000000`); err != nil {
		t.Fatal(err)
	}
	b := newAction("web-1")
	put(t, s, b, journal.Requested)
	wantStored(t, s, a, b)
}

func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	const writers, each = 8, 25
	ignored := errors.New("ignored")
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			a := newAction(fmt.Sprintf("web-%d", w))
			for i := range each {
				a.Revision = int64(i + 1)
				err := s.Update(context.Background(), func(tx *Tx) error { return tx.PutAction(a, nil, entryFor(a, journal.Observed)) })
				if err != nil {
					t.Error(err)
				}
				err = s.Update(context.Background(), func(tx *Tx) error {
					_, err := tx.Append(entryFor(a, journal.Contradiction))
					return errors.Join(err, ignored)
				})
				if !errors.Is(err, ignored) {
					t.Error(err)
				}
				if got, err := s.Action(context.Background(), string(a.ID)); err != nil || got.Revision != a.Revision {
					t.Errorf("read %v after revision %d was written (%v)", got, a.Revision, err)
				}
			}
		})
	}
	running.Wait()
	if head := verify(t, s); head.Size != writers*each {
		t.Errorf("%d entries, want %d", head.Size, writers*each)
	}
	t.Logf("%d updates, %d flushes", writers*each, s.Flushes())
}

func TestStaleRevision(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	put(t, s, a, journal.Requested)
	for _, revision := range []int64{1, 3, 0, -1} {
		a.Revision = revision
		if err := s.Update(t.Context(), create(a)); !errors.Is(err, ErrStale) {
			t.Errorf("revision %d after 1: %v, want ErrStale", revision, err)
		}
	}
	a.Revision = 1
	wantStored(t, s, a)
	a.Revision = 2
	put(t, s, a, journal.LaunchAnswered)
	if err := s.Update(t.Context(), create(a)); !errors.Is(err, ErrStale) {
		t.Errorf("revision 2 twice: %v, want ErrStale", err)
	}
}

func TestPutActionRefuses(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	held := newAction("web-1")
	put(t, s, held, journal.Requested)

	same := newAction("web-2")
	same.IdempotencyKey = held.IdempotencyKey
	var shown *longstop.Error
	if err := s.Update(t.Context(), create(same)); !errors.As(err, &shown) || shown.Code != longstop.CodeKeyConflict || shown.ActionID != held.ID {
		t.Errorf("a key twice: %v", err)
	}
	keyless := newAction("web-1")
	keyless.IdempotencyKey = ""
	if err := s.Update(t.Context(), create(keyless)); err == nil {
		t.Error("an action without a key was put")
	}
	runless := newAction("web-1")
	runless.RunID = ""
	err := s.Update(t.Context(), func(tx *Tx) error {
		return tx.PutAction(runless, []byte("secret"), entryFor(runless, journal.Requested))
	})
	if err == nil {
		t.Error("a secret without a run was put")
	}
	wantStored(t, s, held)
}

// The run and whether it is unresolved change with an update that names them.
func TestIndexedColumnsFollow(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	run := a.RunID
	a.RunID = ""
	if err := s.Update(t.Context(), create(a)); err != nil {
		t.Fatal(err)
	}
	a.Revision, a.RunID, a.Launch.State = 2, run, longstop.LaunchSent
	put(t, s, a, journal.LaunchIntended)
	if got, err := s.ByRun(t.Context(), run); err != nil || got == nil || got.ID != a.ID {
		t.Errorf("by run: %v, %v", got, err)
	}
	if pending, err := s.Unresolved(t.Context(), "web-1"); err != nil || len(pending) != 1 || string(pending[0].Secret) != "secret of "+string(run) {
		t.Errorf("unresolved: %v, %v", pending, err)
	}
	a.Revision, a.Launch.State, a.Outcome = 3, longstop.LaunchRejected, longstop.OutcomeNotStarted
	put(t, s, a, journal.LaunchAnswered)
	if pending, err := s.Unresolved(t.Context(), ""); err != nil || len(pending) != 0 {
		t.Errorf("unresolved after the end: %v, %v", pending, err)
	}
}

func TestUpdateGivesUpBeforeItsTurnOnly(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ran := false
	if err := s.Update(gone, func(*Tx) error { ran = true; return nil }); !errors.Is(err, context.Canceled) || ran {
		t.Errorf("got %v, ran %v", err, ran)
	}
	a := newAction("web-1")
	midway, cancel := context.WithCancel(t.Context())
	err := s.Update(midway, func(tx *Tx) error { cancel(); return create(a)(tx) })
	if err != nil {
		t.Error(err)
	}
	// Whoever gives up while others' work is uncommitted still lets it be committed.
	b := newAction("web-1")
	err = s.Update(t.Context(), func(tx *Tx) error {
		go s.Update(gone, func(*Tx) error { return nil })
		until(t, "the cancelled update waits", func() bool { return s.waiting.Load() > 0 })
		return create(b)(tx)
	})
	if err != nil {
		t.Error(err)
	}
	wantStored(t, s, a, b)
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	a := newAction("web-1")
	closed := make(chan error)
	err := s.Update(t.Context(), func(tx *Tx) error {
		go func() { closed <- s.Close() }()
		until(t, "Close waits", func() bool { return s.waiting.Load() > 0 })
		return create(a)(tx)
	})
	if err := errors.Join(err, <-closed); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), create(newAction("web-1"))); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestUpdateThatWritesNothingFlushesNothing(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	before := s.Flushes()
	err := s.Update(t.Context(), func(tx *Tx) error { _, err := tx.ActionByKey("none"); return err })
	if err != nil || s.Flushes() != before {
		t.Errorf("%d flushes, %v", s.Flushes()-before, err)
	}
}
