package record

import (
	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// What a power failure left is put in order by the next boot, from what the order of writes allows:
// a run's work is let through only after a record of it is durable, and with that its claim and the
// names that lead to both; a final record is durable before it has its name.

// final reports whether a claim's run has its final record. One that lost its name to a power failure
// gets it again: only in a boot after the claim's, since in the same one its writer may be about to.
func (f *Folder) final(claim Claim) bool {
	id := string(claim.RunID)
	if exists(f.runs, id+"/final") {
		return true
	}
	if claim.BootID == f.bootID || !exists(f.runs, id+"/final.reserved") {
		return false
	}
	dir, err := openDir(f.runs, id)
	if err != nil {
		return false
	}
	defer dir.Close()
	room, err := openAt(dir, "final.reserved", unix.O_RDWR)
	if err != nil {
		return false
	}
	defer room.Close()
	data := make([]byte, finalSize)
	n, _ := room.ReadAt(data, 0)
	_, raw, err := unseal(kindRecord, data[:n])
	if err != nil {
		return false
	}
	run := &Run{f: f, id: claim.RunID}
	rec, err := run.parse(raw)
	return err == nil && rec.State.Final() && f.flushData(room, "record.promote.data") == nil && nameFinal(dir) == nil
}

// leaveUnbegun clears away, once after each boot, the names that lead to a record file which is not
// whole, if nothing tells that its run was begun: it was never flushed, so nothing ran. Where the
// claim is whole and every slot torn, the slots get the empty record again.
func (f *Folder) leaveUnbegun(entries []string) {
	begun := map[uint64]bool{} // inodes of files that are damaged, not unbegun
	var torn []string
	for _, name := range entries {
		data, err := readAll(f.claims, name, fileSize)
		if err != nil {
			continue
		}
		if _, _, err := unseal(kindClaim, data); len(data) == headSize && err == nil {
			continue // whole, and without slots: most are
		}
		claim, err := unsealClaim(data[:min(len(data), headSize)])
		_, isRun := longstop.ParseRunID(name)
		switch {
		case err != nil && longstop.CodeOf(err) == longstop.CodeVersionMismatch:
		case err != nil:
			torn = append(torn, name)
			if isRun == nil && f.begun(name) {
				begun[f.inode(name)] = true
			}
		case !claim.Void && claim.BootID != f.bootID && !f.begun(string(claim.RunID)):
			f.emptySlots(name, data)
		}
	}
	for _, name := range torn {
		if !begun[f.inode(name)] {
			unlink(f.unresolved, name)
			unlink(f.claims, name)
		}
	}
}

// begun reports whether a run's folder has what only comes once its work was let through.
func (f *Folder) begun(id string) bool {
	return exists(f.runs, id+"/stdout") || exists(f.runs, id+"/final")
}

func (f *Folder) inode(name string) uint64 {
	var st unix.Stat_t
	unix.Fstatat(int(f.claims.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Ino
}

// emptySlots writes the empty record where no slot is valid.
func (f *Folder) emptySlots(name string, data []byte) {
	if len(data) == headSize { // cut back: it has its final record
		return
	}
	if len(data) == fileSize {
		if _, _, _, _, err := newestSlot(data[headSize:]); err == nil || longstop.CodeOf(err) == longstop.CodeVersionMismatch {
			return
		}
	}
	file, err := openAt(f.claims, name, unix.O_WRONLY)
	if err != nil {
		return
	}
	defer file.Close()
	slots := make([]byte, slotCount*slotSize)
	copy(slots, seal(kindRecord, 0, nil))
	file.WriteAt(slots, headSize)
}
