package boundary

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is the cgroup of one run, held open. Whoever has it open keeps it from being swept; what it
// is asked goes to that cgroup, whatever has its name by now.
//
// Its emptiness is what cgroup.events says (populated), never an empty list of processes. And it
// proves nothing about those who left it: a service manager moves processes on request, and a process
// of the same user moves itself where it may. See Enclosure.
type Cgroup struct {
	place  Place
	dir    int  // its folder, shared lock held
	events int  // its cgroup.events
	inUnit bool // made in a unit's own cgroup: see enable
	old    bool // tests: as on a kernel without cgroup.kill
}

// Place names one cgroup for as long as this boot lasts: a number of the kernel's belongs to one
// cgroup only.
type Place struct {
	Path   string `json:"path"`
	Number uint64 `json:"number"` // its folder's inode
	Top    uint64 `json:"top"`    // the inode of the topmost cgroup that its mount showed
}

var (
	// ErrCgroupGone says that there is no such cgroup any more. Only an empty one can be removed.
	ErrCgroupGone = errors.New("the cgroup was removed")
	// ErrCgroupForeign says that what is there is not what was made there by this user.
	ErrCgroupForeign = errors.New("not a cgroup of this user's own")

	errHeld = errors.New("the cgroup is held by another process")
)

// OpenCgroup opens a cgroup that was made earlier, by whomever of this user. ErrCgroupGone is proof
// that nothing is left in it; a place that this process cannot see at all is another error.
func OpenCgroup(at Place) (*Cgroup, error) {
	top, err := topOf(at.Path)
	if err != nil {
		return nil, err
	}
	if top != at.Top {
		return nil, fmt.Errorf("cgroup %s: this process sees another part of the hierarchy than the one that made it", at.Path)
	}
	c, err := openCgroup(at.Path)
	if err != nil {
		return nil, err
	}
	if c.place.Number != at.Number {
		c.Close()
		return nil, fmt.Errorf("%w: number %d; %d has its name", ErrCgroupGone, at.Number, c.place.Number)
	}
	return c, nil
}

// openCgroup waits a little for whoever is just sweeping it.
func openCgroup(path string) (*Cgroup, error) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(100 * time.Microsecond) {
		c, err := openLocked(path, unix.LOCK_SH)
		if !errors.Is(err, errHeld) || time.Now().After(deadline) {
			return c, err
		}
	}
}

// openLocked opens a cgroup and takes its lock, after which nobody sweeps it.
func openLocked(path string, lock int) (*Cgroup, error) {
	dir, stat, err := openOwn(path)
	if err != nil {
		return nil, removed(err)
	}
	c := &Cgroup{place: Place{Path: path, Number: stat.Ino}, dir: dir, events: -1}
	if c.place.Top, err = topOf(path); err == nil {
		err = c.hold(lock)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// hold takes the lock, then opens a file: there is none in a folder that was removed before the lock.
func (c *Cgroup) hold(lock int) error {
	if err := unix.Flock(c.dir, lock|unix.LOCK_NB); err == unix.EWOULDBLOCK {
		return errHeld
	} else if err != nil {
		return fmt.Errorf("lock cgroup %s: %w", c.place.Path, err)
	}
	var err error
	c.events, err = unix.Openat(c.dir, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return removed(err)
}

// openOwn opens a folder that must be a cgroup, this user's, and no link.
func openOwn(path string) (int, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return -1, stat, fmt.Errorf("%s: %w: it is no folder", path, ErrCgroupForeign)
	}
	if err != nil {
		return -1, stat, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &stat), unix.Fstatfs(fd, &fs)); err != nil {
		unix.Close(fd)
		return -1, stat, err
	}
	if int(stat.Uid) != os.Geteuid() || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		unix.Close(fd)
		return -1, stat, fmt.Errorf("%s: %w: it belongs to user %d, on a file system of type %#x", path, ErrCgroupForeign, stat.Uid, fs.Type)
	}
	return fd, stat, nil
}

// topOf is the number of the topmost cgroup above a path, which itself need not be there any more.
func topOf(path string) (uint64, error) {
	var top uint64
	for dir := filepath.Clean(path); dir != "/"; dir = filepath.Dir(dir) {
		var stat unix.Stat_t
		if isCgroup2(dir) && unix.Stat(dir, &stat) == nil {
			top = stat.Ino
		} else if top != 0 {
			break
		}
	}
	if top == 0 {
		return 0, fmt.Errorf("cgroup %s: no cgroup v2 hierarchy is to be seen there", path)
	}
	return top, nil
}

// Close lets go of the cgroup, and does not remove it. What is asked of it after that fails: a number
// that was another descriptor's by then would be another cgroup.
func (c *Cgroup) Close() error {
	unix.Close(c.events)
	err := unix.Close(c.dir)
	c.dir, c.events = -1, -1
	return err
}

// FD is the descriptor to be born with: SysProcAttr.CgroupFD, or clone_args.cgroup of clone3(2).
func (c *Cgroup) FD() int { return c.dir }

// Place is what to keep of the cgroup, to open it again by.
func (c *Cgroup) Place() Place { return c.place }

// Populated reports whether a process is in the cgroup or below it. A zombie is not.
func (c *Cgroup) Populated() (bool, error) {
	return populated(c.events)
}

func populated(events int) (bool, error) {
	var buf [256]byte
	for {
		n, err := unix.Pread(events, buf[:], 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENODEV: // removed, hence empty
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read cgroup.events: %w", err)
		}
		return parsePopulated(buf[:n])
	}
}

func parsePopulated(data []byte) (bool, error) {
	for line := range bytes.Lines(data) {
		switch string(bytes.TrimSuffix(line, []byte{'\n'})) {
		case "populated 0":
			return false, nil
		case "populated 1":
			return true, nil
		}
	}
	return false, errors.New("read cgroup.events: it does not say whether the cgroup is populated")
}

// Watch calls changed, on another goroutine, whenever the kernel says that the cgroup became empty or
// no longer is. The kernel says so at most every 10 ms; Populated is always as things are.
func (c *Cgroup) Watch(changed func()) (stop func(), err error) {
	file, err := c.openEvents()
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	go conn.Read(func(fd uintptr) bool {
		populated(int(fd)) // what was read is not told again
		changed()
		return false
	})
	return func() { file.Close() }, nil
}

// WaitEmpty waits until the cgroup is empty, or the deadline (os.ErrDeadlineExceeded).
func (c *Cgroup) WaitEmpty(deadline time.Time) error {
	file, err := c.openEvents()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.SetReadDeadline(deadline); err != nil {
		return err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var full bool
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		full, failed = populated(int(fd))
		return !full || failed != nil
	})
	return errors.Join(failed, err)
}

// openEvents opens cgroup.events for the runtime's poller: a change shows as an error there, which
// wakes who waits to read.
func (c *Cgroup) openEvents() (*os.File, error) {
	fd, err := unix.Openat(c.dir, "cgroup.events", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, removed(err)
	}
	return os.NewFile(uintptr(fd), c.place.Path+"/cgroup.events"), nil
}

// Remove removes the cgroup, whatever the work made below it, and the home if it was the last. What is
// busy, as a cgroup is for a moment after its last process, is tried again for as long as patience
// lasts; what is still there then is named.
func (c *Cgroup) Remove(patience time.Duration) error {
	for deadline, pause := time.Now().Add(patience), 100*time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := c.remove()
		if err == nil {
			removeHome(filepath.Dir(c.place.Path))
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || !time.Now().Add(pause).Before(deadline) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		time.Sleep(pause)
	}
}

func (c *Cgroup) remove() error {
	below, err := c.below()
	if err != nil {
		return err
	}
	var left []error
	for i := len(below) - 1; i > 0; i-- { // the deepest first
		err := unix.Unlinkat(c.dir, below[i], unix.AT_REMOVEDIR)
		if err != nil && err != unix.ENOENT {
			left = append(left, &os.PathError{Op: "rmdir", Path: filepath.Join(c.place.Path, below[i]), Err: err})
		}
	}
	if left != nil {
		return errors.Join(left...)
	}
	var now unix.Stat_t
	if err := unix.Lstat(c.place.Path, &now); err == unix.ENOENT || err == nil && now.Ino != c.place.Number {
		return nil
	}
	if err := unix.Rmdir(c.place.Path); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: c.place.Path, Err: err}
	}
	return nil
}

// below are the cgroup itself (".") and those that the work made below it, parents first.
func (c *Cgroup) below() ([]string, error) {
	all := []string{"."}
	for i := 0; i < len(all); i++ {
		fd, err := unix.Openat(c.dir, all[i], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT || err == unix.ENODEV {
			continue
		}
		if err != nil {
			return all, &os.PathError{Op: "open", Path: filepath.Join(c.place.Path, all[i]), Err: err}
		}
		file := os.NewFile(uintptr(fd), all[i])
		entries, err := file.ReadDir(-1)
		file.Close()
		if err != nil && !errors.Is(removed(err), ErrCgroupGone) {
			return all, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				all = append(all, filepath.Join(all[i], entry.Name()))
			}
		}
	}
	return all, nil
}

// removed makes what a cgroup that is gone says into ErrCgroupGone.
func removed(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return ErrCgroupGone
	}
	return err
}
