package hostsim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// errGone is what becomes of a request whose host lost power meanwhile: nobody answers it.
var errGone = errors.New("the host is gone")

// respond answers one request, as internal/runner's verbs do. With errGone there is no answer.
func (h *Host) respond(ctx context.Context, r wire.Request) (wire.Answer, error) {
	h.mu.Lock()
	boot := h.boot
	h.mu.Unlock()
	if h.plan.Delay != nil {
		if d := h.plan.Delay(h.Name, r.Verb); d > 0 {
			time.Sleep(d)
		}
	}
	if r.WithinMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.WithinMS)*time.Millisecond)
		defer cancel()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if boot != h.boot || h.down {
		return wire.Answer{}, errGone
	}
	answer, err := h.answer(ctx, r)
	if boot != h.boot || h.down {
		return wire.Answer{}, errGone
	}
	a := wire.Answer{Nonce: r.Nonce, Final: true}
	if err != nil {
		a.Error = told(err)
		return a, nil
	}
	if out, ok := answer.(wire.OutputAnswer); ok {
		a.Data = out.Data
	}
	a.Body, err = json.Marshal(answer)
	return a, err
}

func told(err error) *longstop.Error {
	var e *longstop.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &longstop.Error{Code: longstop.CodeTimeout, Message: "the request's deadline passed on the host"}
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error()}
}

func refuse(code longstop.Code, message string) error {
	return &longstop.Error{Code: code, Message: message}
}

// answer is called with the lock held, and lets go of it while it waits.
func (h *Host) answer(ctx context.Context, r wire.Request) (any, error) {
	if h.witness.Asked != nil {
		h.witness.Asked(h.Name, r)
	}
	if r.Protocol != wire.Protocol {
		return nil, refuse(longstop.CodeVersionMismatch, "the request speaks another protocol")
	}
	if err := h.recognise(r); err != nil {
		return nil, err
	}
	switch r.Verb {
	case wire.VerbHello:
		h.mu.Unlock()
		defer h.mu.Lock()
		return h.hello(), nil
	case wire.VerbSubmit:
		return with(r, h.submit)
	case wire.VerbFind:
		return with(r, func(f wire.FindRequest) (any, error) { return h.found(f.Key), nil })
	case wire.VerbVoid:
		return with(r, h.void)
	case wire.VerbStatus:
		return with(r, func(s wire.RunRequest) (any, error) {
			if len(s.RunIDs) > 1000 {
				return nil, refuse(longstop.CodeUsage, "a request names at most 1000 runs")
			}
			return wire.StatusAnswer{Runs: h.statuses(s.RunIDs), BootNow: h.now(), Now: h.wall()}, nil
		})
	case wire.VerbCancel:
		return with(r, func(c wire.CancelRequest) (any, error) { return h.cancel(ctx, c) })
	case wire.VerbRenew:
		return with(r, h.renew)
	case wire.VerbOutput:
		return with(r, func(o wire.OutputRequest) (any, error) { return h.output(ctx, o) })
	case wire.VerbCollect:
		return with(r, h.collect)
	case wire.VerbGC:
		return with(r, h.gc)
	case wire.VerbInspect:
		return with(r, h.inspect)
	}
	return nil, refuse(longstop.CodeUnsupported, "the runner has no verb "+string(r.Verb))
}

func with[Q any](r wire.Request, do func(Q) (any, error)) (any, error) {
	var q Q
	if err := wire.Strict(r.Body, &q); err != nil {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: "the request's body cannot be read: " + err.Error()}
	}
	return do(q)
}

// recognise refuses whoever means another machine, user or state folder.
func (h *Host) recognise(r wire.Request) error {
	if r.Verb == wire.VerbHello && r.Host == (wire.Identity{}) {
		return nil
	}
	if r.Host.MachineID != h.MachineID || r.Host.UID != 1000 || r.Host.StateID != h.StateID {
		return refuse(longstop.CodeHostMismatch, "this is another machine, user or state folder than enrolled: nothing was done")
	}
	return nil
}

// submit accepts a run, or answers with the one that its key has.
func (h *Host) submit(s wire.Submit) (any, error) {
	k := h.ensureKeeper()
	c, existing := h.disk.page.claims[s.Key]
	if existing && !h.broken.ForgetsClaims {
		if answer, err := h.existing(c, &s); err != nil || answer != nil {
			return answer, err
		}
	}
	if err := h.inTime(&s); err != nil {
		return nil, err
	}
	if !h.step(nil, "submit.built") {
		return nil, errGone
	}
	l, failure := lifeOf(&s.Request)
	h.disk.page.claims[s.Key] = claim{key: s.Key, run: s.RunID, digest: s.Request.Digest, bootID: h.bootID(), notAfter: s.NotAfter, first: h.firstRecord(&s)}
	if h.witness.Claimed != nil {
		h.witness.Claimed(h.Name, s)
	}
	if !h.step(nil, "submit.claimed") {
		return nil, errGone
	}
	if k.dead { // whoever asked it asks the next one
		return h.submit(s)
	}
	r := &run{h: h, id: s.RunID, key: s.Key, rec: h.firstRecord(&s), secret: s.Secret, owner: true, heir: k, done: make(chan struct{})}
	h.runs[s.RunID] = r
	r.launch(l, failure)
	if r.gone {
		return nil, errGone
	}
	if !r.answered() && !r.final {
		h.heal()
	}
	raw, _ := h.disk.page.newest(s.RunID)
	if raw == nil {
		return nil, refuse(longstop.CodeTimeout, "the run was accepted and has not begun yet")
	}
	return wire.SubmitAnswer{Existing: existing, Record: raw}, nil
}

// existing answers a submit whose key has something; nil: it is this very run, which nobody has begun.
func (h *Host) existing(c claim, s *wire.Submit) (any, error) {
	switch {
	case c.void:
		return nil, refuse(longstop.CodeKeyVoid, "the key was burnt: nothing will ever start under it")
	case c.digest != s.Request.Digest:
		return nil, refuse(longstop.CodeKeyConflict, "the key belongs to another request")
	case h.disk.page.removed[c.run]:
		return nil, refuse(longstop.CodeExpired, "the key's run ended and was removed after its retention")
	}
	raw, _ := h.disk.page.newest(c.run)
	if raw == nil {
		if r := h.runs[c.run]; (r == nil || !r.answered()) && c.run == s.RunID {
			return nil, nil
		}
		return nil, refuse(longstop.CodeTimeout, "the key's run was accepted and has not begun yet")
	}
	return wire.SubmitAnswer{Existing: true, Record: raw}, nil
}

func (h *Host) inTime(s *wire.Submit) error {
	switch now := h.now(); {
	case s.BootID != h.bootID():
		return refuse(longstop.CodeExpired, "the submit is refused: it was meant for another boot of this host")
	case now > s.NotAfter:
		return refuse(longstop.CodeExpired, "the submit is refused: it came after the time in which it might start")
	case s.Request.Lifetime == longstop.Leased && now >= s.LeaseUntil:
		return refuse(longstop.CodeExpired, "the submit is refused: its lease has run out already")
	}
	return nil
}

// found tells what a key has.
func (h *Host) found(key string) wire.FindAnswer {
	c, ok := h.disk.page.claims[key]
	switch {
	case !ok:
		return wire.FindAnswer{}
	case c.void:
		return wire.FindAnswer{Found: true, Void: true}
	}
	raw, _ := h.disk.page.newest(c.run)
	if raw == nil {
		h.heal()
		raw, _ = h.disk.page.newest(c.run)
	}
	return wire.FindAnswer{Found: true, RunID: c.run, Record: raw, Expired: h.disk.page.removed[c.run]}
}

// void burns a key, unless it has a run.
func (h *Host) void(v wire.VoidRequest) (any, error) {
	if h.broken.ForgetsOnVoid {
		return wire.FindAnswer{Found: true, Void: true}, nil
	}
	if _, ok := h.disk.page.claims[v.Key]; !ok {
		if !h.step(nil, "void.written") {
			return nil, errGone
		}
		h.disk.page.claims[v.Key] = claim{void: true, key: v.Key}
	}
	h.disk.flush(v.Key)
	if !h.step(nil, "void.flushed") {
		return nil, errGone
	}
	return h.found(v.Key), nil
}

func (h *Host) statuses(ids []longstop.RunID) []wire.RunStatus {
	all := make([]wire.RunStatus, 0, len(ids))
	for _, id := range ids {
		s := h.status(id)
		if s.Orphaned {
			h.heal()
			s = h.status(id)
		}
		all = append(all, s)
	}
	return all
}

// status is what the folder and the process table say of a run now.
func (h *Host) status(id longstop.RunID) wire.RunStatus {
	s := wire.RunStatus{RunID: id}
	raw, final := h.disk.page.newest(id)
	r := h.runs[id]
	if raw == nil {
		_, claimed := h.disk.page.claimed(id)
		s.Orphaned = claimed && (r == nil || !r.answered())
		s.Error = told(refuse(longstop.CodeNotFound, "the host has no record of the run"))
		return s
	}
	s.Record = raw
	var rec longstop.Record
	wire.Tolerant(raw, &rec)
	s.Output = rec.Output
	if !h.disk.page.removed[id] {
		s.Output.StdoutBytes = max(s.Output.StdoutBytes, int64(len(h.disk.page.output[id])))
	}
	if !final {
		s.Orphaned = r == nil || !r.answered()
		return s
	}
	for _, p := range rec.Released {
		if now := h.procs[p.PID]; now != nil && now.start == p.StartTime && now.of == id {
			s.Released = append(s.Released, now.described())
		}
	}
	return s
}

// cancel stops a run, and waits until it is over, or as long as is asked.
func (h *Host) cancel(ctx context.Context, c wire.CancelRequest) (any, error) {
	raw, final := h.disk.page.newest(c.RunID)
	if raw == nil {
		if _, claimed := h.disk.page.claimed(c.RunID); !claimed {
			return nil, refuse(longstop.CodeNotFound, "the host has no such run")
		}
	}
	if h.broken.RefusesToStop {
		return wire.CancelAnswer{Record: raw, Refused: "not now"}, nil
	}
	if final {
		return h.cancelReleased(c.RunID, raw)
	}
	h.ensureKeeper()
	h.heal()
	r := h.runs[c.RunID]
	if r == nil || !r.answered() {
		raw, _ := h.disk.page.newest(c.RunID)
		return wire.CancelAnswer{Record: raw}, nil
	}
	grace := r.grace()
	if c.GraceMS >= 0 {
		grace = time.Duration(c.GraceMS) * time.Millisecond
	}
	cause := c.Cause
	if cause == "" {
		cause = longstop.CauseRequest
	}
	r.ask(cause, grace)
	h.await(ctx, time.Duration(c.WaitMS)*time.Millisecond, func() bool {
		_, final := h.disk.page.newest(c.RunID)
		return final
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	raw, final = h.disk.page.newest(c.RunID)
	answer := wire.CancelAnswer{Record: raw}
	if !final {
		for _, p := range h.living(c.RunID) {
			one := p.described()
			one.Why = "it has not ended yet"
			answer.Survivors = append(answer.Survivors, one)
		}
	}
	return answer, nil
}

// cancelReleased ends what a finished run left behind.
func (h *Host) cancelReleased(id longstop.RunID, raw []byte) (any, error) {
	var rec longstop.Record
	wire.Tolerant(raw, &rec)
	by := &run{h: h, id: id}
	for _, p := range rec.Released {
		h.signal(by, p.PID, p.StartTime, "KILL")
	}
	h.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	h.mu.Lock()
	return wire.CancelAnswer{Record: raw, Survivors: h.status(id).Released}, nil
}

// await waits for a condition of the host's, with the lock let go of.
func (h *Host) await(ctx context.Context, within time.Duration, is func() bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for boot := h.boot; !is() && boot == h.boot; {
		changed := h.changed
		h.mu.Unlock()
		over := false
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		h.mu.Lock()
		if over {
			return
		}
	}
}

// renew moves the ends of leases. What is stale changes nothing.
func (h *Host) renew(req wire.RenewRequest) (any, error) {
	answer := wire.RenewAnswer{Refused: map[longstop.RunID]string{}, BootNow: h.now()}
	for _, l := range req.Leases {
		r, why := h.runs[l.RunID], ""
		switch now := h.now(); {
		case req.BootID != h.bootID():
			why = "the instant is of another boot"
		case r == nil || r.final || !r.answered():
			why = "the run is over"
		case r.rec.Lifetime != longstop.Leased || r.rec.LeaseUntil == 0:
			why = "the run has no lease"
		case r.stop != nil && r.stop.cause != "":
			why = "the run is being stopped"
		case now >= r.rec.LeaseUntil:
			why = "the lease has run out"
		case l.Until <= now:
			why = "the instant has passed"
		case l.Until > r.rec.LeaseUntil:
			r.rec.LeaseUntil, r.rec.LeaseRenewed = l.Until, h.wall()
			r.write(false)
			r.alarm(l.Until)
		}
		if why != "" {
			answer.Refused[l.RunID] = why
			continue
		}
		answer.Renewed = append(answer.Renewed, l.RunID)
	}
	return answer, nil
}

func (h *Host) output(ctx context.Context, o wire.OutputRequest) (any, error) {
	if o.Flow || o.Times {
		return nil, refuse(longstop.CodeUnsupported, "a simulated host has no such output")
	}
	if raw, _ := h.disk.page.newest(o.RunID); raw == nil {
		return nil, refuse(longstop.CodeNotFound, "the host has no such run")
	}
	if h.disk.page.removed[o.RunID] {
		return nil, refuse(longstop.CodeExpired, "the run's output is no longer on the host")
	}
	read := func() wire.OutputAnswer {
		_, final := h.disk.page.newest(o.RunID)
		all := ""
		if o.Stream == "stdout" {
			all = h.disk.page.output[o.RunID]
		}
		data := all[min(int(o.Offset), len(all)):]
		return wire.OutputAnswer{Offset: o.Offset, Data: []byte(data), Total: int64(len(all)), End: final}
	}
	h.await(ctx, time.Duration(o.WaitMS)*time.Millisecond, func() bool { a := read(); return len(a.Data) > 0 || a.End })
	return read(), nil
}

func (h *Host) collect(c wire.RunRequest) (any, error) {
	var answer wire.CollectAnswer
	for _, id := range c.RunIDs {
		if _, final := h.disk.page.newest(id); final {
			h.disk.page.collected[id] = true
			answer.Collected = append(answer.Collected, id)
		}
	}
	return answer, nil
}

// gc removes what is collected, and leaves final records and keys.
func (h *Host) gc(req wire.GCRequest) (any, error) {
	var answer wire.GCAnswer
	for _, id := range req.RunIDs {
		if !h.disk.page.collected[id] || len(h.status(id).Released) > 0 {
			continue
		}
		h.disk.page.removed[id], h.disk.platter.removed[id] = true, true
		delete(h.disk.page.output, id)
		answer.Removed = append(answer.Removed, id)
	}
	return answer, nil
}

func (h *Host) inspect(req wire.RunRequest) (any, error) {
	answer := wire.InspectAnswer{Complete: true, Processes: []longstop.Process{}}
	for _, id := range req.RunIDs {
		if raw, _ := h.disk.page.newest(id); raw == nil {
			return nil, refuse(longstop.CodeNotFound, "the host has no such run")
		}
		answer.Processes = append(answer.Processes, described(h.living(id))...)
		if r := h.runs[id]; r != nil && !r.final {
			answer.Complete = answer.Complete && r.owner
		}
	}
	return answer, nil
}

// unresolved are the runs of the folder that have no final record.
func (h *Host) unresolved() (ids []longstop.RunID) {
	for _, c := range h.disk.page.claims {
		if _, final := h.disk.page.newest(c.run); !c.void && !final {
			ids = append(ids, c.run)
		}
	}
	slices.Sort(ids)
	return ids
}
