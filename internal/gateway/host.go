package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

const (
	dialWithin = 20 * time.Second
	// dialsAtOnce bounds connections being made: after a restart every host with unresolved runs
	// is dialled, and each dial is a process and a key exchange.
	dialsAtOnce = 16
)

// host is the gateway's side of one enrolled host: the way to it, what was last seen of it, and its
// unresolved runs. One goroutine (mind) keeps the serve channel while it is needed.
type host struct {
	g    *Gateway
	name string
	ctx  context.Context // ends when the host is removed or the gateway closes
	stop context.CancelFunc
	wake chan struct{} // tells mind to look again

	mu      sync.Mutex
	row     sqlite.Host
	link    sshlink.Link
	channel *channel
	attempt *attempt
	sight   sight
	boot    bootClock // as last heard, over whichever channel
	runs    map[longstop.ActionID]*run
	byRun   map[longstop.RunID]*run
	used    time.Time                    // when a caller last needed the channel
	done    map[longstop.RunID]*finished // final, not collected yet
	alien   map[longstop.RunID]bool      // unclaimed runs that were journalled
	outages map[longstop.ActionID]outage // of output that is being read
}

// sight is what was last seen of the host itself. It stands for every run that the present
// channel has shown: a heartbeat says that nothing changed.
type sight struct {
	at      longstop.Time
	by      string
	because longstop.UnknownReason // why the host cannot be seen now, since when, in words
	code    longstop.Code
	message string
	since   longstop.Time
}

// run is an unresolved action and what the loops need to know about it beside its facts.
type run struct {
	action   longstop.Action // as last committed
	secret   []byte
	held     bool     // its submit is in the hands of Run
	seen     bool     // the present channel has shown it
	stopping bool     // a cancel is under way on a channel of its own
	intended bool     // journalled that its key is being asked about
	record   [32]byte // hash of the last record looked at
	output   longstop.Output
	lease    leaseSight
	said     cancelSaid
	halts    int             // how often a cancel was asked
	read     map[string]bool // output streams that somebody has read to their end
	decideAt time.Time       // when to decide anew; zero: now
}

func newHost(g *Gateway, row sqlite.Host) *host {
	h := &host{g: g, name: row.Name, row: row, wake: make(chan struct{}, 1),
		runs: map[longstop.ActionID]*run{}, byRun: map[longstop.RunID]*run{}, done: map[longstop.RunID]*finished{},
		alien: map[longstop.RunID]bool{}, outages: map[longstop.ActionID]outage{}}
	if seen := row.Seen; seen != nil {
		h.sight = sight{at: seen.At, by: seen.By, because: seen.Because, message: seen.Message, since: seen.Since}
	}
	h.ctx, h.stop = context.WithCancel(g.ctx)
	return h
}

// loadHosts takes up every enrolled host and the unresolved actions of each.
func (g *Gateway) loadHosts() error {
	rows, err := g.store.Hosts(g.ctx)
	if err != nil {
		return err
	}
	pending, err := g.store.Unresolved(g.ctx, "")
	if err != nil {
		return err
	}
	for _, row := range rows {
		g.hosts[row.Name] = newHost(g, row)
	}
	for _, p := range pending {
		if h := g.hosts[p.Action.Host]; h != nil {
			h.keep(p.Action, p.Secret)
		}
	}
	if err := g.rejectUnsent(pending); err != nil {
		return err
	}
	for _, h := range g.hosts {
		g.goes(h.mind)
	}
	return nil
}

// rejectUnsent settles what an earlier gateway had been asked for and not sent: the intent to send
// is durable before the first byte, so without it nothing was, and nobody is left to send it for.
func (g *Gateway) rejectUnsent(pending []sqlite.Pending) error {
	var changes []change
	for _, p := range pending {
		if p.Action.Launch.State == longstop.LaunchNotAttempted {
			changes = append(changes, change{p.Action.ID, func(d *draft) error {
				return rejectDraft(d, g.by, longstop.CodeExpired, "the gateway stopped before anything was sent")
			}})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	_, err := g.changeAll(g.ctx, changes)
	return err
}

// known returns an enrolled host, or nil.
func (g *Gateway) known(name string) *host {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hosts[name]
}

func (g *Gateway) host(name string) (*host, error) {
	if h := g.known(name); h != nil {
		return h, nil
	}
	return nil, &longstop.Error{Code: longstop.CodeHostUnknown, Message: fmt.Sprintf("no host %q is enrolled", name),
		Hint: "longstop host add " + name}
}

func (h *host) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// hangUp closes the way to the host.
func (h *host) hangUp() {
	h.stop()
	h.mu.Lock()
	link, ch := h.link, h.channel
	h.link, h.channel = nil, nil
	h.mu.Unlock()
	if ch != nil {
		ch.fail(errClosing)
	}
	if link != nil {
		link.Close()
	}
}

var errClosing = &longstop.Error{Code: longstop.CodeUnreachable, Message: "the gateway is closing"}

// keep takes over a committed action. A resolved one is no longer the loops' business.
func (h *host) keep(a longstop.Action, secret []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[a.ID]
	if r == nil {
		if !a.Unresolved() {
			return
		}
		r = &run{secret: secret}
		h.runs[a.ID] = r
	} else if a.Revision < r.action.Revision {
		return
	}
	r.action = a
	if secret != nil {
		r.secret = secret
	}
	if a.RunID != "" {
		h.byRun[a.RunID] = r
	}
	if !a.Unresolved() {
		delete(h.runs, a.ID)
		delete(h.byRun, a.RunID)
		h.finish(r)
	}
}

// kept returns an unresolved action as last committed.
func (h *host) kept(id longstop.ActionID) (longstop.Action, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		return r.action, true
	}
	return longstop.Action{}, false
}

// overlay lays what is seen of the host now over an unresolved action's stored observation: nothing
// is written while nothing changes.
func (h *host) overlay(a *longstop.Action) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[a.ID]
	if r == nil || a.Launch.State == longstop.LaunchNotAttempted {
		return
	}
	var o longstop.Observation
	if a.Observation != nil {
		o = *a.Observation
	}
	if r.seen && h.sight.at.After(o.At.Time) {
		o.At, o.By, o.Source = h.sight.at, h.sight.by, longstop.Live
	}
	if h.sight.because != "" && o.Because == "" && !r.held {
		o.Because, o.Message, o.Since = h.sight.because, h.sight.message, h.sight.since
	}
	if o != (longstop.Observation{}) {
		a.Observation = &o
	}
	a.Output.StdoutBytes = max(a.Output.StdoutBytes, r.output.StdoutBytes)
	a.Output.StderrBytes = max(a.Output.StderrBytes, r.output.StderrBytes)
	r.lease.overlay(a)
}

// shown is the host as people see it.
func (h *host) shown() longstop.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.row.Host
	row.Unresolved = len(h.runs)
	row.Seen = h.seen()
	return row
}

// seen is the sight as it is stored and shown. h.mu is held.
func (h *host) seen() *longstop.Observation {
	s := h.sight
	if s == (sight{}) {
		return nil
	}
	o := &longstop.Observation{At: s.at, By: s.by, Because: s.because, Message: s.message, Since: s.since, Source: longstop.Cached}
	if lifecycle.Seen(&longstop.Observation{At: s.at, Source: longstop.Live, Because: s.because}, h.g.now().Time, h.g.stale()) {
		o.Source = longstop.Live
	}
	return o
}

// attempt is one try to get a serve channel, for whoever waits for one.
type attempt struct {
	done    chan struct{}
	channel *channel
	err     error

	mu    sync.Mutex
	notes map[*func(string)]struct{}
}

// listen has the attempt's progress told to note until forget is called.
func (a *attempt) listen(note func(string)) (forget func()) {
	if note == nil {
		return func() {}
	}
	key := &note
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notes[key] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.notes, key)
	}
}

func (a *attempt) note(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for note := range a.notes {
		(*note)(line)
	}
}

// connect is reach for a caller's sake: the channel is kept for a while after.
func (h *host) connect(ctx context.Context, note func(string)) (*channel, error) {
	h.mu.Lock()
	h.used = time.Now()
	h.mu.Unlock()
	return h.reach(ctx, note)
}

// reach returns the live serve channel, or makes one; callers at the same time share one attempt.
// The attempt outlives a caller who gives up.
func (h *host) reach(ctx context.Context, note func(string)) (*channel, error) {
	if ch := h.current(); ch != nil {
		return ch, nil
	}
	h.mu.Lock()
	a := h.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{}), notes: map[*func(string)]struct{}{}}
		h.attempt = a
		h.g.goes(func() { h.try(a) })
	}
	h.mu.Unlock()
	defer a.listen(note)()
	select {
	case <-a.done:
		return a.channel, a.err
	case <-ctx.Done():
		return nil, &longstop.Error{Code: longstop.CodeUnreachable, Err: ctx.Err(),
			Message: "nobody waits any more for the connection to " + h.name}
	}
}

// current returns the channel if it is live and was heard of late. A silent one is given up: what
// is sent into it may arrive at any time, or never.
func (h *host) current() *channel {
	h.mu.Lock()
	ch := h.channel
	h.mu.Unlock()
	if ch == nil || !ch.live() {
		return nil
	}
	if silent := ch.silence(); silent > 2*h.g.cfg.Heartbeat {
		ch.fail(&longstop.Error{Code: longstop.CodeUnreachable,
			Message: fmt.Sprintf("%s has sent nothing for %v", h.name, silent.Round(time.Second))})
		h.drop(ch.link)
		return nil
	}
	return ch
}

// try makes one attempt and tells its outcome.
func (h *host) try(a *attempt) {
	ctx, cancel := context.WithTimeout(h.ctx, dialWithin+pushWithin)
	defer cancel()
	ch, err := h.establish(ctx, a.note)
	if err == nil {
		err = h.adopt(ch)
	}
	if err != nil {
		err = h.explain(err)
		h.cannotSee(err)
		ch = nil
	}
	h.mu.Lock()
	h.attempt = nil
	h.mu.Unlock()
	a.channel, a.err = ch, err
	close(a.done)
	h.nudge()
}

// explain gives an error that has no code of ours one.
func (h *host) explain(err error) error {
	var e *longstop.Error
	if errors.As(err, &e) {
		return err
	}
	code := longstop.CodeInternal
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code = longstop.CodeUnreachable
	}
	return &longstop.Error{Code: code, Message: "connect to " + h.name, Err: err}
}

// establish connects, and puts the runner there when the wanted one is absent.
func (h *host) establish(ctx context.Context, note func(string)) (*channel, error) {
	select {
	case h.g.dials <- struct{}{}:
		defer func() { <-h.g.dials }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	link, fresh, err := h.dialled(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := h.serve(ctx, link)
	if err != nil && !fresh && !isAbsent(err) {
		h.drop(link) // it was older than this attempt: perhaps only it is broken
		if link, _, err = h.dialled(ctx); err != nil {
			return nil, err
		}
		ch, err = h.serve(ctx, link)
	}
	if !isAbsent(err) {
		return ch, err
	}
	where, sum, _, err := loginShell{link, h.name}.install(ctx, h.g.cfg.Runners, note)
	if err != nil {
		return nil, err
	}
	h.moved(where, sum)
	return h.serve(ctx, link)
}

// dialled returns the link, made anew if there is none; fresh says that it was.
func (h *host) dialled(ctx context.Context) (link sshlink.Link, fresh bool, err error) {
	h.mu.Lock()
	link = h.link
	h.mu.Unlock()
	if link != nil {
		select {
		case <-link.Done():
			h.drop(link)
		default:
			return link, false, nil
		}
	}
	link, err = h.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		go link.Close()
		return nil, false, errClosing
	}
	h.link = link
	return link, true, nil
}

// dial makes a connection of its own.
func (h *host) dial(ctx context.Context) (sshlink.Link, error) {
	h.mu.Lock()
	target, transport := sshlink.Target{Name: h.row.Name, SSHConfig: h.row.SSHConfig}, h.row.Transport
	h.mu.Unlock()
	return h.g.dial(ctx, target, transport)
}

func (g *Gateway) dial(ctx context.Context, target sshlink.Target, transport string) (sshlink.Link, error) {
	dialer := g.cfg.Dialers[transport]
	if dialer == nil {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("no transport %q: there are openssh and embedded", transport)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	return dialer.Dial(ctx, target)
}

// drop gives a link up.
func (h *host) drop(link sshlink.Link) {
	h.mu.Lock()
	if h.link == link {
		h.link = nil
	}
	h.mu.Unlock()
	h.g.goes(func() { link.Close() })
}

// serve opens the serve channel with the wanted runner.
func (h *host) serve(ctx context.Context, link sshlink.Link) (*channel, error) {
	return openChannel(ctx, h.name, h.g.cfg.Clock.Now(), link, h.runner()+" "+string(wire.VerbServe), h.address(), false)
}

// address is what requests to this host name.
func (h *host) address() address {
	h.mu.Lock()
	defer h.mu.Unlock()
	return addressOf(h.row.Host)
}

func addressOf(row longstop.Host) address {
	return address{identity: wire.Identity{MachineID: row.MachineID, UID: row.UID, StateID: row.StateID}, stateDir: row.StateDir}
}

// runner is the path of the wanted runner: this gateway's own version in the folder of the enrolled
// one, or the enrolled one itself where this gateway has none for the host.
func (h *host) runner() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.row.Hello == nil {
		return h.row.Runner
	}
	_, sum, err := h.g.cfg.Runners.Runner(h.row.Hello.Arch)
	if err != nil {
		return h.row.Runner
	}
	return path.Join(path.Dir(h.row.Runner), runnerPrefix+sum[:12])
}

// moved notes where the runner is now; adopt stores it.
func (h *host) moved(where, sum string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.row.Runner, h.row.RunnerSHA = where, sum
}

// adopt makes a greeted channel the host's, and begins to watch over it.
func (h *host) adopt(ch *channel) error {
	h.mu.Lock()
	if h.ctx.Err() != nil {
		h.mu.Unlock()
		ch.fail(errClosing)
		return errClosing
	}
	h.channel = ch
	hello := ch.hello
	h.row.Hello = &hello
	h.row.HostKey = ch.facts.HostKey
	for _, r := range h.runs {
		r.seen = false
	}
	h.mu.Unlock()
	h.canSee(ch)
	pushes := make(chan wire.Pushed, 64)
	h.g.goes(func() { h.takePushes(ch, pushes) })
	return ch.watch(h.g.cfg.Heartbeat, func(p wire.Pushed) {
		h.heard(ch)
		if len(p.Runs) == 0 {
			return
		}
		select {
		case pushes <- p:
		case <-ch.done:
		}
	})
}

// heard notes that the host is there.
func (h *host) heard(ch *channel) {
	now, clock := h.g.now(), ch.clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sight.at, h.sight.by, h.boot = now, h.by(), clock
}

// by names the serve channel as a witness.
func (h *host) by() string { return "serve@" + h.g.cfg.Name }

// canSee notes that the host answers, and journals it if it had not.
func (h *host) canSee(ch *channel) {
	h.heard(ch)
	h.mu.Lock()
	was := h.sight
	h.sight.because, h.sight.code, h.sight.message, h.sight.since = "", "", "", longstop.Time{}
	h.mu.Unlock()
	if was.because == "" {
		h.store(nil)
		return
	}
	h.store(&journal.Entry{Kind: journal.Reachable, By: h.g.by, Body: body(map[string]any{
		"was": was.because, "since": was.since, "channel": ch.id})})
	h.g.watchers.wakeAll(h.open())
}

// cannotSee notes why the host does not answer, once for each reason.
func (h *host) cannotSee(err error) {
	if h.ctx.Err() != nil {
		return
	}
	because, kind := whyUnseen(err)
	code := longstop.CodeOf(err)
	h.mu.Lock()
	known := h.sight.because == because && h.sight.code == code
	h.sight.because, h.sight.code, h.sight.message = because, code, err.Error()
	if h.sight.since.IsZero() {
		h.sight.since = h.g.now()
	}
	h.mu.Unlock()
	if known {
		return
	}
	h.store(&journal.Entry{Kind: kind, By: h.g.by, Body: body(map[string]any{
		"because": because, "code": code, "message": err.Error(), "noise": noiseOf(err)})})
	h.g.watchers.wakeAll(h.open())
}

// whyUnseen is what an error of the way to a host means for what can be said about its runs.
func whyUnseen(err error) (longstop.UnknownReason, journal.Kind) {
	switch longstop.CodeOf(err) {
	case longstop.CodeHostMismatch, longstop.CodeHostKeyChanged:
		return longstop.HostMismatch, journal.HostRefused
	case longstop.CodeAccessRefused:
		return longstop.AccessRefused, journal.HostRefused
	case longstop.CodeHostKeyUnknown, longstop.CodeNoRunner, longstop.CodeStateFolder, longstop.CodeVersionMismatch:
		return longstop.Unreachable, journal.HostRefused
	}
	return longstop.Unreachable, journal.Unreachable
}

func noiseOf(err error) string {
	var e *longstop.Error
	if errors.As(err, &e) {
		return e.Noise
	}
	return ""
}

// store writes the host's row and an entry about it. What cannot be written is not fatal here: the
// row repeats what the next connection says.
func (h *host) store(entry *journal.Entry) {
	h.mu.Lock()
	row := h.row
	row.Seen = h.seen()
	h.mu.Unlock()
	h.g.store.Update(context.WithoutCancel(h.ctx), func(tx *sqlite.Tx) error {
		if _, err := tx.Host(row.Name); err != nil {
			return err // removed meanwhile
		}
		if entry != nil {
			entry.At, entry.Host = h.g.now(), h.name
			if _, err := tx.Append(*entry); err != nil {
				return err
			}
		}
		return tx.PutHost(&row)
	})
}

// open lists the host's unresolved actions.
func (h *host) open() []longstop.ActionID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]longstop.ActionID, 0, len(h.runs))
	for id := range h.runs {
		ids = append(ids, id)
	}
	return ids
}

// seed makes this host's times of asking its own.
func (h *host) seed() uint64 {
	sum := sha256.Sum256([]byte(h.name))
	return binary.BigEndian.Uint64(sum[:])
}
