package record

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
)

// Collect marks a final run as one whose result is durable elsewhere: it may be removed after its
// retention. Nothing is written, so a full disk does not matter: the run's own name in claims goes
// (its key's stays). Only a final record that is in the slots, which go with that name, is first put
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
	if exists(r.f.claims, string(r.id)) && (r.dir == nil || !exists(r.dir, "final")) && !exists(r.f.tombs, string(r.id)) {
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
	Keep   time.Duration // collected runs that finished longer ago go
	MaxAge time.Duration // uncollected ones too, if longer ago than this; 0: never
	Now    time.Time
	// InUse, if set, keeps a run: released processes of it may still be alive.
	InUse func(longstop.Record) bool
}

// unclaimedAge is how long what no key leads to is left alone: a spool that no submit took, what a
// submit left that died before its claim.
const unclaimedAge = 24 * time.Hour

// GC removes final runs as the retention says and returns them. Each leaves a tombstone, which is
// its final record, and its key's claim, so that the key is refused for ever. A run whose record
// cannot be read stays, as does one without a final record.
//
//  1. The final record gets its second name, on the tombstone, and that is flushed.
//  2. The run's folder goes, the final record's first name last.
func (f *Folder) GC(retention Retention) ([]longstop.RunID, error) {
	entries, err := names(f.runs)
	if err != nil {
		return nil, err
	}
	var due []longstop.RunID
	for _, name := range entries {
		id, err := longstop.ParseRunID(name)
		if err != nil {
			continue
		}
		if f.due(id, retention) {
			if err := link(f.runs, name+"/final", f.tombs, name); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			due = append(due, id)
		}
	}
	if len(due) > 0 {
		if err := f.flush(f.tombs, "record.gc.flush"); err != nil {
			return nil, err
		}
	}
	for i, id := range due {
		fault.At("record.gc.remove")
		if err := unlink(f.claims, string(id)); err != nil {
			return due[:i], err
		}
		if err := f.removeRun(id); err != nil {
			return due[:i], err
		}
	}
	f.sweep(entries, retention.Now)
	return due, nil
}

func (f *Folder) due(id longstop.RunID, retention Retention) bool {
	run, err := f.Run(id)
	if err != nil {
		return false
	}
	defer run.Close()
	if run.dir == nil || !exists(run.dir, "final") {
		return false
	}
	_, rec, err := run.readFinal()
	if err != nil {
		return false
	}
	age := retention.Now.Sub(rec.FinishedAt.Time)
	if rec.FinishedAt.IsZero() {
		age = retention.Now.Sub(rec.At.Time)
	}
	if f.collected(id) {
		if age < retention.Keep {
			return false
		}
	} else if retention.MaxAge <= 0 || age < retention.MaxAge {
		return false
	}
	return retention.InUse == nil || !retention.InUse(rec)
}

// SweepSpool removes standard input that no submit took within a day.
func (f *Folder) SweepSpool(now time.Time) {
	spools, _ := names(f.spool)
	for _, name := range spools {
		if unclaimed(f.spool, name, now) {
			unlink(f.spool, name)
		}
	}
}

// unclaimed reports whether a file was left alone for so long that nobody will come for it.
func unclaimed(dir *os.File, name string, now time.Time) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		now.Sub(time.Unix(st.Mtim.Unix())) > unclaimedAge
}

// sweep removes what dead submits left: old spools, folders and claims that no key leads to.
func (f *Folder) sweep(runs []string, now time.Time) {
	old := func(dir *os.File, name string) bool { return unclaimed(dir, name, now) }
	f.SweepSpool(now)
	claims, _ := names(f.claims)
	for _, name := range claims {
		id, err := longstop.ParseRunID(name)
		stale := err == nil && !exists(f.runs, name+"/final") && old(f.claims, name) && !f.claimed(id)
		if stale || (len(name) > 5 && name[:5] == "void." && old(f.claims, name)) {
			unlink(f.unresolved, name)
			unlink(f.claims, name)
		}
	}
	for _, name := range runs {
		id, err := longstop.ParseRunID(name)
		if err == nil && !exists(f.claims, name) && !exists(f.runs, name+"/final") && old(f.runs, name) {
			f.removeRun(id)
		}
	}
}
