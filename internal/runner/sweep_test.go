package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// perlStorm is twelve processes that each fork a child in a session of its own and exit, for ever.
const perlStorm = "#!/usr/bin/perl\nuse POSIX;\n$SIG{TERM}='IGNORE';\nopen F,'>>up'; print F \"up\\n\"; close F;\nfor(1..11){last unless fork}\nwhile(1){my $p=fork; exit if $p; POSIX::setsid();}\n"

// Law 6, 7: eight owners die together, and of what they leave nobody can tell whose it is; one of their
// runs forks without end. All are cancelled at once: all are empty in the end, and cancelled by that.
func TestLaw6StormAmongAmbiguousOrphans(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("storm", perlStorm)
	strays := "for i in 1 2 3 4 5 6; do (env -i setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' " + l.path("stray") + " &); done; "
	var subs []wire.Submit
	for i := range 8 {
		script := strays + waitForGo
		if i == 0 {
			script = "(env -i setsid " + l.path("storm") + " &); " + script
		}
		sub := l.script(script)
		l.submit(sub)
		subs = append(subs, sub)
	}
	l.has("up", 9)
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGSTOP) // so that it learns of all their deaths at once
	for _, sub := range subs {
		l.kill(l.mustOwner(sub.RunID))
	}
	boundary.Signal(keeper, unix.SIGCONT)
	for _, sub := range subs {
		l.state(sub.RunID, longstop.WorkloadOrphaned)
	}
	var all sync.WaitGroup
	for _, sub := range subs {
		all.Go(func() {
			answer, rec := l.cancel(sub.RunID, 100*time.Millisecond, 30*time.Second)
			if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 || rec.Writer.Kind != longstop.WriterKeeper {
				t.Errorf("%s, survivors %v", show(rec), answer.Survivors)
			}
		})
	}
	all.Wait()
	l.nothing()
	if children := boundary.Children(keeper.PID, 0); len(children) > 1 { // a spare
		t.Errorf("the keeper has children: %v", children)
	}
}

// Law 6: an owner that had no run ends beside an inherited one that forks without end. It left nobody, and
// makes no doubt whose the new children are.
func TestLaw6StormOutlivesASpareOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("storm", perlStorm)
	sub := l.script("(env -i setsid " + l.path("storm") + " &); " + waitForGo)
	l.submit(sub)
	l.has("up", 2)
	id := l.spareBeside(sub.RunID)
	l.kill(l.mustOwner(sub.RunID))
	l.state(sub.RunID, longstop.WorkloadOrphaned)
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGSTOP) // so that it sees that together with children that it does not know
	before := boundary.Children(keeper.PID, 0)
	l.kill(id)
	eventually(t, "new children", func() bool { return len(boundary.Children(keeper.PID, 0)) > 2*len(before) })
	boundary.Signal(keeper, unix.SIGCONT)
	answer, rec := l.cancel(sub.RunID, 100*time.Millisecond, 20*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 {
		t.Errorf("%s, survivors %v", show(rec), answer.Survivors)
	}
	l.nothing()
	t.Logf("emptied %v after the first KILL, %d killed", rec.Cancel.EmptyAt.Sub(rec.Cancel.KilledAt.Time), rec.Cancel.Killed)
}

// spareBeside is the owner that stands by while a run has its own.
func (l *lab) spareBeside(run longstop.RunID) (id boundary.Identity) {
	l.t.Helper()
	eventually(l.t, "a spare", func() bool {
		keeper, owned := l.keeper()
		owner, known := l.owner(run)
		if !owned || !known { // asked while another test had the machine: again
			return false
		}
		for _, pid := range boundary.Children(keeper.PID, 0) {
			if s, err := boundary.Look(pid); err == nil && s.Name == "longstop-owner" && s.Identity != owner {
				id = s.Identity
				return true
			}
		}
		return false
	})
	return id
}

// C113: an owner that has no run is stopped. The next run does not wait for somebody to let it go on.
func TestC113StoppedSpareOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first := l.script(waitForGo)
	l.submit(first)
	spare := l.spareBeside(first.RunID)
	state := func() byte { s, _ := boundary.Look(spare.PID); return s.State }
	keeper := l.mustKeeper()
	boundary.Signal(keeper, unix.SIGSTOP)
	boundary.Signal(spare, unix.SIGSTOP)
	eventually(t, "it is stopped", func() bool { return state() == 'T' })
	boundary.Signal(keeper, unix.SIGCONT)
	eventually(t, "it goes on", func() bool { return state() != 'T' })
	second := l.script("exit 5")
	l.submit(second)
	if rec := l.final(second.RunID); !exited(rec, 5) || rec.Writer.PID != spare.PID {
		t.Errorf("%s; the spare is %v", show(rec), spare)
	}
	l.touch("go")
	l.final(first.RunID)
}

// nothing checks that no living process has the lab's folder in its arguments.
func (l *lab) nothing() {
	l.t.Helper()
	for _, s := range boundary.All() {
		if p := boundary.Describe(s); !s.Dead() && strings.Contains(p.Command, l.dir) {
			l.t.Errorf("left: %+v", p)
		}
	}
}

// TestOneRoundServesAll: eight runs whose children cannot be told apart ask for a round of KILL, and get the
// same one, which meets everybody once, for all of them.
func TestOneRoundServesAll(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "sweeps")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "one round\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// testSweeps is the process in which that is seen: a keeper that waits for its children.
func testSweeps() int {
	const runs, strays = 8, 30
	complain := func(words ...any) int { fmt.Println(words...); return 1 }
	if err := boundary.Subreap(); err != nil {
		return complain(err)
	}
	k := &keeper{reaper: &boundary.Reaper{}, adopted: map[int]*child{}, wards: map[longstop.RunID]*ward{}, standbys: map[boundary.Identity]*ward{}}
	for range runs {
		id := longstop.NewRunID()
		k.wards[id] = &ward{id: id, dead: true, passed: true}
	}
	script := fmt.Sprintf("for i in $(seq %d); do env -i setsid sleep 60 & done", strays)
	if _, err := k.reaper.Start(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ()})
	}); err != nil {
		return complain(err)
	}
	adopted := func() int {
		k.lookAgain()
		defer k.mu.Unlock()
		return len(k.adopted)
	}
	for end := time.Now().Add(10 * time.Second); adopted() != strays; {
		if time.Now().After(end) {
			return complain("adopted", adopted())
		}
	}
	k.sweeps.striking.Lock() // as by a round that goes on meanwhile
	var all sync.WaitGroup
	var mu sync.Mutex
	met := map[boundary.Identity]int{}
	for _, w := range k.wards {
		all.Go(func() {
			for id, s := range k.strike(w) {
				mu.Lock()
				if met[id]++; s.err != nil {
					fmt.Println(s)
				}
				mu.Unlock()
			}
		})
	}
	for asking := 0; asking < runs; {
		k.mu.Lock()
		asking = 0
		for _, w := range k.wards {
			if w.killing {
				asking++
			}
		}
		k.mu.Unlock()
	}
	next := k.sweeps.next
	k.sweeps.striking.Unlock()
	all.Wait()
	if !next.over || k.sweeps.next != nil || len(met) != strays {
		return complain(len(met), "met; another round was asked for:", k.sweeps.next != nil)
	}
	for id, n := range met {
		if n != runs {
			return complain(id, "was told to", n)
		}
	}
	for end := time.Now().Add(10 * time.Second); adopted() != 0; {
		if time.Now().After(end) {
			return complain("left", adopted())
		}
	}
	for _, w := range k.wards {
		if empty, proven := (&inherited{k, w}).settle(nil); !empty || !proven {
			return complain("not empty", w.id)
		}
	}
	fmt.Println("one round")
	return 0
}

// Law 7: a run that released a process ended, and its owner with it, before its keeper took note of the owner's
// answer. Children that come later can be of that run as well, and are not taken for another's.
func TestLaw7ReleasedByAnOwnerUnheard(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "unheard", t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// testUnheard is the keeper of that run.
func testUnheard(dir string) int {
	complain := func(words ...any) int { fmt.Println(words...); return 1 }
	sub := wire.Submit{RunID: longstop.NewRunID(), ActionID: longstop.NewActionID(time.Now()), SessionID: longstop.NewSessionID(time.Now()),
		Key: "key", Secret: []byte("secret"), Request: longstop.Request{Digest: "sha256:1", Lifetime: longstop.Detached, Leftover: longstop.LeftoverRelease}}
	f, err := record.Create(dir + "/state")
	if err != nil {
		return complain(err)
	}
	run, err := f.Build(sub)
	if err != nil {
		return complain(err)
	}
	_, err = f.Claim(run, sub.Key)
	_, lockErr := run.Lock()
	rec := firstRecord(sub, writerOf(longstop.WriterOwner))
	_, writeErr := run.Write(&rec, sub.Secret, false)
	rec.State = longstop.WorkloadFinished
	_, finishErr := run.Finish(&rec, sub.Secret)
	clock, clockErr := newAlarm()
	stream, theirs, pairErr := pair()
	if err := errors.Join(err, lockErr, writeErr, finishErr, clockErr, pairErr); err != nil {
		return complain(err)
	}
	run.Close()
	theirs.Close() // the owner is gone
	k := &keeper{folder: f, reaper: &boundary.Reaper{}, clock: clock, adopted: map[int]*child{}, wards: map[longstop.RunID]*ward{}, standbys: map[boundary.Identity]*ward{}}
	released, err := k.reaper.Start(func() (int, error) {
		return syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
	})
	if err != nil {
		return complain(err)
	}
	defer k.reaper.Signal(released, unix.SIGKILL)
	w := &ward{stream: stream, gone: make(chan struct{}), report: -1, outputs: [2]int{-1, -1}}
	if err := k.assign(w, sub, login{}); err != nil {
		return complain(err)
	}
	k.reap()
	<-w.gone
	another := &ward{id: longstop.NewRunID(), dead: true, passed: true}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wards[another.id] = another
	if of := k.candidates(nil); len(of) != 2 {
		return complain("a new child is of", runsOf(of))
	}
	return 0
}
