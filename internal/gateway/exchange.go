package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// A request over a serve channel and its answer. What there is none to, the host may have done all the same.

// unanswered is the error of a request that got no readable answer. Sent says that some of its
// bytes may have left this machine: the host may still act on it.
type unanswered struct {
	Sent bool
	Raw  []byte // what came instead of an answer, where something did
	Err  error
}

func (u *unanswered) Error() string { return u.Err.Error() }
func (u *unanswered) Unwrap() error { return u.Err }

// maySent reports whether the request that ended in err may have reached the host.
func maySent(err error) bool {
	var u *unanswered
	return errors.As(err, &u) && u.Sent
}

// reply is one answer and the exact bytes of its frame.
type reply struct {
	wire.Answer
	raw []byte
}

// read decodes the body of a reply that is no error.
func (r reply) read(into any) error {
	if r.Error != nil {
		return r.Error
	}
	if err := wire.Tolerant(r.Body, into); err != nil {
		return &longstop.Error{Code: longstop.CodeBadAnswer, Message: "the host's answer cannot be read", Err: err}
	}
	return nil
}

// address is what every request names: the host as enrolled.
type address struct {
	identity wire.Identity
	stateDir string
}

// ask sends a request and waits for its answer, within a bound. An error of the host is in the
// reply; the error returned is always *unanswered.
func (c *channel) ask(ctx context.Context, verb wire.Verb, body any, within time.Duration) (reply, error) {
	return c.request(ctx, wire.NewNonce(), verb, body, within)
}

func (c *channel) request(ctx context.Context, nonce string, verb wire.Verb, body any, within time.Duration) (reply, error) {
	frame, err := encodeRequest(nonce, verb, c.to, body, within)
	if err != nil {
		return reply{}, &unanswered{Err: err}
	}
	answered := make(chan reply, 1)
	if err := c.send(nonce, verb == wire.VerbWatch, frame, answered); err != nil {
		return reply{}, err
	}
	return c.await(ctx, verb, answered, within)
}

// await waits for the answer to a request that was sent.
func (c *channel) await(ctx context.Context, verb wire.Verb, answered <-chan reply, within time.Duration) (reply, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-answered:
		return r, nil
	case <-c.done:
		select { // the answer may have come with the end
		case r := <-answered:
			return r, nil
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return reply{}, &unanswered{Sent: true, Raw: c.broken, Err: c.err}
	case <-timer.C:
		return reply{}, &unanswered{Sent: true, Err: &longstop.Error{Code: longstop.CodeTimeout,
			Message: fmt.Sprintf("%s did not answer %s within %v", c.host, verb, within)}}
	case <-ctx.Done():
		return reply{}, &unanswered{Sent: true, Err: ctx.Err()}
	}
}

// begun is a request that is on its way but for its last line, without which the host does not have it.
// While it is, nobody else writes on the channel.
type begun struct {
	c     *channel
	nonce string
	limit *time.Timer // stopped by whoever ends the request
}

// begunAtMost is how long a request may be left without its last line, while others wait to write.
const begunAtMost = 50 * time.Millisecond

// begin writes a request but for its last line: it travels while what must be durable before it is made so.
// Nil if there is no doing that now, or nothing to be gained: others write, or the channel ends.
func (c *channel) begin(verb wire.Verb, body any, within time.Duration) *begun {
	b := &begun{c: c, nonce: wire.NewNonce()}
	frame, err := encodeRequest(b.nonce, verb, c.to, body, within)
	if err != nil || len(frame) > wire.MaxBegun || !c.live() || !c.writing.TryLock() {
		return nil
	}
	err = c.session.Stdin().SetWriteDeadline(time.Now().Add(writeWithin))
	if err == nil {
		err = wire.BeginFrame(c.session.Stdin(), b.nonce, frame)
	}
	if err != nil {
		c.brokeOff(err) // before others may write: what they have is not sent
		c.writing.Unlock()
		return nil
	}
	b.limit = time.AfterFunc(begunAtMost, func() { b.end(false) })
	return b
}

// withdraw takes the request back: the host never had it.
func (b *begun) withdraw() {
	if b != nil && b.limit.Stop() {
		b.end(false)
	}
}

// complete lets the host have the request, and returns where its answer comes. Nil if the request was
// not sent: it was withdrawn meanwhile, or the channel ended.
func (b *begun) complete() (answered <-chan reply) {
	if b == nil || !b.limit.Stop() {
		return nil
	}
	waiter := make(chan reply, 1)
	if err := b.c.expect(b.nonce, false, waiter); err != nil {
		b.end(false)
		return nil
	}
	b.end(true)
	return waiter
}

func (b *begun) end(stands bool) {
	err := b.c.session.Stdin().SetWriteDeadline(time.Now().Add(writeWithin))
	if err == nil {
		err = wire.EndFrame(b.c.session.Stdin(), b.nonce, stands)
	}
	if err != nil {
		b.c.brokeOff(err)
	}
	b.c.writing.Unlock()
}

// expect enters a request of which an answer is to come.
func (c *channel) expect(nonce string, watch bool, answered chan<- reply) error {
	if err := c.ledger.Expect(nonce, watch); err != nil {
		return &unanswered{Err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return &unanswered{Err: c.err}
	}
	c.waiting[nonce] = answered
	return nil
}

// send writes one frame whole, or the channel is dead.
func (c *channel) send(nonce string, watch bool, body []byte, answered chan<- reply) error {
	if err := c.expect(nonce, watch, answered); err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	select {
	case <-c.done: // it failed while others wrote
		return &unanswered{Err: c.err}
	default:
	}
	err := c.session.Stdin().SetWriteDeadline(time.Now().Add(writeWithin))
	if err == nil {
		err = wire.WriteFrame(c.session.Stdin(), nonce, body)
	}
	if err != nil {
		c.brokeOff(err)
		return &unanswered{Sent: true, Err: c.err}
	}
	return nil
}

func encodeRequest(nonce string, verb wire.Verb, to address, body any, within time.Duration) ([]byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", verb, err)
	}
	return json.Marshal(wire.Request{Protocol: wire.Protocol, Nonce: nonce, Verb: verb,
		Host: to.identity, StateDir: to.stateDir, WithinMS: within.Milliseconds(), Body: b})
}
