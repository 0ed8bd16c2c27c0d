package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/longstop/longstop"
)

// slots is where the writer of a run's record stands. A record is written neither over the newest
// one, which readers would miss, and an heir if the writer is killed in the middle, nor over the
// newest durable one, which a power failure would take together with the unflushed. Three slots
// always leave one that is neither, so a record that need not be durable costs no flush.
type slots struct {
	file    *os.File // the locked record file
	newest  int      // slot of the newest valid record
	durable int      // slot of the newest durable one, or slotUnknown
	damaged error    // why there is none to be read: the slots are kept as they are
	final   bool     // the newest one is the final record
}

const slotUnknown = -1

// place finds where a new holder of the lock stands: the newest slot and its sequence. Whether
// another writer's record was flushed is not known; the empty one that Build wrote was.
func (r *Run) place() (slots, uint64, error) {
	s := slots{file: r.lock.file, newest: slotUnknown, durable: slotUnknown}
	if _, rec, err := r.readFinal(); err == nil {
		return s, rec.Sequence, nil
	} else if !errors.Is(err, fs.ErrNotExist) && longstop.CodeOf(err) != longstop.CodeUnreadable {
		return s, 0, err
	}
	data, err := r.slotBytes()
	if err != nil {
		return s, 0, err
	}
	at, sequence, raw, _, err := newestSlot(data)
	if err != nil {
		return s, 0, unreadable(r.lock.file.Name(), err)
	}
	s.newest = at
	if sequence == 0 {
		s.durable = at
		return s, 0, nil
	}
	rec, err := r.parse(raw)
	s.final = err == nil && rec.State.Final()
	return s, sequence, err
}

// writeSlot writes a sealed record into the slot that is free, and makes it the newest.
func (r *Run) writeSlot(sealed []byte) error {
	s := &r.slots
	if s.durable == slotUnknown {
		// Another writer's newest record may be the one that everything rests on.
		if err := r.flushSlots("record.write.inherited.flush"); err != nil {
			return err
		}
	}
	to := (s.newest + 1) % slotCount
	for to == s.newest || to == s.durable {
		to = (to + 1) % slotCount
	}
	if _, err := s.file.WriteAt(sealed, headSize+int64(to)*slotSize); err != nil {
		return writeError(s.file.Name(), err)
	}
	s.newest = to
	return nil
}

// flushSlots makes the newest record durable, and those before it; the first time also the names that
// lead to them, at the same moment.
func (r *Run) flushSlots(point string) error {
	err := r.f.beside(!r.claimed, r.f.claims, "record.claim.flush", func() error { return r.f.flushData(r.slots.file, point) })
	if err != nil {
		return err
	}
	r.claimed = true
	r.slots.durable = r.slots.newest
	return nil
}

// readSlots returns the newest valid record; no bytes are the empty one that Build wrote. A record
// file cut back to its claim belongs to a run that has its final record: fs.ErrNotExist.
//
// A slot that is not valid may be in the middle of a write, and another, read before it, may have
// been written since: they are read again until nothing moves. What is newest then is no older than
// anything that any reader saw before.
func (r *Run) readSlots() (raw []byte, err error) {
	var before []byte
	for try := 0; ; try++ {
		data, err := r.slotBytes()
		if err != nil {
			return nil, err
		}
		_, _, raw, torn, err := newestSlot(data)
		if !torn || bytes.Equal(data, before) || try == 100 {
			if err != nil {
				err = unreadable(r.f.claims.Name()+"/"+string(r.id), err)
			}
			return raw, err
		}
		before = data
	}
}

// slotBytes reads the slots as they are now, after the claim before them was seen to be whole.
func (r *Run) slotBytes() ([]byte, error) {
	path := r.f.claims.Name() + "/" + string(r.id)
	data, err := readAll(r.f.claims, string(r.id), fileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	if _, err := unsealClaim(data[:min(len(data), headSize)]); err != nil {
		return nil, unreadable(path, fmt.Errorf("claim: %w", err))
	}
	if len(data) <= headSize {
		return nil, &os.PathError{Op: "read", Path: path, Err: fs.ErrNotExist}
	}
	if len(data) < fileSize { // read while it was cut back: what is missing may be the newest
		return nil, unreadable(path, errors.New("cut short"))
	}
	return data[headSize:], nil
}

// newestSlot picks the valid slot with the greatest sequence. Torn says that one was neither valid
// nor never written.
func newestSlot(data []byte) (at int, sequence uint64, raw []byte, torn bool, err error) {
	at, err = slotUnknown, errTorn
	i := 0
	for slot := range slices.Chunk(data, slotSize) {
		n, body, slotErr := unseal(kindRecord, slot)
		switch {
		case longstop.CodeOf(slotErr) == longstop.CodeVersionMismatch:
			return slotUnknown, 0, nil, false, slotErr
		case slotErr != nil:
			torn = torn || len(bytes.Trim(slot, "\x00")) > 0
		case err != nil || n > sequence:
			at, sequence, raw, err = i, n, body, nil
		}
		i++
	}
	return at, sequence, raw, torn || err != nil, err
}
