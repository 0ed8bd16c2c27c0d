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
	Retry(ctx context.Context, id string, req longstop.RetryRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error)
	Inquire(ctx context.Context, id string, req longstop.InquireRequest, peer longstop.Requester, told gateway.Told) (longstop.Action, error)
	Resolve(ctx context.Context, id string, req longstop.ResolveRequest, by longstop.Requester) (longstop.Action, error)
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
	Redact(text string) string
	Checkpoint(ctx context.Context) (longstop.Checkpoint, error)
	KeepCosigned(ctx context.Context, signed []byte) (longstop.Checkpoint, error)
	Raw(ctx context.Context, id string) ([]gateway.RawAnswer, error)
	Approvals(ctx context.Context) ([]longstop.Action, error)
	Approve(ctx context.Context, id string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error)
	Deny(ctx context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error)
	Revoke(ctx context.Context, id, reason string, by longstop.Requester, proof longstop.Proof) (longstop.Action, error)
	Challenge(ctx context.Context, about longstop.ChallengeRequest, by longstop.Requester) (longstop.Challenge, error)
	Approvers(ctx context.Context) ([]longstop.KnownApprover, error)
	SetApprover(ctx context.Context, a longstop.Approver, proof *longstop.Proof, by longstop.Requester) (longstop.KnownApprover, error)
	RemoveApprover(ctx context.Context, name string, proof longstop.Proof, by longstop.Requester) (longstop.KnownApprover, error)
	Policy() longstop.Policy
	SetPolicy(ctx context.Context, text []byte, by longstop.Requester, proof longstop.Proof) (longstop.Policy, error)
	CheckPolicy(text []byte) (longstop.PolicyCheck, error)
	Explain(q longstop.PolicyQuestion, peer longstop.Requester) (longstop.PolicyVerdict, error)
	RefuseAgent(ctx context.Context, who longstop.Requester, asked, id string) error
	AuditQueries(ctx context.Context) ([]longstop.AuditQuery, error)
	Audit(ctx context.Context, f gateway.AuditFilter) (longstop.AuditPage, error)
	StartSession(ctx context.Context, req longstop.SessionRequest, by longstop.Requester) (longstop.SessionView, error)
	EndSession(ctx context.Context, id string, cancels longstop.SessionCancel, by longstop.Requester) (longstop.SessionEnded, error)
	Session(ctx context.Context, id string, by longstop.Requester) (longstop.SessionView, error)
	Sessions(ctx context.Context, f gateway.SessionFilter, by longstop.Requester) ([]longstop.SessionView, error)
	Agent(ctx context.Context, token string) (longstop.Requester, error)
	CreateToken(ctx context.Context, req longstop.TokenRequest, by longstop.Requester) (longstop.NewToken, error)
	Tokens(ctx context.Context) ([]longstop.Token, error)
	RevokeToken(ctx context.Context, name string, by longstop.Requester) error
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
