package record

import (
	"github.com/longstop/longstop"
)

// A name that one run holds at a time is held by what the records say: a run that has it says so until
// its record is final, whoever answers for it by then, and so until nothing of it is left. The lock of
// the name's file makes one run at a time look at them. It ends with its holder, so that nothing is
// ever to be cleaned up; nor does it help to remove the file under its holder.

// LockName locks the file of a name that runs may hold. ErrHeld: somebody has it.
func (f *Folder) LockName(name string) (*Lock, error) { return f.Lock("name-" + KeyHash(name)) }

// Holder is the record of a run, other than one, that has a name. Answered says that somebody answers
// for that run; else its heir is still to come.
func (f *Folder) Holder(name string, except longstop.RunID) (holder *longstop.Record, answered bool, err error) {
	ids, err := f.Unresolved()
	if err != nil {
		return nil, false, err
	}
	for _, id := range ids {
		if id == except {
			continue
		}
		if rec := f.recordOf(id); rec != nil && !rec.State.Final() && rec.Exclusive != nil && rec.Exclusive.Name == name && !rec.Exclusive.Since.IsZero() {
			held, err := lockHeld(f.claims, string(id))
			return rec, held && err == nil, nil
		}
	}
	return nil, false, nil
}

// recordOf is a run's newest record, nil where none can be read.
func (f *Folder) recordOf(id longstop.RunID) *longstop.Record {
	run, err := f.Run(id)
	if err != nil {
		return nil
	}
	defer run.Close()
	_, rec, err := run.Read()
	if err != nil {
		return nil
	}
	return &rec
}
