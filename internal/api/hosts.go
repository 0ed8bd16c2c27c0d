package api

import (
	"net/http"
	"strconv"

	"github.com/longstop/longstop"
)

func (s *Server) hosts(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	hosts, err := s.gateway.Hosts(r.Context())
	if err != nil {
		return err
	}
	if hosts == nil {
		hosts = []longstop.Host{}
	}
	return writeJSON(w, http.StatusOK, hosts)
}

func (s *Server) enrol(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	var req longstop.EnrolRequest
	if err := firstOf(q.check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	return s.told(w, r, follow, http.StatusCreated, func(note func(string)) (any, error) {
		return s.gateway.Enrol(r.Context(), req, note)
	})
}

func (s *Server) checkHost(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	if err := firstOf(q.check(), func() error { return noBody(r) }); err != nil {
		return err
	}
	return s.told(w, r, follow, http.StatusOK, func(note func(string)) (any, error) {
		return s.gateway.CheckHost(r.Context(), r.PathValue("name"), note)
	})
}

func (s *Server) removeHost(w http.ResponseWriter, r *http.Request) error {
	if err := firstOf(queryOf(r).check(), func() error { return noBody(r) }); err != nil {
		return err
	}
	if err := s.gateway.RemoveHost(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) forcedSetup(w http.ResponseWriter, r *http.Request) error {
	var req longstop.EnrolRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	setup, err := s.gateway.ForcedSetup(r.Context(), req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, setup)
}

// runner answers with a runner's bytes.
func (s *Server) runner(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	binary, _, err := s.gateway.Runner(r.PathValue("arch"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(binary)))
	_, err = w.Write(binary)
	return err
}

// firstOf is the first error of a check and what follows it.
func firstOf(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}
