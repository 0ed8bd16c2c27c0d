package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

func (l *lab) kill(id boundary.Identity) {
	l.t.Helper()
	if err := boundary.Signal(id, unix.SIGKILL); err != nil {
		l.t.Fatalf("kill %v: %v", id, err)
	}
	eventually(l.t, "its death", func() bool { return !boundary.Is(id) })
}

// touch lets a script go on that waits for a file.
func (l *lab) touch(name string) { l.program(name, "") }

const waitForGo = "echo up >> up; while ! test -e go; do sleep 0.02; done; "

// Law 2: the owner is killed while the work goes on and ends with 7: the keeper reaps the true
// status and says so in its own name.
func TestLaw2OwnerKilledKeeperTestifies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("echo before; " + waitForGo + "echo after; exit 7")
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustOwner(sub.RunID))
	rec := l.state(sub.RunID, longstop.WorkloadOrphaned)
	if rec.Writer.Kind != longstop.WriterKeeper {
		t.Errorf("orphaned: %s", show(rec))
	}
	l.touch("go")
	rec = l.final(sub.RunID)
	if !exited(rec, 7) || rec.Writer.Kind != longstop.WriterKeeper || rec.Boundary.Empty == nil || !*rec.Boundary.Empty {
		t.Errorf("%s", show(rec))
	}
	if got := l.stdout(sub.RunID); got != "before\nafter\n" {
		t.Errorf("output %q", got)
	}
}

// The owner is killed while the main process has ended and a double-forked one has not.
func TestOwnerKilledWhileLingering(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("(setsid sh -c '" + waitForGo + "echo late' &) ; exit 7")
	l.submit(sub)
	l.has("up", 1)
	l.state(sub.RunID, longstop.WorkloadLingering)
	l.kill(l.mustOwner(sub.RunID))
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	l.touch("go")
	rec := l.final(sub.RunID)
	if !exited(rec, 7) || rec.Writer.Kind != longstop.WriterKeeper || l.stdout(sub.RunID) != "late\n" {
		t.Errorf("%s, %q", show(rec), l.stdout(sub.RunID))
	}
}

// The keeper stops what it inherited, tree and all.
func TestKeeperCancelsWhatItInherited(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("trapper", trapper)
	sub := l.argv("./trapper", "shell")
	other := l.script(waitForGo)
	l.submit(sub)
	l.submit(other)
	l.has("up", 5)
	l.kill(l.mustOwner(sub.RunID))
	answer, rec := l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 || rec.Writer.Kind != longstop.WriterKeeper || len(l.lines("got")) != 4 {
		t.Errorf("%s, got %v", show(rec), l.lines("got"))
	}
	l.nobody(sub.RunID)
	if rec := l.record(other.RunID); rec.State != longstop.WorkloadRunning {
		t.Errorf("the other run: %s", show(rec))
	}
}

// Orphans of two owners that died together are told apart by session and mark.
func TestTwoOwnersKilledTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var subs []wire.Submit
	for i := range 4 {
		sub := l.script(fmt.Sprintf("(setsid sh -c 'while ! test -e go; do sleep 0.02; done' &); %s exit %d", waitForGo, i+3))
		l.submit(sub)
		subs = append(subs, sub)
	}
	l.has("up", 4)
	var owners []boundary.Identity
	for _, sub := range subs {
		owners = append(owners, l.mustOwner(sub.RunID))
	}
	for _, o := range owners {
		boundary.Signal(o, unix.SIGKILL)
	}
	for _, sub := range subs {
		l.state(sub.RunID, longstop.WorkloadOrphaned)
	}
	if _, rec := l.cancel(subs[0].RunID, 0, 10*time.Second); !cancelled(rec, longstop.CauseRequest) {
		t.Errorf("%s", show(rec))
	}
	for _, sub := range subs[1:] {
		if rec := l.record(sub.RunID); rec.State != longstop.WorkloadOrphaned {
			t.Errorf("%s", show(rec))
		}
	}
	l.touch("go")
	for i, sub := range subs[1:] {
		if rec := l.final(sub.RunID); !exited(rec, i+4) {
			t.Errorf("%s", show(rec))
		}
	}
}

// A child that could be of either of two dead owners keeps both runs orphaned and is not signalled,
// until both are to be stopped.
func TestLaw7AmbiguousOrphan(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stray := "(env -i setsid sh -c 'echo $$ > stray; while ! test -e never; do sleep 0.02; done' &); while ! test -e stray; do sleep 0.01; done; "
	a, b := l.script(stray+waitForGo), l.script(waitForGo)
	l.submit(a)
	l.submit(b)
	l.has("up", 2)
	pid := 0
	fmt.Sscan(l.has("stray", 1)[0], &pid)
	s, err := boundary.Look(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer boundary.Signal(s.Identity, unix.SIGKILL)
	// Together, so that whose it is cannot be told by who died.
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGSTOP)
	l.kill(l.mustOwner(a.RunID))
	l.kill(l.mustOwner(b.RunID))
	boundary.Signal(keeper, unix.SIGCONT)
	l.state(a.RunID, longstop.WorkloadOrphaned)
	l.state(b.RunID, longstop.WorkloadOrphaned)
	answer, rec := l.cancel(b.RunID, 0, 2500*time.Millisecond)
	if rec.State != longstop.WorkloadOrphaned || len(answer.Survivors) != 1 || answer.Survivors[0].PID != pid || answer.Survivors[0].Why == "" {
		t.Errorf("%s, survivors %+v", show(rec), answer.Survivors)
	}
	if !boundary.Is(s.Identity) {
		t.Error("it was signalled though it may be another run's")
	}
	l.cancel(a.RunID, 0, 5*time.Second)
	for _, sub := range []wire.Submit{a, b} {
		if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseRequest) {
			t.Errorf("%s", show(rec))
		}
	}
	if boundary.Is(s.Identity) {
		t.Error("it lives on though both runs were stopped")
	}
}

// The keeper is killed: nothing changes, and the next one keeps out of what has an owner.
func TestKeeperKilledNothingChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(waitForGo + "exit 7")
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustKeeper())
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	second := l.mustKeeper()
	time.Sleep(keeperLingers + 300*time.Millisecond)
	if !boundary.Is(second) || l.record(sub.RunID).State != longstop.WorkloadRunning {
		t.Error("the new keeper did not stay, or touched the run")
	}
	l.touch("go")
	if rec := l.final(sub.RunID); !exited(rec, 7) || rec.Writer.Kind != longstop.WriterOwner {
		t.Errorf("%s", show(rec))
	}
}

// Law 3: both are gone. What is left is stopped as far as it can be identified; how the work ended
// is never made up.
func TestLaw3BothKilled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("setsid sh -c 'echo up >> up; sleep 60' & " + waitForGo + "exit 7")
	rec := l.submit(sub)
	l.has("up", 2)
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	orphan := l.state(sub.RunID, longstop.WorkloadOrphaned)
	if orphan.Writer.Kind != longstop.WriterSuccessor || orphan.MAC != "" {
		t.Errorf("%s", show(orphan))
	}
	if !boundary.Is(boundary.Identity{PID: rec.Main.PID, Start: rec.Main.StartTime}) {
		t.Error("the work did not go on")
	}
	answer, after := l.cancel(sub.RunID, time.Second, 10*time.Second)
	if after.State != longstop.WorkloadLost || after.LostBecause != longstop.OwnerLost || after.EmptyProven || after.Result != nil || after.Boundary.Empty != nil || len(answer.Survivors) > 0 {
		t.Errorf("%s", show(after))
	}
	l.nobody(sub.RunID)
	// C040
	if _, again := l.cancel(sub.RunID, 0, time.Second); again.State != longstop.WorkloadLost {
		t.Errorf("%s", show(again))
	}
}

// The work ends by itself after both are gone: lost, without a status.
func TestLaw3BothKilledAndTheWorkEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(waitForGo + "exit 0")
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	l.touch("go")
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	if rec := l.final(sub.RunID); rec.State != longstop.WorkloadLost || rec.Result != nil || rec.EmptyProven || rec.Main.ExitCode != nil {
		t.Errorf("%s", show(rec))
	}
}

// Both are gone, and then the main process: what it left is stopped, if that was asked for.
func TestLaw3BothKilledAndLeftoversGo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("setsid sleep 60 & " + waitForGo + "exit 7")
	sub.Request.Leftover = longstop.LeftoverKill
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	l.touch("go")
	rec := l.final(sub.RunID)
	if rec.State != longstop.WorkloadLost || rec.Result != nil || rec.EmptyProven || len(rec.Left) != 1 || rec.Main.ExitCode != nil {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A stopped owner does not keep a run from being stopped. (One that hangs: TestLaw10HungOwner….)
func TestLaw10StoppedOwnerIsWoken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("trap 'echo heard >> got; exit 0' TERM; echo up > up; while :; do sleep 0.05; done")
	l.submit(sub)
	l.has("up", 1)
	boundary.Signal(l.mustOwner(sub.RunID), unix.SIGSTOP)
	_, rec := l.cancel(sub.RunID, 2*time.Second, 15*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(l.lines("got")) != 1 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A stopped owner of an earlier keeper's is woken and asked again.
func TestLaw10StoppedOwnerOfADeadKeeper(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("echo up > up; sleep 60")
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustKeeper())
	boundary.Signal(l.mustOwner(sub.RunID), unix.SIGSTOP)
	answer, rec := l.cancel(sub.RunID, time.Second, 15*time.Second)
	if !rec.State.Final() || len(answer.Survivors) > 0 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A keeper does not go on TERM while it has runs.
func TestKeeperStaysThroughTERM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(waitForGo + "exit 7")
	l.submit(sub)
	l.has("up", 1)
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGTERM)
	l.kill(l.mustOwner(sub.RunID))
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	l.touch("go")
	if rec := l.final(sub.RunID); !exited(rec, 7) || rec.Writer.Kind != longstop.WriterKeeper {
		t.Errorf("%s", show(rec))
	}
	eventually(t, "the keeper goes", func() bool { return !boundary.Is(keeper) })
}

// A keeper goes on TERM though somebody holds on to it: it is in a scope that ends, and what it took on there
// would be killed. Whoever holds on has another one.
func TestKeeperGoesOnTERMWhoeverHoldsIt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := EnsureKeeper(t.Context(), l.f); err != nil {
		t.Fatal(err)
	}
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGTERM)
	eventually(t, "the keeper goes", func() bool { return !boundary.Is(keeper) })
	sub := l.script("exit 7")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 7) {
		t.Errorf("%s", show(rec))
	}
}

// An owner that has no run hears TERM: whoever sent it meant no run that comes later.
func TestTERMBeforeTheRunCancelsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first := l.script(waitForGo)
	l.submit(first)
	spare := l.spareBeside(first.RunID)
	boundary.Signal(spare, unix.SIGTERM)
	eventually(t, "it has heard", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", spare.PID))
		return err == nil && bytes.Contains(status, []byte("\nShdPnd:\t0000000000000000\n"))
	})
	second := l.script("sleep 0.1; exit 5")
	l.submit(second)
	if rec := l.final(second.RunID); !exited(rec, 5) || rec.Writer.PID != spare.PID {
		t.Errorf("%s; the spare is %v", show(rec), spare)
	}
	l.touch("go")
	l.final(first.RunID)
}

// A record that the workload altered is not believed by its keeper, which goes on from what the owner
// answered, and says so. Nor does it touch the process that the forger named.
func TestLaw2AlteredRecordIsNotBelieved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	victim := l.script("echo up >> up; sleep 60")
	theirs := l.submit(victim)
	sub := l.script(waitForGo + "exit 7")
	rec := l.submit(sub)
	l.has("up", 2)
	rec.Main, rec.Sequence = theirs.Main, l.record(sub.RunID).Sequence+1
	rec.Main.ExitCode = new(0)
	l.forge(rec)
	l.kill(l.mustOwner(sub.RunID))
	run, err := l.f.Run(sub.RunID)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	eventually(t, "a keeper's record over the forged one", func() bool {
		_, rec, err := run.Read()
		return err == nil && rec.State == longstop.WorkloadOrphaned
	})
	l.touch("go")
	if rec := l.final(sub.RunID); !exited(rec, 7) || len(rec.Anomalies) == 0 {
		t.Errorf("%s", show(rec))
	}
	if rec := l.record(victim.RunID); rec.State != longstop.WorkloadRunning {
		t.Errorf("the victim: %s", show(rec))
	}
}

// forge writes a record as a workload of the same user could: whole, but without the secret.
func (l *lab) forge(rec longstop.Record) {
	l.t.Helper()
	body := wire.Sign(rec, nil)
	lead := fmt.Sprintf("longstop-record 1 %020d %010d", rec.Sequence, len(body))
	sum := sha256.Sum256([]byte(lead + "\n" + string(body)))
	sealed := lead + " " + hex.EncodeToString(sum[:]) + "\n" + string(body) + "\n"
	path := l.f.Path("claims", string(rec.RunID))
	data, err := os.ReadFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	// Into the slot that is the oldest, wherever slots are.
	at, oldest := 0, "~"
	for i := 0; i+64 < len(data); i += 4096 {
		if rest, ok := strings.CutPrefix(string(data[i:i+64]), "longstop-record 1 "); ok && rest[:20] < oldest {
			at, oldest = i, rest[:20]
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(sealed), int64(at)); err != nil {
		l.t.Fatal(err)
	}
}

// A state folder that is removed under a run: its work ends as it would, and then nobody stays behind
// to write a record that nobody can read.
func TestFolderRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("while [ ! -e end ]; do sleep 0.05; done")
	l.submit(sub)
	owner, keeper := l.mustOwner(sub.RunID), l.mustKeeper()
	holds.Lock()
	delete(holds.by, l.f.Dir())
	holds.Unlock()
	if err := os.RemoveAll(l.f.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path("end"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]boundary.Identity{"owner": owner, "keeper": keeper} {
		eventually(t, "the end of the "+name, func() bool { return !boundary.Is(id) })
	}
}
