package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// server is one serve channel: requests come in, answers go out in whatever order they are ready.
type server struct {
	host    *host
	changes *changes

	out    sync.Mutex
	stdout io.Writer

	early asked // by the one who reads frames: of the frame that has yet to end

	slots    chan struct{} // bounds the requests in hand
	watching sync.Mutex    // held by the channel's one watch
}

// maxInHand bounds the requests of one channel that are answered at a time, long polls among them.
// Beyond it everything is refused but what stops work, or keeps it from being stopped.
const maxInHand = 1024

// goodbye is how long requests in hand may still take when the channel ends. What they begin, a
// launch or a cancellation, does not depend on the answer.
const goodbye = 5 * time.Second

// serve carries every verb over one channel until in ends. Runs are not touched by its end.
func serve(host *host, in io.Reader, stdout io.Writer) int {
	s := &server{host: host, changes: newChanges(), stdout: stdout, slots: make(chan struct{}, maxInHand)}
	s.changes.answering = newAnswering()
	defer s.changes.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var inHand sync.WaitGroup
	err := s.read(ctx, wire.NewReader(in, wire.Options{MaxNoise: -1, Withdrawals: true, Ahead: s.readEarly}), &inHand)
	cancel()
	done := make(chan struct{})
	go func() { inHand.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(goodbye):
	}
	if !errors.Is(err, io.EOF) {
		os.Stderr.WriteString("longstop-runner serve: " + err.Error() + "\n")
		return exitNoAnswer
	}
	return exitAnswered
}

// read takes requests until the channel ends (io.EOF) or cannot be understood any more.
func (s *server) read(ctx context.Context, frames *wire.Reader, inHand *sync.WaitGroup) error {
	for {
		nonce, body, err := frames.Next()
		if err != nil {
			return err
		}
		request := s.early
		s.early = asked{}
		inHand.Go(func() {
			var err error
			if request.Nonce != nonce { // none of it: what was read early may have been withdrawn
				request = asked{}
				request.Request, err = decodeRequest(nonce, body)
			}
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
				s.take(ctx, nonce, request, err, true)
			default:
				s.take(ctx, nonce, request, err, false)
			}
		})
		runtime.Gosched() // else what was asked waits until the runtime sees that the next read blocks
	}
}

// readEarly reads a submit whose last line has yet to come. Nothing is done with it before, and what
// cannot be read is read again then.
func (s *server) readEarly(nonce string, body []byte) {
	s.early = asked{}
	request, err := decodeRequest(nonce, body)
	if err != nil || request.Verb != wire.VerbSubmit {
		return
	}
	var sub wire.Submit
	if readBody(request.Body, &sub) == nil {
		s.early = asked{Request: request, body: sub}
	}
}

// take answers one frame.
func (s *server) take(ctx context.Context, nonce string, request asked, err error, room bool) {
	switch {
	case err != nil:
		s.send(failed(nonce, err))
	case !room && request.Verb != wire.VerbCancel && request.Verb != wire.VerbRenew:
		s.send(failed(nonce, &longstop.Error{Code: longstop.CodeSessionRefused,
			Message: "the channel has " + itoa(maxInHand) + " requests in hand: nothing was done", Hint: "Ask again when some of them are answered."}))
	case request.Verb == wire.VerbWatch:
		s.watch(ctx, request.Request)
	case request.Verb == wire.VerbOutput: // a wait for a channel that is gone is over
		s.send(s.host.respond(ctx, request, s.changes, nil))
	default: // what was asked before the channel ended is done, a cancellation above all
		s.send(s.host.respond(context.WithoutCancel(ctx), request, s.changes, nil))
		if request.Verb == wire.VerbSubmit {
			s.changes.answering.sent(nonce)
		}
	}
}

// send writes one answer. That the channel is broken is found by the reader, at its other end.
func (s *server) send(answer wire.Answer) error {
	s.out.Lock()
	defer s.out.Unlock()
	return wire.WriteAnswer(s.stdout, answer)
}

// decodeRequest reads a frame's request strictly, except that one of another protocol version is
// told so whatever else is in it.
func decodeRequest(nonce string, body []byte) (wire.Request, error) {
	request, err := wire.DecodeRequest(nonce, body)
	if err == nil {
		return request, checkProtocol(request)
	}
	var version wire.Request
	if wire.Tolerant(body, &version) == nil {
		if err := checkProtocol(version); err != nil {
			return wire.Request{}, err
		}
	}
	return wire.Request{}, &longstop.Error{Code: longstop.CodeUsage, Message: "the request cannot be read", Err: err}
}
