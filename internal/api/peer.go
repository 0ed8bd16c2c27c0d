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
