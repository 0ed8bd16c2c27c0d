package record

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// openAt opens name in dir: never by way of a link, never inherited by a child, and only a regular
// file of this user. Other kinds of file are refused before anything is read from them (opening a
// FIFO does not block).
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0600)
	})
	path := dir.Name() + "/" + name
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, folderError(path, "is a symbolic link", "Remove the link; Longstop follows none here.", nil)
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err := checkFile(fd, path); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// What is open is a regular file, which never blocks in that sense; without the flag os.File
	// does not try it with the poller.
	unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), path), nil
}

func checkFile(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return folderError(path, "is not a regular file", "Move it away; a run whose files were replaced stays unreadable.", nil)
	case int(st.Uid) != os.Geteuid():
		return folderError(path, "belongs to user "+strconv.Itoa(int(st.Uid))+", not to "+strconv.Itoa(os.Geteuid()),
			"Use a state folder of your own: longstop host add --state-dir DIR", nil)
	}
	return nil
}

// openDir opens the folder name in dir (or at a path, with a nil dir), under the same rules as
// openAt and with mode 0700 exactly.
func openDir(dir *os.File, name string) (*os.File, error) {
	at, path := unix.AT_FDCWD, name
	if dir != nil {
		at, path = int(dir.Fd()), dir.Name()+"/"+name
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, dirError(at, name, path, err)
	}
	if err := checkDir(fd, path); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// dirError says what stands in a folder's place, which open itself does not tell.
func dirError(at int, name, path string, err error) error {
	var st unix.Stat_t
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return folderError(path, "is a symbolic link", "Name the real folder: longstop host add --state-dir DIR", nil)
		}
		return folderError(path, "is not a folder", "Move it away, or use another: longstop host add --state-dir DIR", nil)
	}
	if errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return folderError(path, "cannot be opened", "Check its owner and mode: ls -ld "+quote(path), err)
}

func checkDir(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(st.Uid) != os.Geteuid() {
		return folderError(path, "belongs to user "+strconv.Itoa(int(st.Uid))+", not to "+strconv.Itoa(os.Geteuid()),
			"Use a folder of your own: longstop host add --state-dir DIR", nil)
	}
	if mode := st.Mode & 07777; mode != 0700 {
		return folderError(path, "has mode "+octal(mode)+", not 0700: others could read or change records",
			"On the host: chmod 0700 "+quote(path), nil)
	}
	return nil
}

// makeDir makes the folder name in dir with mode 0700 whatever the umask. One that is there stays
// as it is.
func makeDir(dir *os.File, name string) error {
	err := unix.Mkdirat(int(dir.Fd()), name, 0700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err == nil {
		err = unix.Fchmodat(int(dir.Fd()), name, 0700, 0)
	}
	if err != nil {
		return writeError(dir.Name()+"/"+name, err)
	}
	return nil
}

// readAll returns the whole of a small file in dir, at most limit bytes.
func readAll(dir *os.File, name string, limit int64) ([]byte, error) {
	f, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Room for what is there, at once: an owner keeps for hours what it takes in its first moments.
	data := make([]byte, min(info.Size(), limit))
	n, err := io.ReadFull(f, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // cut off meanwhile
		err = nil
	}
	return data[:n], err
}

// names returns what is in dir now.
func names(dir *os.File) ([]string, error) {
	// A description of its own, since reading a folder moves the descriptor's offset.
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: dir.Name(), Err: err}
	}
	d := os.NewFile(uintptr(fd), dir.Name())
	defer d.Close()
	return d.Readdirnames(-1)
}

func exists(dir *os.File, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// link gives oldName in oldDir a second name, create-only.
func link(oldDir *os.File, oldName string, newDir *os.File, newName string) error {
	err := unix.Linkat(int(oldDir.Fd()), oldName, int(newDir.Fd()), newName, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		return folderError(newDir.Name(), "is on a file system without hard links, by which a key is claimed",
			"Use a state folder on a local disk: longstop host add --state-dir DIR", err)
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: oldDir.Name() + "/" + oldName, New: newDir.Name() + "/" + newName, Err: err}
	}
	return nil
}

func unlink(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: dir.Name() + "/" + name, Err: err}
	}
	return nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// folderError is what is wrong with the state folder, or a file in it, and how to put it right.
func folderError(path, what, fix string, err error) error {
	return &longstop.Error{Code: longstop.CodeStateFolder, Message: path + " " + what, Hint: fix, Err: err}
}

// writeError is folderError for a write that failed. Where err names another path, as of a folder
// above that could not be made, that one is meant.
func writeError(path string, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		path, err = at.Path, at.Err
	}
	dir := filepath.Dir(path)
	if _, err := longstop.ParseRunID(filepath.Base(dir)); err == nil {
		dir = filepath.Dir(dir) // a run that could not be built leaves no folder to look at
	}
	folder := quote(dir)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return folderError(path, "cannot be written: the disk, its inodes or a quota are used up",
			"Free some on the host: df -h "+folder+"; df -i "+folder, err)
	case errors.Is(err, unix.EROFS):
		return folderError(path, "cannot be written: the file system is read-only",
			"Use another state folder: longstop host add --state-dir DIR", err)
	}
	return folderError(path, "cannot be written",
		"On the host: ls -ld "+folder+". Or use another state folder: longstop host add --state-dir DIR", err)
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }

// quote makes a path one word of a POSIX shell.
func quote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+", r))
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
