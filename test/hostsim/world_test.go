package hostsim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// world is one seed: hosts, the real gateway on its real store, callers, and what goes wrong. Its plan is
// a function of the seed; how goroutines take turns is not entirely.
type world struct {
	t      *testing.T
	seed   uint64
	dice   *rand.Rand
	home   string
	net    *Net
	hosts  []*Host
	wrong  trouble
	mutant *mutant
	laws   *laws

	calm  atomic.Bool // nothing goes wrong any more
	shift atomic.Int64
	calls sync.WaitGroup

	mu        sync.Mutex
	count     map[string]int
	tally     map[string]int // what there was of everything
	keys      []string       // that were asked for
	asked     map[string]longstop.RunRequest
	going     map[string]int       // calls of Run under way, by key
	stretches []longstop.SessionID // sessions that were begun
	gen       *generation
	gens      int
}

// trouble says how often, of a thousand, things go wrong.
type trouble struct {
	message, step, delay int
	world                int // of the steps of the world: a host's fault
	gateway              int // the gateway's
}

// Now is the gateway's clock, which somebody may set.
func (w *world) Now() time.Time { return time.Now().Add(time.Duration(w.shift.Load())) }

// generation is one gateway process.
type generation struct {
	w      *world
	n      int
	store  *sqlite.Store
	dialer *Dialer
	*gateway.Gateway

	dead    atomic.Bool
	commits atomic.Int64
	killAt  atomic.Int64 // it dies at this commit: before it (odd), or after (even). 0: it does not
}

// generations by the folder of their database, for the hook of each connection.
var generations sync.Map

var hooked = sync.OnceFunc(func() {
	driver.RegisterConnectionHook(func(c driver.ExecQuerierContext, dsn string) error {
		c.(driver.HookRegisterer).RegisterCommitHook(func() int32 {
			dir := strings.TrimPrefix(strings.Split(dsn, "/longstop.db")[0], "file://")
			if g, ok := generations.Load(dir); ok {
				return g.(*generation).commit()
			}
			return 0
		})
		return nil
	})
})

// commit is called as a transaction is about to be committed. Other than 0 undoes it: the process has
// ended, and nothing that it sends from here on arrives.
func (g *generation) commit() int32 {
	if g.dead.Load() {
		return 1
	}
	n, at := g.commits.Add(1), g.killAt.Load()
	if at == 0 || n < at {
		return 0
	}
	g.dead.Store(true)
	g.dialer.Cut()
	g.w.trace("gateway %d dies, commit %d, undone %v", g.n, n, at%2 == 1)
	return int32(at % 2)
}

type noRunners struct{}

func (noRunners) Runner(string) ([]byte, string, error) { return nil, "000000000000", nil }

const simulatedHosts = 3

func newHosts(plan *Plan, witness *Witness, broken Broken) (hosts []*Host) {
	for i := range simulatedHosts {
		hosts = append(hosts, NewHost(fmt.Sprintf("sim-%d", i+1), plan, witness, broken))
	}
	return hosts
}

// folderOf is a folder in memory, where there is room in it.
func folderOf(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "hostsim")
	if err != nil {
		dir, err = os.MkdirTemp("", "hostsim")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// template makes the home of a gateway that has enrolled the hosts.
func template(t testing.TB, hosts []*Host) string {
	dir := folderOf(t)
	store, err := sqlite.Open(filepath.Join(dir, "longstop.db"))
	if err != nil {
		t.Fatal(err)
	}
	err = store.Update(context.Background(), func(tx *sqlite.Tx) error {
		for _, h := range hosts {
			if err := tx.PutHost(&sqlite.Host{Host: h.Row("sim")}, journal.Entry{Kind: journal.HostEnrolled, By: "a gateway that is gone"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, store.Close(), os.WriteFile(filepath.Join(dir, "salt"), make([]byte, 32), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyHome(t testing.TB, from, to string) {
	for _, name := range []string{"longstop.db", "salt"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newWorld is called within a bubble.
func newWorld(t *testing.T, seed uint64, home string, m *mutant) *world {
	hooked()
	w := &world{t: t, seed: seed, dice: rand.New(rand.NewPCG(seed, 1)), home: home, mutant: m,
		count: map[string]int{}, tally: map[string]int{}, asked: map[string]longstop.RunRequest{}, going: map[string]int{}}
	pick := func(of ...int) int { return of[w.dice.IntN(len(of))] }
	w.wrong = trouble{message: pick(0, 5, 20, 80), step: pick(0, 10, 40, 100), delay: pick(0, 30, 150), world: pick(0, 150, 400), gateway: pick(0, 100, 300)}
	w.laws = newLaws(w)
	plan := &Plan{Step: w.step, Message: w.message, Delay: w.delay, Latency: time.Duration(1+w.dice.IntN(20)) * time.Millisecond,
		Outage: time.Duration(1+w.dice.IntN(90)) * time.Second}
	broken := Broken{}
	if m != nil {
		broken = m.hosts
	}
	w.hosts = newHosts(plan, w.laws.witness(), broken)
	w.net = NewNet(w.hosts...)
	w.begin()
	return w
}

// chance is the n-th throw of dice that belong to one thing: what happens elsewhere does not change it.
func (w *world) chance(of string) *rand.Rand {
	w.mu.Lock()
	n := w.count[of]
	w.count[of]++
	w.mu.Unlock()
	sum := fnv.New64a()
	io.WriteString(sum, of)
	return rand.New(rand.NewPCG(w.seed^sum.Sum64(), uint64(n)))
}

func (w *world) step(host, step string) Blow {
	dice := w.chance("step " + host + step)
	if w.calm.Load() || dice.IntN(1000) >= w.wrong.step {
		return Nothing
	}
	blow := []Blow{PowerLoss, KillOwner, KillOwner, KillKeeper}[dice.IntN(4)]
	w.counts("blow at " + step)
	w.trace("%s: blow %d at %s", host, blow, step)
	return blow
}

func (w *world) message(host string, toHost bool, n int, frame []byte) Fate {
	dice := w.chance(fmt.Sprint("message ", host, toHost))
	if w.calm.Load() || dice.IntN(1000) >= w.wrong.message {
		return Fate{}
	}
	w.counts("harmed message")
	kinds := []FateKind{Arrives, Lost, Twice, Truncated, Garbled, CutBefore, CutAfter}
	fate := Fate{Kind: kinds[dice.IntN(len(kinds))], Delay: time.Duration(dice.IntN(4)) * time.Duration(dice.IntN(10_000)) * time.Millisecond}
	w.trace("%s: message (to it: %v) %+v: %.160q", host, toHost, fate, frame)
	return fate
}

// delay is how long a host takes to take up a request.
func (w *world) delay(host string, verb wire.Verb) time.Duration {
	dice := w.chance("delay " + host + string(verb))
	if w.calm.Load() || dice.IntN(1000) >= w.wrong.delay {
		return time.Duration(dice.IntN(5)) * time.Millisecond
	}
	return time.Duration(dice.IntN(45_000)) * time.Millisecond
}

// trace tells what happens, for whoever repeats a seed.
func (w *world) trace(format string, args ...any) {
	if *simTrace {
		w.t.Logf(time.Now().Format("15:04:05.000 ")+format, args...)
	}
}

func (w *world) counts(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally[what]++
}

func (w *world) host(name string) *Host {
	for _, h := range w.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// begin starts a gateway on the home.
func (w *world) begin() {
	w.gens++
	g := &generation{w: w, n: w.gens}
	generations.Store(w.home, g)
	var err error
	if g.store, err = sqlite.Open(filepath.Join(w.home, "longstop.db")); err != nil {
		w.t.Fatalf("open the store: %v", err)
	}
	g.dialer = w.net.Dialer(func(host string, frame []byte) { w.laws.sees(g, host, frame) })
	g.dialer.eager = w.mutant != nil && w.mutant.eager
	g.Gateway, err = gateway.New(gateway.Config{Store: g.store, Dialers: map[string]sshlink.Dialer{"sim": g.dialer},
		Runners: noRunners{}, Clock: w, Home: w.home, Name: "sim"})
	if err != nil {
		w.t.Fatalf("begin gateway %d: %v", g.n, err)
	}
	w.mu.Lock()
	w.gen = g
	w.mu.Unlock()
	w.trace("gateway %d", g.n)
}

// end ends the gateway, in good order if it is still alive.
func (w *world) end() {
	g := w.now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := g.Close(ctx); err != nil && !g.dead.Load() {
		w.laws.broke(0, "close gateway %d: %v", g.n, err)
	}
	g.dialer.Cut()
	g.dead.Store(true)
	if err := g.store.Close(); err != nil {
		w.t.Fatalf("close the store: %v", err)
	}
}

// again replaces the gateway.
func (w *world) again() {
	if w.now().dead.Load() {
		w.counts("gateway killed")
	}
	w.end()
	if w.mutant != nil && w.mutant.between != nil {
		w.mutant.between(w)
	}
	w.begin()
	w.laws.verify()
}

func (w *world) now() *generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gen
}

// call runs fn as one call to the present gateway. What it returned counts only if that still lived.
func (w *world) call(fn func(g *generation, ctx context.Context), patience time.Duration) {
	g := w.now()
	w.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		fn(g, ctx)
	})
}

var scripts = []string{"true", "echo one; exit 3", "sleep 2; echo two; exit 0", "sleep 20; exit 7", "sleep 90", "kill -SEGV $$", "sleep 8; kill -KILL $$",
	"sleep 15 & exit 0", "sleep 40 & sleep 5; exit 4", `trap "" TERM; sleep 60`, `trap "" TERM; sleep 30 & sleep 4; exit 1`}

func (w *world) newRequest() longstop.RunRequest {
	d := w.dice
	r := longstop.Request{Script: scripts[d.IntN(len(scripts))], Effect: []longstop.Effect{longstop.EffectOnce, longstop.EffectIdempotent}[d.IntN(2)], GraceS: float64(1 + d.IntN(10)), OwnChannel: d.IntN(5) == 0,
		Leftover: []longstop.Leftover{longstop.LeftoverWait, longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease}[d.IntN(4)]}
	switch d.IntN(12) {
	case 0:
		r.Script, r.Argv = "", []string{"/no/such/thing"}
	case 1:
		r.DeadlineS = float64(1 + d.IntN(20))
	}
	if d.IntN(3) == 0 {
		r.Lifetime = longstop.Detached
	} else {
		r.LeaseS = float64(10 + d.IntN(120))
	}
	req := longstop.RunRequest{Host: w.hosts[d.IntN(len(w.hosts))].Name, Request: r}
	if session := w.session(); d.IntN(2) == 0 {
		req.SessionID = session
	}
	return req
}

// session is one that was begun, if any.
func (w *world) session() longstop.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.dice.IntN(4); n < len(w.stretches) {
		return w.stretches[n]
	}
	return ""
}

// patience is how long a caller waits: not at all, a while, or for long.
func (w *world) patience() time.Duration {
	switch w.dice.IntN(4) {
	case 0:
		return time.Duration(w.dice.IntN(300)) * time.Millisecond
	case 1:
		return time.Duration(w.dice.IntN(20)) * time.Second
	}
	return 5 * time.Minute
}

// run asks for a launch under a key.
func (w *world) run(key string, req longstop.RunRequest) {
	req.Key = key
	w.launch(key, req, func(g *generation, ctx context.Context) (longstop.Action, error) {
		return g.Run(ctx, req, agent, gateway.Told{})
	})
}

// retry asks for the next attempt at the work of a key.
func (w *world) retry(of string) {
	id := w.laws.actionOf(of)
	if id == "" {
		return
	}
	key := fmt.Sprintf("key-%d", len(w.keys))
	w.launch(key, w.asked[of], func(g *generation, ctx context.Context) (longstop.Action, error) {
		return g.Retry(ctx, string(id), longstop.RetryRequest{Key: key}, agent, gateway.Told{})
	})
}

func (w *world) launch(key string, req longstop.RunRequest, call func(g *generation, ctx context.Context) (longstop.Action, error)) {
	w.mu.Lock()
	w.going[key]++
	if _, known := w.asked[key]; !known {
		w.keys = append(w.keys, key)
		w.asked[key] = req
	}
	w.mu.Unlock()
	w.call(func(g *generation, ctx context.Context) {
		a, err := call(g, ctx)
		w.mu.Lock()
		w.going[key]--
		w.mu.Unlock()
		w.laws.ran(g, key, a, err)
	}, w.patience())
}

var agent = longstop.Requester{Kind: "agent", Name: "sim", Via: "test"}

// act is one step of the world.
func (w *world) act() {
	d := w.dice
	if d.IntN(1000) < w.wrong.world {
		w.goWrong()
	}
	if d.IntN(1000) < w.wrong.gateway {
		w.gatewayTrouble()
	}
	key := ""
	if len(w.keys) > 0 {
		key = w.keys[d.IntN(len(w.keys))]
	}
	switch n := d.IntN(26); {
	case n < 8 || key == "":
		key, req := fmt.Sprintf("key-%d", len(w.keys)), w.newRequest()
		w.run(key, req)
		if d.IntN(4) == 0 {
			w.run(key, req)
		}
	case n < 10:
		w.run(key, w.asked[key])
	case n < 11:
		req := w.newRequest()
		req.Request.Reason, req.Request.Cwd = "another", "/srv"
		w.run(key, req)
	case n < 14:
		w.of(key, w.laws.cancel)
	case n < 16:
		w.of(key, func(g *generation, ctx context.Context, id string) {
			if g.Wait(ctx, id); ctx.Err() != nil {
				w.laws.gaveUp(g, id)
			}
		})
	case n < 17:
		w.of(key, func(g *generation, ctx context.Context, id string) { g.Reconcile(ctx, id) })
	case n < 18:
		w.of(key, func(g *generation, ctx context.Context, id string) { g.Output(ctx, id, "stdout", 0, 0, time.Second) })
	case n < 19:
		w.of(key, func(g *generation, ctx context.Context, id string) { g.Inspect(ctx, id) })
	case n < 21:
		w.call(func(g *generation, ctx context.Context) {
			s, err := g.StartSession(ctx, longstop.SessionRequest{Purpose: "a stretch of work"}, agent)
			w.mu.Lock()
			defer w.mu.Unlock()
			if err == nil && !g.dead.Load() {
				w.stretches = append(w.stretches, s.ID)
			}
		}, time.Minute)
	case n < 24:
		w.retry(key)
		if d.IntN(3) == 0 {
			w.retry(key)
		}
	case n < 25:
		if session := w.session(); session != "" {
			w.call(func(g *generation, ctx context.Context) { w.laws.endSession(g, ctx, session) }, time.Minute)
		}
	}
}

// of calls about the action of a key, where one was told of.
func (w *world) of(key string, fn func(g *generation, ctx context.Context, id string)) {
	id := w.laws.actionOf(key)
	if id == "" {
		return
	}
	w.call(func(g *generation, ctx context.Context) { fn(g, ctx, string(id)) }, w.patience())
}

// goWrong is a fault of a host or of the way to it.
func (w *world) goWrong() {
	d := w.dice
	h := w.hosts[d.IntN(len(w.hosts))]
	later := func(undo func()) {
		after := time.Duration(d.IntN(120)) * time.Second
		w.calls.Go(func() { time.Sleep(after); undo() })
	}
	n := d.IntN(9)
	w.trace("%s: trouble %d", h.Name, n)
	switch n {
	case 0:
		h.CutLinks()
	case 1:
		w.net.Silence(h.Name)
		later(func() { w.net.Heal(h.Name) })
	case 2:
		w.net.Refuse(h.Name, &longstop.Error{Code: longstop.CodeAccessRefused, Message: h.Name + ": permission denied (publickey)"})
		h.CutLinks()
		later(func() { w.net.Refuse(h.Name, nil) })
	case 3: // the name leads to a machine of the same account that nobody enrolled
		w.net.Lead(h.Name, NewHost("impostor", h.plan, h.witness, Broken{}))
		h.CutLinks()
		later(func() { w.net.Lead(h.Name, h) })
	case 4:
		h.PowerLoss()
	case 5:
		h.KillKeeper()
	case 6:
		h.killSomeOwner(d)
	case 7:
		h.killSomeOwner(d)
		h.KillKeeper()
	case 8:
		h.SetClock(time.Duration(d.IntN(7200)-3600) * time.Second)
	}
}

func (h *Host) killSomeOwner(d *rand.Rand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ids := h.unresolved(); len(ids) > 0 {
		if r := h.runs[ids[d.IntN(len(ids))]]; r != nil {
			r.killOwner()
		}
	}
}

func (w *world) gatewayTrouble() {
	d := w.dice
	switch d.IntN(5) {
	case 0:
		w.again()
	case 1:
		step := []time.Duration{2 * time.Second, time.Minute, time.Hour}[d.IntN(3)]
		if d.IntN(2) == 0 {
			step = -step
		}
		w.shift.Add(int64(step))
	default:
		g := w.now()
		g.killAt.Store(g.commits.Load() + 1 + int64(d.IntN(12)))
	}
}

// live is a seed's life: trouble, then calm until everything is settled.
func (w *world) live() {
	for range 12 + w.dice.IntN(20) {
		time.Sleep(time.Duration(w.dice.IntN(4)) * time.Duration(w.dice.IntN(4000)) * time.Millisecond)
		if w.now().dead.Load() {
			w.again()
		}
		w.act()
		if w.mutant != nil && w.mutant.acts != nil {
			w.mutant.acts(w)
		}
		if w.laws.check(); w.laws.failed() {
			break
		}
	}
	w.settle()
	w.end()
	generations.Delete(w.home)
	for _, h := range w.hosts {
		h.CutLinks()
	}
	time.Sleep(time.Hour) // a bubble's clock stands still once this returns: whoever sleeps would for ever
}

const settlesWithin = 4 * time.Hour

func (w *world) settle() {
	w.calm.Store(true)
	w.trace("nothing goes wrong from here on")
	w.calls.Wait() // what went wrong for a while is over as well
	began, pause := time.Now(), time.Second
	for ; ; time.Sleep(pause) {
		pause = min(2*pause, 2*time.Minute)
		if w.now().dead.Load() {
			w.again()
		}
		if w.mutant != nil && w.mutant.acts != nil {
			w.mutant.acts(w)
		}
		if w.laws.check(); w.laws.failed() {
			return
		}
		open := w.laws.open()
		if len(open) == 0 {
			break
		}
		if time.Since(began) > settlesWithin {
			w.laws.broke(3, "%v after the last fault these are unresolved still, and the host has said nothing of them:\n%s", settlesWithin, strings.Join(open, "\n"))
			return
		}
	}
	w.laws.verify()
	w.laws.atTheEnd()
}
