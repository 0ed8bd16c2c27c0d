package runner

import (
	"errors"
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
	t.k.reaper.Walk(roots, visit)
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
