package gateway

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// watchers wakes whoever looks at an action when it may look different, and passes on lines about
// it. Who is woken reads what then is, so a slow one misses the states between and never the last,
// which is brought to it. Nobody who wakes or tells ever waits for who is woken.
type watchers struct {
	mu sync.Mutex
	by map[longstop.ActionID]map[*watcher]struct{}
}

type watcher struct {
	woken chan struct{}    // has room for one
	lines []string         // not taken yet
	last  *longstop.Action // as committed, once it is resolved
}

// mostLines bounds what is kept for a watcher that does not come.
const mostLines = 100

func (w *watchers) add(id longstop.ActionID) *watcher {
	one := &watcher{woken: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[longstop.ActionID]map[*watcher]struct{}{}
	}
	if w.by[id] == nil {
		w.by[id] = map[*watcher]struct{}{}
	}
	w.by[id][one] = struct{}{}
	return one
}

func (w *watchers) remove(id longstop.ActionID, one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.by[id], one)
	if len(w.by[id]) == 0 {
		delete(w.by, id)
	}
}

// any reports whether somebody looks at one of these.
func (w *watchers) any(ids []longstop.ActionID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if len(w.by[id]) > 0 {
			return true
		}
	}
	return false
}

// committed wakes whoever watches an action that was changed.
func (w *watchers) committed(a *longstop.Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.by[a.ID] {
		if !a.Unresolved() && (one.last == nil || one.last.Revision < a.Revision) {
			one.last = a
		}
		one.wake()
	}
}

func (w *watchers) wake(id longstop.ActionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.by[id] {
		one.wake()
	}
}

func (one *watcher) wake() { signal(one.woken) }

func (w *watchers) wakeAll(ids []longstop.ActionID) {
	for _, id := range ids {
		w.wake(id)
	}
}

func (w *watchers) tell(id longstop.ActionID, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.by[id] {
		if len(one.lines) < mostLines {
			one.lines = append(one.lines, line)
		}
		one.wake()
	}
}

func (w *watchers) take(one *watcher) (lines []string, last *longstop.Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines = one.lines
	one.lines = nil
	return lines, one.last
}

// await calls see with the action as it is shown now and whenever it may have changed (changed says
// whether it looks different), until see returns true or ctx ends; then with ctx's error. Every call
// is on the caller's goroutine.
func (g *Gateway) await(ctx context.Context, of longstop.Action, note func(string), see func(a longstop.Action, changed bool) bool) (longstop.Action, error) {
	w := g.watchers.add(of.ID)
	defer g.watchers.remove(of.ID, w)
	// Staleness comes by the clock alone, and nobody wakes for it.
	ageing := time.NewTicker(g.cfg.Heartbeat)
	defer ageing.Stop()
	var last longstop.Action
	for {
		lines, resolved := g.watchers.take(w)
		a, err := g.latest(context.WithoutCancel(ctx), of.Host, of.ID, resolved)
		if err != nil {
			return a, err
		}
		for _, line := range lines {
			tell(note, line)
		}
		if see(a, !sameFace(last, a)) {
			return a, nil
		}
		last = a
		select {
		case <-w.woken:
		case <-ageing.C:
		case <-ctx.Done():
			return a, ctx.Err()
		case <-g.ctx.Done():
			return a, errStopped
		}
	}
}

// latest is the action as shown now, from memory where it is unresolved, or was resolved while somebody
// watched.
func (g *Gateway) latest(ctx context.Context, hostName string, id longstop.ActionID, resolved *longstop.Action) (longstop.Action, error) {
	if resolved != nil {
		return g.shown(*resolved), nil
	}
	if h := g.known(hostName); h != nil {
		if a, ok := h.kept(id); ok {
			return g.shown(a), nil
		}
	}
	a, err := g.store.Action(ctx, string(id))
	if err != nil {
		return longstop.Action{}, err
	}
	return g.shown(*a), nil
}

// sameFace reports whether two views of an action tell a reader the same, apart from how long ago a
// live one was seen.
func sameFace(a, b longstop.Action) bool {
	if a.Revision != b.Revision || a.Alive != b.Alive || a.Outcome != b.Outcome || a.UnknownBecause != b.UnknownBecause {
		return false
	}
	return reflect.DeepEqual(faceless(a.Observation), faceless(b.Observation))
}

func faceless(o *longstop.Observation) longstop.Observation {
	if o == nil {
		return longstop.Observation{}
	}
	return longstop.Observation{Source: o.Source, Because: o.Because}
}

// Wait returns once the launch was rejected or the work has come to its end, or when ctx ends, then
// with the action as it is and ctx's error.
func (g *Gateway) Wait(ctx context.Context, id string) (longstop.Action, error) {
	a, err := g.Action(ctx, id)
	if err != nil || a.Settled() {
		return a, err
	}
	return g.await(ctx, a, nil, func(a longstop.Action, _ bool) bool { return a.Settled() })
}

// Watch sends the action as it is, then at each change, the last once Wait would return, and closes
// the channel then or when ctx ends. A slow reader gets the newest and misses the ones between.
func (g *Gateway) Watch(ctx context.Context, id string) (<-chan longstop.Action, error) {
	a, err := g.Action(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make(chan longstop.Action)
	g.goes(func() {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(g.ctx, cancel)()
		g.await(ctx, a, nil, func(a longstop.Action, changed bool) bool {
			if changed {
				select {
				case out <- a:
				case <-ctx.Done():
				}
			}
			return a.Settled()
		})
	})
	return out, nil
}

// waitsKept bounds how many waits an action shows, the last ones: whoever waits by turns ends many. The journal
// has all of them.
const waitsKept = 20

// RecordWait keeps that somebody stopped waiting. It changes nothing about the work.
func (g *Gateway) RecordWait(ctx context.Context, id, by string) (longstop.Action, error) {
	if err := checkAsker(longstop.Requester{Name: by}); err != nil {
		return longstop.Action{}, err
	}
	a, err := g.Action(ctx, id)
	if err != nil || a.Settled() {
		return a, err
	}
	changed, err := g.change(ctx, a.ID, func(d *draft) error {
		kept := d.Waits[max(0, len(d.Waits)-waitsKept+1):]
		d.Waits = append(kept[:len(kept):len(kept)], longstop.Wait{By: by, GaveUpAt: d.at})
		d.note(journal.WaitGivenUp, by, nil)
		return nil
	})
	if err != nil {
		return a, err
	}
	return g.shown(changed), nil
}
