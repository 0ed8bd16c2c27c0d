package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
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

	leased chan struct{} // tells keepLeases of another lease

	mu      sync.Mutex
	row     sqlite.Host
	link    sshlink.Link
	channel *channel
	attempt *attempt
	sight   sight
	boot    bootClock // as last heard, over whichever channel
	runs    map[longstop.ActionID]*run
	byRun   map[longstop.RunID]*run
	used    time.Time               // when a caller last needed the channel
	alien   map[longstop.RunID]bool // unclaimed runs that were journalled
	chores  chores

	limit  *sshlink.Limit // of the server's sessions, as far as it is known
	spares spares

	outputMost atomic.Int64 // bytes of output to ask for at once; 0: maxOutput
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
	early    *earlyStatus // pushed before the submit's answer was applied
	lease    leaseSight
	said     cancelSaid
	halts    int       // how often a cancel was asked
	decideAt time.Time // when to decide anew; zero: now
}

func newHost(g *Gateway, row sqlite.Host) *host {
	h := &host{g: g, name: row.Name, row: row, limit: sshlink.NewLimit(row.MaxSessions), wake: make(chan struct{}, 1), leased: make(chan struct{}, 1),
		runs: map[longstop.ActionID]*run{}, byRun: map[longstop.RunID]*run{}, alien: map[longstop.RunID]bool{},
		chores: chores{collect: true}} // an earlier gateway may have left some
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
			h.take(&run{action: p.Action, secret: p.Secret})
		}
	}
	if err := g.unsent(pending); err != nil {
		return err
	}
	if err := g.loseDirects(pending); err != nil {
		return err
	}
	for _, h := range g.hosts {
		g.goes(h.mind)
	}
	return nil
}

// known returns an enrolled host, or nil.
func (g *Gateway) known(name string) *host {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hosts[name]
}

func (g *Gateway) allHosts() []*host {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.hosts))
}

func (g *Gateway) host(name string) (*host, error) {
	if h := g.known(name); h != nil {
		return h, nil
	}
	return nil, &longstop.Error{Code: longstop.CodeHostUnknown, Message: fmt.Sprintf("no host %q is enrolled", name),
		Hint: "longstop host add " + name}
}

func (h *host) nudge() { signal(h.wake) }

// signal tells whoever receives from a channel with room for one. It never waits.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
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
	h.spares.closeAll()
}

// errClosing is what becomes of a way to a host, errStopped of a caller who waits, when the gateway
// closes.
var (
	errClosing = &longstop.Error{Code: longstop.CodeUnreachable, Message: "the gateway is closing"}
	errStopped = &longstop.Error{Code: longstop.CodeStopped, Message: "the gateway was stopped; runs go on without it until their leases end"}
)

// take takes up an unresolved action.
func (h *host) take(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[r.action.ID] = r
	h.byRun[r.action.RunID] = r
	if r.leased() {
		signal(h.leased)
	}
}

// keep takes over a committed action. A resolved one is no longer the loops' business, and stays so:
// two commits may be told in either order.
func (h *host) keep(a longstop.Action) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[a.ID]
	if r == nil || a.Revision < r.action.Revision {
		return
	}
	had := r.leased()
	r.action = a
	if !had && r.leased() {
		signal(h.leased)
	}
	if !a.Unresolved() {
		delete(h.runs, a.ID)
		delete(h.byRun, a.RunID)
		h.ended(&a)
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

// shown is the host as people see it.
func (h *host) shown() longstop.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.row.Host
	row.Unresolved = len(h.runs)
	row.Seen = h.seen()
	row.Hello, _ = redact.Value(h.g.cfg.Redact, row.Hello)
	return row
}

// store writes the host's row and why: nil, for what a connection showed. What cannot be written is not fatal here: the
// row repeats what the next connection says.
func (h *host) store(entry *journal.Entry, raws ...sqlite.Raw) {
	h.mu.Lock()
	row := h.row
	row.Seen = h.seen()
	h.mu.Unlock()
	why := journal.Entry{Kind: journal.HostChanged, By: h.g.by}
	if entry != nil {
		why = *entry
	}
	h.g.store.Update(context.WithoutCancel(h.ctx), func(tx *sqlite.Tx) error {
		if err := tx.Enrolled(row.Name); err != nil {
			return err // removed meanwhile
		}
		why.At = h.g.now()
		return tx.PutHost(&row, why, raws...)
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
