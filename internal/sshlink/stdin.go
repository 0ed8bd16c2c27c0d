package sshlink

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/longstop/longstop"
)

// stdin hands bytes to a goroutine that writes them, since a write waits for the command to read
// and x/crypto offers no way to stop waiting. The goroutine has copies: one that outlives its
// caller touches nothing of theirs.
type stdin struct {
	session  *session
	deadline deadline
	work     chan []byte // to write; nil: end-of-file
	results  chan error
	ended    chan struct{} // the server ended the session

	mu      sync.Mutex // one Write or Close at a time
	started bool
	err     error // of every later call
}

func newStdin(s *session) *stdin {
	return &stdin{session: s, deadline: newDeadline(), ended: make(chan struct{}),
		work: make(chan []byte, 1), results: make(chan error, 1)}
}

// end frees the goroutine; it is called once.
func (in *stdin) end() { close(in.ended) }

func (in *stdin) SetWriteDeadline(t time.Time) error {
	in.deadline.set(t)
	return nil
}

func (in *stdin) Write(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	done := 0
	for done < len(p) && in.err == nil {
		piece := append([]byte(nil), p[done:min(len(p), done+chunkBytes)]...)
		if in.err = in.do(piece); in.err == nil {
			done += len(piece)
		}
	}
	return done, in.err
}

// Close sends end-of-file.
func (in *stdin) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return nil // nothing can be sent any more, end-of-file neither
	}
	err := in.do(nil)
	in.err = os.ErrClosed
	return err
}

func (in *stdin) do(piece []byte) error {
	if !in.started {
		in.started = true
		go in.pump()
	}
	select {
	case <-in.deadline.passed():
		return in.late()
	default:
	}
	in.work <- piece // has room: the last piece's result was taken
	select {
	case err := <-in.results:
		return in.explain(err)
	case <-in.ended:
		return in.explain(io.EOF)
	case <-in.session.closed:
		return errClosed
	case <-in.deadline.passed():
		return in.late()
	}
}

func (in *stdin) pump() {
	for {
		select {
		case piece := <-in.work:
			if piece == nil {
				in.results <- in.session.ch.CloseWrite()
				return
			}
			_, err := in.session.ch.Write(piece)
			in.results <- err // has room, whether anybody waits or not
		case <-in.ended:
			return
		case <-in.session.closed:
			return
		}
	}
}

func (in *stdin) late() error {
	return &longstop.Error{Code: longstop.CodeTimeout,
		Message: in.session.link.name + ": the command did not take its input in time", Err: os.ErrDeadlineExceeded}
}

// explain names what x/crypto calls end-of-file: the session is over, or the connection.
func (in *stdin) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case in.session.link.isLost():
		return in.session.link.lost(nil)
	case err == io.EOF:
		return io.ErrClosedPipe
	}
	return err
}

// deadline is a time that can be moved, and a channel that is closed once it has passed.
type deadline struct{ state *deadlineState }

type deadlineState struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{}
}

func newDeadline() deadline { return deadline{&deadlineState{ch: make(chan struct{})}} }

func (d deadline) passed() <-chan struct{} {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return d.state.ch
}

func (d deadline) set(t time.Time) {
	s := d.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil && !s.timer.Stop() {
		s.ch = make(chan struct{})
	}
	s.timer = nil
	if t.IsZero() {
		return
	}
	ch := s.ch
	s.timer = time.AfterFunc(time.Until(t), func() { close(ch) })
}
