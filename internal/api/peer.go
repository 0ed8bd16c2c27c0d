package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/longstop/longstop"
)

// peer is who is at the other end of a connection.
type peer struct {
	who longstop.Requester
	err error
}

type (
	peerKey  struct{}
	askerKey struct{}
)

// asker is who makes the request: the agent whose token it bears, else the connection's peer. Anyone at
// this user's own socket without a token is the operator.
func asker(r *http.Request) longstop.Requester {
	who, _ := r.Context().Value(askerKey{}).(longstop.Requester)
	return who
}

// identify finds out who asks, for asker.
func (s *Server) identify(r *http.Request) (*http.Request, error) {
	p, _ := r.Context().Value(peerKey{}).(peer)
	if p.err != nil {
		return r, &refusedPeer{p.err}
	}
	who := p.who
	if headers := r.Header.Values("Authorization"); len(headers) > 0 { // an empty one is an agent's that lost its token
		token, bearer := strings.CutPrefix(headers[0], "Bearer ")
		if !bearer || len(headers) > 1 {
			return r, &longstop.Error{Code: longstop.CodeTokenRefused, Message: "the Authorization header is no Bearer token",
				Hint: "Authorization: Bearer and what longstop token create printed"}
		}
		var err error
		if who, err = s.gateway.Agent(r.Context(), token); err != nil {
			return r, err
		}
	}
	return r.WithContext(context.WithValue(r.Context(), askerKey{}, who)), nil
}

// held gives a request a context that ends once the token it bears holds no more: who asks is asked again at each
// beat, and refusal is then what a new request would get. A peer of the socket stays who it is.
func (s *Server) held(r *http.Request) (held *http.Request, end func()) {
	if len(r.Header.Values("Authorization")) == 0 {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	asks := time.NewTicker(s.beat)
	go func() {
		defer asks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-asks.C:
				if _, err := s.identify(r); longstop.CodeOf(err) == longstop.CodeTokenRefused {
					cancel(err)
				}
			}
		}
	}()
	return r.WithContext(ctx), func() { cancel(nil) }
}

// refusal is why a request is not answered any further; nil where it is.
func refusal(r *http.Request) error {
	if cause := context.Cause(r.Context()); longstop.CodeOf(cause) == longstop.CodeTokenRefused {
		return cause
	}
	return nil
}

// heldBody reads a request's body for as long as the request is held.
type heldBody struct{ r *http.Request }

func (b heldBody) Read(p []byte) (int, error) {
	if err := b.r.Context().Err(); err != nil {
		return 0, err
	}
	return b.r.Body.Read(p)
}

// refusedPeer is a connection of another user.
type refusedPeer struct{ why error }

func (e *refusedPeer) Error() string { return e.why.Error() }

// peerOf names the process at the other end (SO_PEERCRED, unix(7)) and refuses other users: the
// socket's mode already does, but a mode can be changed by mistake.
func peerOf(conn net.Conn) (longstop.Requester, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return longstop.Requester{}, errors.New("not a Unix socket")
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return longstop.Requester{}, fmt.Errorf("ask who connects: %w", err)
	}
	var cred *syscall.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, optErr); err != nil {
		return longstop.Requester{}, fmt.Errorf("ask who connects: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return longstop.Requester{}, fmt.Errorf("this gateway belongs to uid %d, you are uid %d", os.Geteuid(), cred.Uid)
	}
	return longstop.Requester{Kind: longstop.RequesterOperator, Name: userName(int(cred.Uid)), Via: "http"}, nil
}
