package record

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// ErrHeld says that a live process holds the lock.
var ErrHeld = errors.New("the lock is held by another process")

// Lock is a lock of the kernel's on an open file description: it ends with the process that took
// it, however that dies, and no child inherits it. There is nothing to clean up after a crash.
type Lock struct{ file *os.File }

// Lock takes the run's lock, on the run's record file itself, and reads how far the record has
// come. ErrHeld: somebody else has it; ErrFinal: the run was collected, there is nothing to do. Where
// the record cannot be read, the lock is taken and returned beside the error: an heir may still finish
// the run. The lock is let go by Close.
func (r *Run) Lock() (*Lock, error) {
	lock, err := lockFile(r.f.claims, string(r.id), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrFinal
	}
	if err != nil {
		return nil, err
	}
	r.lock = lock
	r.slots, r.sequence, err = r.place()
	r.slots.damaged = err
	return lock, err
}

// Locked reports whether a live process holds the run's lock, without taking it.
func (r *Run) Locked() (bool, error) { return lockHeld(r.f.claims, string(r.id)) }

// Lock takes a lock of the folder's own (keeper.lock), and makes its file if need be. ErrHeld: a
// live process has it.
func (f *Folder) Lock(name string) (*Lock, error) { return lockFile(f.root, name, unix.O_CREAT) }

// Locked reports whether a live process holds a lock of the folder's own, without taking it.
func (f *Folder) Locked(name string) (bool, error) { return lockHeld(f.root, name) }

// Unlock lets go.
func (l *Lock) Unlock() error { return l.file.Close() }

// File is the locked file. Closing it, or its last duplicate, lets go of the lock.
func (l *Lock) File() *os.File { return l.file }

// Holds reports whether the lock is still on the file that has its name. A file removed under a
// live holder leaves the holder with a lock that excludes nobody.
func (l *Lock) Holds() bool { return sameName(l.file) }

func lockFile(dir *os.File, name string, flags int) (*Lock, error) {
	for {
		file, err := openAt(dir, name, unix.O_RDWR|flags)
		if err != nil {
			return nil, err
		}
		if err := lock(file); err != nil {
			file.Close()
			return nil, err
		}
		// Whoever locks an inode that no longer has the name locks nothing: take the one that has.
		if sameName(file) {
			return &Lock{file}, nil
		}
		file.Close()
	}
}

func lock(file *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET}
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &whole)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return ErrHeld
	}
	return noLock(file.Name(), err)
}

func lockHeld(dir *os.File, name string) (bool, error) {
	file, err := openAt(dir, name, unix.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &whole); err != nil {
		return false, noLock(file.Name(), err)
	}
	return whole.Type != unix.F_UNLCK, nil
}

// sameName reports whether file is still what its path leads to.
func sameName(file *os.File) bool {
	var open, named unix.Stat_t
	return unix.Fstat(int(file.Fd()), &open) == nil && unix.Lstat(file.Name(), &named) == nil &&
		open.Dev == named.Dev && open.Ino == named.Ino
}

func noLock(path string, err error) error {
	return &longstop.Error{Code: longstop.CodeStateFolder, Message: path + " cannot be locked: its file system has no usable locks",
		Hint: "Use a state folder on a local disk: longstop host add --state-dir DIR", Err: err}
}
