package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

const (
	// runsAtOnce is how many runs one status request names.
	runsAtOnce = 1000
	// turns bounds how often one round decides about what it was answered: find, void, look.
	turns = 5
	// lookEvery is how often unresolved runs are asked about though nothing was pushed.
	lookEvery = 30 * time.Second
	// collectEvery is how long results wait to be collected together.
	collectEvery = 2 * time.Second
)

// undecided lists the actions that it is time to decide about. Those in the hands of Run are left
// out, and those that the present channel watches: what changes there is pushed.
func (h *host) undecided() []longstop.ActionID {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []longstop.ActionID
	for id, r := range h.runs {
		if r.undecided() && !r.decideAt.After(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *run) undecided() bool {
	a := &r.action
	watched := r.seen && a.Launch.State == longstop.LaunchAccepted && !cancelPending(a)
	return !r.held && !r.stopping && !watched && a.Launch.State != longstop.LaunchNotAttempted && a.Request.Owner != longstop.OwnerNone
}

// letGo decides what needs no host: a submit that nobody waits for any more is unknown.
func (h *host) letGo() {
	for _, id := range h.undecided() {
		a, ok := h.kept(id)
		if !ok || a.Launch.State != longstop.LaunchSent {
			continue
		}
		for _, step := range reconcile.Decide(a, reconcile.NotAsked{}, h.g.now().Time) {
			if _, ok := step.(reconcile.MarkUnknown); ok {
				h.g.change(context.WithoutCancel(h.ctx), id, markUnknown(h.reconciler()))
			}
		}
	}
}

// markUnknown notes that nobody waits for a submit's answer any more.
func markUnknown(by string) func(*draft) error {
	return func(d *draft) error {
		if d.Launch.State != longstop.LaunchSent {
			return nil
		}
		if err := setUnknown(d, longstop.CodeTimeout, "nobody is waiting for the submit's answer any more"); err != nil {
			return err
		}
		d.note(journal.LaunchUnanswered, by, map[string]any{"code": d.Launch.Because, "message": d.Launch.Message})
		return nil
	}
}

// lookAll asks for the status of every run that the host has.
func (h *host) lookAll(ch *channel) {
	var ids []longstop.RunID
	h.mu.Lock()
	for _, r := range h.runs {
		if !r.held && r.action.Launch.State == longstop.LaunchAccepted && r.action.Request.Owner != longstop.OwnerNone {
			ids = append(ids, r.action.RunID)
		}
	}
	h.mu.Unlock()
	for len(ids) > 0 {
		some := ids[:min(len(ids), runsAtOnce)]
		ids = ids[len(some):]
		answer, err := h.status(h.ctx, ch, some)
		if err != nil {
			return
		}
		h.look(ch, answer.Runs, answer.BootNow, h.reconciler())
		h.missing(ch, answer)
	}
}

func (h *host) status(ctx context.Context, ch *channel, ids []longstop.RunID) (answer wire.StatusAnswer, err error) {
	got, err := ch.ask(ctx, wire.VerbStatus, wire.RunRequest{RunIDs: ids}, answerWithin)
	if err == nil {
		err = got.read(&answer)
	}
	return answer, err
}

// missing gives what a status says is not there to the rules.
func (h *host) missing(ch *channel, answer wire.StatusAnswer) {
	sights := map[longstop.ActionID]seeing{}
	for _, s := range answer.Runs {
		if s.Error == nil {
			continue
		}
		h.mu.Lock()
		r := h.byRun[s.RunID]
		var a longstop.Action
		if r != nil {
			a = r.action
		}
		h.mu.Unlock()
		if r != nil {
			sight, raw := h.sightOf(&a, nil, s, answer.BootNow, h.reconciler())
			sights[a.ID] = seeing{sight, raw}
		}
	}
	if len(sights) > 0 {
		h.decide(h.ctx, ch, sights)
	}
}

// seeing is a sight and the bytes it was read from.
type seeing struct {
	sight reconcile.Sight
	raw   []byte
}

// round decides about actions until nothing is left to ask, and says when to come back.
func (h *host) round(ctx context.Context, ch *channel, ids []longstop.ActionID) time.Duration {
	sights := map[longstop.ActionID]seeing{}
	for _, id := range ids {
		sights[id] = seeing{sight: reconcile.NotAsked{}}
	}
	return h.decide(ctx, ch, sights)
}

func (h *host) decide(ctx context.Context, ch *channel, sights map[longstop.ActionID]seeing) time.Duration {
	for turn := 0; turn < turns && len(sights) > 0 && ch.live(); turn++ {
		t := h.turn(sights)
		if len(t.changes) > 0 {
			if _, err := h.g.changeAll(context.WithoutCancel(ctx), t.changes); err != nil {
				return time.Second
			}
		}
		for _, id := range t.cancels {
			h.g.goes(func() { h.halt(id) })
		}
		sights = h.ask(ctx, ch, t)
	}
	return h.nextDecision()
}

// nextDecision is how long until an action is to be decided about anew.
func (h *host) nextDecision() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := time.Minute
	for _, r := range h.runs {
		if r.undecided() {
			next = min(next, max(time.Until(r.decideAt), 10*time.Millisecond))
		}
	}
	return next
}

// turn is what the rules want done about several actions at once.
type turn struct {
	changes []change
	finds   []longstop.ActionID
	voids   map[longstop.ActionID]string // why
	looks   []longstop.ActionID
	cancels []longstop.ActionID
}

// turn asks the rules about each action and gathers their steps.
func (h *host) turn(sights map[longstop.ActionID]seeing) *turn {
	t := &turn{voids: map[longstop.ActionID]string{}}
	now := h.g.now()
	for id, saw := range sights {
		a, ok := h.kept(id)
		if !ok {
			continue
		}
		if _, seen := saw.sight.(reconcile.Seen); seen {
			h.hasSeen(id)
		}
		again := lookEvery
		var local []func(*draft) error
		for _, step := range reconcile.Decide(a, saw.sight, now.Time) {
			switch step := step.(type) {
			case reconcile.Find:
				t.finds = append(t.finds, id)
				local = append(local, h.intent(id, map[string]any{"verb": wire.VerbFind}, false)...)
			case reconcile.Void:
				t.voids[id] = step.Reason
				local = append(local, h.intent(id, map[string]any{"verb": wire.VerbVoid, "reason": step.Reason}, true)...)
			case reconcile.Look:
				t.looks = append(t.looks, id)
			case reconcile.AskCancel:
				t.cancels = append(t.cancels, id)
			case reconcile.AskAgain:
				again = step.After
			default:
				if fn := applyStep(step, saw, h.reconciler()); fn != nil {
					local = append(local, fn)
				}
			}
		}
		h.decideAgain(id, again)
		if len(local) > 0 {
			t.changes = append(t.changes, change{id, func(d *draft) error { return applyAll(d, local) }})
		}
	}
	return t
}

// reconciler names the reconciler as a witness.
func (h *host) reconciler() string { return "reconcile@" + h.g.cfg.Name }

func applyAll(d *draft, steps []func(*draft) error) error {
	for _, step := range steps {
		if err := step(d); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) decideAgain(id longstop.ActionID, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		r.decideAt = time.Now().Add(after)
	}
}

// intent journals that the host is about to be asked about a key: once for looking, each time for
// burning.
func (h *host) intent(id longstop.ActionID, say map[string]any, always bool) []func(*draft) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[id]
	if r == nil || r.intended && !always {
		return nil
	}
	r.intended = true
	return []func(*draft) error{func(d *draft) error {
		d.note(journal.ReconcileIntended, h.reconciler(), say)
		return nil
	}}
}

// applyStep is a step that changes facts alone.
func applyStep(step reconcile.Step, saw seeing, by string) func(*draft) error {
	switch step := step.(type) {
	case reconcile.MarkUnknown:
		return markUnknown(by)
	case reconcile.Accept:
		return func(d *draft) error {
			if d.Launch.State == longstop.LaunchAccepted {
				return nil
			}
			state, err := lifecycle.Launches.Step(d.Launch.State, longstop.LaunchAccepted)
			if err != nil {
				return err
			}
			d.Launch = longstop.Launch{State: state, At: d.at}
			d.note(journal.KeyFound, by, nil)
			return nil
		}
	case reconcile.ApplyRecord:
		return func(d *draft) error {
			if d.Launch.State != longstop.LaunchAccepted {
				d.note(journal.KeyFound, by, map[string]any{"sequence": step.Seen.Record.Sequence}, sqlite.Raw{Kind: "find_answer", Bytes: saw.raw})
			}
			observe(d, step.Seen, saw.raw)
			return nil
		}
	case reconcile.Reject:
		return func(d *draft) error {
			if err := lifecycle.Reject(&d.Action, step.Because, step.Message, d.at); err != nil {
				return err
			}
			say := map[string]any{"because": step.Because, "message": step.Message}
			if step.Because == longstop.CodeKeyConflict {
				d.note(journal.KeyFound, by, say, sqlite.Raw{Kind: "find_answer", Bytes: saw.raw})
				return nil
			}
			d.note(journal.KeyVoided, by, say, sqlite.Raw{Kind: "void_answer", Bytes: saw.raw})
			return nil
		}
	case reconcile.CannotSee:
		return func(d *draft) error {
			cannotSee(d, step.Because, step.Message, by, saw.raw)
			return nil
		}
	}
	return nil // Collect has its own loop
}

// ask puts the questions of a turn to the host, all on their way at once, and returns the answers.
func (h *host) ask(ctx context.Context, ch *channel, t *turn) map[longstop.ActionID]seeing {
	var mu sync.Mutex
	var asking sync.WaitGroup
	sights := map[longstop.ActionID]seeing{}
	one := func(id longstop.ActionID, verb wire.Verb, req func(longstop.Action) any) {
		a, ok := h.kept(id)
		if !ok {
			return
		}
		asking.Go(func() {
			got, err := ch.ask(ctx, verb, req(a), answerWithin)
			if err != nil {
				return // the channel's end is told by itself
			}
			saw := h.keySight(&a, got, ch.clock().now())
			mu.Lock()
			defer mu.Unlock()
			sights[id] = saw
		})
	}
	for _, id := range t.finds {
		one(id, wire.VerbFind, func(a longstop.Action) any { return wire.FindRequest{Key: a.IdempotencyKey} })
	}
	for id, reason := range t.voids {
		one(id, wire.VerbVoid, func(a longstop.Action) any { return wire.VoidRequest{Key: a.IdempotencyKey, Reason: reason} })
	}
	if len(t.looks) > 0 {
		asking.Go(func() {
			for id, saw := range h.statusSights(ctx, ch, t.looks) {
				mu.Lock()
				sights[id] = saw
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return sights
}

// statusSights looks at several runs.
func (h *host) statusSights(ctx context.Context, ch *channel, ids []longstop.ActionID) map[longstop.ActionID]seeing {
	of := map[longstop.RunID]longstop.Action{}
	var runs []longstop.RunID
	for _, id := range ids {
		if a, ok := h.kept(id); ok {
			of[a.RunID] = a
			runs = append(runs, a.RunID)
		}
	}
	sights := map[longstop.ActionID]seeing{}
	for len(runs) > 0 {
		some := runs[:min(len(runs), runsAtOnce)]
		runs = runs[len(some):]
		answer, err := h.status(ctx, ch, some)
		if err != nil {
			return sights
		}
		for _, s := range answer.Runs {
			a, asked := of[s.RunID]
			if !asked {
				continue
			}
			sight, raw := h.sightOf(&a, h.secret(a.ID), s, answer.BootNow, h.reconciler())
			sights[a.ID] = seeing{sight, raw}
		}
	}
	return sights
}

func (h *host) secret(id longstop.ActionID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		return r.secret
	}
	return nil
}

// keySight makes of the answer to find or void what the rules can read.
func (h *host) keySight(a *longstop.Action, got reply, now longstop.BootTime) seeing {
	var answer wire.FindAnswer
	if err := got.read(&answer); err != nil {
		because, _ := whyUnseen(err)
		return seeing{reconcile.Blocked{Because: because, Message: err.Error()}, got.raw}
	}
	switch {
	case answer.Void:
		return seeing{reconcile.Voided{}, got.raw}
	case !answer.Found && !answer.Expired:
		return seeing{reconcile.NotFound{}, got.raw}
	case answer.RunID != "" && answer.RunID != a.RunID:
		return seeing{reconcile.Taken{By: answer.RunID}, got.raw}
	case len(answer.Record) == 0 && answer.Expired:
		return seeing{reconcile.Expired{}, got.raw}
	case len(answer.Record) == 0:
		return seeing{reconcile.Claimed{}, got.raw}
	}
	seen, err := examine(a, h.secret(a.ID), answer.Record)
	if err != nil {
		return seeing{reconcile.Blocked{Because: longstop.UnreadableRecord, Message: err.Error()}, answer.Record}
	}
	return seeing{reconcile.Seen{Record: seen.record, Sighting: lifecycle.Sighting{
		At: h.g.now(), By: h.reconciler(), Signed: seen.signed, BootNow: now}}, seen.raw}
}

// Reconcile asks the host about the action now, and returns what is then known. It never starts work. Of a
// direct action there is nobody to ask.
func (g *Gateway) Reconcile(ctx context.Context, id string) (longstop.Action, error) {
	a, err := g.Action(ctx, id)
	if err != nil || !a.Unresolved() || a.Request.Owner == longstop.OwnerNone {
		return a, err
	}
	h, err := g.host(a.Host)
	if err != nil {
		return a, err
	}
	ch, err := h.connect(ctx, nil)
	if err == nil && !h.isHeld(a.ID) {
		sights := map[longstop.ActionID]seeing{a.ID: {sight: reconcile.NotAsked{}}}
		if a.Launch.State == longstop.LaunchAccepted {
			sights = h.statusSights(ctx, ch, []longstop.ActionID{a.ID})
		}
		h.decide(ctx, ch, sights)
	}
	// Why the host could not be asked is part of what is shown.
	return g.latest(ctx, a.Host, a.ID, nil)
}

func (h *host) isHeld(id longstop.ActionID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[id]
	return r != nil && r.held
}
