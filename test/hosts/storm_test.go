//go:build hosts

package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// stormAtOnce is how many runs live at a time, on both hosts together.
const stormAtOnce = 50

// TestLaw5StormOfKills keeps fifty runs going on two hosts of one gateway while command, gateway and ssh
// masters are killed and links cut at random: whatever was accepted ran exactly once, nothing ran twice, every
// record arrived, the journal verifies and tells of nothing that was said twice. LONGSTOP_TRIES says how many
// kills, LONGSTOP_SEED repeats a failure.
func TestLaw5StormOfKills(t *testing.T) {
	t.Parallel()
	seed, kills := p5Seed(t), 40
	if n, err := strconv.Atoi(os.Getenv("LONGSTOP_TRIES")); err == nil {
		kills = n
	}
	s := newStorm(t)
	for batch := 0; s.struck() < kills && !t.Failed(); batch++ {
		s.batch(t, fmt.Sprintf("storm-%d-%d", seed, batch), rand.New(rand.NewPCG(seed, uint64(batch))))
	}
	s.lanes[0].end(t)
	for _, l := range s.lanes[1:] {
		for _, life := range l.lives {
			if n := l.in.lines(life.file()); n > 1 {
				t.Errorf("%s: ran %d times in the end", life, n)
			}
		}
	}
	t.Logf("killed %v, links cut %d times, %d runs", s.kills, s.cuts, len(s.lanes[0].lives)+len(s.lanes[1].lives))
	if t.Failed() {
		t.Logf("repeat with: LONGSTOP_SEED=%d LONGSTOP_TRIES=%d go test -tags hosts -run TestLaw5StormOfKills ./test/hosts", seed, kills)
	}
}

// storm is one gateway with two hosts.
type storm struct {
	g     *gateway
	lanes []*lane

	mu    sync.Mutex
	kills map[string]int
	cuts  int
}

func newStorm(t *testing.T) *storm {
	s := &storm{g: newGateway(t), kills: map[string]int{}}
	for range 2 {
		h := rig.New(t)
		s.g.enrol(t, h)
		s.lanes = append(s.lanes, &lane{victim: "somebody here", g: s.g, h: h, in: insideOf(t, h), struck: map[phase]int{}})
	}
	return s
}

func (s *storm) struck() (n int) {
	for _, k := range s.kills {
		n += k
	}
	return n
}

// batch lets fifty runs live, with blows as long as one of their commands goes on, and holds what is known
// afterwards against what was.
func (s *storm) batch(t *testing.T, name string, random *rand.Rand) {
	var all, blows sync.WaitGroup
	lives := make([][]*life, len(s.lanes))
	for i := range stormAtOnce {
		n := i % len(s.lanes)
		life := newLife(fmt.Sprintf("%s-%d", name, i), random)
		lives[n] = append(lives[n], life)
		all.Go(func() { life.live(t, s.g, s.lanes[n].h.Name) })
	}
	over := make(chan struct{})
	blows.Go(func() { s.blows(t, lives, rand.New(rand.NewPCG(random.Uint64(), 1)), over) })
	blows.Go(func() { s.cutting(t, rand.New(rand.NewPCG(random.Uint64(), 2)), over) })
	all.Wait()
	for _, of := range lives {
		for _, life := range of {
			select {
			case <-life.command.ended:
			case <-time.After(2 * time.Second): // the blows end before everything does
			}
		}
	}
	close(over)
	blows.Wait()
	for n, l := range s.lanes {
		s.judge(t, l, lives[n])
	}
}

// judge awaits the end of the runs on one host and looks at each.
func (s *storm) judge(t *testing.T, l *lane, lives []*life) {
	actions := l.settle(t, lives)
	w := witness{l.victim, l.in, l.in.marked()}
	l.lives = append(l.lives, lives...)
	for _, life := range lives {
		a, asked := actions[life.key]
		switch {
		case !asked && (!life.killed || l.in.lines(life.file()) > 0):
			t.Errorf("%s: no action; ran %d times\n%s", life, l.in.lines(life.file()), life.command.stderr)
		case asked:
			w.over(t, life, a)
			life.told(t, a)
			s.lanes[0].known = append(s.lanes[0].known, a)
		}
		if asked && a.Launch.State == longstop.LaunchAccepted && a.Workload.State == longstop.WorkloadFinished && l.in.lines(life.file()) != 1 {
			t.Errorf("%s: accepted, and ran %d times", life, l.in.lines(life.file()))
		}
	}
}

// blows kills the gateway, an ssh master or a command, every now and then. Half of them are commands: there
// are fifty.
func (s *storm) blows(t *testing.T, lives [][]*life, random *rand.Rand, over chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(50*time.Millisecond + upTo(random, 250*time.Millisecond)):
		}
		victim := []string{"command", "command", "gateway", "master"}[random.IntN(4)]
		of := random.IntN(len(s.lanes))
		whose := lives[of][random.IntN(len(lives[of]))]
		select {
		case <-whose.started:
		default:
			continue
		}
		if s.lanes[of].blow(t, victim, whose, random) {
			s.mu.Lock()
			s.kills[victim]++
			s.mu.Unlock()
		}
	}
}

// cutting cuts the link to one of the hosts, briefly for the most part, and sometimes for long enough that the
// connection is given up.
func (s *storm) cutting(t *testing.T, random *rand.Rand, over chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(500*time.Millisecond + upTo(random, 2*time.Second)):
		}
		h, lasts := s.lanes[random.IntN(len(s.lanes))].h, 100*time.Millisecond+upTo(random, 2*time.Second)
		if random.IntN(8) == 0 {
			lasts = 20 * time.Second
		}
		h.Cut(t)
		s.cuts++
		select {
		case <-over:
		case <-time.After(lasts):
		}
		h.Heal(t)
	}
}
