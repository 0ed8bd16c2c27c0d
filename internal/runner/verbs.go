package runner

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// asked is a request, with its body where that was read early.
type asked struct {
	wire.Request
	body any
}

// session is one request on its way: where it came from and the state folder that it named.
type session struct {
	host    *host
	request asked
	folder  *record.Folder // open and checked; nil for hello, which opens it itself
	changes *changes       // tells of changed files; shared by a serve channel's requests
	out     *outlet        // for answers before the final one; nil on a serve channel
}

// handler answers the body of one verb's request. The same one serves a call of its own and serve.
type handler func(ctx context.Context, s *session, body []byte) (any, error)

// verbs has every verb that is one question and one answer; serve and watch are serve's own.
var verbs map[wire.Verb]handler

func init() { // not a literal: hello tells of the verbs' limits, which would be a cycle
	verbs = map[wire.Verb]handler{
		wire.VerbHello:   handle(hello),
		wire.VerbSpool:   handle(spool),
		wire.VerbSubmit:  handle(submit),
		wire.VerbFind:    handle(find),
		wire.VerbVoid:    handle(void),
		wire.VerbStatus:  handle(status),
		wire.VerbList:    handle(list),
		wire.VerbInspect: handle(inspect),
		wire.VerbOutput:  handle(output),
		wire.VerbCancel:  handle(cancel),
		wire.VerbRenew:   handle(renew),
		wire.VerbCollect: handle(collect),
		wire.VerbGC:      handle(gc),
	}
}

// handle makes a handler of a verb that reads Q and answers A.
func handle[Q, A any](verb func(context.Context, *session, Q) (A, error)) handler {
	return func(ctx context.Context, s *session, body []byte) (any, error) {
		request, early := s.request.body.(Q)
		if !early {
			if err := readBody(body, &request); err != nil {
				return nil, err
			}
		}
		return verb(ctx, s, request)
	}
}

func readBody(body []byte, into any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := wire.Strict(body, into); err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the request's body cannot be read", Err: err}
	}
	return nil
}

// respond answers one request, within its deadline: when that passes first, the answer says so, and
// what was begun may still happen.
func (h *host) respond(ctx context.Context, request asked, changes *changes, out *outlet) wire.Answer {
	if request.WithinMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(request.WithinMS)*time.Millisecond)
		defer cancel()
	}
	answered := make(chan wire.Answer, 1)
	go func() { answered <- h.answer(ctx, request, changes, out) }()
	select {
	case answer := <-answered:
		return answer
	case <-ctx.Done():
	}
	// A handler that heeds the context has the better word, and is about to say it.
	select {
	case answer := <-answered:
		return answer
	case <-time.After(50 * time.Millisecond):
		return failed(request.Nonce, ctx.Err())
	}
}

func (h *host) answer(ctx context.Context, request asked, changes *changes, out *outlet) wire.Answer {
	act, ok := verbs[request.Verb]
	if !ok {
		return failed(request.Nonce, &longstop.Error{Code: longstop.CodeUnsupported, Message: "the runner has no verb " + quoted(string(request.Verb))})
	}
	if err := h.permit.admit(request.Verb); err != nil {
		logRefused(request.Verb)
		return failed(request.Nonce, err)
	}
	s := &session{host: h, request: request, changes: changes, out: out}
	if request.Verb != wire.VerbHello {
		var err error
		if s.folder, err = h.folder(request.Request); err != nil {
			return failed(request.Nonce, err)
		}
	}
	answer, err := act(ctx, s, request.Body)
	if err != nil {
		return failed(request.Nonce, err)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return failed(request.Nonce, err)
	}
	whole := wire.Answer{Nonce: request.Nonce, Final: true, Body: body}
	if output, ok := answer.(wire.OutputAnswer); ok {
		whole.Data = output.Data
	}
	return whole
}

// failed is the answer that carries an error.
func failed(nonce string, err error) wire.Answer {
	return wire.Answer{Nonce: nonce, Final: true, Error: told(err)}
}

// told is err as it travels: a cause, which has no JSON form of its own, becomes part of the words.
func told(err error) *longstop.Error {
	var e *longstop.Error
	switch {
	case errors.As(err, &e):
		told := *e
		told.Message, told.Err = err.Error(), nil
		return &told
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &longstop.Error{Code: longstop.CodeTimeout, Message: "the request's deadline passed on the host; what was begun may still happen",
			Hint: "Ask again: the answer does not start anything twice."}
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error()}
}

// checkProtocol refuses a request of another version of the contract.
func checkProtocol(request wire.Request) error {
	if request.Protocol == wire.Protocol {
		return nil
	}
	return &longstop.Error{Code: longstop.CodeVersionMismatch,
		Message: "the request speaks protocol " + itoa(request.Protocol) + "; longstop-runner " + longstop.Version + " speaks " + itoa(wire.Protocol),
		Hint:    "Use the runner that belongs to the gateway: longstop host check"}
}

func submit(ctx context.Context, s *session, request wire.Submit) (wire.SubmitAnswer, error) {
	var told *answering
	if s.changes != nil {
		told = s.changes.answering
	}
	told.begin(s.request.Nonce, request.RunID)
	answer, err := Submit(ctx, s.folder, request)
	told.say(request.RunID, answer.Record)
	return answer, err
}

func cancel(ctx context.Context, s *session, request wire.CancelRequest) (wire.CancelAnswer, error) {
	return Cancel(ctx, s.folder, request)
}

func renew(ctx context.Context, s *session, request wire.RenewRequest) (wire.RenewAnswer, error) {
	return Renew(ctx, s.folder, request)
}

func spool(_ context.Context, s *session, request wire.SpoolRequest) (wire.SpoolAnswer, error) {
	bytes, err := s.folder.Spool(request.RunID, request.Offset, request.Data)
	return wire.SpoolAnswer{Bytes: bytes}, err
}
