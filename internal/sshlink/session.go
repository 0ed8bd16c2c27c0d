package sshlink

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// session is a Channel. Everything its users wait for can be ended from here: x/crypto's own
// waits end only with the server's word or the connection.
type session struct {
	link   *link
	place  *place
	ch     ssh.Channel
	stdin  *stdin
	stdout *stream
	stderr *stream

	closed  chan struct{} // Close was called
	closing sync.Once

	known chan struct{} // exit is set
	mu    sync.Mutex
	exit  *Exit
}

func newSession(l *link, place *place, ch ssh.Channel) *session {
	s := &session{link: l, place: place, ch: ch, closed: make(chan struct{}), known: make(chan struct{})}
	s.stdin = newStdin(s)
	s.stdout = newStream(s, ch)
	s.stderr = newStream(s, ch.Stderr())
	return s
}

// start begins to carry output; the command has started.
func (s *session) start() {
	go s.stdout.pump()
	go s.stderr.pump()
}

// watch reads what the server says of the session until its end, then gives the session's place
// back. sshd ends a session whose client closed it only when the command has ended.
func (s *session) watch(requests <-chan *ssh.Request) {
	for r := range requests {
		if exit, ok := parseExit(r); ok {
			s.settle(exit)
		}
		r.Reply(false, nil)
	}
	if s.link.isLost() {
		s.settle(Exit{State: longstop.SSHLost})
	} else {
		s.settle(Exit{State: longstop.SSHNoStatus})
	}
	s.stdin.end()
	s.place.leave()
}

// settle records the first word on the command's end; later ones change nothing.
func (s *session) settle(e Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit == nil {
		s.exit = &e
		s.place.end()
		close(s.known)
	}
}

func parseExit(r *ssh.Request) (Exit, bool) {
	switch r.Type {
	case "exit-status":
		if len(r.Payload) == 4 {
			return Exit{State: longstop.SSHExited, Status: int(binary.BigEndian.Uint32(r.Payload))}, true
		}
	case "exit-signal":
		var signal struct {
			Name       string
			CoreDumped bool
			Message    string
			Lang       string
		}
		if ssh.Unmarshal(r.Payload, &signal) == nil && signal.Name != "" {
			return Exit{State: longstop.SSHSignaled, Signal: signal.Name}, true
		}
	}
	return Exit{}, false
}

func (s *session) Stdin() Stdin      { return s.stdin }
func (s *session) Stdout() io.Reader { return s.stdout }
func (s *session) Stderr() io.Reader { return s.stderr }

func (s *session) Wait() Exit {
	<-s.known
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.exit
}

func (s *session) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.settle(Exit{State: longstop.SSHNoStatus})
		go s.ch.Close() // may wait for the socket beneath, as long as its own bound
	})
	return nil
}

var errClosed = errors.New("the session was closed here")
