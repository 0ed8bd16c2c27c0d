package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// maxBody bounds a JSON body: a script or an argument of some megabytes is fine, in base64 too.
const maxBody = 32 << 20

// readJSON reads a strict JSON body (wire.Strict).
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			return usage("the request's body is over %d bytes", int64(maxBody))
		}
		return usage("the request's body could not be read: %v", err)
	}
	if err := wire.Strict(data, into); err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("the request's body: %v", err), Hint: otherVersion}
	}
	return nil
}

// otherVersion is why a command of ours would send what is not understood.
const otherVersion = "is the command of another version than the gateway? longstop version shows both; after longstop daemon stop (runs go on) the next command starts its own"

// noBody refuses a body where none belongs.
func noBody(r *http.Request) error {
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return usage("%s takes no body", r.URL.Path)
	}
	return nil
}

func usage(format string, args ...any) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf(format, args...)}
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("make the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	w.Write(data) // who does not read it has gone
	return nil
}

// problem answers with an error. What is our own fault is logged too.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	known := s.shownError(err)
	status := longstop.Codes[known.Code].HTTP
	if refused := (*refusedPeer)(nil); errors.As(err, &refused) {
		status = http.StatusForbidden
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if known.Code == longstop.CodeInternal {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	data, _ := json.Marshal(longstop.Problem{
		Type: "urn:longstop:" + string(known.Code), Title: http.StatusText(status), Status: status,
		Detail: known.Error(), Code: known.Code, Hint: known.Hint, ActionID: known.ActionID, Noise: known.Noise,
	})
	w.Header().Set("Content-Type", longstop.ProblemType)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	w.Write(data)
}

// shownError is an error as people see it.
func (s *Server) shownError(err error) *longstop.Error {
	known := asError(err)
	for _, text := range []*string{&known.Message, &known.Hint, &known.Noise} {
		*text = s.gateway.Redact(*text)
	}
	return known
}

// asError finds the *longstop.Error in err, keeping the words wrapped around it.
func asError(err error) *longstop.Error {
	var refused *refusedPeer
	if errors.As(err, &refused) {
		return &longstop.Error{Code: longstop.CodeAccessRefused, Message: refused.Error(), Hint: "set LONGSTOP_HOME to a folder of your own"}
	}
	var known *longstop.Error
	if !errors.As(err, &known) {
		return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error(), Hint: "longstop doctor"}
	}
	told := *known
	told.Message, told.Err = err.Error(), nil
	return &told
}

// query reads a request's parameters and refuses ones that nobody knows.
type query struct {
	values url.Values
	known  map[string]bool
	err    error
}

func queryOf(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = usage("the query: %v", err)
	}
	return &query{values: values, known: map[string]bool{}, err: err}
}

func (q *query) text(name string) string {
	q.known[name] = true
	if len(q.values[name]) > 1 && q.err == nil {
		q.err = usage("%s is given twice", name)
	}
	return q.values.Get(name)
}

func (q *query) flag(name string) bool {
	switch q.text(name) {
	case "", "0":
		return false
	case "1":
		return true
	}
	if q.err == nil {
		q.err = usage("%s is 1 or 0", name)
	}
	return false
}

func (q *query) number(name string, absent, least, most int64) int64 {
	text := q.text(name)
	if text == "" {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < least || n > most) && q.err == nil {
		q.err = usage("%s is a number from %d to %d", name, least, most)
	}
	return n
}

func (q *query) milliseconds(name string, absent, most time.Duration) time.Duration {
	return time.Duration(q.number(name, absent.Milliseconds(), 0, most.Milliseconds())) * time.Millisecond
}

// time reads RFC 3339; absent is the zero time.
func (q *query) time(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil && q.err == nil {
		q.err = usage("%s is a time as in 2006-01-02T15:04:05Z", name)
	}
	return at
}

// check reports the first parameter that was wrong or not asked for.
func (q *query) check() error {
	for name := range q.values {
		if !q.known[name] && q.err == nil {
			q.err = usage("the parameter %.40q is not known", name)
		}
	}
	return q.err
}

// userName looks a uid up once; one without a name is its number.
var userName = func() func(int) string {
	var names sync.Map
	return func(uid int) string {
		if name, ok := names.Load(uid); ok {
			return name.(string)
		}
		name := strconv.Itoa(uid)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		names.Store(uid, name)
		return name
	}
}()
