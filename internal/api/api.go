// Package api is the gateway as HTTP over a Unix socket: it reads requests strictly, bounds their
// size, knows who asks from the socket's peer credentials, and turns the gateway's answers into
// JSON, problems (RFC 9457) and follow streams. It decides nothing about actions. A client that
// goes away stops nothing but its own stream.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/wire"
)

// Gateway is what this face stands on; *gateway.Gateway has the contracts.
type Gateway interface {
	Status(ctx context.Context) (longstop.DaemonStatus, error)
	Enrol(ctx context.Context, req longstop.EnrolRequest, note func(string)) (longstop.Host, error)
	Hosts(ctx context.Context) ([]longstop.Host, error)
	CheckHost(ctx context.Context, name string, note func(string)) (longstop.Host, error)
	RemoveHost(ctx context.Context, name string) error
	ForcedSetup(ctx context.Context, req longstop.EnrolRequest) (longstop.ForcedSetup, error)
	Runner(arch string) (binary []byte, sha256 string, err error)
	SpoolStdin(ctx context.Context, r io.Reader) (longstop.Stdin, error)
	Run(ctx context.Context, req longstop.RunRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error)
	Action(ctx context.Context, id string) (longstop.Action, error)
	Actions(ctx context.Context, f gateway.ActionFilter) ([]longstop.Action, error)
	Wait(ctx context.Context, id string) (longstop.Action, error)
	RecordWait(ctx context.Context, id, by string) (longstop.Action, error)
	Watch(ctx context.Context, id string) (<-chan longstop.Action, error)
	Output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration) (wire.OutputAnswer, error)
	Flow(ctx context.Context, id, stream string, offset int64, take func(wire.OutputAnswer) error) (wire.OutputAnswer, error)
	OutputTimes(ctx context.Context, id, stream string) (longstop.OutputTimes, error)
	Inspect(ctx context.Context, id string) (wire.InspectAnswer, error)
	Cancel(ctx context.Context, id string, by longstop.Requester, note func(string)) (longstop.Action, error)
	Reconcile(ctx context.Context, id string) (longstop.Action, error)
	Journal(ctx context.Context, f gateway.JournalFilter) ([]longstop.JournalEntry, error)
	Raw(ctx context.Context, id string) ([]gateway.RawAnswer, error)
}

var _ Gateway = (*gateway.Gateway)(nil)

// Server serves one gateway on a Unix socket.
type Server struct {
	gateway Gateway
	log     *slog.Logger
	askStop func()
	http    http.Server

	stopping context.Context // ends when waits and streams are to end
	endAll   context.CancelFunc
	beat     time.Duration
}

// New makes a server. askStop is called, once for each request, when a client asks the gateway to
// end; it must not block.
func New(g Gateway, log *slog.Logger, askStop func()) *Server {
	s := &Server{gateway: g, log: log, askStop: askStop, beat: longstop.FollowBeatEvery}
	s.stopping, s.endAll = context.WithCancel(context.Background())
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			who, err := peerOf(conn)
			return context.WithValue(ctx, peerKey{}, peer{who, err})
		},
	}
	return s
}

// Serve answers until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// Shutdown stops listening, ends follow streams with CodeStopped, and waits for what is being
// answered until ctx ends; then connections are closed.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endAll()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /api/v1/hosts":                   s.hosts,
		"POST /api/v1/hosts":                  s.enrol,
		"POST /api/v1/hosts/{name}/check":     s.checkHost,
		"DELETE /api/v1/hosts/{name}":         s.removeHost,
		"POST /api/v1/forced":                 s.forcedSetup,
		"GET /api/v1/runners/{arch}":          s.runner,
		"POST /api/v1/stdin":                  s.spoolStdin,
		"GET /api/v1/actions":                 s.actions,
		"POST /api/v1/actions":                s.run,
		"GET /api/v1/actions/{id}":            s.action,
		"GET /api/v1/actions/{id}/wait":       s.wait,
		"GET /api/v1/actions/{id}/follow":     s.follow,
		"GET /api/v1/actions/{id}/output":     s.output,
		"GET /api/v1/actions/{id}/times":      s.times,
		"GET /api/v1/actions/{id}/inspect":    s.inspect,
		"GET /api/v1/actions/{id}/raw":        s.raw,
		"POST /api/v1/actions/{id}/cancel":    s.cancel,
		"POST /api/v1/actions/{id}/reconcile": s.reconcile,
		"POST /api/v1/actions/{id}/waits":     s.giveUp,
		"GET /api/v1/journal":                 s.journal,
	} {
		mux.Handle(pattern, s.answer(h, true))
	}
	// Any version of the command may ask these two, so that it can say what runs, and replace it.
	mux.Handle("GET /api/v1/status", s.answer(s.status, false))
	mux.Handle("POST /api/v1/stop", s.answer(s.stop, false))
	mux.Handle("/", s.answer(func(w http.ResponseWriter, r *http.Request) error {
		return &longstop.Error{Code: longstop.CodeNotFound, Message: r.Method + " " + r.URL.Path + ": the gateway has no such request"}
	}, false))
	return mux
}

// answer is what all requests share: versions, the peer, and errors as problems.
func (s *Server) answer(h func(http.ResponseWriter, *http.Request) error, sameVersion bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(longstop.APIHeader, strconv.Itoa(longstop.APIVersion))
		w.Header().Set("Cache-Control", "no-store")
		who, _ := r.Context().Value(peerKey{}).(peer)
		if who.err != nil {
			s.problem(w, r, &refusedPeer{who.err})
			return
		}
		if theirs := r.Header.Get(longstop.APIHeader); sameVersion && theirs != "" && theirs != strconv.Itoa(longstop.APIVersion) {
			s.problem(w, r, &longstop.Error{Code: longstop.CodeVersionMismatch,
				Message: fmt.Sprintf("the running gateway (%s) speaks version %d of the API, you speak %.20q", longstop.Version, longstop.APIVersion, theirs),
				Hint:    "longstop daemon stop (runs go on), then the same command again: it starts the gateway that belongs to it"})
			return
		}
		if err := h(w, r); err != nil {
			s.problem(w, r, err)
		}
	})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	status, err := s.gateway.Status(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, status)
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	s.log.Info("asked to stop", "by", asker(r).Name)
	if err := writeJSON(w, http.StatusAccepted, struct{}{}); err != nil {
		return err
	}
	s.askStop()
	return nil
}

// peer is who is at the other end of a connection.
type peer struct {
	who longstop.Requester
	err error
}

type peerKey struct{}

// asker is the request's peer. Anyone at this user's own socket is the operator.
func asker(r *http.Request) longstop.Requester {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p.who
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
	return longstop.Requester{Kind: "operator", Name: userName(int(cred.Uid)), Via: "http"}, nil
}
