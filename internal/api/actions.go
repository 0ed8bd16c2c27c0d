package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/wire"
)

// The bounds of GET /api/v1/actions/{id}/wait.
const (
	defaultWait = 30 * time.Second
	longestWait = 10 * time.Minute
)

func (s *Server) spoolStdin(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	stdin, err := s.gateway.SpoolStdin(r.Context(), heldBody{r})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, stdin)
}

func (s *Server) actions(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := gateway.ActionFilter{
		All: q.flag("all"), Host: q.text("host"), Session: longstop.SessionID(q.text("session")),
		Limit: int(q.number("limit", 100, 1, 10_000)), Before: longstop.ActionID(q.text("before")),
	}
	if err := q.check(); err != nil {
		return err
	}
	list, err := s.gateway.Actions(r.Context(), f)
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.Action{}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) action(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	a, err := s.gateway.Action(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) wait(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	limit := q.milliseconds("timeout_ms", defaultWait, longestWait)
	if err := q.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	a, err := s.gateway.Wait(ctx, r.PathValue("id"))
	if why := refusal(r); why != nil {
		return why
	}
	// The end of the wait is an answer: the action as it is.
	if err != nil && (ctx.Err() == nil || a.ID == "") {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) giveUp(w http.ResponseWriter, r *http.Request) error {
	var body longstop.GiveUp
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &body) }); err != nil {
		return err
	}
	by := asker(r).Name
	if body.By != "" {
		by += " (" + body.By + ")"
	}
	a, err := s.gateway.RecordWait(r.Context(), r.PathValue("id"), by)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	answer, err := s.gateway.Inspect(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if answer.Processes == nil {
		answer.Processes = []longstop.Process{}
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (s *Server) times(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	stream := q.text("stream")
	if err := q.check(); err != nil {
		return err
	}
	times, err := s.gateway.OutputTimes(r.Context(), r.PathValue("id"), stream)
	if err != nil {
		return err
	}
	if times.Arrivals == nil {
		times.Arrivals = []longstop.Arrival{}
	}
	if times.Dropped == nil {
		times.Dropped = []longstop.Dropped{}
	}
	return writeJSON(w, http.StatusOK, times)
}

func (s *Server) raw(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).check(); err != nil {
		return err
	}
	list, err := s.gateway.Raw(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	shown := make([]longstop.RawAnswer, len(list))
	for i, raw := range list {
		shown[i] = longstop.RawAnswer(raw)
	}
	return writeJSON(w, http.StatusOK, shown)
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	if err := firstOf(q.check(), func() error { return noBody(r) }); err != nil {
		return err
	}
	return s.told(w, r, follow, http.StatusOK, func(note func(string)) (any, error) {
		return s.gateway.Cancel(r.Context(), r.PathValue("id"), asker(r), note)
	})
}

func (s *Server) reconcile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	if err := firstOf(q.check(), func() error { return noBody(r) }); err != nil {
		return err
	}
	return s.told(w, r, follow, http.StatusOK, func(func(string)) (any, error) {
		return s.gateway.Reconcile(r.Context(), r.PathValue("id"))
	})
}

func (s *Server) journal(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := gateway.JournalFilter{
		Action: longstop.ActionID(q.text("action")), After: q.number("after", -1, -1, 1<<62), Limit: int(q.number("limit", 100, 1, 10_000)),
		Newest: q.flag("newest"), Session: longstop.SessionID(q.text("session")), Host: q.text("host"), Kind: q.text("kind"),
		Before: q.number("before", 0, 0, 1<<62), Since: q.time("since"),
	}
	if err := q.check(); err != nil {
		return err
	}
	if f.Action != "" { // a shortened id is welcome here too
		a, err := s.gateway.Action(r.Context(), string(f.Action))
		if err != nil {
			return err
		}
		f.Action = a.ID
	}
	list, err := s.gateway.Journal(r.Context(), f)
	if err != nil {
		return err
	}
	if list == nil {
		list = []longstop.JournalEntry{}
	}
	if asker(r).Kind == longstop.RequesterAgent {
		withoutApprovers(list)
	}
	return writeJSON(w, http.StatusOK, list)
}

// withoutApprovers takes out of entries the salts of approvers, with which passphrases could be tried.
func withoutApprovers(list []longstop.JournalEntry) {
	for i := range list {
		switch journal.Kind(list[i].Kind) {
		case journal.ApproverSet, journal.ApproverRemoved:
			list[i].Body = nil
		}
	}
}

// checkpoint signs the journal's head, or keeps a checkpoint that a witness has signed too.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	var req longstop.CosignedRequest
	if err := firstOf(queryOf(r).check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	made, err := longstop.Checkpoint{}, error(nil)
	if req.Cosigned != "" {
		made, err = s.gateway.KeepCosigned(r.Context(), []byte(req.Cosigned))
	} else {
		made, err = s.gateway.Checkpoint(r.Context())
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, made)
}

// output sends raw bytes of one stream, from an offset: what there is now, or all to come. The
// first answer of the host decides between bytes and a problem; a failure after it cuts the
// connection, so that nobody takes a part for the whole.
func (s *Server) output(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	stream, follow, offset := q.text("stream"), q.flag("follow"), q.number("offset", 0, 0, 1<<62)
	if err := q.check(); err != nil {
		return err
	}
	if stream == "" {
		stream = "stdout"
	}
	if stream != "stdout" && stream != "stderr" {
		return usage("stream is stdout or stderr")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	o := &outputAnswer{w: w, gateway: s.gateway, id: r.PathValue("id"), stream: stream, follow: follow, offset: offset}
	for retry := (pause{}); ; {
		err := o.more(ctx)
		switch {
		case err == nil:
			retry = pause{}
		case err == io.EOF:
			return nil
		case !o.sent:
			return err
		case !follow || longstop.CodeOf(err) != longstop.CodeUnreachable || retry.wait(ctx) != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

// outputAnswer is one answer of output on its way.
type outputAnswer struct {
	w       http.ResponseWriter
	gateway Gateway
	id      string
	stream  string
	follow  bool
	offset  int64
	sent    bool // something was
	noFlow  bool
}

// more sends what the host has next. io.EOF: that was all, or nobody reads it any more.
func (o *outputAnswer) more(ctx context.Context) error {
	wait := time.Duration(0)
	if o.follow {
		wait = longPoll
	}
	answer, err := o.gateway.Output(ctx, o.id, o.stream, o.offset, block, wait)
	if err != nil {
		return err
	}
	if !o.sent {
		o.sent = true
		o.w.Header().Set("Content-Type", "application/octet-stream")
		o.w.Header().Set("Longstop-Offset", strconv.FormatInt(answer.Offset, 10))
	}
	if err := o.write(answer); err != nil || !answer.More() || o.noFlow {
		return err
	}
	begun := o.offset
	reached, err := o.gateway.Flow(ctx, o.id, o.stream, o.offset, o.write)
	if err == io.EOF || reached.End {
		return io.EOF
	}
	// What was wrong is told by who asks again from there, if it still is.
	o.noFlow = err != nil && o.offset == begun
	return nil
}

func (o *outputAnswer) write(answer wire.OutputAnswer) error {
	if _, err := o.w.Write(answer.Data); err != nil {
		return io.EOF
	}
	http.NewResponseController(o.w).Flush()
	o.offset = answer.Next()
	if answer.End || !o.follow && o.offset >= answer.Total {
		return io.EOF
	}
	return nil
}

// pause is a growing wait between attempts at something that may fail at once.
type pause struct{ next time.Duration }

func (p *pause) wait(ctx context.Context) error {
	p.next = min(max(2*p.next, 100*time.Millisecond), 5*time.Second)
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
