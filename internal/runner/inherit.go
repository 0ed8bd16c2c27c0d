package runner

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/gate"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// ward is a run whose owner is the keeper's child, and what its keeper has of it should the owner
// die.
type ward struct {
	id      longstop.RunID // empty for a standby
	secret  []byte
	owner   boundary.Identity
	stream  *link           // to the owner, until it has answered
	expiry  *time.Timer     // of a spare
	outputs [2]int          // reading ends, not read while the owner lives; -1: none
	report  int             // of the gate; -1 once the work was exec'd
	rec     longstop.Record // as the owner answered
	gone    chan struct{}   // closed when the owner has died and the run is final or in our custody
	dead    bool
	passed  bool              // inherit is at work, or was
	touched bool              // a child that can be of it came, went or was told apart since its custody looked
	main    *boundary.Exit    // of the main process, if it ended as our child
	told    bool              // custody has been told of main
	custody *custody          // once inherited
	overdue longstop.BootTime // when nothing was done though a lease or deadline passed; 0: never
}

// child is an inherited child, and whose it can be: one run's, or, where it cannot be known, one of
// several dead owners'. Nobody's: it came from a run that released it.
type child struct {
	stat boundary.Stat
	of   []*ward
}

// reap takes note of every child that ended, and takes over from owners that did.
func (k *keeper) reap() {
	none := k.reaper.Reap(k.sawEnd)
	k.mu.Lock()
	var orphaned []*ward
	for _, w := range k.wards {
		if w.dead && !w.passed {
			w.passed = true
			orphaned = append(orphaned, w)
		}
	}
	if none {
		k.sort(nil)
	} else {
		k.adopt()
	}
	for _, w := range k.wards {
		if w.custody != nil && w.touched {
			w.touched = false
			w.custody.nudge()
		}
	}
	k.mu.Unlock()
	for _, w := range orphaned {
		go k.inherit(w)
	}
}

// sawEnd is told of each child that ended, while it is still a zombie.
func (k *keeper) sawEnd(exit boundary.Exit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stale = true
	for _, w := range k.wards {
		if exit.Identity == w.owner {
			w.dead = true
			return
		}
	}
	if k.standbyEnded(exit.Identity) {
		return
	}
	k.forget(exit.Identity)
	for _, w := range k.wards {
		if w.isMain(exit.Identity) {
			w.main, w.touched = &exit, true
			return
		}
	}
	// It may turn out to be the main process of a run whose record is yet to be read.
	k.strays = append(k.strays, exit)
	k.strays = k.strays[max(0, len(k.strays)-256):]
}

func (w *ward) isMain(id boundary.Identity) bool {
	m := w.rec.Main
	return m != nil && m.PID == id.PID && m.StartTime == id.Start
}

// adopt looks at all children and finds out whose the new ones are. k.mu is held.
//
// The list misses nobody (boundary.Reaper.Children), which is what makes it a proof: a run of which
// no child is in it has nothing left, since whatever lives of it descends from one that would be.
func (k *keeper) adopt() { k.sort(k.reaper.Children()) }

func (k *keeper) sort(children []boundary.Stat) {
	defer func() { k.stale = false }()
	seen := map[boundary.Identity]bool{}
	owners := map[boundary.Identity]*ward{}
	for _, w := range k.wards {
		owners[w.owner] = w
	}
	for id, w := range k.standbys {
		owners[id] = w
	}
	var dying []*ward // owners whose end we have not been told of, though their children are ours
	for _, s := range children {
		seen[s.Identity] = true
		// That is enough: what is left of it has let go of its children.
		switch w := owners[s.Identity]; {
		case w == nil || w.dead:
		case s.State == 'Z' || s.Exiting:
			dying = append(dying, w)
		case s.State == 'T':
			k.reaper.Signal(s.Identity, unix.SIGCONT) // see wake; of a stop the parent is told, as of an end
		}
	}
	for id := range k.adopted {
		if !seen[id] {
			k.forget(id)
		}
	}
	for _, s := range children {
		c := k.adopted[s.Identity]
		switch {
		case owners[s.Identity] != nil:
		case c == nil:
			c = &child{s, whose(s, k.candidates(dying))}
			k.adopted[s.Identity] = c
			touch(c.of)
		case s.Dead():
			c.stat = s
		case len(c.of) > 1: // in the middle of an exec it shows no mark: it may by now
			touch(c.of)
			c.stat, c.of = s, whose(s, c.of)
		}
	}
	k.forgetFreed() // not before: a new child may be the last that such a run has left
}

// forget lets go of a child that is none any more. k.mu is held.
func (k *keeper) forget(id boundary.Identity) {
	if c := k.adopted[id]; c != nil {
		touch(c.of)
		delete(k.adopted, id)
	}
}

// touch has the custodies of these runs look again, and no others: one run that forks without end costs
// the rest nothing.
func touch(wards []*ward) {
	for _, w := range wards {
		w.touched = true
	}
}

// candidates are the runs that a new child can be of: those whose owner is dead, and those that
// released processes.
func (k *keeper) candidates(dying []*ward) []*ward {
	all := append(slices.Clone(k.freed), dying...)
	for _, w := range k.wards {
		if w.dead {
			all = append(all, w)
		}
	}
	return all
}

// whose tells whose a child is: the only one's that it can be; that of the run whose mark it
// carries; that of the run in whose session it is, since nobody enters another's session. Else it
// may be any one's.
func whose(s boundary.Stat, candidates []*ward) []*ward {
	if len(candidates) <= 1 {
		return candidates
	}
	mark := longstop.RunID("")
	if !s.Dead() { // it has none any more, and there can be many who are not reaped yet
		mark = boundary.Mark(s.PID)
	}
	var inSession []*ward
	for _, w := range candidates {
		if mark != "" && w.id == mark {
			return []*ward{w}
		}
		if m := w.rec.Main; m != nil && m.SID == s.SID && s.Start >= m.StartTime {
			inSession = append(inSession, w)
		}
	}
	if len(inSession) == 1 {
		return inSession
	}
	return candidates
}

// forgetFreed drops the runs of whose released processes none is our child any more.
func (k *keeper) forgetFreed() {
	k.freed = slices.DeleteFunc(k.freed, func(w *ward) bool {
		for _, c := range k.adopted {
			if slices.Contains(c.of, w) {
				return false
			}
		}
		return true
	})
}

// inherit takes over from an owner that died: unless the run is final, by taking its lock and
// answering for it.
func (k *keeper) inherit(w *ward) {
	fault.At("keeper.inherit")
	run, err := k.folder.Run(w.id)
	if err != nil {
		k.drop(w)
		return
	}
	rec, err := k.lastWord(w, run)
	if err == nil {
		err = k.takeOver(w, run, rec)
	}
	if err != nil {
		// It is final, or whatever is wrong stays there to see; should it pass, there is a successor.
		run.Close()
		k.drop(w)
		if !errors.Is(err, record.ErrFinal) {
			k.succeedTo(w.id)
		}
	}
}

// lastWord takes the lock of a run whose owner died and returns the record to go on from: the one on
// disk, if it bears the run's MAC, else the one that the owner answered itself. ErrFinal: it is over.
func (k *keeper) lastWord(w *ward, run *record.Run) (longstop.Record, error) {
	if _, rec, err := run.Read(); err == nil && rec.State.Final() {
		return rec, record.ErrFinal
	}
	// A damaged record is no hindrance; without the lock nothing could be written.
	if err := lockSoon(run); errors.Is(err, record.ErrHeld) || err != nil && run.Claim().KeyHash == "" {
		return longstop.Record{}, err
	}
	raw, rec, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) {
		return unstarted(run.Claim()), nil
	}
	if err == nil {
		var signed bool
		if rec, signed, err = wire.Verify(raw, w.secret); err == nil && !signed {
			err = errors.New("it bears no MAC")
		}
	}
	if err != nil {
		rec = unstarted(run.Claim())
		if w.rec.State != "" {
			rec = w.rec
		}
		rec.Anomalies = append(slices.Clone(rec.Anomalies), "the record that its owner left cannot be believed: "+err.Error())
	}
	if rec.State.Final() {
		return rec, record.ErrFinal
	}
	return rec, nil
}

// takeOver makes the keeper answer for the run.
func (k *keeper) takeOver(w *ward, run *record.Run, rec longstop.Record) error {
	c, err := k.heir(w, run, rec)
	if err != nil {
		return err
	}
	k.mu.Lock()
	w.rec, w.custody = c.rec, c
	for _, exit := range k.strays {
		if w.main == nil && w.isMain(exit.Identity) {
			w.main = &exit
		}
	}
	k.custody[w.id] = c
	k.mu.Unlock()
	close(w.gone)
	go func() {
		c.attend()
		run.Close()
		k.drop(w)
	}()
	return nil
}

// heir makes a keeper's custody of a run.
func (k *keeper) heir(w *ward, run *record.Run, rec longstop.Record) (*custody, error) {
	rec.Writer = writerOf(longstop.WriterKeeper)
	within, doubt := enclosed(&inherited{k, w}, rec.Boundary)
	c, err := newCustody(run, rec, w.secret, within)
	if err != nil {
		return nil, err
	}
	if doubt != "" {
		c.doubt(doubt)
	}
	if rec.Leftover != longstop.LeftoverRelease && w.outputs[0] >= 0 {
		for _, fd := range w.outputs {
			unix.SetNonblock(fd, true)
		}
		c.output = newCapture(run, w.outputs, rec.Output)
		w.outputs = [2]int{-1, -1} // the capture's now
		c.output.start()
	}
	m := rec.Main
	c.mainEnded = m != nil && (m.ExitCode != nil || m.Signal != "")
	if rec.Cancel != nil { // begun by the owner: go on with it
		c.stopFor(c.grace())
	}
	c.inheritChecks()
	k.keepName(c)
	if report := w.report; report >= 0 {
		c.opened = func() (bool, *longstop.LaunchError) { return gateOf(report) }
	} else {
		c.enter(longstop.WorkloadOrphaned)
		c.write(false)
	}
	return c, nil
}

// gateOf tells from a gate's report whether the work was let through.
func gateOf(report int) (bool, *longstop.LaunchError) {
	switch state, failure := gate.ReadReport(report); state {
	case gate.Opened:
		return true, nil
	case gate.Failed:
		return false, failureOf(failure)
	}
	return false, &longstop.LaunchError{Step: "owner", Message: "the owner died before it opened the gate: nothing of the work ran"}
}

// unstarted is the record of a run whose owner wrote none.
func unstarted(claim record.Claim) longstop.Record {
	rec := firstRecord(wire.Submit{ActionID: claim.ActionID, SessionID: claim.SessionID, LeaseUntil: claim.LeaseUntil,
		Request: longstop.Request{Digest: claim.Digest, Lifetime: claim.Lifetime, Leftover: claim.Leftover, GraceS: float64(claim.GraceMS) / 1000},
	}, writerOf(longstop.WriterKeeper))
	rec.KeyHash = claim.KeyHash
	return rec
}

// drop lets go of a run that is final, or that cannot be answered for.
func (k *keeper) drop(w *ward) {
	k.mu.Lock()
	if k.wards[w.id] != w {
		k.mu.Unlock()
		return
	}
	w.close()
	delete(k.wards, w.id)
	delete(k.custody, w.id)
	if w.rec.Leftover == longstop.LeftoverRelease {
		k.freed = append(k.freed, w)
	}
	inherited := w.custody != nil
	k.adopt()
	k.mu.Unlock()
	if !inherited {
		close(w.gone)
	}
	k.stir()
}

// close lets go of what a keeper has of a run.
func (w *ward) close() {
	for _, fd := range []int{w.outputs[0], w.outputs[1], w.report} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	w.outputs, w.report, w.secret = [2]int{-1, -1}, -1, nil
}

// inherited is the boundary of a run whose owner died, as its keeper has it: the children that came
// from that owner, and what descends from them.
type inherited struct {
	k *keeper
	w *ward
}

func (t *inherited) pace() time.Duration { return recount }

func (t *inherited) rest() {}

// settle: no child left that came, or could have come, from the run's owner. Once none was in the list there
// is none later; so the list is made anew only after one ended, whose own children may have become ours.
func (t *inherited) settle(ended func(boundary.Exit)) (empty, proven bool) {
	t.k.mu.Lock()
	if t.k.stale {
		t.k.adopt()
	}
	main := t.w.main
	if t.w.told {
		main = nil
	}
	t.w.told = t.w.told || main != nil
	empty = true
	for _, c := range t.k.adopted {
		if slices.Contains(c.of, t.w) {
			empty = false
			break
		}
	}
	t.k.mu.Unlock()
	if main != nil {
		ended(*main)
	}
	return empty, true
}

func (t *inherited) walk(visit func(boundary.Stat) bool) {
	t.k.mu.Lock()
	t.k.adopt()
	var roots []int
	for id, c := range t.k.adopted {
		// The dead have no children: theirs are ours. There can be many who are not reaped yet.
		if !c.stat.Dead() && slices.Contains(c.of, t.w) && t.surely(c) {
			roots = append(roots, id.PID)
		}
	}
	t.k.mu.Unlock()
	slices.Sort(roots)
	boundary.Walk(os.Getpid(), roots, visit)
}

// surely reports whether a child may be treated as this run's: it is, or every run that it can be of
// is being stopped.
func (t *inherited) surely(c *child) bool {
	if len(c.of) == 1 {
		return true
	}
	for _, w := range c.of {
		if w.custody == nil || !w.custody.isStopping.Load() {
			return false
		}
	}
	return true
}

func (t *inherited) signal(id boundary.Identity, sig unix.Signal) error {
	return t.k.reaper.Signal(id, sig)
}

func (t *inherited) doubts() []longstop.Process {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	var all []longstop.Process
	for _, c := range t.k.adopted {
		if !slices.Contains(c.of, t.w) || t.surely(c) || c.stat.Dead() {
			continue
		}
		p := boundary.Describe(c.stat)
		p.Why = "it is not signalled: its owner is dead, and it can be of any of " + runsOf(c.of)
		all = append(all, p)
	}
	return all
}

func runsOf(wards []*ward) string {
	var ids []string
	for _, w := range wards {
		ids = append(ids, string(w.id))
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}
