package hostsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// laws holds what truly happened beside what the gateway says, and notes each law that is broken.
type laws struct {
	w *world

	mu       sync.Mutex
	broken   []violation
	executed map[string]int                           // by key
	attempts map[string][]wire.Submit                 // that were claimed, by effect token
	ran_     map[longstop.RunID]bool                  // executed
	claimed  map[longstop.RunID]bool                  //
	runs     map[longstop.ActionID]longstop.RunID     //
	records  map[longstop.RunID][]written             //
	ends     map[longstop.RunID]longstop.Main         // of main processes
	sent     map[longstop.RunID]int                   // submits that left, with the generation of the first
	first    map[longstop.RunID]int                   //
	told     map[longstop.ActionID]longstop.Action    // to callers
	byKey    map[string]longstop.ActionID             //
	stops    map[longstop.ActionID]bool               // cancels that were taken
	wanted   map[longstop.ActionID]bool               // somebody called Cancel
	over     map[longstop.SessionID]bool              // somebody called EndSession
	leased   map[longstop.ActionID]longstop.SessionID // of leased runs
	ended    map[longstop.ActionID]longstop.Action    // final, as first seen
	kept     map[longstop.ActionID]bool               // its raw record was looked for and found
	submits  map[string]wire.Request                  // the last one of a key, for a mutant
	head     *journal.Head                            //
}

type violation struct {
	law  int
	says string
}

type written struct {
	raw []byte
	rec longstop.Record
}

func newLaws(w *world) *laws {
	return &laws{w: w, executed: map[string]int{}, attempts: map[string][]wire.Submit{}, ran_: map[longstop.RunID]bool{}, claimed: map[longstop.RunID]bool{},
		runs: map[longstop.ActionID]longstop.RunID{}, records: map[longstop.RunID][]written{}, ends: map[longstop.RunID]longstop.Main{},
		sent: map[longstop.RunID]int{}, first: map[longstop.RunID]int{}, told: map[longstop.ActionID]longstop.Action{},
		byKey: map[string]longstop.ActionID{}, stops: map[longstop.ActionID]bool{}, over: map[longstop.SessionID]bool{}, leased: map[longstop.ActionID]longstop.SessionID{}, wanted: map[longstop.ActionID]bool{},
		ended: map[longstop.ActionID]longstop.Action{}, kept: map[longstop.ActionID]bool{}, submits: map[string]wire.Request{}}
}

// broke notes a broken law. 0 is none of the laws: the simulation, or the gateway, fell over.
func (l *laws) broke(law int, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks(law, format, args...)
}

func (l *laws) breaks(law int, format string, args ...any) {
	if len(l.broken) < 5 {
		l.broken = append(l.broken, violation{law, time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)})
	}
}

func (l *laws) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.broken) > 0
}

// witness sees what truly happens on the hosts.
func (l *laws) witness() *Witness {
	return &Witness{
		Asked: l.asked,
		Claimed: func(host string, s wire.Submit) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.claimed[s.RunID], l.runs[s.ActionID] = true, s.RunID
			l.attempts[s.EffectToken] = append(l.attempts[s.EffectToken], s)
		},
		Executed: func(host string, id longstop.RunID, key string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ran_[id] = true
			if l.executed[key]++; l.executed[key] > 1 {
				l.breaks(5, "the work of %s was started %d times (%s on %s)", key, l.executed[key], id, host)
			}
			l.attempted(host, id)
		},
		Wrote: l.wrote,
		Signalled: func(host string, id, victim longstop.RunID, signal string) {
			if victim != id {
				l.broke(7, "%s on %s: %s was sent to a process of %q", id, host, signal, victim)
			}
		},
		Ended: func(host string, id longstop.RunID, main longstop.Main) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ends[id] = main
		},
	}
}

// attempted looks at a run that begins beside the others of its effect token, with its host held still: work
// whose effect may be had once is not executed after an earlier attempt was, nor idempotent work beside one.
func (l *laws) attempted(host string, id longstop.RunID) {
	for _, all := range l.attempts {
		for _, s := range all {
			if s.RunID != id {
				continue
			}
			for _, other := range all {
				switch {
				case other.RunID == id || !l.ran_[other.RunID]:
				case s.Request.Effect == longstop.EffectOnce:
					l.breaks(5, "%s is executed, and so was %s, an attempt at the same work, whose effect may be had once", id, other.RunID)
				case len(l.w.host(host).living(other.RunID)) > 0:
					l.breaks(5, "%s is executed, and %s, an attempt at the same work, is still running", id, other.RunID)
				}
			}
		}
	}
}

// wrote sees each record as it is written, with its host held still.
func (l *laws) wrote(host string, rec longstop.Record, raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, before := range l.records[rec.RunID] {
		if before.rec.State.Final() {
			l.breaks(2, "%s on %s has a second final record: %s after %s", rec.RunID, host, rec.State, before.rec.State)
		}
	}
	l.w.trace("%s: %s is %s (%d) by %s", host, rec.RunID, rec.State, rec.Sequence, rec.Writer.Kind)
	l.records[rec.RunID] = append(l.records[rec.RunID], written{bytes.Clone(raw), rec})
	over := rec.State == longstop.WorkloadFinished || rec.State == longstop.WorkloadCancelled
	if over && rec.Boundary.Empty != nil && *rec.Boundary.Empty {
		if n := len(l.w.host(host).living(rec.RunID)); n > 0 {
			l.breaks(6, "%s on %s is %s and empty, and %d of its processes live", rec.RunID, host, rec.State, n)
		}
	}
}

// asked sees each request as it reaches a host: what was to be durable before it was sent is so.
func (l *laws) asked(host string, r wire.Request) {
	l.w.trace("%s: %s %.300s", host, r.Verb, r.Body)
	g := l.w.now()
	if g == nil || g.dead.Load() || host == "impostor" {
		return
	}
	switch r.Verb {
	case wire.VerbSubmit:
		var s wire.Submit
		json.Unmarshal(r.Body, &s)
		l.mu.Lock()
		l.runs[s.ActionID] = s.RunID
		if s.Request.Lifetime == longstop.Leased {
			l.leased[s.ActionID] = s.SessionID
		}
		l.mu.Unlock()
		l.intended(g, s.ActionID, journal.LaunchIntended, "submit")
	case wire.VerbCancel:
		var c wire.CancelRequest
		json.Unmarshal(r.Body, &c)
		l.mu.Lock()
		var of longstop.ActionID
		for id, run := range l.runs {
			if run == c.RunID {
				of = id
			}
		}
		l.mu.Unlock()
		if of != "" && !l.wantedStopped(of) {
			l.broke(7, "%s is asked to stop %s, which nobody wanted stopped", host, c.RunID)
		}
		if of != "" {
			l.intended(g, of, journal.CancelRequested, "cancel")
		}
	}
}

// wantedStopped reports whether somebody wanted an action stopped, or the session of its lease ended.
func (l *laws) wantedStopped(id longstop.ActionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted[id] || l.over[l.leased[id]]
}

func (l *laws) intended(g *generation, id longstop.ActionID, kind journal.Kind, what string) {
	entries, err := g.store.Entries(context.Background(), sqlite.EntryFilter{Action: id, Limit: 1000})
	if err != nil || g.dead.Load() {
		return
	}
	for _, e := range entries {
		if e.Kind == kind {
			return
		}
	}
	l.broke(4, "a %s of %s reached its host, and that it was to be sent is not in the journal", what, id)
}

// sees looks at each request as it leaves the gateway.
func (l *laws) sees(g *generation, host string, frame []byte) {
	from, to := bytes.IndexByte(frame, '{'), bytes.LastIndexByte(frame, '}')
	if from < 0 || bytes.Contains(frame, []byte("\nNOT ")) || g.dead.Load() {
		return
	}
	var r wire.Request
	if json.Unmarshal(frame[from:to+1], &r) != nil {
		return
	}
	if l.w.mutant != nil && l.w.mutant.sees != nil {
		l.w.mutant.sees(l.w, host, r)
	}
	if r.Verb != wire.VerbSubmit {
		return
	}
	var s wire.Submit
	json.Unmarshal(r.Body, &s)
	l.w.mu.Lock()
	waiting := l.w.going[s.Key]
	l.w.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.submits[s.Key] = r
	if l.sent[s.RunID]++; l.sent[s.RunID] == 1 {
		l.first[s.RunID] = g.n
		return
	}
	if l.first[s.RunID] != g.n {
		l.breaks(5, "gateway %d sends the submit of %s, which gateway %d sent first: nobody waits for it", g.n, s.RunID, l.first[s.RunID])
	}
	if waiting == 0 {
		l.breaks(5, "the submit of %s is sent for the %d. time, and nobody waits for it", s.RunID, l.sent[s.RunID])
	}
}

func (l *laws) actionOf(key string) longstop.ActionID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[key]
}

// hear keeps what a caller was told.
func (l *laws) hear(g *generation, a longstop.Action) {
	if a.ID == "" || g.dead.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.told[a.ID]; !ok || before.Revision < a.Revision {
		l.told[a.ID] = a
	}
	l.byKey[a.IdempotencyKey] = a.ID
}

// ran is the end of a call of Run.
func (l *laws) ran(g *generation, key string, a longstop.Action, err error) {
	if g.dead.Load() {
		return
	}
	if a.ID != "" && a.IdempotencyKey == key {
		l.hear(g, a)
	}
	if longstop.CodeOf(err) == longstop.CodeInternal && err != nil && !errors.Is(err, sqlite.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
		l.broke(0, "run %s: %v", key, err)
	}
}

func (l *laws) gaveUp(g *generation, id string) {
	before, _ := g.Action(context.Background(), id)
	a, err := g.RecordWait(context.Background(), id, "sim")
	if err == nil && !g.dead.Load() && before.Cancel.State == longstop.CancelNone && a.Cancel.State != longstop.CancelNone && !l.wantedStopped(a.ID) {
		l.broke(10, "giving up waiting for %s stopped it", id)
	}
	l.hear(g, a)
}

// cancel is a call of Cancel.
func (l *laws) cancel(g *generation, ctx context.Context, id string) {
	l.mu.Lock()
	l.wanted[longstop.ActionID(id)] = true
	l.mu.Unlock()
	a, err := g.Cancel(ctx, id, agent, nil)
	if g.dead.Load() {
		return
	}
	switch {
	case err != nil && longstop.CodeOf(err) != longstop.CodeStopped && ctx.Err() == nil:
		l.broke(10, "cancel %s was refused: %v", id, err)
	case err == nil && a.Cancel.State == longstop.CancelNone && a.Unresolved():
		l.broke(10, "cancel %s was not taken: launch %s, work %s", id, a.Launch.State, a.Workload.State)
	case err == nil && a.Cancel.State != longstop.CancelNone:
		l.mu.Lock()
		l.stops[a.ID] = true
		l.mu.Unlock()
	}
	if err == nil {
		l.hear(g, a)
	}
}

// endSession is a call of EndSession: leased runs are cancelled with it.
func (l *laws) endSession(g *generation, ctx context.Context, id longstop.SessionID) {
	l.mu.Lock()
	l.over[id] = true
	l.mu.Unlock()
	ended, err := g.EndSession(ctx, string(id), "", agent)
	if g.dead.Load() {
		return
	}
	if err != nil {
		l.broke(10, "the session %s cannot be ended: %v", id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range ended.Cancelling {
		l.stops[a] = true
	}
}

// all are the actions as the store has them.
func (l *laws) all() []longstop.Action {
	g := l.w.now()
	actions, err := g.store.Actions(context.Background(), sqlite.Filter{Limit: 1000})
	if err != nil && !g.dead.Load() {
		l.broke(0, "list: %v", err)
	}
	return actions
}

// open says what is not settled.
func (l *laws) open() (open []string) {
	for _, a := range l.all() {
		if a.Unresolved() || a.Cancel.State == longstop.CancelRequested || a.Cancel.State == longstop.CancelDelivered {
			if a.Unresolved() || a.Launch.State != longstop.LaunchAccepted || a.Workload.State != longstop.WorkloadLost {
				open = append(open, fmt.Sprintf("%s %s on %s: launch %s %s, work %s, cancel %s %s, seen %+v", a.ID, a.RunID, a.Host,
					a.Launch.State, a.Launch.Message, a.Workload.State, a.Cancel.State, a.Cancel.Because, a.Observation))
			}
		}
	}
	return open
}

// check compares what the gateway says with what happened.
func (l *laws) check() {
	g := l.w.now()
	if g.dead.Load() {
		return
	}
	l.mu.Lock()
	was := maps.Clone(l.told) // what is told while we look may be newer than what we see
	l.mu.Unlock()
	seen := map[longstop.ActionID]longstop.Action{}
	for _, a := range l.all() {
		seen[a.ID] = a
		l.checkAction(g, &a)
	}
	if g.dead.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, told := range was {
		if now, ok := seen[id]; !ok || now.Revision < told.Revision {
			l.breaks(9, "%s, of which revision %d was told, is at %d now", id, told.Revision, now.Revision)
		}
	}
}

func (l *laws) checkAction(g *generation, a *longstop.Action) {
	verdict := lifecycle.Judge(a, l.w.Now(), 15*time.Second)
	living := l.w.host(a.Host).Living(a.RunID)
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &a.Workload
	final := l.finalOf(a.RunID)
	switch {
	case a.Launch.State == longstop.LaunchAccepted && !l.claimed[a.RunID]:
		l.breaks(1, "the launch of %s is called accepted (ssh_command %s), and no host has it", a.ID, a.SSHCommand.State)
	case w.State != longstop.WorkloadNone && w.Writer == nil:
		l.breaks(1, "the work of %s is %s by nobody's word", a.ID, w.State)
	case a.Launch.State == longstop.LaunchRejected && l.ran_[a.RunID]:
		l.breaks(5, "%s is called not started (%s: %s), and its work was executed", a.ID, a.Launch.Because, a.Launch.Message)
	case w.State.Final() && final == nil:
		l.breaks(3, "%s is %s, and no host wrote that", a.ID, w.State)
	case verdict.Outcome == longstop.OutcomeUnknown && verdict.UnknownBecause == "":
		l.breaks(3, "%s is unknown without a reason", a.ID)
	case verdict.Alive == longstop.AliveNo && a.Launch.State != longstop.LaunchNotAttempted && living > 0:
		l.breaks(6, "%s is called over (work %s), and %d of its processes live", a.ID, w.State, living)
	case a.Cancel.State == longstop.CancelConfirmed && a.Launch.State == longstop.LaunchAccepted && !w.State.Final():
		l.breaks(6, "the cancel of %s is confirmed, and its work is %s", a.ID, w.State)
	case a.Cancel.State == longstop.CancelRefused:
		l.breaks(10, "%s cannot be stopped: %s", a.ID, a.Cancel.Because)
	}
	if !w.State.Final() || final == nil {
		return
	}
	if w.Sequence != final.rec.Sequence || w.State != final.rec.State || w.Cause != final.rec.Cause || w.Writer.Kind != final.rec.Writer.Kind ||
		!reflect.DeepEqual(w.Result, final.rec.Result) {
		l.breaks(2, "%s is %s %s (record %d by %s), and its host's %s wrote %s %s (%d)", a.ID, w.State, resultWords(w.Result), w.Sequence, w.Writer.Kind,
			final.rec.Writer.Kind, final.rec.State, resultWords(final.rec.Result), final.rec.Sequence)
	}
	if before, ok := l.ended[a.ID]; ok {
		b := &before.Workload
		if b.State != w.State || !reflect.DeepEqual(b.Result, w.Result) || b.Cause != w.Cause || b.LostBecause != w.LostBecause {
			l.breaks(2, "%s was %s and is %s now", a.ID, b.State, w.State)
		}
	} else {
		l.ended[a.ID] = *a
	}
	if w.Result != nil && w.State == longstop.WorkloadFinished {
		truth, known := l.ends[a.RunID]
		if known && (truth.Signal != w.Result.Signal || !reflect.DeepEqual(truth.ExitCode, w.Result.ExitCode)) {
			l.breaks(2, "%s ended with %s, and its process ended otherwise", a.ID, resultWords(w.Result))
		}
	}
	l.checkRaw(g, a, final)
}

// checkRaw: the bytes that a final state rests on are kept as they came.
func (l *laws) checkRaw(g *generation, a *longstop.Action, final *written) {
	if l.kept[a.ID] {
		return
	}
	raws, err := g.store.Raw(context.Background(), a.ID)
	if err != nil || g.dead.Load() {
		return
	}
	for _, raw := range raws {
		if bytes.Contains(raw.Bytes, final.raw) {
			l.kept[a.ID] = true
			return
		}
	}
	l.breaks(8, "%s is %s, and the record that says so was not kept as it came", a.ID, a.Workload.State)
}

func resultWords(r *longstop.Result) string {
	b, _ := json.Marshal(r)
	return string(b)
}

// finalOf is the first final record that a host wrote of a run and that a power failure left.
func (l *laws) finalOf(id longstop.RunID) *written {
	for i, w := range l.records[id] {
		if w.rec.State.Final() {
			return &l.records[id][i]
		}
	}
	return nil
}

// verify looks at the whole journal, and at what it says of every action.
func (l *laws) verify() {
	g := l.w.now()
	var kept []journal.Head
	if l.head != nil {
		kept = append(kept, *l.head)
	}
	head, err := g.store.Verify(context.Background(), kept...)
	if g.dead.Load() {
		return
	}
	if err != nil {
		l.broke(9, "the journal does not verify: %v", err)
		return
	}
	l.head = &head
	if _, err := g.store.CheckProjections(context.Background()); err != nil && !g.dead.Load() {
		l.broke(9, "the journal does not give what is shown: %v", err)
	}
}

// atTheEnd: nothing goes wrong any more, and everything is settled.
func (l *laws) atTheEnd() {
	l.takeStock()
	for _, a := range l.all() {
		l.mu.Lock()
		stopped := l.stops[a.ID]
		ran := l.ran_[a.RunID]
		l.mu.Unlock()
		switch s := a.Cancel.State; {
		case stopped && s == longstop.CancelUnconfirmed && a.Workload.State != longstop.WorkloadLost:
			l.broke(10, "the cancel of %s was never confirmed: work %s", a.ID, a.Workload.State)
		case stopped && s == longstop.CancelNone:
			l.broke(10, "the cancel of %s was taken and is forgotten", a.ID)
		}
		if a.Workload.State == longstop.WorkloadLaunchFailed && ran {
			l.broke(2, "%s is launch_failed, and its work was executed", a.ID)
		}
		if n := l.w.host(a.Host).Living(a.RunID); n > 0 && a.Workload.State.Final() && a.Workload.State != longstop.WorkloadLost {
			l.broke(6, "%s is %s, and %d of its processes live", a.ID, a.Workload.State, n)
		}
	}
}

// takeStock counts what the journal and the actions came to.
func (l *laws) takeStock() {
	entries, err := l.w.now().store.Entries(context.Background(), sqlite.EntryFilter{Limit: 100_000})
	if err != nil {
		l.broke(0, "read the journal: %v", err)
	}
	for _, e := range entries {
		l.w.counts("journal " + string(e.Kind))
	}
	for _, a := range l.all() {
		l.w.counts(fmt.Sprintf("action launch %s work %s cancel %s", a.Launch.State, a.Workload.State, a.Cancel.State))
	}
}
