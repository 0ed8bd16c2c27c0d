package api

import (
	"net/http"

	"github.com/longstop/longstop"
)

func (s *Server) tokens(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	list, err := s.gateway.Tokens(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.Token{}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) error {
	var req longstop.TokenRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	made, err := s.gateway.CreateToken(r.Context(), req, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, made)
}

func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	if err := firstOf(queryOf(r).check(), func() error { return noBody(r) }); err != nil {
		return err
	}
	if err := s.gateway.RevokeToken(r.Context(), r.PathValue("name"), asker(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
