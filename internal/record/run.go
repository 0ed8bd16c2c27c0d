package record

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Run is one run's part of the state folder. Read and the output methods are for anybody; Write
// and Finish for the holder of its lock. A Run is used by one goroutine at a time.
type Run struct {
	f   *Folder
	id  longstop.RunID
	dir *os.File // runs/<run>; nil if a power failure took it, or after its retention

	claim Claim
	built string // between Build and Claim: the record file's first name, in dir

	lock     *Lock
	slots    slots  // for the holder of the lock
	sequence uint64 // of the newest record, for the holder of the lock
	claimed  bool   // by what this process flushed, its names in claims are durable
	settled  bool   // and its folder, with the final record's room
	settling chan error

	// OnFinal, where given, is told by Finish of the final record as soon as it is that: whoever waits
	// for it need not wait for what is put in order then.
	OnFinal func(raw []byte)
}

// ErrNoRun says that the folder has no such run, and no tombstone of it.
var ErrNoRun error = &longstop.Error{Code: longstop.CodeNotFound, Message: "the host has no such run"}

// Run opens a run that was claimed: unresolved, final, or removed with a tombstone left. None is
// ErrNoRun.
func (f *Folder) Run(id longstop.RunID) (*Run, error) {
	if _, err := longstop.ParseRunID(string(id)); err != nil {
		return nil, &longstop.Error{Code: longstop.CodeUsage, Message: err.Error()}
	}
	r := &Run{f: f, id: id}
	dir, err := openDir(f.runs, string(id))
	switch {
	case err == nil:
		r.dir = dir
	case !errors.Is(err, fs.ErrNotExist):
		return nil, unreadable(f.runs.Name()+"/"+string(id), err)
	}
	r.claim, err = f.claim(string(id))
	switch {
	case err == nil:
		return r, nil
	case !errors.Is(err, fs.ErrNotExist):
		return r, nil // a damaged claim is found by Read, which says so
	case r.dir != nil && exists(r.dir, "final"), exists(f.tombs, string(id)):
		return r, nil // collected, or removed
	}
	r.Close()
	return nil, ErrNoRun
}

// Close lets go of the run, and of its lock.
func (r *Run) Close() error {
	if r.lock != nil {
		r.lock.Unlock()
		r.lock = nil
	}
	if r.dir != nil {
		r.dir.Close()
		r.dir = nil
	}
	return nil
}

// ID is the run's name.
func (r *Run) ID() longstop.RunID { return r.id }

// Claim is what the run's claim says. It is empty once the run was collected.
func (r *Run) Claim() Claim { return r.claim }

// Path is the path of a name in the run's folder, for sockets, watches and the workload's
// environment. Files are opened with File.
func (r *Run) Path(name string) string { return r.f.Path("runs", string(r.id), name) }

// DirFD is the descriptor of the run's folder, good until Close; -1 where there is none.
func (r *Run) DirFD() int {
	if r.dir == nil {
		return -1
	}
	return int(r.dir.Fd())
}

// File opens a file of the run's folder (stdout, stderr, evidence …) with flags as of open(2);
// made, it has mode 0600. Links, and what is not a regular file of this user, are refused.
func (r *Run) File(name string, flags int) (*os.File, error) {
	if r.dir == nil {
		return nil, &os.PathError{Op: "open", Path: r.Path(name), Err: fs.ErrNotExist}
	}
	return openAt(r.dir, name, flags)
}

// Stdout and Stderr are the paths of the kept output.
func (r *Run) Stdout() string { return r.Path("stdout") }
func (r *Run) Stderr() string { return r.Path("stderr") }

// Sizes are the bytes of output kept so far.
func (r *Run) Sizes() (stdout, stderr int64) { return r.size("stdout"), r.size("stderr") }

func (r *Run) size(name string) int64 {
	var st unix.Stat_t
	if r.dir == nil || unix.Fstatat(int(r.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Size
}

// Request is the request as it was submitted. A power failure may have lost it: fs.ErrNotExist, or
// longstop.CodeUnreadable.
func (r *Run) Request() (Request, error) {
	var request Request
	if r.dir == nil {
		return request, &os.PathError{Op: "open", Path: r.Path("request"), Err: fs.ErrNotExist}
	}
	data, err := readAll(r.dir, "request", 64<<20)
	if err != nil {
		return request, err
	}
	if err := decode(data, &request); err != nil {
		return request, unreadable(r.Path("request"), err)
	}
	return request, nil
}

// Fresh reports whether nobody has written a record of the run, as the holder of its lock found it.
func (r *Run) Fresh() bool {
	return r.lock != nil && r.slots.damaged == nil && r.sequence == 0 && !r.Final()
}

// Final reports whether the run has its final record, readable or not: nothing of it changes any
// more.
func (r *Run) Final() bool {
	return r.dir != nil && exists(r.dir, "final") || exists(r.f.tombs, string(r.id))
}

// folder is the run's folder, made again if a power failure took it.
func (r *Run) folder() (*os.File, error) {
	if r.dir != nil {
		return r.dir, nil
	}
	if err := makeDir(r.f.runs, string(r.id)); err != nil {
		return nil, err
	}
	dir, err := openDir(r.f.runs, string(r.id))
	r.dir = dir
	return dir, err
}

// Settle begins to make the run's folder durable with the room that is in it, beside whatever else is
// done. Finish, which needs it, waits for it, and does it where nobody has.
func (r *Run) Settle() {
	dir, done := r.dir, make(chan error, 1)
	r.settling = done
	go func() { done <- r.f.settle(dir) }()
}

func (f *Folder) settle(dir *os.File) error {
	return f.beside(true, f.runs, "record.settle.flush", func() error { return f.flush(dir, "record.settle.flush") })
}
