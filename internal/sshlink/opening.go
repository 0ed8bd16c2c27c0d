package sshlink

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// opening is a session on its way. x/crypto waits for the server's answers without a bound, so a
// caller may give up while the opening goes on; then nothing more is sent, and what was opened is
// closed when the answer comes.
type opening struct {
	link   *link
	place  *place
	result chan opened

	mu    sync.Mutex
	stage stage
}

type opened struct {
	session *session
	err     error
}

type stage int

const (
	stageOpening stage = iota // the command has not been sent
	stageSent                 // it has, or is about to be
	stageGivenUp              // the caller is gone
)

// run opens the channel and sends the command. It ends with the server's answer or the connection.
func (o *opening) run(command string) {
	ch, requests, err := o.link.conn.OpenChannel("session", nil)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.result <- opened{err: o.notOpened(err)}
		return
	}
	o.place.confirm()
	s := newSession(o.link, o.place, ch)
	go s.watch(requests)
	if !o.advance() {
		s.Close()
		return
	}
	ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command}))
	switch {
	case err != nil && o.link.isLost():
		err = &longstop.Error{Code: longstop.CodeTimeout,
			Message: o.link.name + ": the connection was lost after the command was sent; it may have started", Err: err}
	case err != nil:
		// The server closed the session instead of answering: sshd never does, others refuse so.
		err = &longstop.Error{Code: longstop.CodeTimeout,
			Message: o.link.name + ": the server closed the session without saying whether the command started", Err: err}
	case !ok:
		err = &longstop.Error{Code: longstop.CodeUnsupported,
			Message: o.link.name + ": the server refuses to run commands"}
	default:
		s.start()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || o.stage == stageGivenUp {
		s.Close()
	}
	o.result <- opened{s, err}
}

// advance marks the command as sent, unless the caller has given up.
func (o *opening) advance() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stage == stageGivenUp {
		return false
	}
	o.stage = stageSent
	return true
}

// giveUp ends the caller's interest, and says what may have happened.
func (o *opening) giveUp(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case r := <-o.result: // it came at the last moment
		if r.err != nil {
			return r.err
		}
		r.session.Close()
	default:
	}
	sent := o.stage == stageSent
	o.stage = stageGivenUp
	if sent {
		return &longstop.Error{Code: longstop.CodeTimeout,
			Message: o.link.name + ": the command was sent, and no answer came in time; it may have started", Err: cause}
	}
	return &longstop.Error{Code: longstop.CodeUnreachable,
		Message: o.link.name + ": no session was opened in time", Err: cause}
}

// notOpened says why a session did not open, and gives back its place unless it is to be asked for again. o.mu is held.
func (o *opening) notOpened(err error) error {
	var rejected *ssh.OpenChannelError
	if !errors.As(err, &rejected) {
		o.place.cancel()
		return o.link.lost(err)
	}
	again := o.place.refused()
	if again && o.stage == stageGivenUp {
		o.place.cancel() // nobody is there to ask
	}
	return &refusal{rejected, again}
}

// refusal is a server's no to one more session.
type refusal struct {
	*ssh.OpenChannelError
	again bool // it may be over in a moment
}

func (r *refusal) explain(host string) error {
	return &longstop.Error{Code: longstop.CodeSessionRefused,
		Message: fmt.Sprintf("%s: the server refuses another session (%s: %q); MaxSessions in its sshd_config sets how many it allows",
			host, r.Reason, r.Message),
		Hint: "try again when one has ended"}
}
