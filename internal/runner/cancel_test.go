package runner

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// program puts an executable script into the workloads' folder and returns its path.
func (l *lab) program(name, text string) string {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), 0755); err != nil {
		l.t.Fatal(err)
	}
	return l.path(name)
}

func cancelled(rec longstop.Record, cause longstop.Cause) bool {
	return rec.State == longstop.WorkloadCancelled && rec.Cause == cause && rec.Boundary.Empty != nil && *rec.Boundary.Empty && rec.Result == nil
}

// trapper says what it is and what it got, and goes on TERM.
const trapper = `#!/bin/sh
trap 'echo "$1 TERM" >> got; exit 0' TERM
echo "$1" >> up
case $1 in
shell) ./trapper child & ;;
child) ./trapper grandchild & setsid setsid ./trapper far & ;;
esac
while :; do sleep 0.05; done
`

// A shell, its child, a grandchild and one that called setsid twice, all trapping TERM, one stopped:
// all hear TERM, none is left, and a second run goes on.
func TestCancelReachesTheWholeTree(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("trapper", trapper)
	other := l.script("sleep 60")
	l.submit(other)
	sub := l.argv("./trapper", "shell")
	l.submit(sub)
	l.has("up", 4)
	for _, s := range boundary.Marked(sub.RunID, 0) {
		if p := boundary.Describe(s); strings.HasSuffix(p.Command, "trapper grandchild") {
			boundary.Signal(s.Identity, unix.SIGSTOP)
		}
	}
	answer, rec := l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 {
		t.Fatalf("%s, survivors %v", show(rec), answer.Survivors)
	}
	l.nobody(sub.RunID)
	got := l.lines("got")
	slices.Sort(got)
	if want := []string{"child TERM", "far TERM", "grandchild TERM", "shell TERM"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	log := rec.Cancel
	if log == nil || log.Signal != "TERM" || log.Signalled < 4 || !log.KilledAt.IsZero() || log.EmptyAt.IsZero() || log.RequestedAt.IsZero() || log.SignalledAt.IsZero() {
		t.Errorf("log %+v", log)
	}
	if rec := l.record(other.RunID); rec.State != longstop.WorkloadRunning {
		t.Errorf("the other run: %s", show(rec))
	}
	// C040: asked again, the same answer.
	for range 2 {
		if again, rec := l.cancel(sub.RunID, 0, time.Second); !cancelled(rec, longstop.CauseRequest) || len(again.Survivors) > 0 {
			t.Errorf("again: %s", show(rec))
		}
	}
}

func TestCancelKillsWhatIgnoresTERM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("trap '' TERM; echo up > up; while :; do sleep 0.05; done")
	l.submit(sub)
	l.has("up", 1)
	began := time.Now()
	_, rec := l.cancel(sub.RunID, 300*time.Millisecond, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || rec.Cancel.KilledAt.IsZero() || rec.Cancel.Killed == 0 || rec.Main.Signal != "KILL" {
		t.Errorf("%s", show(rec))
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the grace was %v", took)
	}
	l.nobody(sub.RunID)
}

// C013: one that starts itself again on TERM.
func TestC013RespawnOnTERM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("respawn.sh", "#!/bin/bash\ntrap 'setsid ./respawn.sh & exit 0' TERM\necho up >> up\nwhile :; do sleep 0.2; done\n")
	sub := l.argv("./respawn.sh")
	l.submit(sub)
	l.has("up", 1)
	answer, rec := l.cancel(sub.RunID, 500*time.Millisecond, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// A storm: twelve processes that each fork a child in a session of its own and exit, for ever.
func TestCancelEndsAStorm(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("storm", "#!/usr/bin/perl\nuse POSIX;\n$SIG{TERM}='IGNORE';\nopen F,'>>up'; print F \"up\\n\"; close F;\nfor(1..11){last unless fork}\nwhile(1){my $p=fork; exit if $p; POSIX::setsid();}\n")
	sub := l.argv("./storm")
	l.submit(sub)
	l.has("up", 1)
	answer, rec := l.cancel(sub.RunID, 100*time.Millisecond, 20*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 {
		t.Fatalf("%s", show(rec))
	}
	l.nobody(sub.RunID)
	t.Logf("emptied %v after the first KILL, %d killed", rec.Cancel.EmptyAt.Sub(rec.Cancel.KilledAt.Time), rec.Cancel.Killed)
}

// C014: the wrapper's children are told too, and the wrapper does not go on to its next command.
func TestC014WrapperAndChildren(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`sh -c "echo up > up; sleep 300"; echo after >> after`)
	l.submit(sub)
	l.has("up", 1)
	_, rec := l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || rec.Main.Signal != "TERM" {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
	if len(l.lines("after")) > 0 {
		t.Error("the wrapper went on")
	}
}

// C020: a trap runs within the grace, and what it says and exits with is kept.
func TestC020TrapCleansUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`trap "sleep 0.3; echo cleanup > cl; exit 3" TERM; echo up > up; sleep 5; echo end >> cl`)
	l.submit(sub)
	l.has("up", 1)
	eventually(t, "its sleep", func() bool {
		for _, s := range boundary.Marked(sub.RunID, 0) {
			if s.Name == "sleep" {
				return true
			}
		}
		return false
	})
	began := time.Now()
	_, rec := l.cancel(sub.RunID, 10*time.Second, 15*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || rec.Main.ExitCode == nil || *rec.Main.ExitCode != 3 || !rec.Cancel.KilledAt.IsZero() {
		t.Errorf("%s", show(rec))
	}
	if got := l.lines("cl"); !slices.Equal(got, []string{"cleanup"}) {
		t.Errorf("the trap wrote %v", got)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}

// C022: a stopped process hears TERM after CONT.
func TestC022StoppedMain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`trap "echo cleaned > cl2; exit 0" TERM; echo up > up; while :; do sleep .05; done`)
	rec := l.submit(sub)
	l.has("up", 1)
	unix.Kill(rec.Main.PID, unix.SIGSTOP)
	_, rec = l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || rec.Main.ExitCode == nil || *rec.Main.ExitCode != 0 || len(l.lines("cl2")) != 1 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// C005: a cancel after the main process ended empties the boundary and keeps its code.
func TestC005CancelWhileLingering(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("setsid sh -c 'echo up > up; sleep 60' & exit 0")
	l.submit(sub)
	l.has("up", 1)
	rec := l.state(sub.RunID, longstop.WorkloadLingering)
	if rec.Main.ExitCode == nil || *rec.Main.ExitCode != 0 || rec.Result != nil || rec.Boundary.Processes == nil || *rec.Boundary.Processes == 0 {
		t.Errorf("lingering: %s", show(rec))
	}
	_, rec = l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || *rec.Main.ExitCode != 0 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// Law 6: what had ended before the first signal was not cancelled.
func TestLaw6CancelTooLate(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("exit 7")
	l.submit(sub)
	l.final(sub.RunID)
	if _, rec := l.cancel(sub.RunID, 0, time.Second); !exited(rec, 7) || rec.Cause != "" {
		t.Errorf("%s", show(rec))
	}
	// And at the same moment: either it is finished with 7, or a signal reached it.
	for range 30 {
		sub := l.script("exit 7")
		l.submit(sub)
		_, rec := l.cancel(sub.RunID, 0, 10*time.Second)
		ok := exited(rec, 7) && (rec.Cancel == nil || rec.Cancel.SignalledAt.IsZero()) ||
			cancelled(rec, longstop.CauseRequest) && rec.Cancel.Signalled+rec.Cancel.Killed > 0
		if !ok {
			t.Errorf("%s", show(rec))
		}
	}
}

// C041: zombies of the workload's own are dead, and none stays.
func TestC041Zombies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.program("zombies", "#!/usr/bin/perl\nfor(1..5){exit unless fork}\nopen F,'>up'; print F \"up\\n\"; close F;\nsleep 60;\n")
	sub := l.argv("./zombies")
	l.submit(sub)
	l.has("up", 1)
	answer, rec := l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) || len(answer.Survivors) > 0 {
		t.Errorf("%s", show(rec))
	}
}

func TestCancelDuringItsGraceAndAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("trap '' TERM; echo up > up; while :; do sleep 0.05; done")
	l.submit(sub)
	l.has("up", 1)
	answer, rec := l.cancel(sub.RunID, time.Hour, 0)
	if rec.State != longstop.WorkloadCancelling || len(answer.Survivors) == 0 || rec.Cancel.Signalled == 0 {
		t.Errorf("the first: %s, %v", show(rec), answer.Survivors)
	}
	// A second with a shorter grace does not wait for the first one's.
	_, rec = l.cancel(sub.RunID, 0, 10*time.Second)
	if !cancelled(rec, longstop.CauseRequest) {
		t.Errorf("the second: %s", show(rec))
	}
}

func TestSignalToTheOwnerIsACancel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		sub := l.script("trap 'exit 5' TERM; echo up >> up; while :; do sleep 0.05; done")
		l.submit(sub)
		l.has("up", 1)
		os.Remove(l.path("up"))
		owner := l.mustOwner(sub.RunID)
		boundary.Signal(owner, unix.SIGHUP)
		boundary.Signal(owner, sig)
		rec := l.final(sub.RunID)
		if !cancelled(rec, longstop.CauseSignal) || *rec.Main.ExitCode != 5 {
			t.Errorf("%v: %s", sig, show(rec))
		}
	}
}

func TestLeftoverKill(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Script: "setsid sleep 1234 & until grep -q ^sleep /proc/$!/cmdline; do :; done; exit 3", Leftover: longstop.LeftoverKill})
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 3) || len(rec.Left) == 0 || !strings.Contains(fmt.Sprint(rec.Left), "sleep 1234") || rec.Cause != "" || rec.Cancel != nil {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
	// One that does not go on TERM.
	sub = l.request(longstop.Request{Script: "(trap '' TERM; echo > deaf; while :; do sleep 0.05; done) & while ! test -e deaf; do sleep 0.01; done; exit 4", Leftover: longstop.LeftoverKill})
	sub.Request.GraceS = 0.2
	l.submit(sub)
	if rec = l.final(sub.RunID); !exited(rec, 4) || len(rec.Left) == 0 {
		t.Errorf("%s", show(rec))
	}
	l.nobody(sub.RunID)
}

// C049 and C044 with release: what is left lives on, is named, and can still be stopped.
func TestLeftoverRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Script: "setsid sh -c 'echo from the daemon; trap \"echo bye; exit 0\" TERM; while :; do sleep 0.05; done' & while ! grep -q daemon /proc/$$/fd/1; do sleep 0.01; done; exit 0", Leftover: longstop.LeftoverRelease})
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 0) || len(rec.Released) == 0 || !rec.Output.AfterEnd || rec.Boundary.Empty != nil {
		t.Fatalf("%s", show(rec))
	}
	keeper := l.mustKeeper()
	eventually(t, "the keeper does not stay for it", func() bool { return !boundary.Is(keeper) })
	if alive := releasedAlive(rec); len(alive) == 0 {
		t.Fatal("the released process is gone")
	}
	answer, after := l.cancel(sub.RunID, 5*time.Second, 10*time.Second)
	if len(answer.Survivors) > 0 || !exited(after, 0) {
		t.Errorf("%v, %s", answer.Survivors, show(after))
	}
	l.nobody(sub.RunID)
	if got := l.stdout(sub.RunID); got != "from the daemon\nbye\n" {
		t.Errorf("its output: %q", got)
	}
}

func TestLaw10CancelOfAnUnknownRun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, err := Cancel(context.Background(), l.f, wire.CancelRequest{RunID: longstop.NewRunID(), GraceMS: -1})
	if longstop.CodeOf(err) != longstop.CodeNotFound {
		t.Errorf("%v", err)
	}
}
