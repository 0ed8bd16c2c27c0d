package runner

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/record"
)

// A keeper is successor to the runs whose owner and keeper are both gone. It never had their secret,
// their children or their pipes. What it can tell: after another boot, that nothing is left; before
// the record said running, that nothing ran; else only whom it still sees. It stops what it can
// identify, when that is asked or due, and says lost when it sees nothing alive any more: never how
// the work ended.

// succeed looks after every unresolved run that nobody else is seen to answer for.
func (k *keeper) succeed() {
	ids, err := k.folder.Unresolved()
	if err != nil {
		return
	}
	for _, id := range ids {
		k.succeedTo(id)
	}
}

// succeedTo takes over one run, if nobody answers for it.
func (k *keeper) succeedTo(id longstop.RunID) {
	k.mu.Lock()
	known := k.wards[id] != nil || k.custody[id] != nil || k.vigils[id]
	if !known {
		k.vigils[id] = true
	}
	k.mu.Unlock()
	if known {
		return
	}
	if again := k.tryToSucceed(id); again > 0 {
		k.corroborateAgain(id)
		k.stir()
		go k.keepVigil(id, again)
		return
	}
	k.endVigil(id)
}

func (k *keeper) endVigil(id longstop.RunID) {
	k.mu.Lock()
	delete(k.vigils, id)
	delete(k.silent, id)
	k.mu.Unlock()
	k.stir()
}

// keepVigil waits for a run that somebody else answers for, or that its submitter may still begin.
func (k *keeper) keepVigil(id longstop.RunID, again time.Duration) {
	defer k.endVigil(id)
	for again > 0 {
		k.watchOwner(id, again)
		k.mu.Lock()
		ours := k.wards[id] != nil || k.custody[id] != nil
		k.mu.Unlock()
		if ours {
			return
		}
		again = k.tryToSucceed(id)
	}
}

// watchOwner returns when the run's owner goes, or, where none is there to be watched, after a while.
func (k *keeper) watchOwner(id longstop.RunID, while time.Duration) {
	run, err := k.folder.Run(id)
	if err != nil {
		time.Sleep(while)
		return
	}
	defer run.Close()
	l, err := dial(run.DirFD(), ownerSocket)
	if err != nil {
		time.Sleep(while)
		return
	}
	defer l.close()
	if l.send(ask{Verb: askWatch, RunID: id}) != nil {
		return
	}
	// It is no child of ours: of a stop nobody tells us.
	owner, _ := behind(l)
	gone := l.closed()
	look := time.NewTicker(recount)
	defer look.Stop()
	for {
		select {
		case <-gone:
			return
		case <-look.C:
			wake(owner.Identity)
		}
	}
}

const (
	soon = 200 * time.Millisecond
	// unseen is how often a successor looks for a process that nobody tells it about.
	unseen = time.Second
)

// tryToSucceed takes the run's lock and does what can be done. It returns how long to wait before
// trying again, or 0 where nothing is left to try.
func (k *keeper) tryToSucceed(id longstop.RunID) (again time.Duration) {
	run, err := k.folder.Run(id)
	if err != nil {
		return 0
	}
	keep := false
	defer func() {
		if !keep {
			run.Close()
		}
	}()
	_, err = run.Lock()
	if errors.Is(err, record.ErrHeld) {
		k.mu.Lock()
		delete(k.silent, id)
		k.mu.Unlock()
		return soon
	}
	if err != nil {
		return 0
	}
	fault.At("successor.locked")
	_, rec, err := run.Read()
	sameBoot := run.Claim().BootID == boundary.BootID()
	switch {
	case errors.Is(err, record.ErrNoRecord):
		if left := run.Claim().NotAfter.Sub(boundary.BootNow()); sameBoot && left > 0 {
			return min(left+time.Millisecond, soon)
		}
		rec = unstarted(run.Claim())
	case err != nil:
		return 0
	case rec.State.Final():
		k.folder.Mend(id)
		return 0
	case rec.Writer.MachineID != boundary.MachineID():
		return 0 // another machine's, in a folder that both have
	case sameBoot && k.theirs(id):
		return soon
	}
	keep = k.settle(run, rec)
	if rec.Boundary.Unit != "" {
		k.corroborateAgain(id)
	}
	return 0
}

// settle ends a run of which it is certain that nothing ran, or that nothing is left; any other it
// answers for from here on. It reports whether it kept the run.
func (k *keeper) settle(run *record.Run, rec longstop.Record) bool {
	boot := rec.Writer.BootID
	var never *longstop.LaunchError // the work was not begun, but something of the run may live
	rec.Writer = writerOf(longstop.WriterSuccessor)
	switch {
	case rec.State == longstop.WorkloadStarting && boot == boundary.BootID() && rec.Preflight != nil && rec.Preflight.State == longstop.CheckRunning:
		never = &longstop.LaunchError{Step: "owner", Message: "the owner died while it asked a preflight: nothing of the work ran"}
	case rec.State == longstop.WorkloadStarting || rec.State == longstop.WorkloadQueued:
		// An owner opens the gate only after "running" is durable, and it was not: the gate saw its
		// stream end with the owner, and went. See owner.launch.
		rec.LaunchError = &longstop.LaunchError{Step: "owner", Message: "the owner died before the start: nothing of the work ran"}
		enter(&rec, longstop.WorkloadLaunchFailed)
		rec.Main = nil
		k.close(run, rec)
		return false
	case boot != boundary.BootID():
		lost(&rec, longstop.Rebooted, true)
		k.close(run, rec)
		return false
	}
	k.mu.Lock()
	seen := k.seen[run.ID()]
	delete(k.seen, run.ID())
	k.mu.Unlock()
	tree := &identified{run: run.ID(), main: rec.Main, seen: seen}
	within, doubt := enclosed(tree, rec.Boundary)
	c, err := newCustody(run, rec, nil, within)
	if err != nil {
		return false
	}
	if doubt != "" {
		c.doubt(doubt)
	}
	if rec.Boundary.Unit != "" {
		c.doubt("its owner, the main process of the " + rec.Boundary.Manager + " unit " + rec.Boundary.Unit + ", is gone: the service manager ends what that leaves")
	}
	c.mainEnded = rec.Main != nil && (rec.Main.ExitCode != nil || rec.Main.Signal != "")
	c.mainGone = tree.mainGone
	if rec.Cancel != nil {
		c.stopFor(c.grace())
	}
	c.inheritChecks()
	k.keepName(c)
	if never != nil {
		c.opened = func() (bool, *longstop.LaunchError) { return false, never }
	} else {
		c.enter(longstop.WorkloadOrphaned)
	}
	c.write(false)
	k.mu.Lock()
	k.custody[run.ID()] = c
	k.mu.Unlock()
	go func() {
		c.attend()
		run.Close()
		k.mu.Lock()
		delete(k.custody, run.ID())
		k.mu.Unlock()
		k.stir()
	}()
	return true
}

// close writes the final record of a run that is over for certain.
func (k *keeper) close(run *record.Run, rec longstop.Record) {
	rec.Survivors = nil
	none, empty := 0, true
	rec.Boundary.Processes, rec.Boundary.Empty = &none, &empty
	rec.Output = run.Outputs(rec.Output)
	rec.Output.Stream = longstop.StreamCut
	rec.At, rec.BootAt, rec.FinishedAt = longstop.At(time.Now()), boundary.BootNow(), longstop.At(time.Now())
	if _, err := run.Finish(&rec, nil); err == nil {
		logEnd(rec)
	}
}

func lost(rec *longstop.Record, because longstop.UnknownReason, proven bool) {
	enter(rec, longstop.WorkloadLost)
	rec.LostBecause, rec.EmptyProven, rec.Result = because, proven, nil
}

// identified is the boundary of a run as its successor has it: the main process, if it is still the
// one of the record, whoever carries the run's mark, and what descends from them. Somebody who left
// the tree and cleared his environment is not seen, so that emptiness is never proven.
type identified struct {
	run  longstop.RunID
	main *longstop.Main
	seen []boundary.Stat // who was in the tree while there was one
}

func (t *identified) pace() time.Duration { return unseen }

func (t *identified) rest() {}

func (t *identified) settle(func(boundary.Exit)) (empty, proven bool) {
	return len(t.roots()) == 0, false
}

// roots are the living processes that are the run's by their own identity.
func (t *identified) roots() []boundary.Stat {
	var since uint64
	var all []boundary.Stat
	if m := t.main; m != nil {
		since = m.StartTime
		if s, err := boundary.Look(m.PID); err == nil && t.isMain(s) {
			all = append(all, s)
		}
	}
	for _, s := range t.seen {
		if now, err := boundary.Look(s.PID); err == nil && now.Identity == s.Identity && !now.Dead() {
			all = append(all, now)
		}
	}
	return append(all, boundary.Marked(t.run, since)...)
}

// isMain compares all that a record has of the main process: its number, start, session, group and
// the table that the number is of. Not its command: exec changes that.
func (t *identified) isMain(s boundary.Stat) bool {
	m := t.main
	return s.PID == m.PID && s.Start == m.StartTime && s.SID == m.SID && s.PGID == m.PGID &&
		m.PIDNS == boundary.PIDNamespace() && !s.Dead()
}

// mainGone reports whether the main process has ended for certain: its number is another's, or nobody's.
func (t *identified) mainGone() bool {
	m := t.main
	if m == nil || m.PIDNS != boundary.PIDNamespace() {
		return false
	}
	s, err := boundary.Look(m.PID)
	return errors.Is(err, boundary.ErrGone) || err == nil && (s.Start != m.StartTime || s.Dead())
}

func (t *identified) walk(visit func(boundary.Stat) bool) {
	seen := map[boundary.Identity]bool{}
	once := func(s boundary.Stat) bool {
		if seen[s.Identity] {
			return false
		}
		seen[s.Identity] = true
		return visit(s)
	}
	for _, s := range t.roots() {
		before := boundary.Children(s.PID, s.Threads)
		if once(s) {
			boundary.Walk(s.PID, append(before, boundary.Children(s.PID, s.Threads)...), once)
		}
	}
}

func (t *identified) signal(id boundary.Identity, sig unix.Signal, following ...unix.Signal) error {
	return boundary.Signal(id, sig, following...)
}

func (t *identified) kill(before func(boundary.Stat), after func(struck)) { killEach(t, before, after) }

func (t *identified) doubts() []longstop.Process { return nil }

// answering finds whoever answers for the run of a cancel or a renewal, among those that the keeper
// has or can take over. Nil without an error: the run is over.
func (k *keeper) answering(a ask) (*custody, error) {
	k.succeedTo(a.RunID)
	k.mu.Lock()
	c, w := k.custody[a.RunID], k.wards[a.RunID]
	k.mu.Unlock()
	switch {
	case c != nil:
		return c, nil
	case w != nil && a.Bypass:
		return k.bypass(w)
	case w != nil:
		select {
		case <-w.gone:
			return w.custody, nil
		case <-time.After(soon): // an owner is there: it is about to listen, or its socket was removed
			return nil, ownerFirst()
		}
	}
	return k.bypassStranger(a)
}

// ownerFirst sends whoever asks to the run's owner.
func ownerFirst() error {
	return &longstop.Error{Code: longstop.CodeTimeout, Message: "the run has an owner, which is to be asked", Hint: "Ask again."}
}

// bypass ends an owner of ours that does not answer, and takes over from it.
func (k *keeper) bypass(w *ward) (*custody, error) {
	fault.At("keeper.bypass")
	if err := k.reaper.Signal(w.owner, unix.SIGKILL); err != nil && !errors.Is(err, boundary.ErrGone) {
		return nil, fmt.Errorf("end an owner that does not answer: %w", err)
	}
	select {
	case <-w.gone:
		return w.custody, nil
	case <-time.After(heardWithin):
		return nil, &longstop.Error{Code: longstop.CodeTimeout, Message: "the run's owner does not answer and cannot be ended: it is stuck inside the kernel",
			Hint: "Ask again; the host's own log may say what it waits for."}
	}
}
