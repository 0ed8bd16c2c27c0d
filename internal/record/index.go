package record

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Unresolved returns the runs that are claimed and have no final record, in the order of their
// names. Its cost follows their number.
func (f *Folder) Unresolved() ([]longstop.RunID, error) {
	entries, err := names(f.unresolved)
	if err != nil {
		return nil, err
	}
	ids := make([]longstop.RunID, 0, len(entries))
	for _, name := range entries {
		if id, err := longstop.ParseRunID(name); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Mend brings the indexes up to a run that turned out to be final though it was listed as
// unresolved: its owner died between the two.
func (f *Folder) Mend(id longstop.RunID) { f.resolve(id) }

// resolve enters a run into the log of resolved ones and takes it from the index of unresolved
// ones, in this order, so that a list misses none; it may show one twice.
func (f *Folder) resolve(id longstop.RunID) {
	if !exists(f.unresolved, string(id)) {
		return
	}
	if log, err := openAt(f.root, logName, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT); err == nil {
		_, err = log.WriteString(string(id) + "\n")
		log.Close()
		if err != nil {
			return // it stays unresolved in the index, and is entered by whoever mends it
		}
	}
	unlink(f.unresolved, string(id))
}

const (
	logName = "resolved.log"
	logLine = len("run_") + 32 + len("\n")
	logRoom = 64 << 10
)

// reserveLog keeps room at the end of the log of resolved runs, as far as the file system can, so
// that a full disk does not hide a result from a list.
func (f *Folder) reserveLog() error {
	log, err := openAt(f.root, logName, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return writeError(f.root.Name(), err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return err
	}
	_, err = retry(func() (int, error) {
		return 0, unix.Fallocate(int(log.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), logRoom)
	})
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return writeError(log.Name(), err)
}

// Page is one page of a list.
type Page struct {
	Runs   []longstop.RunID
	Cursor string // where to go on, now or later
	More   bool   // there is more now
}

// List returns the unresolved runs and those resolved after cursor, at most limit at a time (0: as
// many as there are). With an empty cursor it begins at the end of the log: unresolved runs alone.
// A run that is resolved meanwhile is in a later page; one may come twice. The cost follows what is
// returned, not what exists.
func (f *Folder) List(cursor string, limit int) (Page, error) {
	log, err := openAt(f.root, logName, unix.O_RDONLY)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Page{}, err
	}
	var size int64
	if log != nil {
		defer log.Close()
		if info, err := log.Stat(); err == nil {
			size = info.Size()
		}
	}
	// The log's end is taken before the index is read, so that a run resolved between is in the
	// next page.
	offset, after, err := parseCursor(cursor, size)
	if err != nil {
		return Page{}, err
	}
	unresolved, err := f.Unresolved()
	if err != nil {
		return Page{}, err
	}
	start, _ := slices.BinarySearch(unresolved, longstop.RunID(after+"\x00"))
	unresolved = unresolved[start:]
	if limit > 0 && len(unresolved) > limit {
		unresolved = unresolved[:limit]
		return Page{Runs: unresolved, Cursor: formatCursor(offset, string(unresolved[limit-1])), More: true}, nil
	}
	page := Page{Runs: unresolved}
	if log == nil {
		page.Cursor = formatCursor(0, "")
		return page, nil
	}
	room := -1
	if limit > 0 {
		room = limit - len(unresolved)
	}
	resolved, end, more, err := readLog(log, offset, size, room)
	if err != nil {
		return Page{}, err
	}
	page.Runs, page.More = append(page.Runs, resolved...), more
	page.Cursor = formatCursor(end, "")
	if more { // the unresolved ones were told
		page.Cursor = formatCursor(end, "z")
	}
	return page, nil
}

// logChunk is how much of the log is read at a time.
const logChunk = 64 << 10

// readLog returns the runs of the log between two offsets, at most room (any number if negative),
// and the offset after the last. What a crash left torn or zero is passed over.
func readLog(log *os.File, offset, size int64, room int) (ids []longstop.RunID, end int64, more bool, err error) {
	chunk := make([]byte, min(logChunk, max(size-offset, 0)))
	for offset < size {
		n, err := log.ReadAt(chunk[:min(int64(len(chunk)), size-offset)], offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, false, err
		}
		rest := chunk[:n]
		for {
			line, after, whole := bytes.Cut(rest, []byte{'\n'})
			if !whole {
				break
			}
			id, err := longstop.ParseRunID(string(bytes.TrimLeft(line, "\x00")))
			if err == nil && room >= 0 && len(ids) >= room {
				return ids, offset, true, nil
			}
			if err == nil {
				ids = append(ids, id)
			}
			offset += int64(len(rest) - len(after))
			rest = after
		}
		if len(rest) < n {
			continue
		}
		if n < logLine || offset+int64(n) >= size {
			return ids, offset, false, nil // a line that is being written
		}
		offset += int64(n - logLine) // a chunk without an end of line: what could begin one stays
	}
	return ids, offset, false, nil
}

// A cursor is an offset into the log, and the last unresolved run of a page that was cut there.
func formatCursor(offset int64, after string) string {
	return strconv.FormatInt(offset, 10) + "." + after
}

func parseCursor(cursor string, size int64) (offset int64, after string, err error) {
	if cursor == "" {
		return size, "", nil
	}
	digits, after, ok := strings.Cut(cursor, ".")
	offset, err = strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || offset < 0 {
		return 0, "", &longstop.Error{Code: longstop.CodeUsage, Message: "the cursor " + strconv.Quote(clip(cursor, 64)) + " is none of this host's",
			Hint: "Begin without one."}
	}
	if offset > size { // the log is another one: everything may have changed
		return 0, "", nil
	}
	return offset, after, nil
}

// reindex rebuilds both indexes once after each boot: neither is flushed, and only a power failure
// loses what was not. Rebuilding twice at once does no harm.
func (f *Folder) reindex() error {
	if boot, err := readAll(f.unresolved, "boot", 256); err == nil && f.bootID != "" && string(boot) == f.bootID {
		return nil
	}
	entries, err := names(f.claims)
	if err != nil {
		return err
	}
	f.leaveUnbegun(entries)
	f.sweepAll(entries, time.Now())
	logged, err := f.logged()
	if err != nil {
		return err
	}
	for _, name := range entries {
		id, err := longstop.ParseRunID(name)
		if err != nil || !exists(f.claims, name) {
			continue
		}
		over := exists(f.runs, name+"/final") && logged[id] // as nearly all are: no need to read them
		if !over {
			if claim, err := f.claim(name); err == nil {
				f.final(claim)
			}
			over = exists(f.runs, name+"/final") && logged[id]
		}
		if over || !f.claimed(id) {
			unlink(f.unresolved, name)
			continue
		}
		if err := link(f.claims, name, f.unresolved, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	unresolved, err := f.Unresolved()
	if err != nil {
		return err
	}
	for _, id := range unresolved {
		switch {
		case !exists(f.runs, string(id)+"/final") && !exists(f.tombs, string(id)):
		case logged[id]:
			unlink(f.unresolved, string(id))
		default:
			f.resolve(id)
		}
	}
	return f.markIndexed()
}

// claimed reports whether a run's key leads to it: a submit that died before that claimed nothing.
// A claim that cannot be read counts, so that it is seen.
func (f *Folder) claimed(id longstop.RunID) bool {
	claim, err := f.claim(string(id))
	if err != nil {
		return true
	}
	var run, key unix.Stat_t
	return unix.Fstatat(int(f.claims.Fd()), string(id), &run, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(int(f.claims.Fd()), claim.KeyHash, &key, unix.AT_SYMLINK_NOFOLLOW) == nil && run.Ino == key.Ino
}

func (f *Folder) logged() (map[longstop.RunID]bool, error) {
	logged := map[longstop.RunID]bool{}
	log, err := openAt(f.root, logName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return logged, nil
	}
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	ids, _, _, err := readLog(log, 0, info.Size(), -1)
	for _, id := range ids {
		logged[id] = true
	}
	return logged, err
}

func (f *Folder) markIndexed() error {
	temporary := "boot." + randomName()
	file, err := openAt(f.unresolved, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil // a full or read-only disk: the index is right for now, and is rebuilt next time
	}
	defer file.Close()
	if _, err = file.WriteString(f.bootID); err == nil {
		err = unix.Renameat(int(f.unresolved.Fd()), temporary, int(f.unresolved.Fd()), "boot")
	}
	if err != nil {
		unlink(f.unresolved, temporary)
	}
	return nil
}
