package api

import (
	"context"
	"net/http"

	"github.com/longstop/longstop"
)

func (s *Server) approvals(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	list, err := s.gateway.Approvals(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.Action{}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) approve(w http.ResponseWriter, r *http.Request) error {
	return s.decide(w, r, func(ctx context.Context, id string, d longstop.ApprovalDecision) (longstop.Action, error) {
		if d.Reason != "" {
			return longstop.Action{}, usage("to approve takes no reason")
		}
		return s.gateway.Approve(ctx, id, asker(r), d.Proof)
	})
}

func (s *Server) deny(w http.ResponseWriter, r *http.Request) error {
	return s.decide(w, r, func(ctx context.Context, id string, d longstop.ApprovalDecision) (longstop.Action, error) {
		return s.gateway.Deny(ctx, id, d.Reason, asker(r), d.Proof)
	})
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) error {
	return s.decide(w, r, func(ctx context.Context, id string, d longstop.ApprovalDecision) (longstop.Action, error) {
		return s.gateway.Revoke(ctx, id, d.Reason, asker(r), d.Proof)
	})
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request, do func(context.Context, string, longstop.ApprovalDecision) (longstop.Action, error)) error {
	var d longstop.ApprovalDecision
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &d) }); err != nil {
		return err
	}
	a, err := do(r.Context(), r.PathValue("id"), d)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request) error {
	var req longstop.ResolveRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	a, err := s.gateway.Resolve(r.Context(), r.PathValue("id"), req, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) challenge(w http.ResponseWriter, r *http.Request) error {
	var about longstop.ChallengeRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &about) }); err != nil {
		return err
	}
	c, err := s.gateway.Challenge(r.Context(), about, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, c)
}

func (s *Server) approvers(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	list, err := s.gateway.Approvers(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.KnownApprover{}
	}
	if asker(r).Kind == longstop.RequesterAgent {
		for i := range list {
			list[i].Salt = nil // without it no passphrase can be tried against the public key
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) setApprover(w http.ResponseWriter, r *http.Request) error {
	var c longstop.ApproverChange
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &c) }); err != nil {
		return err
	}
	if c.Approver == nil || c.Approver.Name != r.PathValue("name") {
		return usage("the approver of the body is not that of the path")
	}
	known, err := s.gateway.SetApprover(r.Context(), *c.Approver, c.Proof, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, known)
}

func (s *Server) removeApprover(w http.ResponseWriter, r *http.Request) error {
	var c longstop.ApproverChange
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &c) }); err != nil {
		return err
	}
	if c.Approver != nil || c.Proof == nil {
		return usage("to remove an approver takes a proof, and nothing else")
	}
	known, err := s.gateway.RemoveApprover(r.Context(), r.PathValue("name"), *c.Proof, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, known)
}
