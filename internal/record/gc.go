package record

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
)

// Collect marks a final run as one whose result is durable elsewhere: it may be removed once whoever
// collected it says so. Nothing is written, so a full disk does not matter: the run's own name in claims
// goes (its key's stays). Only a final record that is in the slots, which go with that name, is first put
// on a tombstone. A run that is not final is refused.
func (r *Run) Collect() error {
	raw, rec, err := r.Read()
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return err
	}
	if err != nil || !rec.State.Final() {
		return &longstop.Error{Code: longstop.CodeRefused, Message: "run " + string(r.id) + " has no final record to be collected",
			Hint: "Collect it once it is final."}
	}
	if _, _, err := r.readFinal(); err != nil && exists(r.f.claims, string(r.id)) {
		if err := r.f.entomb(r.id, seal(kindRecord, rec.Sequence, raw)); err != nil {
			return err
		}
	}
	r.f.resolve(r.id)
	return unlink(r.f.claims, string(r.id))
}

// entomb makes a run's tombstone, whole before it has its name.
func (f *Folder) entomb(id longstop.RunID, sealed []byte) error {
	temporary := "new." + randomName()
	tomb, err := openAt(f.tombs, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return writeError(f.tombs.Name(), err)
	}
	defer tomb.Close()
	defer unlink(f.tombs, temporary)
	if _, err := tomb.Write(sealed); err != nil {
		return writeError(tomb.Name(), err)
	}
	if err := f.flushData(tomb, "record.collect.data"); err != nil {
		return err
	}
	if err := link(f.tombs, temporary, f.tombs, string(id)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.flush(f.tombs, "record.collect.flush")
}

// collected reports whether a final run was collected.
func (f *Folder) collected(id longstop.RunID) bool { return !exists(f.claims, string(id)) }

// Retention says what GC removes.
type Retention struct {
	Runs   []longstop.RunID // go if they were collected: how long to keep them is for who collected them
	MaxAge time.Duration    // any other goes, collected or not, that ended longer ago; 0: never
	Now    time.Time
	// InUse, if set, keeps a run: released processes of it may still be alive.
	InUse func(longstop.Record) bool
}

// gcAtOnce is how many runs one GC removes for their age.
const gcAtOnce = 1000

// GC removes final runs as the retention says. Each leaves a tombstone, which is its final record, and
// its key's claim, so that the key is refused for ever. A run whose record cannot be read stays, as does
// one without a final record. Gone are those asked for that are not there any more, whoever removed them,
// and what was removed for its age; more says that more is old enough.
//
// Its cost follows what it is asked about and what is old enough, not what exists. On a full disk it needs
// nothing but what it frees. An error leaves the run that it is about as it was; others go.
//
//  1. The final records get their second names, on tombstones, and those are flushed.
//  2. Each run leaves claims and runs in one step each, and what was in its folder is removed.
//  3. What the log of resolved runs says of removed ones is given back.
func (f *Folder) GC(retention Retention) (gone []longstop.RunID, more bool, err error) {
	due := map[longstop.RunID]bool{}
	for _, id := range retention.Runs {
		switch f.fate(id, retention, true) {
		case removed:
			gone = append(gone, id)
		case mayGo:
			due[id] = true
		}
	}
	aged := f.aged(retention)
	for _, id := range aged.due {
		due[id] = true
	}
	went, err := f.remove(slices.Sorted(maps.Keys(due)))
	if err == nil {
		f.shortenLog(aged.over)
	}
	f.sweep(retention.Now)
	return append(gone, went...), aged.more, err
}

// fate is what a retention means for a run.
type fate int

const (
	removed fate = iota // it is not there any more
	stays               // it is not final, damaged, in use, or of an age that cannot be
	young               // it is final and was not there for long enough
	mayGo
)

// unbelievable is an age that says that the clock was not set when the run ended, or is not set now.
const unbelievable = 20 * 365 * 24 * time.Hour

func (f *Folder) fate(id longstop.RunID, retention Retention, named bool) fate {
	run, err := f.Run(id)
	if errors.Is(err, ErrNoRun) {
		return removed
	}
	if err != nil {
		return stays
	}
	defer run.Close()
	if run.dir == nil && exists(f.tombs, string(id)) {
		unlink(f.claims, string(id)) // a power failure may have brought it back
		return removed
	}
	_, rec, err := run.Read()
	if err != nil || !rec.State.Final() {
		return stays
	}
	ended := rec.FinishedAt.Time
	if ended.IsZero() {
		ended = rec.At.Time
	}
	age := retention.Now.Sub(ended)
	old := retention.MaxAge > 0 && age >= retention.MaxAge
	switch {
	case named && f.collected(id):
	case !old:
		return young
	case age > unbelievable:
		return stays
	}
	if retention.InUse != nil && retention.InUse(rec) {
		return stays
	}
	return mayGo
}

// remove removes runs that may go, and returns those that went.
func (f *Folder) remove(due []longstop.RunID) (went []longstop.RunID, err error) {
	var buried []longstop.RunID
	for _, id := range due {
		if buryErr := f.bury(id); buryErr != nil {
			err = errors.Join(err, buryErr)
			continue
		}
		buried = append(buried, id)
	}
	if len(buried) == 0 {
		return nil, err
	}
	if flushErr := f.flush(f.tombs, "record.gc.flush"); flushErr != nil {
		return nil, flushErr
	}
	for _, id := range buried {
		fault.At("record.gc.remove")
		if removeErr := f.removeBuried(id); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		went = append(went, id)
	}
	return went, err
}

// bury gives a run's final record its name on a tombstone. Where there is no room for that, the run's
// output, which may go, makes some.
func (f *Folder) bury(id longstop.RunID) error {
	if exists(f.tombs, string(id)) {
		return nil
	}
	run, err := f.Run(id)
	if err != nil {
		return err
	}
	defer run.Close()
	if _, _, err := run.readFinal(); err != nil { // it is in the slots
		raw, rec, err := run.Read()
		if err != nil {
			return err
		}
		return f.entomb(id, seal(kindRecord, rec.Sequence, raw))
	}
	name := func() error { return link(run.dir, "final", f.tombs, string(id)) }
	err = name()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		if err = run.empty(); err == nil {
			err = name()
		}
	}
	return err
}

// removeBuried removes a run that has its tombstone: for whoever looks it is there, or it is not. What
// is removed of it after that, and whatever may stop that, is nobody's any more.
func (f *Folder) removeBuried(id longstop.RunID) error {
	if err := unlink(f.claims, string(id)); err != nil {
		return err
	}
	unlink(f.unresolved, string(id))
	gone := goneName + string(id)
	err := unix.Renameat(int(f.runs.Fd()), string(id), int(f.spool.Fd()), gone)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil: // no room for its other name, or one left there by an earlier try
		return f.removeRun(id)
	}
	removeAll(f.spool, gone)
	return nil
}

// empty removes what is in a run's folder but its final record.
func (r *Run) empty() error {
	entries, err := names(r.dir)
	if err != nil {
		return err
	}
	for _, name := range entries {
		if name == "final" || name == "final.reserved" { // either may be the one that is durable
			continue
		}
		if err := removeAll(r.dir, name); err != nil {
			return err
		}
	}
	return nil
}

// aged is what MaxAge says of the runs in the log of resolved ones.
type aged struct {
	due  []longstop.RunID
	over int64 // before this offset of the log, all are gone or due
	more bool
}

// aged goes through the log, which is in the order of the runs' ends, from where shortenLog left it to
// the first run that is young.
func (f *Folder) aged(retention Retention) (found aged) {
	if retention.MaxAge <= 0 {
		return found
	}
	log, err := openAt(f.root, logName, unix.O_RDONLY)
	if err != nil {
		return found
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return found
	}
	offset, whole := logStart(log), true
	for {
		ids, end, more, err := readLog(log, offset, info.Size(), 100)
		if err != nil {
			return found
		}
		for _, id := range ids {
			switch f.fate(id, retention, false) {
			case young:
				return found
			case mayGo:
				found.due = append(found.due, id)
			case stays:
				whole = false
			}
		}
		offset = end
		if whole {
			found.over = end
		}
		if !more || len(found.due) >= gcAtOnce {
			found.more = more
			return found
		}
	}
}

// logStart is where the log of resolved runs has its first bytes.
func logStart(log *os.File) int64 {
	start, err := unix.Seek(int(log.Fd()), 0, unix.SEEK_DATA)
	if err != nil { // nothing in it, or a file system that cannot tell
		return 0
	}
	return start
}

// shortenLog gives the beginning of the log of resolved runs back to the disk, up to an offset: the
// offsets of what follows are cursors, and stay. Where the file system cannot, it is kept.
func (f *Folder) shortenLog(to int64) {
	const block = 4096
	if to -= to % block; to == 0 {
		return
	}
	log, err := openAt(f.root, logName, unix.O_WRONLY)
	if err != nil {
		return
	}
	defer log.Close()
	unix.Fallocate(int(log.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, to)
}
