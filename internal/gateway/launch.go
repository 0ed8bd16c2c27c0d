package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

const (
	// submitOpen is how long a submit may still be accepted after it is made: its not_after.
	submitOpen = 30 * time.Second
	// submitWithin is how long one sending of it is waited for.
	submitWithin = 20 * time.Second
	// exitWithin is how long the exit of an own channel is waited for after its answer, before the
	// launch is told without it.
	exitWithin = 500 * time.Millisecond
)

// Run launches, and returns once the launch is accepted, rejected or unknown. peer is who the socket
// or the token says is asking; via is taken from req.By where it has it, and an operator's name. When an action was
// made, it is returned beside any error and the error names it. If ctx ends first the launch goes
// on without its caller: it is not sent again, and the action is returned as it is.
func (g *Gateway) Run(ctx context.Context, req longstop.RunRequest, peer longstop.Requester, told Told) (longstop.Action, error) {
	return g.launch(ctx, req, nil, peer, told)
}

// launch is Run, of new work or of the next attempt at an action's.
func (g *Gateway) launch(ctx context.Context, req longstop.RunRequest, next *nextAttempt, peer longstop.Requester, told Told) (longstop.Action, error) {
	h, err := g.host(req.Host)
	if err != nil {
		return longstop.Action{}, err
	}
	want, err := g.accept(req, h.shown())
	if err != nil {
		return longstop.Action{}, err
	}
	if err := next.compare(ctx, want, told.Note); err != nil {
		return longstop.Action{}, err
	}
	by := requester(req.By, peer)
	g.bind(want, h, by)
	l, a, existing, err := g.enter(ctx, launching{g: g, h: h, want: want, next: next, ctx: ctx, peer: peer}, by)
	if err != nil {
		return longstop.Action{}, err
	}
	switch {
	case !existing && a.Launch.State == longstop.LaunchRejected:
		l.dropped()
	case !existing:
		release := g.holdStdin(want.stdin)
		g.goes(func() { defer release(); l.run() })
		runtime.Gosched() // the host is told before anybody here is
	case told.Note != nil:
		told.Note("this key has its run since " + a.CreatedAt.Local().Format(time.DateTime) + ": nothing new is started")
	}
	a, err = g.await(ctx, a, told.Note, func(a longstop.Action, changed bool) bool {
		if changed && told.Action != nil {
			told.Action(a)
		}
		return l.over(existing, &a)
	})
	if err != nil && ctx.Err() == nil {
		return a, err
	}
	return a, rejection(&a, existing)
}

// enter makes a launch's action, in the session that is asked for, or its owner's own. That may end
// meanwhile: then there is another.
func (g *Gateway) enter(ctx context.Context, l launching, by longstop.Requester) (*launching, longstop.Action, bool, error) {
	named := l.want.session != ""
	for tries := 0; ; tries++ {
		l := l
		l.done = make(chan struct{})
		if !named {
			var err error
			if l.want.session, err = g.sessionFor(ctx, l.next, l.peer); err != nil {
				return nil, longstop.Action{}, false, err
			}
		}
		a, existing, err := l.enter(ctx, by)
		if named || longstop.CodeOf(err) != longstop.CodeSessionEnded || tries > 2 {
			return &l, a, existing, err
		}
	}
}

// requester is the asker by its own words, where the socket's or the token's word does not stand
// against them.
func requester(by, peer longstop.Requester) longstop.Requester {
	if by.Name != "" && peer.Kind != longstop.RequesterAgent {
		peer.Name = by.Name
	}
	if by.Via != "" {
		peer.Via = by.Via
	}
	return peer
}

// note tells whoever watches the action. The launch waits for nobody who is told.
func (l *launching) note(line string) { l.g.watchers.tell(l.id, line) }

// rejection is the error for an action that was not started, and nil for any other.
func rejection(a *longstop.Action, existing bool) error {
	if a.Launch.State != longstop.LaunchRejected {
		return notPermitted(a)
	}
	e := &longstop.Error{Code: longstop.Code(a.Launch.Because), ActionID: a.ID, Message: a.Launch.Message, Hint: a.Launch.Hint}
	if e.Hint == "" {
		e.Hint = "longstop show " + string(a.ID)
	}
	if existing {
		e.Message = fmt.Sprintf("the key %q belongs to %s, which was not started: %s", a.IdempotencyKey, a.ID, a.Launch.Message)
		e.Hint = "use another key to try again"
	}
	return e
}

// hintOf is what an error says to do about it.
func hintOf(err error) string {
	var e *longstop.Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// launching is one launch on its way, in the hands of Run while somebody waits for it.
type launching struct {
	g    *Gateway
	h    *host
	want *asked
	next *nextAttempt       // nil: new work
	ctx  context.Context    // its caller's
	peer longstop.Requester // whose the session has to be
	done chan struct{}      // closed when the launch is out of these hands

	id     longstop.ActionID
	made   longstop.Action // as it was made: what it is never changes
	secret []byte
	warm   *channel // live when the action was made: then the intent was journalled with it
	submit wire.Submit

	answered <-chan reply // of a submit that was sent as soon as the intent was durable
}

// over reports whether Run has nothing to wait for any more.
func (l *launching) over(existing bool, a *longstop.Action) bool {
	switch {
	case a.Launch.State == longstop.LaunchRejected, existing && a.Launch.State == longstop.LaunchAccepted:
		return true
	case existing:
		return !l.h.isHeld(a.ID) // another caller's launch that is out of its hands
	}
	return l.isDone()
}

func (l *launching) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// enter makes the action, or finds the one that its key already has. Where a channel is up, the
// intent to launch is journalled in the same transaction. The submit travels meanwhile but for its
// last line, which goes when the intent is durable: before, the host does not have it.
func (l *launching) enter(ctx context.Context, by longstop.Requester) (longstop.Action, bool, error) {
	now := l.g.now()
	a := longstop.Action{
		ID: longstop.NewActionID(now.Time), SessionID: l.want.session, RunID: longstop.NewRunID(), Host: l.h.name,
		CreatedAt: now, RequestedBy: by, Request: l.want.kept, IdempotencyKey: l.want.key, Attempt: 1,
		Findings: l.want.verdict.Findings,
		Approval: longstop.Approval{State: longstop.ApprovalNotRequired}, Launch: longstop.Launch{State: longstop.LaunchNotAttempted},
		SSHCommand: longstop.SSHCommand{State: longstop.SSHNotOpened}, Workload: longstop.Workload{State: longstop.WorkloadNone},
		Cancel: longstop.Cancel{State: longstop.CancelNone},
	}
	a.EffectToken = "eff_" + strings.TrimPrefix(string(a.RunID), "run_") // of the first attempt, kept by retries
	l.next.make(&a)
	l.id, l.made, l.secret = a.ID, a, make([]byte, 32)
	rand.Read(l.secret)
	if l.want.stdin == "" && l.want.verdict.Decision == policy.Allow && a.Request.Owner != longstop.OwnerNone {
		l.warm = l.h.current() // what waits for approval never travels ahead of it
	}
	d, err := l.draft(&a, l.want.verdict.Denied())
	if err != nil {
		return a, false, err
	}
	a.Approval = d.Approval
	l.made = a
	l.h.hold(a, l.secret) // before it is durable: the reconciler leaves a held launch alone
	var ahead *begun
	if l.warm != nil && !a.Request.OwnChannel {
		ahead = l.warm.begin(wire.VerbSubmit, l.submit, submitWithin)
	}
	existing, err := l.put(ctx, &d)
	if err != nil || existing != nil {
		ahead.withdraw()
		l.h.forget(a.ID)
		if existing == nil {
			return a, false, err
		}
		return *existing, true, nil
	}
	if d.Launch.State == longstop.LaunchRejected {
		ahead.withdraw() // too many at once
	} else {
		l.answered = ahead.complete()
	}
	l.g.publish(d.Action)
	l.next.publish()
	return d.Action, false, nil
}

// draft is the new action as its first transaction has it: intended where a channel is up, waiting for
// approval, or denied for a reason.
func (l *launching) draft(a *longstop.Action, denied string) (draft, error) {
	d := draft{Action: *a, made: &l.made, secret: l.secret, at: a.CreatedAt}
	d.note(journal.Requested, words(a.RequestedBy), l.requested())
	switch {
	case denied != "":
		return d, l.deny(&d, denied)
	case l.want.verdict.Decision == policy.Ask:
		l.g.askApproval(&d, l.want.verdict, l.want.policy)
	case l.warm != nil:
		return d, l.intend(&d, l.warm, nil)
	}
	return d, nil
}

// put writes the new action unless its key is taken: by the same request, which is then returned,
// or by another one, which is an error that names what differs.
func (l *launching) put(ctx context.Context, d *draft) (existing *longstop.Action, err error) {
	err = l.g.store.Update(ctx, func(tx *sqlite.Tx) error {
		holder, err := tx.ActionByKey(d.IdempotencyKey)
		if err != nil {
			return err
		}
		if existing = holder; holder != nil {
			return nil
		}
		if err := tx.Enrolled(l.h.name); err != nil {
			return err // removed meanwhile: nobody would ask what became of it
		}
		if err := joinSession(tx, d.SessionID, identityOf(l.peer)); err != nil {
			return err
		}
		if d.Launch.State != longstop.LaunchRejected {
			if err := l.makeRoom(tx, d); err != nil {
				return err
			}
		}
		if err := l.next.follow(tx, d); err != nil {
			return err
		}
		return l.g.write(tx, d)
	})
	if err != nil || existing == nil {
		return nil, err
	}
	if existing.Request.Digest == d.Request.Digest {
		return l.askedAgain(existing, journal.RequestedAgain, d.RequestedBy, nil), nil
	}
	says, err := l.g.requestedAs(ctx, existing.ID)
	if err != nil {
		return nil, err
	}
	if l.sameAsked(existing, says) {
		return l.askedAgain(existing, journal.RequestedAgain, d.RequestedBy, nil), nil
	}
	differs := differences(existing, says.Env, l.h.name, l.want)
	l.askedAgain(existing, journal.KeyConflict, d.RequestedBy, map[string]any{"differs": differs})
	return nil, &longstop.Error{Code: longstop.CodeKeyConflict, ActionID: existing.ID,
		Message: fmt.Sprintf("the key %q belongs to %s, whose request differs in: %s; nothing was started",
			d.IdempotencyKey, existing.ID, strings.Join(differs, ", ")),
		Hint: "use another key for other work; longstop show " + string(existing.ID)}
}

// askedAgain journals that a key was used once more, for reviewers, and returns its action. Nothing is
// refused for want of that entry.
func (l *launching) askedAgain(existing *longstop.Action, kind journal.Kind, by longstop.Requester, say map[string]any) *longstop.Action {
	l.g.journalRefusal(l.ctx, words(l.peer), "", entryOf(existing, kind, words(by)), say)
	return existing
}

// intend makes the submit for a channel and notes, inside a change, that it is about to go out. The
// approval, where one is needed, is used up with it.
func (l *launching) intend(d *draft, ch *channel, permit *grant) error {
	if err := l.g.consume(d, permit); err != nil {
		return err
	}
	state, err := lifecycle.Launches.Step(d.Launch.State, longstop.LaunchSent)
	if err != nil {
		return err
	}
	d.Launch = longstop.Launch{State: state, At: d.at}
	clock := ch.clock()
	l.submit = wire.Submit{
		RunID: d.RunID, ActionID: d.ID, SessionID: d.SessionID, Key: d.IdempotencyKey, EffectToken: d.EffectToken,
		NotAfter: clock.now().Add(submitOpen), BootID: clock.bootID, Secret: l.secret, Request: l.want.request, EnvValues: l.want.env,
		Terminal: l.want.pty,
	}
	if d.Request.Lifetime == longstop.Leased {
		l.submit.LeaseUntil = clock.now().Add(seconds(d.Request.LeaseS))
	}
	d.note(journal.LaunchIntended, l.g.by, map[string]any{"digest": d.Request.Digest, "channel": ch.id, "boot_id": clock.bootID, "not_after": l.submit.NotAfter})
	return nil
}

// run takes the launch as far as it goes while its caller waits.
func (l *launching) run() {
	defer func() {
		l.h.release(l.id)
		l.lateLook()
		close(l.done)
		l.g.watchers.wake(l.id)
		l.h.nudge()
	}()
	if !l.permitted() {
		return
	}
	if l.made.Approval.State != longstop.ApprovalNotRequired {
		var cancel context.CancelFunc
		l.ctx, cancel = context.WithTimeout(l.h.ctx, l.made.Approval.ExpiresAt.Sub(l.g.now().Time))
		defer cancel()
	}
	if l.made.Request.Owner == longstop.OwnerNone {
		l.runDirect()
		return
	}
	ch := l.warm
	if ch == nil {
		var err error
		if ch, err = l.prepare(); err != nil {
			l.reject(err)
			return
		}
	}
	if ch != nil && l.send(ch) {
		dropStdin(l.want.stdin)
	}
	if a, ok := l.h.kept(l.id); ok && a.Launch.State == longstop.LaunchAccepted && cancelPending(&a) {
		l.g.goes(func() { l.h.halt(l.id) })
	}
}

// lateLook applies what was pushed while the submit's answer was awaited and did not come.
func (l *launching) lateLook() {
	if early := l.h.takeEarly(l.id); early != nil {
		if ch := l.h.current(); ch != nil {
			l.h.look(ch, []wire.RunStatus{early.status}, early.now, l.h.by())
		}
	}
}

// prepare gets a channel, lays down standard input, and journals the intent. A channel of nil
// without an error says that the launch is over: it was cancelled meanwhile.
func (l *launching) prepare() (*channel, error) {
	var ch *channel
	err := l.reach(func() (err error) {
		within, cancel := l.within(dialWithin + pushWithin)
		defer cancel()
		ch, err = l.h.connect(within, l.note)
		return err
	})
	if err != nil {
		return nil, err
	}
	within, cancel := l.within(pushWithin)
	defer cancel()
	if l.want.stdin != "" {
		a, _ := l.h.kept(l.id)
		if err := l.g.sendStdin(within, ch, a.RunID, l.want.stdin, l.note); err != nil {
			return nil, err
		}
	}
	permit, err := l.grant(within)
	if err != nil {
		return nil, err
	}
	a, err := l.g.change(within, l.id, func(d *draft) error {
		if err := expire(d, l.g.by); err != nil {
			return err
		}
		if !d.Unresolved() || d.Launch.State != longstop.LaunchNotAttempted {
			return nil
		}
		return l.intend(d, ch, permit)
	})
	if err != nil {
		return nil, err
	}
	if a.Launch.State != longstop.LaunchSent {
		return nil, nil
	}
	return ch, nil
}

// within bounds a part of the launch, which goes on where its caller leaves, and ends with the gateway.
func (l *launching) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.h.ctx, d)
}

// hold puts a new action into the hands of Run.
func (h *host) hold(a longstop.Action, secret []byte) {
	h.take(&run{action: a, secret: secret, held: true})
}

// release gives a launch to the reconciler.
func (h *host) release(id longstop.ActionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		r.held = false
	}
}

// forget takes back a hold of an action that was not made.
func (h *host) forget(id longstop.ActionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		delete(h.byRun, r.action.RunID)
		delete(h.runs, id)
	}
}
