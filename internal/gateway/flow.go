package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// flowPause is how long a host waits for more of a stream before it ends a flow: what is written now
// and then is asked for over the serve channel.
const flowPause = time.Second

// Flow hands take what a stream has from an offset on, in order, over a session of its own and as fast
// as take takes it; an answer's Data is valid until take returns, and empty where only what was dropped is left to tell. It ends with the stream (End), or
// when the host has had nothing for a while, and returns what was last heard, whose Offset is the next
// byte's. An error says why it went no further, which Output from that byte may still do: among others
// that the connection has no room for another session.
func (g *Gateway) Flow(ctx context.Context, id, stream string, offset int64, take func(wire.OutputAnswer) error) (wire.OutputAnswer, error) {
	reached := wire.OutputAnswer{Offset: offset}
	if g.cfg.Redact != nil {
		return reached, &longstop.Error{Code: longstop.CodeUnsupported, Message: "what is configured as secret is masked block by block: Output does that"}
	}
	a, h, err := g.running(ctx, id)
	if err != nil {
		return reached, err
	}
	if a.Request.Owner == longstop.OwnerNone {
		return reached, &longstop.Error{Code: longstop.CodeUnsupported, ActionID: a.ID, Message: "the output of a direct action is kept here"}
	}
	link := h.present()
	if link == nil {
		return reached, &longstop.Error{Code: longstop.CodeSessionRefused, Message: h.name + " has no connection for another session now"}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opening, opened := context.WithTimeout(ctx, sessionWithin)
	session, err := link.Stream(opening, wire.Command(h.runner(), wire.VerbOutput))
	opened()
	if err != nil {
		h.learnSessions(err)
		return reached, err
	}
	defer h.spares.tell()
	defer session.Close()
	f := &flow{host: h, link: link, session: session, ledger: wire.NewLedger(), nonce: wire.NewNonce(), stream: stream, reached: reached}
	defer context.AfterFunc(ctx, func() { session.Close() })()
	defer f.watchOver(cancel)()
	err = f.ask(wire.OutputRequest{RunID: a.RunID, Stream: stream, Offset: offset, WaitMS: flowPause.Milliseconds(), Flow: true})
	if err == nil {
		err = f.carry(take)
	}
	h.haveRead(a.RunID, stream, f.reached)
	return f.reached, err
}

// flow is one stream's output on its way over a session of its own.
type flow struct {
	host    *host
	link    sshlink.Link
	session sshlink.Channel
	ledger  *wire.Ledger
	nonce   string
	stream  string
	reached wire.OutputAnswer

	silence *time.Timer // ends the flow, while the host is waited for
}

// watchOver ends the flow when the host is silent for longer than it may be. A reader that takes its
// time is not the host's silence, nor is a slow link, on which a frame takes long.
func (f *flow) watchOver(end func()) (stop func() bool) {
	f.silence = time.AfterFunc(flowPause+answerWithin, end)
	return f.silence.Stop
}

// Read reads what the host sends.
func (f *flow) Read(p []byte) (int, error) {
	f.silence.Reset(flowPause + answerWithin)
	defer f.silence.Stop()
	n, err := f.session.Stdout().Read(p)
	if n > 0 {
		f.host.heed(f.link)
	}
	return n, err
}

func (f *flow) ask(request wire.OutputRequest) error {
	body, err := encodeRequest(f.nonce, wire.VerbOutput, f.host.address(), request, 0)
	if err != nil {
		return err
	}
	if err := f.ledger.Expect(f.nonce, true); err != nil {
		return err
	}
	go io.Copy(io.Discard, f.session.Stderr()) // nobody waits for a reader of it
	in := f.session.Stdin()
	if err := in.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	if _, err := in.Write(body); err != nil {
		return err
	}
	return in.Close()
}

// carry hands on answers until the final one.
func (f *flow) carry(take func(wire.OutputAnswer) error) error {
	buffer := flowBuffers.Get().(*[]byte)
	defer flowBuffers.Put(buffer)
	frames := wire.NewReader(f, wire.Options{Nonce: f.nonce, Data: true, Into: buffer, MaxBody: 1 << 20})
	for {
		answer, final, err := f.next(frames)
		if err != nil {
			return err
		}
		f.reached = answer
		f.reached.Data, f.reached.Offset = nil, answer.Offset+int64(len(answer.Data))
		if final && len(answer.Dropped) == 0 {
			return nil
		}
		f.reached.Dropped = nil
		if err := take(answer); err != nil || final {
			return err
		}
	}
}

// flowBuffers hold a frame each.
var flowBuffers = sync.Pool{New: func() any { return new([]byte) }}

// next reads one answer, which must begin where the last one ended.
func (f *flow) next(frames *wire.Reader) (answer wire.OutputAnswer, final bool, err error) {
	nonce, body, err := frames.Next()
	if err != nil {
		var bad *wire.BadFrame
		if errors.As(err, &bad) && !bad.Cut {
			return answer, false, f.bad(err)
		}
		return answer, false, &longstop.Error{Code: longstop.CodeUnreachable, Message: "the flow of " + f.stream + " from " + f.host.name + " was cut", Err: err}
	}
	got, err := wire.DecodeAnswer(nonce, body)
	if err == nil {
		err = f.ledger.Accept(got)
	}
	if err != nil {
		return answer, false, f.bad(err)
	}
	if got.Error != nil {
		return answer, false, saidBy(f.host.name, got.Error)
	}
	if err := wire.Tolerant(got.Body, &answer); err != nil {
		return answer, false, f.bad(err)
	}
	answer.Data = frames.Data()
	if err := answer.Follows(f.reached.Offset); err != nil {
		return answer, false, f.bad(err)
	}
	if got.Final != (len(answer.Data) == 0) {
		return answer, false, f.bad(fmt.Errorf("%d bytes in the last answer, or none in one before", len(answer.Data)))
	}
	return answer, got.Final, nil
}

func (f *flow) bad(err error) error {
	return &longstop.Error{Code: longstop.CodeBadAnswer, Message: "what " + f.host.name + " sent is no flow of " + f.stream, Err: err}
}
