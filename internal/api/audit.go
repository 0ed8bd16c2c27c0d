package api

import (
	"net/http"

	"github.com/longstop/longstop/internal/gateway"
)

func (s *Server) auditQueries(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	list, err := s.gateway.AuditQueries(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := gateway.AuditFilter{Query: r.PathValue("name"), Session: q.text("session"), After: q.text("after"), Limit: int(q.number("limit", 100, 1, 10_000))}
	if err := q.check(); err != nil {
		return err
	}
	page, err := s.gateway.Audit(r.Context(), f)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, page)
}
