package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/wire"
)

var errMoved = errors.New("the folder was moved or removed")

// Finish writes rec as the run's final record and returns its bytes; it sets the fields that Write
// sets. It needs neither space nor an inode. ErrFinal if there is one already that an owner or an
// heir wrote. For the holder of the lock alone, who may call it again where it failed.
//
//  1. The room reserved at launch is overwritten and flushed: the record is whole and durable under
//     a name that nobody reads in this boot.
//  2. It gets its name, create-only. From here on the run is final, and OnFinal is told. The name is
//     not flushed: after a power failure that took it, the next boot gives it again (Folder.final).
//     What is left of the room is given back.
//  3. The indexes follow. They are not flushed: a reader of the final record mends them.
//  4. The slots are cut off, unless they are damaged and therefore kept; this also tells whoever
//     watches the record file.
//
// Where the run's folder does not take it (the work may have removed, moved or filled it), the record
// is written into a slot, which has its room too, and flushed: it is as durable there, and final.
func (r *Run) Finish(rec *longstop.Record, secret []byte) (raw []byte, err error) {
	if err := r.mayWrite(rec, secret); err != nil {
		return nil, err
	}
	if !rec.State.Final() {
		return nil, fmt.Errorf("write final record: state %q is not final", rec.State)
	}
	dir, err := r.folder()
	if err == nil {
		raw, err = r.name(dir, rec, secret)
	}
	if err != nil && !errors.Is(err, ErrFinal) {
		if raw, slotErr := r.finishInSlots(rec, secret, err); slotErr == nil {
			return raw, nil
		}
	}
	if err != nil {
		return nil, err
	}
	r.f.resolve(r.id)
	if r.slots.damaged == nil {
		r.lock.file.Truncate(headSize)
	}
	return raw, nil
}

func (r *Run) told(raw []byte) {
	if r.OnFinal != nil {
		r.OnFinal(raw)
	}
}

// name does steps 1 and 2 of Finish.
func (r *Run) name(dir *os.File, rec *longstop.Record, secret []byte) (raw []byte, err error) {
	unix.Fchmod(int(dir.Fd()), 0700) // else nobody reads it, by rule
	if !sameName(dir) {
		return nil, writeError(dir.Name(), errMoved)
	}
	if err := r.setAside(dir, secret); err != nil {
		return nil, err
	}
	rec.Sequence = r.sequence + 1
	if raw, err = fit(*rec, secret, finalSize); err != nil {
		return nil, err
	}
	fault.At("record.finish.start")
	sealed := seal(kindRecord, rec.Sequence, raw)
	room, err := r.fillReserved(dir, sealed)
	if err != nil {
		return nil, err
	}
	defer room.Close()
	fault.At("record.finish.written")
	if err := nameFinal(dir); err != nil {
		return nil, err
	}
	r.sequence = rec.Sequence
	fault.At("record.finish.renamed")
	r.told(raw)
	// A failure leaves zeros, which readers pass over. What somebody else cut stays cut.
	if info, err := room.Stat(); err == nil && info.Size() > int64(len(sealed)) {
		room.Truncate(int64(len(sealed)))
	}
	return raw, nil
}

// fillReserved overwrites the final record's room, made anew if it is gone, and flushes it, with the
// names that lead to it and to the run, as far as they are not known to be durable.
func (r *Run) fillReserved(dir *os.File, data []byte) (*os.File, error) {
	room, err := openAt(dir, "final.reserved", unix.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		r.settled, r.settling = false, nil
		room, err = openAt(dir, "final.reserved", unix.O_WRONLY|unix.O_CREAT)
	}
	if err != nil {
		return nil, writeError(dir.Name(), err)
	}
	if _, err = room.WriteAt(data, 0); err != nil {
		err = writeError(room.Name(), err)
	} else if err = r.f.flushData(room, "record.finish.data"); err == nil {
		err = r.settleAll(dir)
	}
	if err != nil {
		room.Close()
		return nil, err
	}
	return room, nil
}

// settleAll makes durable what leads to the final record, where it is not.
func (r *Run) settleAll(dir *os.File) error {
	if r.settling != nil {
		// Once is enough: a second flush would succeed without the first one's bytes.
		err := <-r.settling
		r.settling = nil
		if r.settled = err == nil; !r.settled {
			return err
		}
	}
	if !r.settled {
		if err := r.f.settle(dir); err != nil {
			return err
		}
		r.settled = true
	}
	if r.claimed {
		return nil
	}
	return r.flushSlots("record.finish.slot.flush")
}

// nameFinal gives the final record its name by giving up the second name of its room, which needs no
// inode. The first stays: of what is renamed, a power failure may leave neither name. ErrFinal if
// there is a final record.
func nameFinal(dir *os.File) error {
	if !sameEntry(dir, "final.reserved", "final.spare") {
		unlink(dir, "final.spare")
		if err := link(dir, "final.reserved", dir, "final.spare"); err != nil {
			return err
		}
	}
	return rename(dir, "final.spare", "final")
}

// sameEntry reports whether two names in dir are one file's.
func sameEntry(dir *os.File, a, b string) bool {
	var x, y unix.Stat_t
	return unix.Fstatat(int(dir.Fd()), a, &x, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(int(dir.Fd()), b, &y, unix.AT_SYMLINK_NOFOLLOW) == nil && x.Ino == y.Ino && x.Dev == y.Dev
}

// rename gives a file a new name in its folder, create-only: ErrFinal if that is taken.
func rename(dir *os.File, from, to string) error {
	fd := int(dir.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system or kernel without the flag: a hard link is as create-only.
		if err = unix.Linkat(fd, from, fd, to, 0); err == nil {
			unlink(dir, from)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return ErrFinal
	}
	if err != nil {
		return writeError(dir.Name()+"/"+to, err)
	}
	return nil
}

// finishInSlots writes the final record into a slot, and why it is there.
func (r *Run) finishInSlots(rec *longstop.Record, secret []byte, because error) ([]byte, error) {
	if r.slots.damaged != nil {
		return nil, r.slots.damaged
	}
	last := *rec
	last.Anomalies = append(last.Anomalies[:len(last.Anomalies):len(last.Anomalies)],
		"the run's folder did not take the final record, which is kept in the record file: "+because.Error())
	last.Sequence = r.sequence + 1
	raw, err := fit(last, secret, slotSize)
	if err != nil {
		return nil, err
	}
	if err := r.writeSlot(seal(kindRecord, last.Sequence, raw)); err != nil {
		return nil, err
	}
	if err := r.flushSlots("record.finish.slot.flush"); err != nil {
		return nil, err
	}
	*rec, r.sequence, r.slots.final = last, last.Sequence, true
	r.told(raw)
	r.f.resolve(r.id)
	return raw, nil
}

// finalInSlots is a final record that is in the slots.
func (r *Run) finalInSlots() ([]byte, longstop.Record, bool) {
	raw, err := r.readSlots()
	if err != nil || len(raw) == 0 {
		return nil, longstop.Record{}, false
	}
	rec, err := r.parse(raw)
	return raw, rec, err == nil && rec.State.Final()
}

// forged reports whether what has the final record's name is none: what is made while the lock is
// held comes from its holder or from nobody entitled. A successor has no secret, and can only tell
// that it is no record.
func (r *Run) forged(secret []byte) bool {
	raw, _, err := r.readFinal()
	if err != nil {
		return longstop.CodeOf(err) == longstop.CodeUnreadable
	}
	if secret == nil {
		return false
	}
	_, signed, err := wire.Verify(raw, secret)
	return err != nil || !signed
}

// setAside gives what was forged another name, under which it is kept.
func (r *Run) setAside(dir *os.File, secret []byte) error {
	if !exists(dir, "final") || !r.forged(secret) {
		return nil
	}
	return rename(dir, "final", "final.forged."+randomName())
}
