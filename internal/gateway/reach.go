package gateway

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// attempt is one try to get a serve channel, for whoever waits for one.
type attempt struct {
	done    chan struct{}
	channel *channel
	err     error

	mu        sync.Mutex
	listeners map[chan string]struct{}
}

// listen has the attempt's progress sent to lines until forget is called. What does not find room
// is lost.
func (a *attempt) listen(lines chan string) (forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners[lines] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, lines)
	}
}

func (a *attempt) note(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for lines := range a.listeners {
		select {
		case lines <- line:
		default:
		}
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
	if h.isDirect() {
		return nil, noRunnerThere(h.name)
	}
	h.mu.Lock()
	a := h.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{}), listeners: map[chan string]struct{}{}}
		h.attempt = a
		h.g.goes(func() { h.try(a) })
	}
	h.mu.Unlock()
	lines := make(chan string, 16)
	defer a.listen(lines)()
	for {
		select {
		case line := <-lines:
			tell(note, line)
		case <-a.done:
			return a.channel, a.err
		case <-ctx.Done():
			return nil, &longstop.Error{Code: longstop.CodeUnreachable, Err: ctx.Err(),
				Message: "nobody waits any more for the connection to " + h.name}
		}
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
		h.leave(ch.link)
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
		err = explained(h.target(), h.operators(err))
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

// explained is what is said of a way to a host that led nowhere: with a code of ours, and with a
// command that shows the same where the error names none.
func explained(to sshlink.Target, err error) error {
	if err == errClosing {
		return err
	}
	told := longstop.Error{Code: longstop.CodeInternal, Message: err.Error()}
	var e *longstop.Error
	switch {
	case errors.As(err, &e):
		told.Code, told.Hint, told.Noise = e.Code, e.Hint, e.Noise
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		told.Code, told.Message = longstop.CodeUnreachable, "connect to "+to.Name+": "+err.Error()
	default:
		told.Message = "connect to " + to.Name + ": " + err.Error()
	}
	switch {
	case told.Hint != "":
		return err
	case told.Code == longstop.CodeAccessRefused: // the login's own words: what ssh was refused has a hint
		told.Hint = "is the account open, with a shell? See what it prints: " + to.Command() + " true"
	case told.Code == longstop.CodeNoRunner, told.Code == longstop.CodeTimeout, told.Code == longstop.CodeBadAnswer:
		told.Hint = "see what it prints: " + to.Command() + " true; longstop host check " + to.Name + " looks at its login shell and the runner"
	default:
		told.Hint = "see: " + to.Command("-v") + " true"
	}
	return &told
}

// target is the host as one would name it to ssh.
func (h *host) target() sshlink.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sshlink.Target{Name: h.row.Name, SSHConfig: h.row.SSHConfig}
}

// establish connects, and puts the runner there when the wanted one is absent. Its stages have one deadline
// together, beside each one's own bound; copying the runner has a time of its own.
func (h *host) establish(ctx context.Context, note func(string)) (*channel, error) {
	due, cancel := context.WithTimeout(ctx, h.g.cfg.Reach)
	defer cancel()
	leave, err := h.dialTurn(due)
	if err != nil {
		return nil, h.late(due, err)
	}
	defer leave()
	link, ch, err := h.served(due, note)
	if h.isForced() && err == nil {
		tell(note, h.changed(&ch.hello))
	}
	if !isAbsent(err) || h.isForced() {
		return ch, h.late(due, err)
	}
	if err := h.reinstall(ctx, link, note); err != nil {
		return nil, err
	}
	due, cancel = context.WithTimeout(ctx, h.g.cfg.Reach)
	defer cancel()
	ch, err = h.serve(due, link)
	return ch, h.late(due, err)
}

// served opens the serve channel over the link there is, or else a new one.
func (h *host) served(ctx context.Context, note func(string)) (sshlink.Link, *channel, error) {
	link, fresh, err := h.dialled(ctx, note)
	if err != nil {
		return nil, nil, err
	}
	ch, err := h.serve(ctx, link)
	if err != nil && !fresh && !isAbsent(err) {
		h.leave(link) // it was older than this attempt: perhaps only it is broken
		if link, _, err = h.dialled(ctx, note); err != nil {
			return nil, nil, err
		}
		ch, err = h.serve(ctx, link)
	}
	return link, ch, err
}

// dialTurn waits for this host's turn among those to which connections are being made.
func (h *host) dialTurn(ctx context.Context) (leave func(), err error) {
	select {
	case h.g.dials <- struct{}{}:
		return func() { <-h.g.dials }, nil
	case <-h.ctx.Done():
		return nil, errClosing
	case <-ctx.Done():
		return nil, &longstop.Error{Code: longstop.CodeUnreachable, Err: ctx.Err(),
			Message: fmt.Sprintf("%s: its turn did not come: connections to %d others are being made", h.name, cap(h.g.dials))}
	}
}

// late adds to the error of the stage in which a connection's deadline passed that it was one for all of them.
func (h *host) late(due context.Context, err error) error {
	var e *longstop.Error
	if !errors.Is(due.Err(), context.DeadlineExceeded) || !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Message += fmt.Sprintf("; all stages of a connection have %v together", h.g.cfg.Reach)
	if told.Err == context.DeadlineExceeded {
		told.Err = nil
	}
	return &told
}

// reinstall makes sure that the runner is on the host and whole.
func (h *host) reinstall(ctx context.Context, link sshlink.Link, note func(string)) error {
	where, sum, _, err := loginShell{link, h.target()}.install(ctx, h.g.cfg.Runners, note)
	if err == nil {
		h.moved(where, sum)
	}
	return err
}

// dialled returns the link, made anew if there is none; fresh says that it was.
func (h *host) dialled(ctx context.Context, note func(string)) (link sshlink.Link, fresh bool, err error) {
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
	link, err = h.dial(ctx, note)
	if err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	closing := h.ctx.Err() != nil // under the lock: hangUp takes the link after the context's end
	if !closing {
		h.link = link
	}
	h.mu.Unlock()
	if closing {
		link.Close()
		return nil, false, errClosing
	}
	return link, true, nil
}

// dial makes a connection of its own.
func (h *host) dial(ctx context.Context, note func(string)) (sshlink.Link, error) {
	h.mu.Lock()
	target, transport := sshlink.Target{Name: h.row.Name, SSHConfig: h.row.SSHConfig, Limit: h.limit}, h.row.Transport
	h.mu.Unlock()
	return h.g.dial(ctx, target, transport, note)
}

// dialPatience is how long a connection may take before that is told.
const dialPatience = time.Second

func (g *Gateway) dial(ctx context.Context, target sshlink.Target, transport string, note func(string)) (sshlink.Link, error) {
	dialer := g.cfg.Dialers[transport]
	if dialer == nil {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("no transport %q: there are openssh and embedded", transport)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	type dialled struct {
		link sshlink.Link
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		link, err := dialer.Dial(ctx, target)
		done <- dialled{link, err}
	}()
	patience := time.NewTimer(dialPatience)
	defer patience.Stop()
	select {
	case d := <-done:
		return d.link, d.err
	case <-patience.C:
		tell(note, "connecting to "+target.Name+"…")
	}
	d := <-done
	return d.link, d.err
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

// leave gives a link up that others may still use: it is closed once they have gone. One that is broken
// is found to be by its own keepalive, and then they are told.
func (h *host) leave(link sshlink.Link) {
	h.mu.Lock()
	if h.link == link {
		h.link = nil
	}
	h.mu.Unlock()
	h.g.goes(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		defer link.Close()
		for link.Sessions() > 0 {
			select {
			case <-tick.C:
			case <-link.Done():
				return
			case <-h.ctx.Done():
				return
			}
		}
	})
}

// serve opens the serve channel with the wanted runner.
func (h *host) serve(ctx context.Context, link sshlink.Link) (*channel, error) {
	return openChannel(ctx, h.name, h.g.cfg.Clock.Now(), link, wire.Command(h.runner(), wire.VerbServe), h.address(), false)
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
// one, or the enrolled one itself where this gateway has none for the host, or may put none there.
func (h *host) runner() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.row.Hello == nil || h.row.Forced {
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
	if h.row.Hello != nil { // what enrolment found out about the ssh settings holds on
		hello.Notes = union(hello.Notes, h.row.Hello.Notes)
	}
	h.row.Hello = &hello
	h.row.HostKey = ch.facts.HostKey
	for _, r := range h.runs {
		r.seen = false
	}
	h.mu.Unlock()
	h.canSee(ch)
	pushes := make(chan wire.Pushed, 64)
	h.g.goes(func() { h.takePushes(ch, pushes) })
	h.g.goes(func() { h.keepLeases(ch) })
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

// union is a and what else is in b.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
