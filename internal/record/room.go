package record

import (
	"encoding/json"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/wire"
)

// A room is a run's folder made ahead, in spool, while nobody waits: making its files is most of what
// Build takes. It becomes a run's by its name. One that no run came for is swept with the spool.
const (
	roomPrefix  = "room."
	roomRecord  = "record.room"
	roomRequest = "request.room"
)

// Prepare makes a room for the next run that is built here, if there is none. Without one, Build makes
// what it needs.
func (f *Folder) Prepare() error {
	f.roomMu.Lock()
	defer f.roomMu.Unlock()
	if f.room != "" {
		return nil
	}
	name := roomPrefix + randomName()
	if err := f.makeRoom(name); err != nil {
		removeAll(f.spool, name)
		return err
	}
	f.room = name
	return nil
}

func (f *Folder) makeRoom(name string) error {
	if err := makeDir(f.spool, name); err != nil {
		return err
	}
	dir, err := openDir(f.spool, name)
	if err != nil {
		return err
	}
	run := &Run{f: f, dir: dir}
	defer run.Close()
	if err := run.furnish(roomRecord, roomRequest); err != nil {
		return err
	}
	return f.reserveLog()
}

// furnish makes what every run's folder has: the record file, whose claim is yet to be written, the
// final record's room, and a file for the request.
//
// Zeroes are written, not holes: each record finds its blocks there, and needs no space. Slot 0 holds
// an empty record with sequence 0, so that none yet is not the same as damaged.
func (r *Run) furnish(recordName, requestName string) error {
	room := make([]byte, fileSize)
	copy(room[headSize:], seal(kindRecord, 0, nil))
	if err := r.writeNew(recordName, room); err != nil {
		return err
	}
	if err := r.writeNew(requestName, nil); err != nil {
		return err
	}
	return r.reserve()
}

func (r *Run) writeNew(name string, data []byte) error {
	file, err := openAt(r.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return writeError(r.dir.Name(), err)
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return writeError(file.Name(), err)
	}
	return nil
}

// moveIn makes the room that was prepared a run's folder, and reports whether it is now: not if there
// is none, or the run has a folder, which an earlier submit left.
func (f *Folder) moveIn(id longstop.RunID) bool {
	f.roomMu.Lock()
	room := f.room
	f.room = ""
	f.roomMu.Unlock()
	if room == "" {
		return false
	}
	err := unix.Renameat2(int(f.spool.Fd()), room, int(f.runs.Fd()), string(id), unix.RENAME_NOREPLACE)
	if err != nil {
		removeAll(f.spool, room)
	}
	return err == nil
}

// fill writes into a furnished folder what is this run's: its standard input, the request, the claim.
func (f *Folder) fill(run *Run, sub wire.Submit, head []byte, requestName string) error {
	if err := f.takeSpool(run, sub); err != nil {
		return err
	}
	request, err := json.Marshal(requestOf(sub))
	if err != nil {
		return err
	}
	if err := run.overwrite(requestName, request); err != nil {
		return err
	}
	switch err := rename(run.dir, requestName, "request"); {
	case errors.Is(err, ErrFinal): // there is one already
		unlink(run.dir, requestName)
	case err != nil:
		return err
	}
	fault.At("record.build.filled")
	return run.overwrite(run.built, head)
}

func (r *Run) overwrite(name string, data []byte) error {
	file, err := openAt(r.dir, name, unix.O_WRONLY)
	if err != nil {
		return writeError(r.dir.Name(), err)
	}
	defer file.Close()
	if _, err := file.WriteAt(data, 0); err != nil {
		return writeError(file.Name(), err)
	}
	return nil
}
