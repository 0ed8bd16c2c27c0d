//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/test/rig"
)

// The victims; each has moments of them, in lanes side by side. blows are struck while a batch of
// runs lives: more where each run has a victim of its own.
var victims = []struct {
	name                  string
	moments, lanes, blows int
	own                   bool // a host of its own: what is killed there is other gateways' too
}{
	{name: "gateway", moments: 50, lanes: 2, blows: 2},
	{name: "master", moments: 50, lanes: 2, blows: 2},
	{name: "keeper", moments: 50, lanes: 2, blows: 2, own: true},
	{name: "verb", moments: 50, lanes: 2, blows: 2, own: true},
	{name: "command", moments: 50, lanes: 1, blows: 4},
	{name: "owner", moments: 50, lanes: 1, blows: 4, own: true},
	{name: "owner and keeper", moments: 50, lanes: 2, blows: 2, own: true},
	{name: "anybody", moments: 50, lanes: 1, blows: 5, own: true},
}

// livesAtOnce is how many runs a batch has.
const livesAtOnce = 4

// TestPoint4KilledAtRandom kills, without a word and at random moments of runs' lives: the command,
// the gateway, the ssh master; on the host the keeper, an owner, the process of a verb (serve, for the most
// part). Whoever is killed: each run comes to its owner's own result, or its keeper's where the owner
// died; ran at most once, and exactly once where it finished; is not_started only without a line; and
// leaves nothing. LONGSTOP_SEED repeats a failure.
func TestPoint4KilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := p5Seed(t)
	lanes := sideBySide{places: make(chan struct{}, 8)}
	defer lanes.all.Wait()
	for _, v := range victims {
		for n := range v.lanes {
			name := fmt.Sprintf("%s %d", v.name, n)
			lanes.run(t, name, func(t *testing.T) {
				l := newLane(t, v.name, v.own)
				for batch := 0; l.moments() < v.moments/v.lanes; batch++ {
					l.batch(t, fmt.Sprintf("p4-%d-%s-%d", seed, strings.ReplaceAll(name, " ", ""), batch), v.blows,
						rand.New(rand.NewPCG(seed, uint64(len(name))<<32|uint64(n)<<16|uint64(batch))))
					if t.Failed() {
						t.Fatalf("repeat with: LONGSTOP_SEED=%d go test -tags hosts -run 'TestPoint4KilledAtRandom/%s' ./test/hosts", seed, strings.ReplaceAll(name, " ", "_"))
					}
				}
				l.end(t)
			})
		}
	}
}

// sideBySide runs subtests at once, more of them than there are processors: they wait for the most
// part.
type sideBySide struct {
	all    sync.WaitGroup
	places chan struct{}
}

func (s *sideBySide) run(t *testing.T, name string, test func(*testing.T)) {
	s.all.Go(func() {
		s.places <- struct{}{}
		defer func() { <-s.places }()
		t.Run(name, test)
	})
}

// lane is a gateway and its host, with one kind of victim.
type lane struct {
	victim string
	stops  bool // with SIGSTOP, for good, instead of SIGKILL
	h      *rig.Host
	g      *gateway
	in     inside
	lives  []*life
	known  []longstop.Action

	mu      sync.Mutex
	struck  map[phase]int
	slowest time.Duration // from the last blow of a batch to the last result
}

func newLane(t *testing.T, victim string, own bool) *lane {
	l := &lane{victim: victim, g: newGateway(t), struck: map[phase]int{}}
	if own {
		l.h = rig.New(t)
	} else {
		l.h = rig.Up(t, "h1")
	}
	l.in = insideOf(t, l.h)
	l.g.enrol(t, l.h)
	return l
}

// batch lets some runs live at once, strikes, and holds what is known afterwards against what was.
func (l *lane) batch(t *testing.T, name string, blows int, random *rand.Rand) {
	var lives []*life
	var all sync.WaitGroup
	for i := range livesAtOnce {
		life := newLife(fmt.Sprintf("%s-%d", name, i), random)
		if l.stops {
			life.lease = 3 * time.Second
		}
		lives = append(lives, life)
	}
	for _, life := range lives {
		all.Go(func() { life.live(t, l.g, l.h.Name) })
	}
	for i := range blows {
		whose := lives[i%len(lives)]
		at := whose.phaseFor(random)
		wait, which := whose.moment(at, random), rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Go(func() {
			wait()
			if l.strike(t, whose, which) {
				l.mu.Lock()
				l.struck[at]++
				l.mu.Unlock()
			}
		})
	}
	all.Wait()
	began := time.Now()
	actions := l.settle(t, lives)
	for _, life := range lives {
		for _, r := range []*running{life.command, life.canceller} {
			if r == nil {
				continue
			}
			select {
			case <-r.ended:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, %s killed: it is over, and a command goes on: longstop %s\nstderr: %s\n%s", life, l.victim,
					strings.Join(r.args, " "), r.stderr, pretty(actions[life.key]))
			}
		}
	}
	l.slowest = max(l.slowest, time.Since(began))
	l.lives = append(l.lives, lives...)
	w := witness{l.victim, l.in, l.in.marked()}
	for i, life := range lives {
		a, asked := actions[life.key]
		switch {
		case !asked && (!life.killed || l.in.lines(life.file()) > 0):
			t.Errorf("%s, %s killed: no action; ran %d times\n%s", life, l.victim, l.in.lines(life.file()), life.command.stderr)
		case asked:
			w.over(t, lives[i], a)
			lives[i].told(t, a)
			l.logs(t, lives[i], a)
			l.known = append(l.known, a)
		}
	}
}

// moments is how often a victim was struck.
func (l *lane) moments() (n int) {
	for _, struck := range l.struck {
		n += struck
	}
	return n
}

// strike kills the victim, and reports whether there was one.
func (l *lane) strike(t *testing.T, whose *life, random *rand.Rand) bool {
	victim := l.victim
	switch victim {
	case "owner and keeper":
		victim = []string{"owner", "keeper"}[random.IntN(2)]
	case "anybody":
		victim = []string{"command", "gateway", "master", "keeper", "owner", "verb"}[random.IntN(6)]
	}
	return l.blow(t, victim, whose, random)
}

// blow kills one kind of victim.
func (l *lane) blow(t *testing.T, victim string, whose *life, random *rand.Rand) bool {
	switch victim {
	case "command":
		if whose.canceller != nil && random.IntN(2) == 0 {
			return whose.canceller.Process.Kill() == nil
		}
		if whose.command.Process.Kill() != nil {
			return false // it had ended
		}
		whose.killed = true
		return true
	case "gateway":
		return l.signalAll(l.g.daemons(t))
	case "master":
		return l.signalAll(l.g.masters(t))
	}
	return l.signalOne(victim, random)
}

func (l *lane) signal() syscall.Signal {
	if l.stops {
		return syscall.SIGSTOP
	}
	return syscall.SIGKILL
}

func (l *lane) signalAll(pids []int) (any bool) {
	for _, pid := range pids {
		any = syscall.Kill(pid, l.signal()) == nil || any
	}
	return any
}

// signalOne takes any process of that kind on the host.
func (l *lane) signalOne(kind string, random *rand.Rand) bool {
	pids := l.in.runners()[kind]
	if len(pids) == 0 {
		return false
	}
	which := random.IntN(len(pids))
	return l.signalAll(pids[which : which+1])
}

// settle waits until the gateway, started anew by whoever asks, knows the end of every run. Runs
// that wait to be cancelled and whose canceller died are cancelled here.
func (l *lane) settle(t *testing.T, lives []*life) map[string]longstop.Action {
	t.Helper()
	cancelled := map[string]bool{}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		found, open := map[string]longstop.Action{}, ""
		asking := map[*life]bool{} // its command may still ask for an action
		for _, life := range lives {
			asking[life] = !life.command.over()
		}
		all := l.all(t)
		for _, life := range lives {
			a, asked := all[life.key]
			if !asked {
				if asking[life] {
					open += fmt.Sprintf("%s\nhas no action, and its command goes on: %s\n", life, life.command.stderr)
				}
				continue
			}
			found[life.key] = a
			if a.Launch.State == longstop.LaunchRejected || a.Workload.State.Final() {
				continue
			}
			open += fmt.Sprintf("%s\nits command said: %s\n%s\n", life, life.command.stderr, pretty(a))
			if !cancelled[life.key] && life.abandoned(a) {
				cancelled[life.key] = true
				l.g.longstop(t, "cancel", string(a.ID))
			}
		}
		if open == "" {
			return found
		}
		if time.Now().After(end) {
			t.Fatalf("%s killed; not known after a minute:\n%s", l.victim, open)
		}
	}
}

// all are the newest actions, by their keys.
func (l *lane) all(t *testing.T) map[string]longstop.Action {
	t.Helper()
	var list []longstop.Action
	l.g.ask(t, &list, "ps", "-a")
	found := map[string]longstop.Action{}
	for _, a := range list {
		found[a.IdempotencyKey] = a
	}
	return found
}

// logs checks that the whole output is there for whoever asks later.
func (l *lane) logs(t *testing.T, life *life, a longstop.Action) {
	t.Helper()
	if a.Workload.State != longstop.WorkloadFinished {
		return
	}
	for end := time.Now().Add(30 * time.Second); ; { // an error at the moment of the blow is one; later it is gone
		r := l.g.longstop(t, "logs", string(a.ID))
		switch {
		case r.status == 0 && r.stdout == life.stdout:
			return
		case r.status == 0 || time.Now().After(end):
			t.Errorf("%s, %s killed: %d bytes of output instead of %d: %s\n%s", life, l.victim, len(r.stdout), len(life.stdout), r, pretty(a))
			return
		}
	}
}

// end looks at the whole lane: nothing ran late, nothing was said twice, nothing is left.
func (l *lane) end(t *testing.T) {
	var entries []longstop.JournalEntry
	l.g.ask(t, &entries, "activity", "-n", "10000")
	intended := map[longstop.ActionID]int{}
	for _, e := range entries {
		switch e.Kind {
		case "contradiction":
			t.Errorf("%s killed: a late contradiction: %s", l.victim, pretty(e))
		case "launch_intended":
			intended[e.ActionID]++
		}
	}
	outcomes, lines, accepted := map[longstop.Outcome]int{}, 0, 0
	writers, unsent := map[longstop.WriterKind]int{}, map[string]int{}
	for _, a := range l.known {
		outcomes[a.Outcome]++
		if a.Launch.State == longstop.LaunchAccepted {
			accepted++
			writers[a.Workload.Writer.Kind]++
		} else {
			unsent[a.Launch.Because+": "+a.Launch.Message]++
		}
		if n := intended[a.ID]; n > 1 || n == 0 && a.Launch.State == longstop.LaunchAccepted {
			t.Errorf("%s: its launch was intended %d times", a.IdempotencyKey, n)
		}
	}
	for _, life := range l.lives {
		n := l.in.lines(life.file())
		lines += n
		if n > 1 {
			t.Errorf("%s, %s killed: ran %d times in the end", life, l.victim, n)
		}
	}
	l.g.must(t, "daemon", "stop")
	store, err := sqlite.Open(filepath.Join(l.g.home, "longstop.db"))
	if err == nil {
		_, err = store.Verify(t.Context())
		store.Close()
	}
	if err != nil {
		t.Errorf("%s killed: the journal: %v", l.victim, err)
	}
	if r := l.g.longstop(t, "journal", "rebuild", "--check"); r.status != 0 {
		t.Errorf("%s killed: what is stored is not what the journal gives: %s", l.victim, r)
	}
	t.Logf("%s killed at %d moments %v of %d runs: %d actions, %d accepted, %d lines; outcomes %v; said by %v; known at most %v after; not launched because %v",
		l.victim, l.moments(), l.struck, len(l.lives), len(l.known), accepted, lines, outcomes, writers, l.slowest.Round(10*time.Millisecond), unsent)
}

// masters finds the ssh processes that this home's gateway has started.
func (g *gateway) masters(t *testing.T) (pids []int) {
	t.Helper()
	for _, daemon := range g.daemons(t) {
		for _, pid := range childrenOf(daemon) {
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "ssh" {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestPoint4StoppedMaster stops the ssh master: nothing hangs for longer than its deadline.
func TestPoint4StoppedMaster(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, "h1", "--", "sleep", "600")
	masters := g.masters(t)
	if len(masters) == 0 {
		t.Fatal("the gateway has no ssh")
	}
	for _, pid := range masters {
		syscall.Kill(pid, syscall.SIGSTOP)
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
	for _, args := range [][]string{{"show", string(id)}, {"inspect", string(id)}, {"run", "h1", "--", "true"}, {"cancel", string(id)}} {
		if r := g.longstop(t, args...); r.took > 45*time.Second {
			t.Errorf("hung: %s", r)
		} else {
			t.Logf("longstop %s: exit %d after %s", args[0], r.status, r.took)
		}
	}
	a := g.final(t, id, time.Minute)
	if a.Workload.State != longstop.WorkloadCancelled {
		t.Errorf("%s", pretty(a))
	}
}
