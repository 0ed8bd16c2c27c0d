package runner

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

func (l *lab) leased(script string, lease time.Duration) wire.Submit {
	l.t.Helper()
	if err := EnsureKeeper(context.Background(), l.f); err != nil { // its start is not the lease's business
		l.t.Fatal(err)
	}
	sub := l.script(script)
	sub.Request.Lifetime, sub.LeaseUntil = longstop.Leased, boundary.BootNow().Add(lease)
	return sub
}

func (l *lab) renew(id longstop.RunID, until longstop.BootTime) string {
	l.t.Helper()
	answer, err := Renew(context.Background(), l.f, wire.RenewRequest{BootID: boundary.BootID(), Leases: []wire.RunLease{{RunID: id, Until: until}}})
	if err != nil {
		l.t.Fatal(err)
	}
	if len(answer.Renewed) == 1 {
		return ""
	}
	return answer.Refused[id]
}

// C011: at the lease's end TERM, the grace, KILL, and a record that says why and when.
func TestC011LeaseEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("trap '' TERM; while :; do date; sleep .05; done", 1500*time.Millisecond)
	sub.Request.GraceS = 0.3
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !cancelled(rec, longstop.CauseLease) || rec.Cancel.SignalledAt.IsZero() || rec.Cancel.KilledAt.IsZero() || rec.Cancel.EmptyAt.IsZero() {
		t.Errorf("%s", show(rec))
	}
	if at := rec.BootAt; at < sub.LeaseUntil.Add(300*time.Millisecond) || at > sub.LeaseUntil.Add(3*time.Second) {
		t.Errorf("ended %v after the lease", at.Sub(sub.LeaseUntil))
	}
	if why := l.renew(sub.RunID, boundary.BootNow().Add(time.Minute)); why == "" {
		t.Error("a lease of a run that is over was renewed")
	}
	l.nobody(sub.RunID)
}

// C010: renewed in time, it goes on; then nobody renews.
func TestC010RenewalsKeepARunAlive(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("echo up > up; sleep 60", 2*time.Second)
	l.submit(sub)
	last := sub.LeaseUntil
	for range 6 {
		last = boundary.BootNow().Add(2 * time.Second)
		if why := l.renew(sub.RunID, last); why != "" {
			t.Fatal(why)
		}
		time.Sleep(400 * time.Millisecond)
	}
	rec := l.record(sub.RunID)
	if rec.State != longstop.WorkloadRunning || rec.LeaseUntil != last || boundary.BootNow() < sub.LeaseUntil {
		t.Errorf("%s", show(rec))
	}
	if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseLease) {
		t.Errorf("%s", show(rec))
	}
}

// A renewal that was stuck in a dead link changes nothing.
func TestStaleRenewals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("trap 'sleep 1; exit 0' TERM; echo up > up; while :; do sleep 0.05; done", 3*time.Second)
	l.submit(sub)
	l.has("up", 1)
	if why := l.renew(sub.RunID, boundary.BootNow()-1); why == "" {
		t.Error("an instant that has passed was taken")
	}
	if why := l.renew(sub.RunID, sub.LeaseUntil-1); why != "" {
		t.Errorf("a late one: %s", why) // the lease holds
	}
	if got := l.record(sub.RunID).LeaseUntil; got != sub.LeaseUntil {
		t.Errorf("the lease moved from %d to %d", sub.LeaseUntil, got)
	}
	answer, err := Renew(context.Background(), l.f, wire.RenewRequest{BootID: "another", Leases: []wire.RunLease{{RunID: sub.RunID, Until: boundary.BootNow().Add(time.Hour)}}})
	if err != nil || len(answer.Renewed) > 0 || !strings.Contains(answer.Refused[sub.RunID], "boot") {
		t.Errorf("another boot: %+v, %v", answer, err)
	}
	l.state(sub.RunID, longstop.WorkloadCancelling)
	if why := l.renew(sub.RunID, boundary.BootNow().Add(time.Hour)); why == "" {
		t.Error("a lease that ran out was renewed")
	}
	if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseLease) {
		t.Errorf("%s", show(rec))
	}
	detached := l.script("sleep 60")
	l.submit(detached)
	if why := l.renew(detached.RunID, boundary.BootNow().Add(time.Hour)); !strings.Contains(why, "no lease") {
		t.Errorf("a detached run: %q", why)
	}
}

// C016: at the deadline all members of a pipeline go, those that read no signal too.
func TestC016Deadline(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, script := range []string{
		"yes | grep -v y | grep -v /x | head -1",
		"for c in 1 2; do (trap '' TERM; while :; do :; done) & done; sleep 600",
	} {
		sub := l.script(script)
		sub.Request.DeadlineS, sub.Request.GraceS = 0.5, 0.3
		l.submit(sub)
		rec := l.final(sub.RunID)
		if !cancelled(rec, longstop.CauseDeadline) {
			t.Errorf("%s: %s", script, show(rec))
		}
		l.nobody(sub.RunID)
	}
}

// Owner, keeper and successor enforce lease and deadline.
func TestHeirsEnforceLeaseAndDeadline(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("echo up >> up; sleep 60", 3*time.Second)
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustOwner(sub.RunID))
	if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseLease) || rec.Writer.Kind != longstop.WriterKeeper {
		t.Errorf("keeper: %s", show(rec))
	}
	sub = l.script("echo up >> up; sleep 60")
	sub.Request.DeadlineS = 2
	l.submit(sub)
	l.has("up", 2)
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	rec := l.final(sub.RunID)
	if rec.State != longstop.WorkloadLost || rec.Cancel == nil || rec.Cancel.Signalled == 0 {
		t.Errorf("successor: %s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A renewal reaches a run whose owner died by way of its keeper.
func TestRenewalOfAnInheritedRun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("echo up >> up; sleep 60", 30*time.Second)
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustOwner(sub.RunID))
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	until := boundary.BootNow().Add(time.Minute)
	if why := l.renew(sub.RunID, until); why != "" {
		t.Errorf("%s", why)
	}
	if rec := l.record(sub.RunID); rec.LeaseUntil != until {
		t.Errorf("%s", show(rec))
	}
}

// C113: a stopped owner does not let a lease run over. (One that hangs: TestC113HungOwner….)
func TestC113StoppedOwnerAndTheLease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("echo up >> up; sleep 60", 1500*time.Millisecond)
	sub.Request.GraceS = 0.2
	l.submit(sub)
	l.has("up", 1)
	boundary.Signal(l.mustOwner(sub.RunID), unix.SIGSTOP)
	if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseLease) {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// C113: nobody of ours runs while a lease ends, as on a host that sleeps. Once they do, it is enforced at once.
func TestC113NobodyRunsWhileALeaseEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.leased("echo up >> up; sleep 60", 1500*time.Millisecond)
	sub.Request.GraceS = 0.2
	l.submit(sub)
	l.has("up", 1)
	ours := []boundary.Identity{l.mustKeeper(), l.mustOwner(sub.RunID)} // the keeper first: it would bypass the owner
	for _, id := range ours {
		boundary.Signal(id, unix.SIGSTOP)
	}
	eventually(t, "the end of the lease, and some", func() bool { return boundary.BootNow() > sub.LeaseUntil.Add(time.Second) })
	if rec := l.record(sub.RunID); rec.State != longstop.WorkloadRunning {
		t.Fatalf("somebody runs: %s", show(rec))
	}
	woken := boundary.BootNow()
	for _, id := range ours {
		boundary.Signal(id, unix.SIGCONT)
	}
	rec := l.final(sub.RunID)
	if !cancelled(rec, longstop.CauseLease) || rec.BootAt.Sub(woken) > 5*time.Second {
		t.Errorf("%v after waking: %s", rec.BootAt.Sub(woken), show(rec))
	}
	l.nobody(sub.RunID)
}
