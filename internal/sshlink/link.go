package sshlink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// openTimeout bounds the opening of a session whose caller sets no nearer deadline.
const openTimeout = 30 * time.Second

// link is a Link over one x/crypto connection: what both transports share. A transport gives it
// the connection, a probe that tells whether the other end is alive, and its own undertaking.
type link struct {
	name    string // of the host, for messages
	conn    ssh.Conn
	wire    *guarded // beneath conn
	facts   Facts
	pulse   pulse
	places  *places
	carrier carrier

	gone chan struct{} // conn is over: no session goes on
	done chan struct{} // and buried

	mu      sync.Mutex
	reason  error // why this side ended the connection
	closing bool
	err     error
}

// carrier is what serves a connection on this machine.
type carrier interface {
	// bury ends it, within a bound, after its connection has ended, and returns why that ended
	// where it knows better than reason. It is called once.
	bury(reason error) error
}

// begin starts the goroutines of a link, all of which end with the connection.
func (l *link) begin(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	l.gone, l.done = make(chan struct{}), make(chan struct{})
	go ssh.DiscardRequests(requests)
	go func() {
		for ch := range channels {
			ch.Reject(ssh.Prohibited, "nothing is forwarded here")
		}
	}()
	go l.pulse.watch(l.gone, l.condemn)
	go l.mourn()
}

// mourn waits for the end of the connection and gives it its reason.
func (l *link) mourn() {
	cause := l.conn.Wait()
	close(l.gone)
	l.mu.Lock()
	reason := l.reason
	l.mu.Unlock()
	if reason == nil {
		reason = cause
	}
	err := l.carrier.bury(reason)
	l.mu.Lock()
	if !l.closing {
		l.err = &longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": the connection was lost", Err: err}
	}
	l.mu.Unlock()
	close(l.done)
}

// condemn ends the connection for a reason found on this side.
func (l *link) condemn(reason error) {
	l.mu.Lock()
	if l.reason == nil {
		l.reason = reason
	}
	l.mu.Unlock()
	l.conn.Close()
}

func (l *link) Facts() Facts          { return l.facts }
func (l *link) Done() <-chan struct{} { return l.done }

func (l *link) Sessions() int { return l.places.count() }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) Close() error {
	l.mu.Lock()
	select {
	case <-l.gone: // it ended by itself, and Err goes on saying why
	default:
		l.closing = true
	}
	l.mu.Unlock()
	l.condemn(errors.New("closed here"))
	<-l.done
	return nil
}

// Exec opens a session and starts command in it.
func (l *link) Exec(ctx context.Context, command string) (Channel, error) {
	return l.open(ctx, false, l.exec(command))
}

// ExecKept is Exec that may take the place that is kept.
func (l *link) ExecKept(ctx context.Context, command string) (Channel, error) {
	return l.open(ctx, true, l.exec(command))
}

// Stream is Exec but for what carries the output, where the transport has a quicker way.
func (l *link) Stream(ctx context.Context, command string) (Channel, error) {
	if m, ok := l.carrier.(*master); ok {
		return l.open(ctx, false, func(ctx context.Context, p *place) (Channel, error) { return l.direct(ctx, p, m, command) })
	}
	return l.Exec(ctx, command)
}

// open takes a place and tries until a session is there, or no moment's wait would bring one.
func (l *link) open(ctx context.Context, kept bool, try func(context.Context, *place) (Channel, error)) (Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	place, err := l.enter(ctx, kept)
	if err != nil {
		return nil, err
	}
	for pause := settleTime; ; pause *= 2 {
		place.ask()
		ch, err := try(ctx, place)
		if err == nil {
			return ch, nil
		}
		var refusal *refusal
		if !errors.As(err, &refusal) {
			return nil, err
		}
		if !refusal.again {
			return nil, refusal.explain(l.name)
		}
		select {
		case <-time.After(pause):
			continue
		case <-l.gone:
		case <-ctx.Done():
		}
		place.cancel()
		return nil, refusal.explain(l.name)
	}
}

// enter takes a place for one more session.
func (l *link) enter(ctx context.Context, kept bool) (*place, error) {
	select {
	case <-l.gone:
		return nil, l.lost(nil)
	default:
	}
	if place := l.places.take(ctx, kept); place != nil {
		return place, nil
	}
	return nil, &longstop.Error{Code: longstop.CodeSessionRefused,
		Message: fmt.Sprintf("%s: all %d sessions of the connection are in use", l.name, l.places.mostFor(kept)),
		Hint:    "try again when one has ended"}
}

func (l *link) exec(command string) func(context.Context, *place) (Channel, error) {
	return func(ctx context.Context, place *place) (Channel, error) {
		o := &opening{link: l, place: place, result: make(chan opened, 1)}
		go o.run(command)
		select {
		case r := <-o.result:
			if r.err != nil {
				return nil, r.err
			}
			return r.session, nil
		case <-ctx.Done():
			l.pulse.check()
			return nil, o.giveUp(ctx.Err())
		}
	}
}

func (l *link) lost(err error) error {
	return &longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": the connection was lost", Err: err}
}

// isLost reports whether the connection failed; it is true before x/crypto ends any session for
// that reason.
func (l *link) isLost() bool { return l.wire.failed.Load() }
