package api

import (
	"net/http"

	"github.com/longstop/longstop"
)

func (s *Server) policy(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.gateway.Policy())
}

func (s *Server) setPolicy(w http.ResponseWriter, r *http.Request) error {
	var c longstop.PolicyChange
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &c) }); err != nil {
		return err
	}
	p, err := s.gateway.SetPolicy(r.Context(), []byte(c.Text), asker(r), c.Proof)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, p)
}

func (s *Server) checkPolicy(w http.ResponseWriter, r *http.Request) error {
	var p longstop.PolicyText
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &p) }); err != nil {
		return err
	}
	c, err := s.gateway.CheckPolicy([]byte(p.Text))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

func (s *Server) explainPolicy(w http.ResponseWriter, r *http.Request) error {
	var q longstop.PolicyQuestion
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &q) }); err != nil {
		return err
	}
	v, err := s.gateway.Explain(q, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}
