package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
	"github.com/longstop/longstop/internal/gateway"
)

// longPoll is how long one look at a stream waits at the host for more.
const longPoll = 20 * time.Second

// stream writes one follow stream (longstop.FollowType). Its methods may be called at once by many;
// after the first failed write, or the last event, all of them do nothing.
type stream struct {
	w     http.ResponseWriter
	flush func() error
	gone  context.CancelFunc // called when a write fails: who reads it has gone
	api   *Server

	mu   sync.Mutex
	head []byte
	over bool
	last time.Time
}

func (s *Server) newStream(w http.ResponseWriter, gone context.CancelFunc) *stream {
	w.Header().Set("Content-Type", longstop.FollowType)
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, flush: http.NewResponseController(w).Flush, gone: gone, api: s} // the headers go with the first event, or beat
}

func (st *stream) send(kind longstop.FollowKind, offset int64, data []byte, last bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		return
	}
	st.over, st.last = last, time.Now()
	head := append(append(st.head[:0], kind...), ' ')
	head = append(strconv.AppendInt(head, offset, 10), ' ')
	head = append(strconv.AppendInt(head, int64(len(data)), 10), '\n')
	st.head = head
	_, err := st.w.Write(head)
	if err == nil && len(data) > 0 {
		_, err = st.w.Write(data)
	}
	if err == nil && !last { // the end of the answer flushes by itself
		err = st.flush()
	}
	if err != nil {
		st.over = true
		st.gone()
	}
}

func (st *stream) action(a *longstop.Action, last bool) {
	st.send(longstop.FollowAction, 0, fastjson.AppendAction(nil, a), last)
}

func (st *stream) json(kind longstop.FollowKind, v any, last bool) {
	data, err := json.Marshal(v)
	if err != nil {
		st.fail(err)
		return
	}
	st.send(kind, 0, data, last)
}

// close ends the stream: w may not be touched once its handler has returned.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
}

func (st *stream) note(text string) {
	st.send(longstop.FollowNote, 0, []byte(st.api.gateway.Redact(text)), false)
}

func (st *stream) fail(err error) { st.json(longstop.FollowError, st.api.shownError(err), true) }

// beats sends a beat wherever the stream was silent for a while, until ctx ends.
func (st *stream) beats(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			st.mu.Lock()
			silent := now.Sub(st.last)
			st.mu.Unlock()
			if silent >= every/2 {
				st.send(longstop.FollowBeat, 0, nil, false)
			}
		}
	}
}

// told runs something that takes its time: with follow as notes and a result or error, without as
// one answer.
func (s *Server) told(w http.ResponseWriter, r *http.Request, follow bool, status int, do func(note func(string)) (any, error)) error {
	if !follow {
		result, err := do(func(string) {})
		if err = cmp.Or(refusal(r), err); err != nil {
			return err
		}
		return writeJSON(w, status, result)
	}
	ctx, gone := context.WithCancel(r.Context())
	defer gone()
	st := s.newStream(w, gone)
	var beating sync.WaitGroup
	beating.Go(func() { st.beats(ctx, s.beat) })
	result, err := do(st.note)
	if err = cmp.Or(refusal(r), err); err != nil {
		st.fail(err)
	} else {
		st.json(longstop.FollowResult, result, true)
	}
	gone()
	st.close()
	beating.Wait()
	return nil
}

// run launches. Without follow the answer is the action once the launch is accepted, rejected or
// unknown; with it, everything from its first moment on.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	from := offsets(q)
	var req longstop.RunRequest
	if err := firstOf(q.check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	return s.launched(w, r, follow, from, func(ctx context.Context, told gateway.Told) (longstop.Action, error) {
		return s.gateway.Run(ctx, req, asker(r), told)
	})
}

// retry launches the next attempt at an action's work, as run does.
func (s *Server) retry(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	from := offsets(q)
	var req longstop.RetryRequest
	if err := firstOf(q.check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	return s.launched(w, r, follow, from, func(ctx context.Context, told gateway.Told) (longstop.Action, error) {
		return s.gateway.Retry(ctx, r.PathValue("id"), req, asker(r), told)
	})
}

// inquire launches an inquiry about an action's work, as run does.
func (s *Server) inquire(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	follow := q.flag("follow")
	from := offsets(q)
	var req longstop.InquireRequest
	if err := firstOf(q.check(), func() error { return readJSON(w, r, &req) }); err != nil {
		return err
	}
	return s.launched(w, r, follow, from, func(ctx context.Context, told gateway.Told) (longstop.Action, error) {
		return s.gateway.Inquire(ctx, r.PathValue("id"), req, asker(r), told)
	})
}

// launched answers with what becomes of a launch.
func (s *Server) launched(w http.ResponseWriter, r *http.Request, follow bool, from wanted, launch func(context.Context, gateway.Told) (longstop.Action, error)) error {
	if !follow {
		a, err := launch(r.Context(), gateway.Told{})
		if why := refusal(r); why != nil {
			told := *asError(why)
			told.ActionID = a.ID // which goes on
			return &told
		}
		if err != nil {
			return err
		}
		w.Header().Set("Location", "/api/v1/actions/"+string(a.ID))
		return writeJSON(w, http.StatusCreated, a)
	}
	return s.following(w, r, from, func(ctx context.Context, f *follower) (longstop.Action, error) {
		a, err := launch(ctx, gateway.Told{Note: f.note, Action: func(a longstop.Action) { f.saw(a) }})
		if err != nil && a.ID != "" && !a.Settled() {
			// The launch is unknown: that is a state of the action, asked about until it is known.
			f.note(asError(err).Error())
			err = nil
		}
		return a, err
	})
}

func (s *Server) follow(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	from := offsets(q)
	from.rest = q.flag("rest")
	if err := q.check(); err != nil {
		return err
	}
	a, err := s.gateway.Action(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.following(w, r, from, func(context.Context, *follower) (longstop.Action, error) { return a, nil })
}

// wanted is what a follow stream is to carry of a run's output.
type wanted struct {
	from [2]int64 // where it begins, per stream; -1 leaves one out
	rest bool     // also what released processes write after the run's end, until they are gone
}

func offsets(q *query) wanted {
	return wanted{from: [2]int64{q.number("stdout", -1, -1, 1<<62), q.number("stderr", -1, -1, 1<<62)}}
}

// following sends a follow stream of the action that begin returns.
func (s *Server) following(w http.ResponseWriter, r *http.Request, output wanted, begin func(context.Context, *follower) (longstop.Action, error)) error {
	ctx, gone := context.WithCancel(r.Context())
	f := &follower{server: s, stream: s.newStream(w, gone), ctx: ctx, wanted: output}
	f.tasks.Go(func() { f.beats(ctx, s.beat) })
	stopStopping := context.AfterFunc(s.stopping, func() {
		f.fail(stopped())
		gone()
	})
	a, err := begin(ctx, f)
	if err == nil {
		err = f.follow(a)
	}
	if err != nil {
		f.fail(cmp.Or(refusal(r), err))
	}
	gone()
	stopStopping()
	f.close()
	f.tasks.Wait()
	return nil
}

func stopped() error {
	return &longstop.Error{Code: longstop.CodeStopped, Message: "the gateway was stopped; runs go on without it until their leases end",
		Hint: "longstop daemon start"}
}

// follower is one follow stream of one action.
type follower struct {
	*stream
	server *Server
	ctx    context.Context
	tasks  sync.WaitGroup
	wanted

	sawMu sync.Mutex
	last  *longstop.Action // as sent
}

// saw sends an action unless a later sight, or one that tells a reader the same, was sent. Time alone
// changes what is shown of one revision: a host that is not heard of makes what is known of it old.
func (f *follower) saw(a longstop.Action) {
	f.sawMu.Lock()
	defer f.sawMu.Unlock()
	if a.Settled() || f.last != nil && (a.Revision < f.last.Revision || sameFace(f.last, &a)) {
		return
	}
	f.last = &a
	f.action(&a, false)
}

func sameFace(a, b *longstop.Action) bool {
	return a.Revision == b.Revision && a.Alive == b.Alive && a.Outcome == b.Outcome && a.UnknownBecause == b.UnknownBecause &&
		sight(a.Observation) == sight(b.Observation)
}

// sight is an observation without its times.
func sight(o *longstop.Observation) longstop.Observation {
	if o == nil {
		return longstop.Observation{}
	}
	return longstop.Observation{Source: o.Source, Because: o.Because}
}

// holdOff is how long a run may take to be over without anybody asking for its output: most commands
// are short, and then their record says whether there is any.
const holdOff = 2 * time.Millisecond

// follow sends the action at each revision and its output, and last the settled action, once all
// output was sent that it has.
func (f *follower) follow(a longstop.Action) error {
	var changes <-chan longstop.Action
	if !a.Settled() {
		var err error
		if changes, err = f.server.gateway.Watch(f.ctx, string(a.ID)); err != nil {
			return err
		}
	}
	var pumps *pumps
	defer func() {
		if pumps != nil {
			pumps.abandon()
		}
	}()
	var hold <-chan time.Time
	for !a.Settled() {
		f.saw(a)
		if hold == nil && a.Launch.State == longstop.LaunchAccepted {
			hold = time.After(holdOff)
		}
		select {
		case next, open := <-changes:
			if !open {
				if f.ctx.Err() != nil {
					return f.ctx.Err()
				}
				return stopped()
			}
			a = next
		case <-hold:
			pumps = f.pump(&a)
		}
	}
	if a.Launch.State == longstop.LaunchAccepted {
		if pumps == nil {
			pumps = f.pump(&a)
		}
		if f.rest && a.Output.AfterEnd {
			a, err := f.followRest(a, pumps)
			if err != nil {
				return err
			}
			f.action(&a, true)
			return nil
		}
		if err := pumps.finish(a.Output); err != nil {
			return err
		}
	}
	f.action(&a, true)
	return nil
}

// followRest goes on after a run's end until the host says that nothing more can be written, and returns the
// action as it is then.
func (f *follower) followRest(a longstop.Action, pumps *pumps) (longstop.Action, error) {
	f.action(&a, false) // which has where the run ended in its output
	pumps.wait.Wait()
	if err := f.ctx.Err(); err != nil {
		return a, err
	}
	return f.server.gateway.Action(f.ctx, string(a.ID))
}
