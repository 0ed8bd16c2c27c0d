package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// sessionWithin is how long a session on the present connection may take to open before a second
// connection is made for it.
const sessionWithin = 3 * time.Second

// aside is one verb on a channel of its own: opened, not asked yet.
type aside struct {
	id      longstop.ChannelID
	host    *host
	session sshlink.Channel
	facts   sshlink.Facts
	verb    wire.Verb
	second  sshlink.Link // made for this channel alone, or nil
	noise   []byte
	hidden  []string // what of the request nothing that is kept may show
}

// openAside starts a verb in a session of its own: on the present connection while the server
// allows one, else on a second connection (MaxSessions counts per connection). Nothing was asked
// when it returns an error.
func (h *host) openAside(ctx context.Context, verb wire.Verb) (*aside, error) {
	a := &aside{id: longstop.NewChannelID(h.g.cfg.Clock.Now()), host: h, verb: verb}
	command := wire.Command(h.runner(), verb)
	if link := h.roomyLink(); link != nil {
		opening, cancel := context.WithTimeout(ctx, sessionWithin)
		session, err := link.Exec(opening, command)
		cancel()
		if err == nil {
			a.session, a.facts = session, link.Facts()
			return a, nil
		}
		if longstop.CodeOf(err) == longstop.CodeSessionRefused {
			h.learnSessions(link.Sessions())
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
	link, err := h.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	session, err := link.Exec(opening, command)
	if err != nil {
		h.g.goes(func() { link.Close() })
		return nil, err
	}
	a.session, a.facts, a.second = session, link.Facts(), link
	return a, nil
}

// roomyLink returns the present connection, if it lives and has room for another session as far as
// is known: a refused session is learnt from, never provoked again.
func (h *host) roomyLink() sshlink.Link {
	h.mu.Lock()
	link, most := h.link, h.row.MaxSessions
	h.mu.Unlock()
	if link == nil {
		return nil
	}
	select {
	case <-link.Done():
		return nil
	default:
	}
	if most > 0 && link.Sessions() >= most {
		return nil
	}
	return link
}

func (h *host) learnSessions(open int) {
	h.mu.Lock()
	learnt := open > 0 && (h.row.MaxSessions == 0 || open < h.row.MaxSessions)
	if learnt {
		h.row.MaxSessions = open
	}
	h.mu.Unlock()
	if learnt {
		h.store(nil)
	}
}

// ask sends the one request and reads the one answer. Its error is *unanswered.
func (a *aside) ask(ctx context.Context, body any, within time.Duration) (reply, error) {
	a.hidden = secretsOf(body)
	nonce := wire.NewNonce()
	request, err := encodeRequest(nonce, a.verb, a.host.address(), body, within)
	if err != nil {
		return reply{}, &unanswered{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer context.AfterFunc(ctx, func() { a.session.Close() })()
	stderr := drain(a.session.Stderr())
	in := a.session.Stdin()
	err = in.SetWriteDeadline(time.Now().Add(writeWithin))
	if err == nil {
		_, err = in.Write(request)
	}
	if err == nil {
		err = in.Close()
	}
	// An answer may stand there though the request could not be written: the shell ran something
	// else and has gone.
	got, frames, readErr := wire.ReadOne(a.session.Stdout(), nonce, wire.Options{})
	a.noise = redact(frames.Noise(), a.hidden)
	if readErr != nil {
		return reply{}, &unanswered{Sent: true, Raw: redact(frames.Raw(), a.hidden), Err: a.explain(ctx, errors.Join(readErr, err), frames, stderr)}
	}
	answer, err := wire.DecodeAnswer(nonce, got)
	if err == nil && !answer.Final {
		err = &wire.BadFrame{Why: "a pushed answer to a request of its own"}
	}
	if err != nil {
		return reply{}, &unanswered{Sent: true, Raw: redact(frames.Raw(), a.hidden), Err: &longstop.Error{Code: longstop.CodeBadAnswer, Err: err,
			Message: "what " + a.host.name + " sent is no answer"}}
	}
	answer.Error = saidBy(a.host.name, answer.Error)
	return reply{answer, frames.Raw()}, nil
}

func (a *aside) explain(ctx context.Context, err error, frames *wire.Reader, stderr *drained) error {
	name := a.host.name
	var bad *wire.BadFrame
	switch {
	case errors.As(err, &bad) && !bad.Cut:
		return &longstop.Error{Code: longstop.CodeBadAnswer, Err: err, Noise: bounded(a.noise), Message: "what " + name + " sent is no answer"}
	case ctx.Err() != nil:
		return &longstop.Error{Code: longstop.CodeTimeout, Message: fmt.Sprintf("%s did not answer %s in time", name, a.verb)}
	}
	exit := a.session.Wait()
	if exit.State == longstop.SSHLost || !errors.Is(err, wire.ErrNoFrame) {
		return &longstop.Error{Code: longstop.CodeUnreachable, Err: err, Message: "the connection to " + name + " was lost"}
	}
	return noRunner(name, exit, bounded(join(a.noise, redact(stderr.bytes(), a.hidden))))
}

// exit waits a moment for how the channel ended.
func (a *aside) exit(within time.Duration) (sshlink.Exit, bool) {
	ended := make(chan sshlink.Exit, 1)
	go func() { ended <- a.session.Wait() }()
	select {
	case exit := <-ended:
		return exit, true
	case <-time.After(within):
		return sshlink.Exit{}, false
	}
}

// close gives the channel up, and the connection that was made for it.
func (a *aside) close() {
	a.session.Close()
	if a.second != nil {
		a.host.g.goes(func() { a.second.Close() })
	}
}
