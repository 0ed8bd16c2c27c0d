package hostsim

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/wire"
)

// run is one run in the hands of whoever answers for it. The host's lock is held in every method.
type run struct {
	h      *Host
	id     longstop.RunID
	key    string
	rec    longstop.Record
	secret []byte // nil: a successor answers
	life   life

	owner  bool    // lives
	heir   *keeper // parent of the owner
	by     *keeper // who answers, once the owner is gone; nil: nobody
	main   *proc
	family []longstop.Process // everybody it ever had
	stop   *stopping
	opened bool // its gate
	final  bool
	gone   bool          // the host lost power
	done   chan struct{} // closed once the final record is durable
}

type stopping struct {
	cause  longstop.Cause // empty: leftovers are cleared up
	killAt longstop.BootTime
	termed bool
}

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// firstRecord is the record of a run before its owner says more.
func (h *Host) firstRecord(s *wire.Submit) longstop.Record {
	now, boot := h.wall(), h.now()
	rec := longstop.Record{Version: 1, RunID: s.RunID, ActionID: s.ActionID, SessionID: s.SessionID, KeyHash: keyHash(s.Key),
		Digest: s.Request.Digest, At: now, BootAt: boot, Writer: h.writer(longstop.WriterOwner), StateID: h.StateID,
		State: longstop.WorkloadStarting, Lifetime: s.Request.Lifetime, Leftover: s.Request.Leftover,
		GraceMS: int64(s.Request.GraceS * 1000), Boundary: longstop.Boundary{Kind: longstop.BoundaryTree}}
	if rec.Leftover == "" {
		rec.Leftover = longstop.LeftoverWait
	}
	if s.Request.Lifetime == longstop.Leased {
		rec.LeaseUntil, rec.LeaseRenewed = s.LeaseUntil, now
	}
	if s.Request.DeadlineS > 0 {
		rec.DeadlineUntil = boot.Add(time.Duration(s.Request.DeadlineS * float64(time.Second)))
	}
	return rec
}

func (h *Host) writer(kind longstop.WriterKind) longstop.Writer {
	return longstop.Writer{Kind: kind, Version: longstop.Version, PID: 999, MachineID: h.MachineID, BootID: h.bootID()}
}

// write writes the record as it is.
func (r *run) write(flush bool) {
	h := r.h
	r.rec.Sequence++
	r.rec.At, r.rec.BootAt = h.wall(), h.now()
	raw := wire.Sign(r.rec, r.secret)
	if r.rec.State.Final() {
		h.disk.page.finals[r.id] = raw
	} else {
		h.disk.page.records[r.id] = raw
	}
	if h.witness.Wrote != nil {
		h.witness.Wrote(h.Name, r.rec, raw)
	}
	if flush {
		h.disk.flush(r.key)
	}
	h.tell()
}

// enter moves the record on, by way of the states that the table has between.
func (r *run) enter(to longstop.WorkloadState) { enter(&r.rec, to) }

func enter(rec *longstop.Record, to longstop.WorkloadState) {
	for _, next := range lifecycle.Workloads.Path(rec.State, to) {
		rec.State = next
	}
}

// launch is an owner's: record first, then the gate.
func (r *run) launch(l life, failure error) {
	h := r.h
	r.life = l
	r.write(false) // starting
	if !r.pass("owner.starting") {
		return
	}
	r.main = r.born(l.trapped == 0)
	r.rec.Main = &longstop.Main{PID: r.main.pid, PGID: r.main.pid, SID: r.main.pid, StartTime: r.main.start, PIDNS: "sim"}
	r.rec.StartedAt = h.wall()
	r.enter(longstop.WorkloadRunning)
	r.write(false)
	if !r.pass("owner.running") {
		return
	}
	h.disk.flush(r.key)
	if !r.pass("owner.flushed") {
		return
	}
	if failure != nil {
		r.unstarted(&longstop.LaunchError{Step: "exec", Errno: "ENOENT", Message: failure.Error()})
		return
	}
	r.open()
	h.step(r, "owner.opened")
}

// born is a process of the run's.
func (r *run) born(ignores bool) *proc {
	p := r.h.spawn(r, ignores)
	r.family = append(r.family, longstop.Process{PID: p.pid, StartTime: p.start})
	return p
}

// open lets the work begin, and arranges its life.
func (r *run) open() {
	h := r.h
	r.opened = true
	if h.witness.Executed != nil {
		h.witness.Executed(h.Name, r.id, r.key)
	}
	main, l := r.main, &r.life
	steps := map[time.Duration][]func(){}
	for _, w := range l.words {
		steps[w.at] = append(steps[w.at], func() { h.disk.page.output[r.id] += w.text; h.tell() })
	}
	if l.trapped > 0 {
		steps[l.trapped] = append(steps[l.trapped], func() { main.ignores = true })
	}
	for _, c := range l.children {
		steps[c.from] = append(steps[c.from], func() { r.bear(c) })
	}
	steps[l.length] = append(steps[l.length], func() {
		if l.signal != "" {
			h.exit(main, nil, l.signal)
			return
		}
		h.exit(main, &l.code, "")
	})
	for at, acts := range steps {
		time.AfterFunc(at, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, act := range acts {
				if !main.dead && !r.gone {
					act()
				}
			}
		})
	}
	for _, at := range []longstop.BootTime{r.rec.LeaseUntil, r.rec.DeadlineUntil} {
		r.alarm(at)
	}
}

// bear starts a child of the main process.
func (r *run) bear(c child) {
	h := r.h
	p := h.runs[r.id].born(c.ignores)
	time.AfterFunc(c.length, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.exit(p, new(int), "")
	})
}

func (r *run) unstarted(why *longstop.LaunchError) {
	if r.main != nil {
		r.h.reap(r.main)
	}
	r.rec.Main, r.rec.LaunchError = nil, why
	r.enter(longstop.WorkloadLaunchFailed)
	r.proven()
	r.finish()
}

func (r *run) proven() {
	none, empty := 0, true
	r.rec.Boundary.Processes, r.rec.Boundary.Empty = &none, &empty
}

// finish makes the final record durable.
func (r *run) finish() {
	h := r.h
	if r.final || !r.pass("owner.finish") {
		return
	}
	r.rec.Survivors = nil
	r.rec.FinishedAt = h.wall()
	n := int64(len(h.disk.page.output[r.id]))
	r.rec.Output = longstop.Output{StdoutBytes: n, Stream: longstop.StreamComplete}
	r.final = true
	r.write(true)
	h.step(r, "owner.finished")
	if !r.gone {
		close(r.done)
		r.owner = false
	}
	if h.broken.RewritesFinished && r.rec.State == longstop.WorkloadFinished {
		time.AfterFunc(time.Minute, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			r.rec.Main.Signal, r.rec.Main.ExitCode, r.rec.Result = "KILL", nil, &longstop.Result{Signal: "KILL"}
			r.write(true)
		})
	}
}

// answered reports whether anybody answers for the run.
func (r *run) answered() bool { return r.owner || r.by != nil && !r.by.dead }

// killOwner ends the owner: its keeper inherits, if it is there.
func (r *run) killOwner() {
	if !r.owner || r.final {
		return
	}
	r.owner = false
	if r.heir == nil || r.heir.dead {
		r.abandon()
		return
	}
	r.by = r.heir
	r.reread(longstop.WriterKeeper)
	if !r.opened {
		r.unstarted(&longstop.LaunchError{Step: "owner", Message: "the owner died before the start: nothing of the work ran"})
		return
	}
	r.enter(longstop.WorkloadOrphaned)
	r.write(false)
	r.goOnStopping()
	r.look()
}

// reread takes over the record as its writer left it.
func (r *run) reread(kind longstop.WriterKind) {
	raw, _ := r.h.disk.page.newest(r.id)
	var rec longstop.Record
	if wire.Tolerant(raw, &rec) == nil {
		r.rec = rec
	}
	r.rec.MAC, r.rec.Writer = "", r.h.writer(kind)
}

// goOnStopping is an heir's, of a run that was being stopped.
func (r *run) goOnStopping() {
	if r.stop = nil; r.rec.Cancel == nil {
		return
	}
	r.stop = &stopping{cause: r.rec.Cause, killAt: r.h.now().Add(r.grace())}
	r.term()
}

// pass is a step of whoever answers for the run. It reports whether he still does.
func (r *run) pass(name string) bool {
	owner, by := r.owner, r.by
	return r.h.step(r, name) && r.owner == owner && r.by == by && r.answered()
}

// abandon: nobody answers for the run from here on. A gate that did not open closes.
func (r *run) abandon() {
	r.by = nil
	if !r.opened && r.main != nil {
		r.h.reap(r.main)
	}
	r.h.tell()
}

// sawEnd takes note of a process's end.
func (r *run) sawEnd(p *proc, code *int, sig string) {
	h := r.h
	if p == r.main {
		end := longstop.Main{ExitCode: code, Signal: sig, EndedAt: h.wall()}
		if h.witness.Ended != nil {
			h.witness.Ended(h.Name, r.id, end)
		}
		if !r.answered() || r.secret == nil || r.final {
			r.look()
			return // nobody who could reap it
		}
		r.rec.Main.ExitCode, r.rec.Main.Signal, r.rec.Main.EndedAt = code, sig, end.EndedAt
		r.write(false)
		if !r.pass("owner.main.ended") {
			return
		}
	}
	r.look()
}

func (r *run) mainEnded() bool {
	return r.rec.Main != nil && (r.rec.Main.ExitCode != nil || r.rec.Main.Signal != "")
}

// look brings the run to where it is by now.
func (r *run) look() {
	h := r.h
	if r.final || r.gone || !r.answered() || r.main == nil {
		return
	}
	living := h.living(r.id)
	if h.broken.EndsWithMain && r.mainEnded() {
		living = nil
	}
	if len(living) == 0 {
		r.end()
		return
	}
	if !r.mainEnded() || r.stop != nil {
		return
	}
	switch {
	case r.rec.Leftover == longstop.LeftoverRelease:
		r.release(living)
	case r.rec.Leftover == longstop.LeftoverKill:
		if len(r.rec.Left) == 0 {
			r.rec.Left = described(living)
		}
		r.linger(len(living))
		r.stop = &stopping{killAt: h.now().Add(r.grace())}
		r.term()
	case r.rec.State == longstop.WorkloadRunning:
		r.linger(len(living))
	}
}

func (r *run) linger(n int) {
	if r.rec.State == longstop.WorkloadRunning {
		r.enter(longstop.WorkloadLingering)
	}
	r.rec.Boundary.Processes = &n
	r.write(true)
	r.h.step(r, "owner.lingering")
}

func (r *run) release(living []*proc) {
	r.rec.Released = described(living)
	n := len(living)
	r.rec.Boundary.Processes = &n
	if r.secret == nil {
		r.lose(longstop.OwnerLost, false)
		return
	}
	r.enter(longstop.WorkloadFinished)
	r.rec.Result = resultOf(r.rec.Main)
	r.finish()
}

func resultOf(m *longstop.Main) *longstop.Result {
	return &longstop.Result{ExitCode: m.ExitCode, Signal: m.Signal}
}

// end is the end of a run of which nothing is left.
func (r *run) end() {
	log := r.rec.Cancel
	signalled := log != nil && !log.SignalledAt.IsZero()
	if signalled {
		log.EmptyAt = r.h.wall()
	}
	switch {
	case r.secret == nil:
		r.lose(longstop.OwnerLost, false)
		return
	case r.rec.State == longstop.WorkloadCancelling, signalled:
		r.enter(longstop.WorkloadCancelled)
	case r.mainEnded():
		r.enter(longstop.WorkloadFinished)
		r.rec.Result, r.rec.Cause = resultOf(r.rec.Main), ""
	default:
		r.lose(longstop.OwnerLost, true)
		return
	}
	r.proven()
	r.finish()
}

func (r *run) lose(because longstop.UnknownReason, proven bool) {
	r.enter(longstop.WorkloadOrphaned)
	r.enter(longstop.WorkloadLost)
	r.rec.LostBecause, r.rec.EmptyProven, r.rec.Result = because, proven, nil
	r.finish()
}

func (r *run) grace() time.Duration { return time.Duration(r.rec.GraceMS) * time.Millisecond }

// ask begins to stop the run: intent on record before the first signal.
func (r *run) ask(cause longstop.Cause, grace time.Duration) {
	h := r.h
	if r.final || !r.answered() || r.main == nil {
		return
	}
	if r.stop != nil && r.stop.cause != "" {
		r.stop.killAt = min(r.stop.killAt, h.now().Add(grace))
		r.alarm(r.stop.killAt)
		return
	}
	if len(h.living(r.id)) == 0 {
		r.look()
		return
	}
	if r.rec.Cancel == nil {
		r.rec.Cancel = &longstop.CancelLog{RequestedAt: h.wall()}
	}
	r.rec.Cause = cause
	r.stop = &stopping{cause: cause, killAt: h.now().Add(grace)}
	r.write(true)
	if !r.pass("cancel.recorded") {
		return
	}
	r.term()
	if !r.pass("cancel.termed") {
		return
	}
	if h.broken.CancelsUnproven && !r.final {
		r.enter(longstop.WorkloadCancelled)
		r.proven()
		r.finish()
	}
}

func (r *run) term() {
	n := r.signalAll("TERM")
	r.stop.termed = true
	if log := r.rec.Cancel; log != nil && r.stop.cause != "" && n > 0 {
		log.Signal, log.Signalled = "TERM", n
		if log.SignalledAt.IsZero() {
			log.SignalledAt = r.h.wall()
		}
		if r.rec.State != longstop.WorkloadOrphaned {
			r.enter(longstop.WorkloadCancelling)
		}
		r.write(false)
	}
	r.alarm(r.stop.killAt)
}

func (r *run) kill() {
	n := r.signalAll("KILL")
	if log := r.rec.Cancel; log != nil && n > 0 {
		if log.KilledAt.IsZero() {
			log.KilledAt = r.h.wall()
		}
		log.Killed += n
	}
}

// signalAll signals everybody of the run that lives, by identity.
func (r *run) signalAll(sig string) (n int) {
	for _, p := range r.family {
		if r.h.signal(r, p.PID, p.StartTime, sig) {
			n++
		}
	}
	return n
}

// alarm looks again at an instant of the boot clock.
func (r *run) alarm(at longstop.BootTime) {
	h := r.h
	if at == 0 {
		return
	}
	time.AfterFunc(max(0, at.Sub(h.now())), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !r.gone && !r.final && r.answered() {
			r.due()
		}
	})
}

// due does what it is time for: the end of a lease, a deadline or a grace.
func (r *run) due() {
	now := r.h.now()
	switch {
	case r.stop != nil && now >= r.stop.killAt:
		r.kill()
	case r.stop != nil && r.stop.cause != "":
	case r.rec.DeadlineUntil > 0 && now >= r.rec.DeadlineUntil:
		r.ask(longstop.CauseDeadline, r.grace())
	case r.rec.LeaseUntil > 0 && now >= r.rec.LeaseUntil:
		r.ask(longstop.CauseLease, r.grace())
	}
}

// heal makes a successor of the keeper for every unresolved run that nobody answers for.
func (h *Host) heal() {
	if h.keeper == nil || h.keeper.dead {
		h.ensureKeeper() // heals
		return
	}
	for _, c := range h.disk.page.claims {
		if _, final := h.disk.page.newest(c.run); c.void || final {
			continue
		}
		if r := h.runs[c.run]; r == nil || !r.answered() {
			h.succeedTo(c, r)
		}
	}
}

// succeedTo takes over one run without its secret.
func (h *Host) succeedTo(c claim, was *run) {
	raw, _ := h.disk.page.newest(c.run)
	r := &run{h: h, id: c.run, key: c.key, by: h.keeper, done: make(chan struct{})}
	if was != nil {
		r.family, r.main = was.family, was.main
	}
	if raw == nil && c.bootID == h.bootID() && h.now() < c.notAfter {
		return // its submitter may still begin it
	}
	r.rec = c.first
	if raw != nil && wire.Tolerant(raw, &r.rec) != nil {
		return
	}
	boot := r.rec.Writer.BootID
	r.rec.MAC, r.rec.Writer = "", h.writer(longstop.WriterSuccessor)
	r.opened = true // as far as a successor knows
	h.runs[c.run] = r
	switch {
	case r.rec.State == longstop.WorkloadStarting:
		if r.main != nil {
			h.reap(r.main)
		}
		r.unstarted(&longstop.LaunchError{Step: "owner", Message: "the owner died before the start: nothing of the work ran"})
	case boot != h.bootID():
		r.proven()
		r.lose(longstop.Rebooted, true)
	default:
		r.enter(longstop.WorkloadOrphaned)
		r.write(false)
		r.goOnStopping()
		r.alarm(r.rec.LeaseUntil)
		r.alarm(r.rec.DeadlineUntil)
		r.look()
	}
}
