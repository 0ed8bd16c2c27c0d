package boundary

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Procs returns the living processes of the cgroup and of those below it, parents before their
// children. They are whom to signal; that there are none does not say that it is empty. unseen are
// those that have no number here, being of another PID namespace.
//
// A process is taken only if the lists name it both before and after it was looked at: a number that
// was used again meanwhile, by one outside, is not in the second.
func (c *Cgroup) Procs() (procs []Stat, unseen int, err error) {
	pids, _, err := c.pids()
	if err != nil {
		return nil, 0, err
	}
	return c.Among(pids)
}

// Numbers are what the lists name: for whoever knows most of those processes otherwise, and looks at the
// others with Among.
func (c *Cgroup) Numbers() (map[int]bool, error) {
	pids, _, err := c.pids()
	return pids, err
}

// Among is Procs, of those alone who have numbers that the lists named before.
func (c *Cgroup) Among(pids map[int]bool) (procs []Stat, unseen int, err error) {
	looked := make([]Stat, 0, len(pids))
	for pid := range pids {
		if s, err := Look(pid); err == nil && !s.Dead() {
			looked = append(looked, s)
		}
	}
	still, unseen, err := c.pids()
	if err != nil {
		return nil, 0, err
	}
	looked = slices.DeleteFunc(looked, func(s Stat) bool { return !still[s.PID] })
	return parentsFirst(looked), unseen, nil
}

// pids reads the lists of all. One that moves among them meanwhile may be missed.
func (c *Cgroup) pids() (pids map[int]bool, unseen int, err error) {
	below, err := c.below()
	pids = map[int]bool{}
	for _, dir := range below {
		hidden, failed := c.list(dir, pids)
		unseen, err = unseen+hidden, errors.Join(err, failed)
	}
	return pids, unseen, err
}

// Has reports whether a process is in the cgroup itself, as one that was born in it is until it moves.
func (c *Cgroup) Has(pid int) (bool, error) {
	pids := map[int]bool{}
	_, err := c.list(".", pids)
	return pids[pid], err
}

// list reads one cgroup.procs.
func (c *Cgroup) list(dir string, into map[int]bool) (unseen int, err error) {
	data, err := c.read(filepath.Join(dir, "cgroup.procs"))
	// What is removed is empty; the processes of a threaded one are in the list of one above it.
	if errors.Is(removed(err), ErrCgroupGone) || errors.Is(err, unix.EOPNOTSUPP) && dir != "." {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, field := range bytes.Fields(data) {
		pid, err := strconv.Atoi(string(field))
		switch {
		case err != nil:
			return 0, fmt.Errorf("read cgroup.procs: %w", err)
		case pid == 0:
			unseen++
		case pid != os.Getpid():
			into[pid] = true
		}
	}
	return unseen, nil
}

func parentsFirst(stats []Stat) []Stat {
	slices.SortFunc(stats, func(a, b Stat) int { return a.PID - b.PID })
	children := map[int][]Stat{}
	listed := map[int]bool{}
	for _, s := range stats {
		children[s.PPID] = append(children[s.PPID], s)
		listed[s.PID] = true
	}
	var ordered []Stat
	for _, s := range stats {
		if !listed[s.PPID] {
			ordered = append(ordered, s)
		}
	}
	for i := 0; i < len(ordered); i++ {
		ordered = append(ordered, children[ordered[i].PID]...)
	}
	return ordered
}

// Kill sends KILL to everything in the cgroup and below it, once. It does not wait: only Populated
// says that it is empty. A process that just then moved itself there from elsewhere was perhaps not
// met; so it is done again for as long as the cgroup is populated.
func (c *Cgroup) Kill() error {
	if c.old {
		return c.killListed()
	}
	err := c.write("cgroup.kill", "1")
	switch {
	case errors.Is(err, unix.ENOENT): // before Linux 5.14
		return c.killListed()
	case errors.Is(err, ErrCgroupGone):
		return nil
	}
	return err
}

// killListed kills whom the lists name until they name nobody new, with the cgroup frozen, so that
// nobody forks faster than that. It is always thawed.
func (c *Cgroup) killListed() error {
	c.write("cgroup.freeze", "1") // since Linux 5.2; without it there are only more rounds
	defer c.Thaw()
	killed := map[Identity]bool{}
	for round, fresh := 0, true; fresh && round < 100; round++ {
		fresh = false
		procs, _, err := c.Procs()
		if err != nil {
			return err
		}
		for _, s := range procs {
			if !killed[s.Identity] {
				killed[s.Identity], fresh = true, true
				Signal(s.Identity, unix.SIGKILL)
			}
		}
	}
	return nil
}

// Thaw lets whatever is frozen in the cgroup go on: it hears KILL even so, but nothing else.
func (c *Cgroup) Thaw() error {
	below, err := c.below()
	for _, dir := range below {
		failed := c.write(filepath.Join(dir, "cgroup.freeze"), "0")
		if !errors.Is(failed, unix.ENOENT) && !errors.Is(failed, ErrCgroupGone) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// read reads a file of the cgroup, whole.
func (c *Cgroup) read(name string) ([]byte, error) {
	fd, err := unix.Openat(c.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, c.failed("open", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, c.failed("read", name, errors.Unwrap(err))
	}
	return data, nil
}

// write writes to a file of the cgroup, which must be there: the kernel makes them, ENOENT says that
// it has no such one.
func (c *Cgroup) write(name, value string) error {
	fd, err := unix.Openat(c.dir, name, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.failed("open", name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return c.failed("write", name, err)
	}
	return nil
}

func (c *Cgroup) failed(op, name string, err error) error {
	if err == unix.ENODEV {
		return ErrCgroupGone
	}
	return &os.PathError{Op: op, Path: filepath.Join(c.place.Path, name), Err: err}
}
