//go:build hosts

package hosts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
	"github.com/longstop/longstop/test/rig"
)

// Owner, keeper or both are killed at a random moment of a run's life, of programs as they are shipped,
// in every boundary. One run at a time in each state folder, so that it is known who was there for it.

// deathGrounds are the boundaries, with the account that has them and the flags that take them.
var deathGrounds = []ground{
	{kind: longstop.BoundaryTree, account: "deploy"},
	{kind: longstop.BoundaryCgroup, account: "root"},
	{kind: longstop.BoundaryCgroup, account: "other"}, // who lingers: in a scope
	{kind: longstop.BoundarySystemd, account: "root", flags: []string{"--detached", "--deadline", "10m"}},
	{kind: longstop.BoundarySystemd, account: "other", flags: []string{"--detached", "--deadline", "10m"}},
}

// deathKinds are ways for a run to live. $C is its exit code; `over` notes it down and exits with it.
var deathKinds = []deathKind{
	{name: "ends", script: `sleep 0.$D; over`},
	{name: "leaves", script: `(setsid sleep 0.4 &); sleep 0.$D; over`},
	{name: "left is killed", script: `(setsid sleep 300 &); sleep 0.$D; over`, flags: []string{"--leftover", "kill", "--grace", "200ms"}},
	{name: "stays", script: `(setsid sleep 300 &); sleep 0.$D; over`, cancels: true},
	{name: "heeds", script: `trap over TERM; while :; do sleep 0.02; done`, cancels: true},
	{name: "resists", script: `trap '' TERM; (setsid sleep 300 &); while :; do sleep 0.05; done`, cancels: true, flags: []string{"--grace", "200ms"}},
}

type deathKind struct {
	name, script string
	cancels      bool
	flags        []string
}

const deathDir = "/tmp/law5"

// TestLaw5RandomDeaths: no record is torn, none says what was not so, nothing starts twice, how it ended is
// there if one of the two lived, and nothing is left. LONGSTOP_TRIES says how many deaths, LONGSTOP_SEED
// repeats them.
func TestLaw5RandomDeaths(t *testing.T) {
	t.Parallel()
	seed, tries := p5Seed(t), 60
	if n, err := strconv.Atoi(os.Getenv("LONGSTOP_TRIES")); err == nil {
		tries = n
	}
	h := rig.New(t)
	h.Sh(t, "loginctl enable-linger other; mkdir -m 1777 "+deathDir)
	var all sync.WaitGroup
	for n, on := range deathGrounds {
		all.Go(func() {
			t.Run(fmt.Sprintf("%s of %s", on.kind, on.account), func(t *testing.T) {
				l := newDeathLane(t, h, on, n)
				for i := n; i < tries; i += len(deathGrounds) {
					l.death(t, i, rand.New(rand.NewPCG(seed, uint64(i))))
					if t.Failed() {
						t.Fatalf("repeat with: LONGSTOP_SEED=%d LONGSTOP_TRIES=%d go test -tags hosts -run TestLaw5RandomDeaths ./test/hosts", seed, tries)
					}
				}
				t.Logf("struck %v: %v", l.deaths, l.ends)
			})
		})
	}
	all.Wait()
}

// deathLane is a state folder of its own, with a gateway, a keeper and one run at a time.
type deathLane struct {
	ground
	g    *gateway
	h    *rig.Host
	in   inside
	name string
	dir  string

	deaths, ends map[string]int // who was struck, and how it ended by whose word
}

func newDeathLane(t *testing.T, h *rig.Host, on ground, n int) *deathLane {
	l := &deathLane{deaths: map[string]int{}, ends: map[string]int{}, ground: on, g: newGateway(t), h: h, in: insideOf(t, h), dir: fmt.Sprintf("/var/tmp/law5-%d/state", n)}
	h.Sh(t, fmt.Sprintf("install -d -m 700 -o %s $(dirname %s)", on.account, l.dir))
	l.name = l.g.enrolAs(t, h, on.account, "--state-dir", l.dir)
	return l
}

// death is one run and what is done to it.
type death struct {
	*deathLane
	deathKind
	key      string
	code     int
	tenths   int      // of a second, that its main process works
	victims  []string // in the order in which they are killed
	at       time.Duration
	of       string // what at is counted from: the start of its command, or the cancel
	cancelAt time.Duration
	file     string
	struck   map[string]bool // which of them were there
}

func (d *death) String() string {
	return fmt.Sprintf("%s, %s of %s: %q (exit %d), %s killed %v after the %s", d.key, d.kind, d.account, d.deathKind.name, d.code,
		strings.Join(d.victims, " and "), d.at, d.of)
}

func (l *deathLane) draw(i int, random *rand.Rand) *death {
	d := &death{deathLane: l, deathKind: deathKinds[random.IntN(len(deathKinds))], key: fmt.Sprintf("law5-%d-%d", i, random.Uint64()), code: 1 + random.IntN(99),
		victims: [][]string{{"owner"}, {"owner"}, {"keeper"}, {"owner", "keeper"}, {"keeper", "owner"}}[random.IntN(5)], of: "start", struck: map[string]bool{}}
	d.file = deathDir + "/" + d.key
	d.cancelAt = 150*time.Millisecond + upTo(random, 300*time.Millisecond)
	d.tenths = 1 + random.IntN(5)
	d.at = upTo(random, 700*time.Millisecond)
	if !d.cancels {
		d.at = upTo(random, time.Duration(d.tenths)*100*time.Millisecond+150*time.Millisecond)
	}
	switch {
	case random.IntN(3) == 0:
		d.at = upTo(random, 120*time.Millisecond) // the launch
	case d.cancels && random.IntN(2) == 0:
		d.at, d.of = upTo(random, 300*time.Millisecond), "cancel"
	}
	return d
}

// death lets a run live, kills, and holds what is known in the end against what was.
func (l *deathLane) death(t *testing.T, i int, random *rand.Rand) {
	t.Helper()
	d := l.draw(i, random)
	script := fmt.Sprintf("echo start >>%[1]s.starts; C=%[2]d D=%[3]d; over() { echo $C >%[1]s.end; exit $C; }; %[4]s", d.file, d.code, d.tenths, d.script)
	args := append([]string{"run", "-d", "--key", d.key}, append(slices.Clone(l.flags), d.deathKind.flags...)...)
	command := l.g.start(t, append(args, l.name, "-c", script)...)
	cancelling := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		if d.of == "cancel" {
			<-cancelling
		}
		time.Sleep(d.at) // the moment is the test's input
		d.strike()
	})
	if d.cancels {
		command.end(t, time.Minute)
		time.Sleep(d.cancelAt)
		close(cancelling)
		if id := actionID.FindString(command.stdout.String() + command.stderr.String()); id != "" {
			l.g.start(t, "cancel", id).end(t, time.Minute)
		}
	}
	both.Wait()
	command.end(t, time.Minute)
	a, asked := d.settle(t)
	d.judge(t, a, asked)
	said := "nobody"
	if a.Workload.Writer != nil {
		said = string(a.Workload.Writer.Kind)
	}
	l.ends[fmt.Sprintf("%s by %s", a.Workload.State, said)]++
	l.deaths[strings.Join(slices.Sorted(maps.Keys(d.struck)), " and ")]++
}

// strike kills the victims that are there, or come within half a second.
func (d *death) strike() {
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end) && len(d.struck) < len(d.victims); {
		there := d.in.servants(d.dir)
		for _, victim := range d.victims {
			for _, pid := range there[victim] {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					d.struck[victim] = true
				}
			}
		}
		if len(there["owner"]) == 0 && d.over() {
			return
		}
	}
}

func (d *death) over() bool {
	_, err := os.Stat(d.in.path(d.file + ".starts"))
	return err == nil
}

// servants are keeper and owner in a state folder. A keeper's child that is not yet, and an owner without a
// run, are neither.
func (in inside) servants(dir string) map[string][]int {
	found := map[string][]int{}
	for _, pid := range in.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		argv := strings.Split(string(line), "\x00")
		switch {
		case len(argv) < 3 || !strings.HasPrefix(filepath.Base(argv[0]), "longstop-runner") || !slices.Contains(argv, dir):
		case argv[1] == "keeper" && argv[2] == "stay", argv[1] == "owner" && hasRun(pid):
			found[argv[1]] = append(found[argv[1]], pid)
		}
	}
	return found
}

// settle waits until the gateway knows how it ended. A run that waits for a cancel is asked to go again:
// whoever was asked first may be dead.
func (d *death) settle(t *testing.T) (a longstop.Action, asked bool) {
	t.Helper()
	for end, again := time.Now().Add(time.Minute), time.Now().Add(3*time.Second); ; time.Sleep(20 * time.Millisecond) {
		var list []longstop.Action
		d.g.ask(t, &list, "ps", "-a")
		i := slices.IndexFunc(list, func(a longstop.Action) bool { return a.IdempotencyKey == d.key })
		if i < 0 {
			return a, false // its command is over
		}
		if a = list[i]; a.Launch.State == longstop.LaunchRejected || a.Workload.State.Final() {
			return a, true
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not over within a minute:\n%s", d, pretty(a))
		}
		if d.cancels && time.Now().After(again) {
			again = time.Now().Add(5 * time.Second)
			d.g.longstop(t, "cancel", string(a.ID))
		}
	}
}

// judge holds what is said of the run against what it left: nothing is torn, nothing is said that was not so.
func (d *death) judge(t *testing.T, a longstop.Action, asked bool) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s (struck %v): %s\n%s", d, d.struck, fmt.Sprintf(format, args...), pretty(a))
	}
	starts := d.in.lines(d.file + ".starts")
	ended, _ := os.ReadFile(d.in.path(d.file + ".end"))
	if starts > 1 {
		bad("started %d times", starts)
	}
	if !asked || a.Launch.State == longstop.LaunchRejected {
		if starts > 0 {
			bad("not launched, and started %d times", starts)
		}
		return
	}
	d.record(a, bad)
	d.claims(a, starts, strings.TrimSpace(string(ended)), bad)
	eventually(t, 10*time.Second, string(a.RunID)+" is not among the unresolved", func() bool {
		_, err := os.Lstat(d.in.path(d.dir + "/unresolved/" + string(a.RunID)))
		return os.IsNotExist(err)
	})
	// Of a run that is over nothing is left; of a lost one, in a unit, the service manager sees to that.
	left := func() []int { return d.in.marked()[a.RunID] }
	if a.Workload.State == longstop.WorkloadLost && d.kind == longstop.BoundarySystemd {
		eventually(t, 20*time.Second, "an empty unit", func() bool { return len(left()) == 0 })
	}
	if pids := left(); len(pids) > 0 {
		bad("%d of its processes live", len(pids))
	}
}

// claims checks what the record says of the end.
func (d *death) claims(a longstop.Action, starts int, ended string, bad func(string, ...any)) {
	w := a.Workload
	if m := w.Main; m != nil && m.ExitCode != nil && strconv.Itoa(*m.ExitCode) != ended {
		bad("its main process is said to have exited with %d; it noted down %q", *m.ExitCode, ended)
	}
	lived := !d.struck["owner"] || !d.struck["keeper"] && d.kind != longstop.BoundarySystemd
	switch w.State {
	case longstop.WorkloadFinished:
		if code, err := exitCode(w.Result); err != nil || strconv.Itoa(code) != ended || starts != 1 || d.deathKind.name == "heeds" || d.deathKind.name == "resists" {
			bad("finished, after %d starts and %q", starts, ended)
		}
		if out, err := os.ReadFile(d.in.path(d.dir + "/runs/" + string(a.RunID) + "/stdout")); a.Output.Stream == longstop.StreamComplete && len(out) != int(a.Output.StdoutBytes) {
			bad("%d bytes of output: %v", len(out), err)
		}
	case longstop.WorkloadCancelled:
		if !d.cancels || w.Cause != longstop.CauseRequest || w.Result != nil || starts != 1 && !d.struck["owner"] {
			bad("cancelled, after %d starts", starts)
		}
	case longstop.WorkloadLaunchFailed:
		if starts != 0 || len(d.struck) == 0 {
			bad("nothing ran, after %d starts", starts)
		}
	case longstop.WorkloadLost:
		if lived || w.Result != nil || w.LostBecause != longstop.OwnerLost || a.Outcome != longstop.OutcomeUnknown {
			bad("lost")
		}
		if d.kind == longstop.BoundarySystemd && !strings.Contains(strings.Join(w.Anomalies, " "), "is gone: the service manager ends what that leaves") {
			bad("that its owner is gone is not said")
		}
	default:
		bad("no end")
	}
	if ran := w.State != longstop.WorkloadLaunchFailed; ran && w.Boundary.Kind != d.kind {
		bad("its boundary is another")
	}
	if over := w.State == longstop.WorkloadFinished || w.State == longstop.WorkloadCancelled; over && (w.Boundary.Empty == nil || !*w.Boundary.Empty || a.Alive != longstop.AliveNo) {
		bad("over, and not said to be empty")
	}
	d.writer(w, bad)
}

// writer checks who says it: how the work ended only its owner knows, and the owner's parent.
func (d *death) writer(w longstop.Workload, bad func(string, ...any)) {
	if w.Writer == nil {
		bad("nobody wrote its record")
		return
	}
	by, knows := w.Writer.Kind, w.State == longstop.WorkloadFinished || w.State == longstop.WorkloadCancelled
	switch {
	case w.Unsigned != (by == longstop.WriterSuccessor):
		bad("by the %s, unsigned: %v", by, w.Unsigned)
	case by == longstop.WriterOwner && w.State == longstop.WorkloadLost, by == longstop.WriterSuccessor && knows:
		bad("said by the %s", by)
	case by == longstop.WriterKeeper && (!d.struck["owner"] || d.kind == longstop.BoundarySystemd && knows):
		bad("said by the keeper")
	}
}

// record checks the final record on the host's disk: whole, and what the gateway says.
func (d *death) record(a longstop.Action, bad func(string, ...any)) {
	sealed, err := os.ReadFile(d.in.path(d.dir + "/runs/" + string(a.RunID) + "/final"))
	if err != nil {
		bad("no final record: %v", err)
		return
	}
	lead, rest, _ := bytes.Cut(sealed, []byte("\n"))
	body, _, _ := bytes.Cut(rest, []byte("\n"))
	at := bytes.LastIndexByte(lead, ' ')
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", lead[:max(at, 0)], body))
	if string(lead[at+1:]) != hex.EncodeToString(sum[:]) {
		bad("a torn record: %s", sealed)
	}
	var rec longstop.Record
	if err := wire.Tolerant(body, &rec); err != nil || rec.State != a.Workload.State || pretty(rec.Result) != pretty(a.Workload.Result) || rec.Sequence != a.Workload.Sequence {
		bad("its host says (%v) %s", err, sealed)
	}
}
