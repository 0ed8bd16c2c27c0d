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

// sessionWithin is how long a session may take to open before another connection is tried.
const sessionWithin = 3 * time.Second

// aside is one verb on a channel of its own: opened, not asked yet.
type aside struct {
	id      longstop.ChannelID
	host    *host
	session sshlink.Channel
	facts   sshlink.Facts
	release func() // gives back the place on its connection
	verb    wire.Verb
	noise   []byte
	hidden  []string // what of the request nothing that is kept may show
}

// openAside starts a verb in a session of its own. A cancel has the sessions that are kept for it. Nothing was
// asked when it returns an error.
func (h *host) openAside(ctx context.Context, verb wire.Verb) (*aside, error) {
	a := &aside{id: longstop.NewChannelID(h.g.cfg.Clock.Now()), host: h, verb: verb}
	if err := a.openSession(ctx, wire.Command(h.runner(), verb), verb == wire.VerbCancel); err != nil {
		return nil, err
	}
	return a, nil
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
	a.noise = withoutWords(frames.Noise(), a.hidden)
	if readErr != nil {
		return reply{}, &unanswered{Sent: true, Raw: withoutWords(frames.Raw(), a.hidden), Err: a.explain(ctx, errors.Join(readErr, err), frames, stderr)}
	}
	answer, err := wire.DecodeAnswer(nonce, got)
	if err == nil && !answer.Final {
		err = &wire.BadFrame{Why: "a pushed answer to a request of its own"}
	}
	if err != nil {
		return reply{}, &unanswered{Sent: true, Raw: withoutWords(frames.Raw(), a.hidden), Err: &longstop.Error{Code: longstop.CodeBadAnswer, Err: err,
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
	return noRunner(name, exit, bounded(join(a.noise, withoutWords(stderr.bytes(), a.hidden))))
}

// exit waits a moment for how the channel ended.
func (a *aside) exit(within time.Duration) (sshlink.Exit, bool) {
	ended := make(chan sshlink.Exit, 1)
	a.host.g.goes(func() { ended <- a.session.Wait() })
	select {
	case exit := <-ended:
		return exit, true
	case <-time.After(within):
		return sshlink.Exit{}, false
	}
}

// close gives the channel up, and its place.
func (a *aside) close() {
	a.session.Close()
	a.release()
}
