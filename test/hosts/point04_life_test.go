//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// kind is one way for a run to live. Each begins by appending a line to a file of its own.
type kind struct {
	name    string
	script  string // $C is its exit code
	stdout  string // all that it prints; of a cancelled one: what it may have printed a start of
	signal  string // that it dies of
	work    time.Duration
	cancels bool // it goes on until it is cancelled
	overdue bool // or until its deadline
	flags   []string
}

var kinds = []kind{
	{name: "brief", script: `echo one; exit $C`, stdout: "one\n"},
	{name: "steady", script: `i=0; while [ $i -lt 20 ]; do echo $i; i=$((i+1)); sleep 0.02; done; exit $C`, stdout: counted(0, 19), work: 450 * time.Millisecond},
	{name: "bursts", script: `seq 1 20000; sleep 0.2; seq 20001 40000; exit $C`, stdout: counted(1, 40000), work: 250 * time.Millisecond},
	{name: "lingers", script: `echo started; (sleep 0.4; echo late) & exit $C`, stdout: "started\nlate\n", work: 400 * time.Millisecond},
	{name: "dies", script: `echo going; sleep 0.2; kill -SEGV $$`, stdout: "going\n", signal: "SEGV", work: 200 * time.Millisecond},
	{name: "heeds", script: `trap 'echo bye; exit $C' TERM; echo ready; while :; do sleep 0.05; done`, stdout: "ready\nbye\n", work: 300 * time.Millisecond, cancels: true},
	{name: "resists", script: `trap '' TERM; echo ready; (setsid sleep 300 &) ; while :; do sleep 0.05; done`, stdout: "ready\n", work: 300 * time.Millisecond,
		cancels: true, flags: []string{"--grace", "300ms"}},
	{name: "leaves", script: `echo ready; (setsid sleep 300 &) ; exit $C`, stdout: "ready\n", work: 200 * time.Millisecond, flags: []string{"--leftover", "kill", "--grace", "200ms"}},
	{name: "overdue", script: `trap '' TERM; echo ready; while :; do sleep 0.05; done`, stdout: "ready\n", work: 500 * time.Millisecond,
		overdue: true, flags: []string{"--deadline", "400ms", "--grace", "100ms"}},
}

func counted(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		b.WriteString(strconv.Itoa(i) + "\n")
	}
	return b.String()
}

// life is one run from its command to its end.
type life struct {
	kind
	key      string
	code     int
	after    time.Duration // of its batch's beginning
	cancelAt time.Duration // after its id is known
	verb     bool          // cancelled by the verb, else by Ctrl-C
	channel  bool          // one of its own

	lease time.Duration // 0: the usual one

	started     chan struct{} // its command was
	cancelled   chan struct{} // a cancel was tried
	command     *running
	canceller   *running
	interrupted bool // the command, by Ctrl-C
	killed      bool // the command, by the test
}

func newLife(key string, random *rand.Rand) *life {
	return &life{kind: kinds[random.IntN(len(kinds))], key: key, code: random.IntN(100), verb: random.IntN(2) == 0, channel: random.IntN(4) == 0,
		after: upTo(random, 200*time.Millisecond), cancelAt: upTo(random, 400*time.Millisecond),
		started: make(chan struct{}), cancelled: make(chan struct{})}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

func (l *life) file() string { return "/home/deploy/" + l.key }

func (l *life) String() string {
	return fmt.Sprintf("%s %s (exit %d, own channel: %v)", l.key, l.name, l.code, l.channel)
}

// live starts the command, and cancels the run if it is one that waits for that.
func (l *life) live(t *testing.T, g *gateway, host string) {
	time.Sleep(l.after) // the moments are the test's input
	args := append([]string{"run", "--key", l.key}, l.flags...)
	if l.lease > 0 {
		args = append(args, "--lease", l.lease.String())
	}
	if l.channel {
		args = append(args, "--own-channel")
	}
	l.command = g.start(t, append(args, host, "-c", fmt.Sprintf("echo line >>%s; C=%d; %s", l.file(), l.code, l.script))...)
	close(l.started)
	if !l.cancels {
		return
	}
	defer close(l.cancelled)
	id := l.id()
	for end := time.Now().Add(10 * time.Second); id == "" && time.Now().Before(end) && !l.command.over(); id = l.id() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(l.cancelAt)
	switch {
	case id == "": // it has none, or it was killed before anybody could read it
	case l.verb:
		l.canceller = g.start(t, "cancel", id)
	default:
		l.interrupted = l.command.Process.Signal(syscall.SIGINT) == nil
	}
}

var actionID = regexp.MustCompile(`act_\w+`)

// id is the action's id as the command said it, once it has.
func (l *life) id() string { return actionID.FindString(l.command.stderr.String()) }

// phase is a part of a life that a moment falls into.
type phase string

const (
	launch     phase = "launch"
	middle     phase = "running"
	output     phase = "output"
	ending     phase = "ending"
	cancelling phase = "cancelling"
)

// phaseFor draws one of those that the life has.
func (l *life) phaseFor(random *rand.Rand) phase {
	has := []phase{launch, ending}
	switch {
	case l.cancels:
		has = []phase{launch, middle, cancelling, cancelling}
	case l.name == "steady" || l.name == "bursts":
		has = append(has, output, output)
	case l.work > 0:
		has = append(has, middle, middle)
	}
	return has[random.IntN(len(has))]
}

// moment returns a function that waits for a random moment of a phase.
func (l *life) moment(p phase, random *rand.Rand) (wait func()) {
	const width = 120 * time.Millisecond
	jitter := upTo(random, width)
	switch p {
	case launch:
		return func() { <-l.started; time.Sleep(jitter) }
	case ending:
		return func() { l.speaks(); time.Sleep(max(l.work-width/2, 0) + jitter) }
	case cancelling:
		jitter *= 3 // with its grace
		return func() { <-l.started; <-l.cancelled; time.Sleep(jitter) }
	default:
		within := upTo(random, max(l.work, 1))
		return func() { l.speaks(); time.Sleep(within) }
	}
}

// abandoned reports whether a run would go on for ever: it waits for a cancel that nobody asks for.
func (l *life) abandoned(a longstop.Action) bool {
	switch {
	case !l.cancels || a.Cancel.State != longstop.CancelNone:
		return false
	case l.canceller != nil:
		return l.canceller.over()
	}
	return l.command.over() || !l.interrupted
}

// speaks returns once the command has printed something, or never will.
func (l *life) speaks() {
	<-l.started
	for end := time.Now().Add(10 * time.Second); l.command.stdout.Len() == 0 && !l.command.over() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// witness is what a test holds an action against.
type witness struct {
	victim string
	in     inside
	left   map[longstop.RunID][]int
}

func (w witness) ownersDie() bool { return w.victim == "owner" || w.keepersDieToo() }

// keepersDieToo says that owner and keeper of a run may both have been killed: its status may be lost.
func (w witness) keepersDieToo() bool { return w.victim == "owner and keeper" || w.victim == "anybody" }

// over checks everything that can be known of a run that has come to its end.
func (w witness) over(t *testing.T, l *life, a longstop.Action) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %s killed: %s\n%s", l, w.victim, fmt.Sprintf(format, args...), pretty(a))
	}
	lines := w.in.lines(l.file())
	if lines > 1 {
		bad("ran %d times", lines)
	}
	if pids := w.left[a.RunID]; len(pids) > 0 && a.Workload.State != longstop.WorkloadLost {
		bad("it is over, and %d of its processes live", len(pids))
	}
	if a.Launch.State == longstop.LaunchRejected {
		if lines != 0 || a.Outcome != longstop.OutcomeNotStarted || a.Alive != longstop.AliveNo {
			bad("rejected, with %d lines", lines)
		}
		return
	}
	if rec := w.in.final(t, a.RunID); rec.State != a.Workload.State || pretty(rec.Result) != pretty(a.Workload.Result) || rec.Sequence != a.Workload.Sequence {
		bad("its host says %s", pretty(rec))
	}
	w.workload(l, a, lines, bad)
	w.writer(a, bad)
}

// cause is why the run is stopped, if it is.
func (l *life) cause() longstop.Cause {
	switch {
	case l.cancels:
		return longstop.CauseRequest
	case l.overdue:
		return longstop.CauseDeadline
	}
	return ""
}

// workload checks the outcome against what the work is known to do.
func (w witness) workload(l *life, a longstop.Action, lines int, bad func(string, ...any)) {
	result, want := pretty(a.Workload.Result), pretty(longstop.Result{ExitCode: &l.code})
	if l.signal != "" {
		want = pretty(longstop.Result{Signal: l.signal})
	}
	empty := a.Workload.Boundary.Empty != nil && *a.Workload.Boundary.Empty && a.Alive == longstop.AliveNo
	switch a.Workload.State {
	case longstop.WorkloadFinished:
		if lines != 1 || l.cancels || l.overdue || result != want || !empty {
			bad("with %d lines; want finished with %s", lines, want)
		}
	case longstop.WorkloadCancelled:
		onItsOwn := l.lease > 0 && a.Workload.Cause == longstop.CauseLease
		if a.Workload.Cause != l.cause() && !onItsOwn || a.Outcome != longstop.OutcomeCancelled || !empty {
			bad("cancelled, with %d lines", lines)
		}
	case longstop.WorkloadLaunchFailed:
		if lines != 0 || !w.ownersDie() || a.Outcome != longstop.OutcomeNotStarted {
			bad("launch_failed, with %d lines", lines)
		}
	case longstop.WorkloadLost:
		if !w.keepersDieToo() || a.Workload.Result != nil || a.Outcome != longstop.OutcomeUnknown || a.Alive == longstop.AliveYes {
			bad("lost, with %d lines", lines)
		}
	default:
		bad("no end")
	}
}

// writer checks who testified: nobody but the owner, unless that was killed.
func (w witness) writer(a longstop.Action, bad func(string, ...any)) {
	by := a.Workload.Writer
	switch {
	case by == nil:
		bad("nobody wrote its record")
	case by.Kind == longstop.WriterOwner && (a.Workload.Unsigned || len(a.Workload.Anomalies) > 0):
		bad("its owner's word, unsigned or with anomalies")
	case by.Kind == longstop.WriterKeeper && (a.Workload.Unsigned || !w.ownersDie()):
		bad("its keeper's word")
	case by.Kind == longstop.WriterSuccessor && !w.keepersDieToo() && a.Workload.State != longstop.WorkloadLaunchFailed:
		bad("a successor's word")
	}
}

// told checks what the run's own command said, if it was not killed.
func (l *life) told(t *testing.T, a longstop.Action) {
	t.Helper()
	if !strings.HasPrefix(l.stdout, l.command.stdout.String()) {
		t.Errorf("%s printed what its run did not: %.300q", l, l.command.stdout.String())
	}
	if l.killed {
		return
	}
	want := l.code
	switch {
	case a.Outcome == longstop.OutcomeNotStarted:
		want = longstop.ExitNotStarted
	case a.Outcome == longstop.OutcomeCancelled:
		want = longstop.ExitCancelled
	case a.Outcome == longstop.OutcomeUnknown:
		want = longstop.ExitUnknown
	case l.signal != "":
		want = 128 + int(syscall.SIGSEGV)
	}
	got := l.command.ProcessState.ExitCode()
	whole := a.Workload.State != longstop.WorkloadFinished || l.command.stdout.String() == l.stdout
	if got != want || !whole {
		t.Errorf("%s: its command exited with %d, want %d; %d bytes of %d came\nstderr: %s\n%s", l, got, want,
			l.command.stdout.Len(), len(l.stdout), l.command.stderr.String(), pretty(a))
	}
}
