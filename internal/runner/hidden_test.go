package runner

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// Law 10: the work, which is the same user's, can remove its owner's socket. There is a way through to
// stop it, and whoever asks about its lease is not kept waiting.
func TestLaw10OwnerSocketRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("rm owner.sock || rm " + l.f.Path("runs") + "/*/owner.sock; sleep 600")
	l.submit(sub)
	eventually(t, "no socket", func() bool { _, there := l.owner(sub.RunID); return !there })
	began := time.Now()
	answer, err := Renew(context.Background(), l.f, wire.RenewRequest{BootID: boundary.BootID(),
		Leases: []wire.RunLease{{RunID: sub.RunID, Until: boundary.BootNow().Add(time.Hour)}}})
	if took := time.Since(began); err != nil || answer.Refused[sub.RunID] == "" || took > 3*time.Second {
		t.Errorf("renew: %+v, %v after %v", answer, err, took)
	}
	if _, rec := l.cancel(sub.RunID, time.Second, 10*time.Second); rec.State != longstop.WorkloadCancelled {
		t.Errorf("cancelled: %s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A keeper that looks whether anybody answers for a run holds its lock for a moment. The owner that is
// about to take it waits for that.
func TestLockSoon(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("true")
	l.accept(sub)
	looker, err := l.f.Run(sub.RunID)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := l.f.Run(sub.RunID)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if _, err := looker.Lock(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { looker.Close() })
	if err := lockSoon(owner); err != nil {
		t.Error(err)
	}
}

// Whoever does not take connections, stopped as it is, is not waited for without end.
func TestDialGivesUp(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	deaf, err := listen(int(dir.Fd()), "deaf.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.close()
	raw, err := deaf.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { unix.Listen(int(fd), 0) })
	for range 3 {
		l, err := dial(int(dir.Fd()), "deaf.sock")
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
	}
	t.Error("its queue was never full")
}

// Law 7: what a run released comes to the keeper when its parent ends, long after the run is over. It is
// not taken for another run's whose owner died.
func TestLaw7ReleasedIsNobodyElses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	leave := l.path("leave")
	free := l.request(longstop.Request{Leftover: longstop.LeftoverRelease,
		Script: "(sleep 600 & echo $! >released; while [ ! -e " + leave + " ]; do sleep 0.02; done) & while [ ! -s released ]; do sleep 0.01; done"})
	l.submit(free)
	l.final(free.RunID)
	released, err := strconv.Atoi(l.has("released", 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	who, err := boundary.Look(released)
	if err != nil {
		t.Fatal(err)
	}
	orphan := l.script("sleep 600")
	l.submit(orphan)
	owner := l.mustOwner(orphan.RunID)
	if err := boundary.Signal(owner, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.state(orphan.RunID, longstop.WorkloadOrphaned)
	if err := os.WriteFile(leave, nil, 0600); err != nil {
		t.Fatal(err)
	}
	keeper := l.mustKeeper()
	eventually(t, "the released process with the keeper", func() bool { s, err := boundary.Look(released); return err == nil && s.PPID == keeper.PID })
	if _, rec := l.cancel(orphan.RunID, time.Second, 10*time.Second); rec.State != longstop.WorkloadCancelled {
		t.Errorf("cancelled: %s", show(rec))
	}
	if !boundary.Is(who.Identity) {
		t.Error("the cancel of one run ended what another had released")
	}
}

// Standard input that no submit took within a day goes when a keeper comes; a younger one stays.
func TestOldSpoolGoes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	old, young := longstop.NewRunID(), longstop.NewRunID()
	for _, id := range []longstop.RunID{old, young} {
		if _, err := l.f.Spool(id, 0, []byte("input")); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(l.f.Path("spool", string(old)), past, past); err != nil {
		t.Fatal(err)
	}
	if err := EnsureKeeper(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old one is gone", func() bool { return !exists(l.f.Path("spool", string(old))) })
	if !exists(l.f.Path("spool", string(young))) {
		t.Error("the young one is gone, too")
	}
}
