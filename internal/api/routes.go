package api

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/longstop/longstop"
)

// audience is who may use a route. The zero one is nobody's, so that no route is without one.
type audience int

const (
	people audience = iota + 1 // operators: who connects without a token
	own                        // agents, too, of what they asked for themselves: what work does and prints may be for nobody else
	all                        // agents, too
)

// route is one request that the API answers.
type route struct {
	pattern    string
	open       audience
	anyVersion bool // any version of the command may ask it, so that it can say what runs, and replace it
	answer     func(*Server, http.ResponseWriter, *http.Request) error
}

// routes are all of them. An agent starts work, looks at it, waits for it and stops it; what decides what an
// agent may do is people's alone. What was asked for, and what came of it, every agent may see: it may be in the
// way of its own work, and anybody may stop it (docs/approvals.md).
var routes = []route{
	{pattern: "GET /api/v1/status", open: all, anyVersion: true, answer: (*Server).status},
	{pattern: "POST /api/v1/stop", open: people, anyVersion: true, answer: (*Server).stop},

	{pattern: "GET /api/v1/hosts", open: all, answer: (*Server).hosts},
	{pattern: "POST /api/v1/hosts", open: people, answer: (*Server).enrol},
	{pattern: "POST /api/v1/hosts/{name}/check", open: all, answer: (*Server).checkHost},
	{pattern: "DELETE /api/v1/hosts/{name}", open: people, answer: (*Server).removeHost},
	{pattern: "POST /api/v1/forced", open: people, answer: (*Server).forcedSetup},
	{pattern: "GET /api/v1/runners/{arch}", open: people, answer: (*Server).runner},

	{pattern: "POST /api/v1/stdin", open: all, answer: (*Server).spoolStdin},
	{pattern: "GET /api/v1/actions", open: all, answer: (*Server).actions},
	{pattern: "POST /api/v1/actions", open: all, answer: (*Server).run},
	{pattern: "GET /api/v1/actions/{id}", open: all, answer: (*Server).action},
	{pattern: "GET /api/v1/actions/{id}/wait", open: all, answer: (*Server).wait},
	{pattern: "GET /api/v1/actions/{id}/follow", open: own, answer: (*Server).follow},
	{pattern: "GET /api/v1/actions/{id}/output", open: own, answer: (*Server).output},
	{pattern: "GET /api/v1/actions/{id}/times", open: own, answer: (*Server).times},
	{pattern: "GET /api/v1/actions/{id}/inspect", open: own, answer: (*Server).inspect},
	{pattern: "GET /api/v1/actions/{id}/raw", open: own, answer: (*Server).raw},
	{pattern: "POST /api/v1/actions/{id}/retry", open: all, answer: (*Server).retry},
	{pattern: "POST /api/v1/actions/{id}/inquire", open: all, answer: (*Server).inquire},
	{pattern: "POST /api/v1/actions/{id}/cancel", open: all, answer: (*Server).cancel},
	{pattern: "POST /api/v1/actions/{id}/reconcile", open: all, answer: (*Server).reconcile},
	{pattern: "POST /api/v1/actions/{id}/waits", open: all, answer: (*Server).giveUp},
	{pattern: "GET /api/v1/journal", open: all, answer: (*Server).journal},
	{pattern: "POST /api/v1/journal/checkpoints", open: people, answer: (*Server).checkpoint},

	{pattern: "GET /api/v1/approvals", open: all, answer: (*Server).approvals},
	{pattern: "POST /api/v1/actions/{id}/approve", open: people, answer: (*Server).approve},
	{pattern: "POST /api/v1/actions/{id}/deny", open: people, answer: (*Server).deny},
	{pattern: "POST /api/v1/actions/{id}/revoke", open: people, answer: (*Server).revoke},
	{pattern: "POST /api/v1/actions/{id}/resolve", open: people, answer: (*Server).resolve},
	{pattern: "POST /api/v1/challenges", open: people, answer: (*Server).challenge},
	{pattern: "GET /api/v1/approvers", open: all, answer: (*Server).approvers},
	{pattern: "PUT /api/v1/approvers/{name}", open: people, answer: (*Server).setApprover},
	{pattern: "DELETE /api/v1/approvers/{name}", open: people, answer: (*Server).removeApprover},

	{pattern: "GET /api/v1/policy", open: all, answer: (*Server).policy},
	{pattern: "PUT /api/v1/policy", open: people, answer: (*Server).setPolicy},
	{pattern: "POST /api/v1/policy/check", open: all, answer: (*Server).checkPolicy},
	{pattern: "POST /api/v1/policy/explain", open: all, answer: (*Server).explainPolicy},

	{pattern: "GET /api/v1/sessions", open: all, answer: (*Server).sessions},
	{pattern: "POST /api/v1/sessions", open: all, answer: (*Server).startSession},
	{pattern: "GET /api/v1/sessions/{id}", open: all, answer: (*Server).session},
	{pattern: "POST /api/v1/sessions/{id}/end", open: all, answer: (*Server).endSession},

	{pattern: "GET /api/v1/audit", open: people, answer: (*Server).auditQueries},
	{pattern: "GET /api/v1/audit/{name}", open: people, answer: (*Server).audit},

	{pattern: "GET /api/v1/tokens", open: people, answer: (*Server).tokens},
	{pattern: "POST /api/v1/tokens", open: people, answer: (*Server).createToken},
	{pattern: "DELETE /api/v1/tokens/{name}", open: people, answer: (*Server).revokeToken},
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.pattern, s.answer(r))
	}
	mux.Handle("/", s.answer(route{open: all, anyVersion: true, answer: func(_ *Server, _ http.ResponseWriter, r *http.Request) error {
		return &longstop.Error{Code: longstop.CodeNotFound, Message: r.Method + " " + r.URL.Path + ": the gateway has no such request"}
	}}))
	return mux
}

// answer is what all requests share: versions, who asks and whether they may, and errors as problems.
func (s *Server) answer(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(longstop.APIHeader, strconv.Itoa(longstop.APIVersion))
		w.Header().Set("Cache-Control", "no-store")
		r, err := s.identify(r)
		if err == nil {
			err = s.admits(to, r)
		}
		if err == nil {
			held, end := s.held(r)
			defer end()
			err = to.answer(s, w, held)
			if why := refusal(held); err != nil && why != nil && longstop.CodeOf(err) != longstop.CodeTokenRefused {
				err = why
			}
		}
		if err != nil {
			s.problem(w, r, err)
		}
	})
}

// admits refuses other versions, and who may not ask this: that is journalled.
func (s *Server) admits(to route, r *http.Request) error {
	if theirs := r.Header.Get(longstop.APIHeader); !to.anyVersion && theirs != "" && theirs != strconv.Itoa(longstop.APIVersion) {
		return &longstop.Error{Code: longstop.CodeVersionMismatch,
			Message: fmt.Sprintf("the running gateway (%s) speaks version %d of the API, you speak %.20q", longstop.Version, longstop.APIVersion, theirs),
			Hint:    "longstop daemon stop (runs go on), then the same command again: it starts the gateway that belongs to it"}
	}
	who := asker(r)
	if who.Kind != longstop.RequesterAgent || to.open == all {
		return nil
	}
	if to.open == own {
		a, err := s.gateway.Action(r.Context(), r.PathValue("id"))
		if err != nil || a.RequestedBy.Kind == who.Kind && a.RequestedBy.Name == who.Name {
			return err
		}
	}
	return s.gateway.RefuseAgent(r.Context(), who, to.pattern, r.PathValue("id"))
}
