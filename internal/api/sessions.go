package api

import (
	"net/http"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
)

func (s *Server) sessions(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := gateway.SessionFilter{All: q.flag("all"), Limit: int(q.number("limit", 100, 1, 10_000)), Before: longstop.SessionID(q.text("before"))}
	if err := q.check(); err != nil {
		return err
	}
	list, err := s.gateway.Sessions(r.Context(), f, asker(r))
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.SessionView{}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	view, err := s.gateway.Session(r.Context(), r.PathValue("id"), asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}

func (s *Server) startSession(w http.ResponseWriter, r *http.Request) error {
	var req longstop.SessionRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	view, err := s.gateway.StartSession(r.Context(), req, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, view)
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request) error {
	var req longstop.EndRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	ended, err := s.gateway.EndSession(r.Context(), r.PathValue("id"), req.Cancels, asker(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ended)
}
