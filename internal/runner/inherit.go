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
	passed  bool                         // inherit is at work, or was
	touched bool                         // a child that can be of it came, went or was told apart since its custody looked
	main    *boundary.Exit               // of the main process, if it ended as our child
	told    bool                         // custody has been told of main
	custody *custody                     // once inherited
	killing bool                         // its grace is over
	struck  map[boundary.Identity]struck // met by rounds of KILL; its custody is to be told
	overdue longstop.BootTime            // when nothing was done though a lease or deadline passed; 0: never
}

// child is an inherited child, and whose it can be: one run's, or, where it cannot be known, one of
// several dead owners'. Nobody's: it came from a run that released it.
type child struct {
	stat  boundary.Stat
	of    []*ward
	came  int               // the how manieth
	asked longstop.BootTime // when it was last tried to find out whose it is
}

// reap takes note of every child that ended, and takes over from owners that did.
func (k *keeper) reap() {
	k.lookAgain()
	k.mu.Unlock()
}

// concerns reports of which children more is to be known, when they end, than that they were adopted. k.mu is held.
func (k *keeper) concerns() func(pid int) bool {
	some, all := map[int]bool{}, false
	for id := range k.standbys {
		some[id.PID] = true
	}
	for _, w := range k.wards {
		if !w.dead {
			some[w.owner.PID] = true
		}
		if m := w.rec.Main; m != nil {
			some[m.PID] = true
		} else { // its record may be yet to be read
			all = true
		}
	}
	return func(pid int) bool { return all || some[pid] }
}

// sawEnd is told of each child that ended, while it is still a zombie. k.mu is held.
func (k *keeper) sawEnd(exit boundary.Exit) {
	for _, w := range k.wards {
		if exit.Identity == w.owner {
			w.dead = true
			return
		}
	}
	if k.standbyEnded(exit.Identity) {
		return
	}
	k.forget(exit.PID)
	if exit.Start == 0 { // no concern of anybody's
		return
	}
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

// askAgain is how long a child that several runs can have is left alone: in the middle of an exec it shows no
// mark, and may by now.
const askAgain = 50 * time.Millisecond

// sort finds out whose the children are that are new, of all that there are. k.mu is held.
func (k *keeper) sort(children []int) {
	there := map[int]bool{}
	for _, pid := range children {
		there[pid] = true
	}
	for pid := range k.adopted {
		if !there[pid] {
			k.forget(pid)
		}
	}
	owners, dying := k.owners(there)
	candidates, now := k.candidates(dying), boundary.BootNow()
	for _, pid := range children {
		c := k.adopted[pid]
		switch {
		case owners[pid]:
			continue
		case c == nil:
			k.cameIn++
			c = &child{came: k.cameIn, of: candidates}
			k.adopted[pid] = c
			if s := c.look(pid); !allKilling(candidates) { // else it is to go, whosever it is
				c.of = whose(s, candidates)
			}
			touch(c.of)
		case len(c.of) > 1 && now.Sub(c.asked) >= askAgain:
			if of := whose(c.look(pid), c.of); len(of) < len(c.of) {
				touch(c.of)
				c.of = of
			}
		default:
			continue
		}
		c.asked = now
	}
	k.forgetFreed() // not before: a new child may be the last that such a run has left
}

// look reads what the child is now. That it is there is known otherwise.
func (c *child) look(pid int) boundary.Stat {
	s, err := boundary.Look(pid)
	if err != nil && c.stat.PID == 0 {
		s.PID = pid
	}
	if s.PID == pid {
		c.stat = s
	}
	return c.stat
}

// owners are those of the children that are owners, and the dying are their wards of whose ends we have not been
// told, though their children are ours by now.
func (k *keeper) owners(there map[int]bool) (owners map[int]bool, dying []*ward) {
	owners = map[int]bool{}
	for id := range k.standbys {
		owners[id.PID] = there[id.PID]
	}
	for _, w := range k.wards {
		if w.dead || !there[w.owner.PID] {
			continue
		}
		owners[w.owner.PID] = true
		switch s, err := boundary.Look(w.owner.PID); {
		case err != nil:
		case s.State == 'Z' || s.Exiting: // that is enough: what is left of it has let go of its children
			dying = append(dying, w)
		case s.State == 'T':
			k.reaper.Signal(s.Identity, unix.SIGCONT) // see wake; of a stop the parent is told, as of an end
		}
	}
	return owners, dying
}

// forget lets go of a child that is none any more. k.mu is held.
func (k *keeper) forget(pid int) {
	if c := k.adopted[pid]; c != nil {
		touch(c.of)
		delete(k.adopted, pid)
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
	if !s.Dead() { // it has none any more
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
	k.sweep()
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

// settle: no child left that came, or could have come, from the run's owner, and nobody killed of whom the
// run was not told. Once none was in the list there is none later.
func (t *inherited) settle(ended func(boundary.Exit)) (empty, proven bool) {
	t.k.mu.Lock()
	main := t.w.main
	if t.w.told {
		main = nil
	}
	t.w.told = t.w.told || main != nil
	empty = t.w.struck == nil
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
	t.k.lookAgain()
	var roots []int
	for pid, c := range t.k.adopted {
		if slices.Contains(c.of, t.w) && t.surely(c) {
			roots = append(roots, pid)
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

// kill: see strike.
func (t *inherited) kill(_ func(boundary.Stat), met func(struck)) {
	for _, s := range t.k.strike(t.w) {
		met(s)
	}
}

func (t *inherited) signal(id boundary.Identity, sig unix.Signal, following ...unix.Signal) error {
	return t.k.reaper.Signal(id, sig, following...)
}

func (t *inherited) doubts() []longstop.Process {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	var all []longstop.Process
	for pid, c := range t.k.adopted {
		if !slices.Contains(c.of, t.w) || t.surely(c) || c.look(pid).Dead() {
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
