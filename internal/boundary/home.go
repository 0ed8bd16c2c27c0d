package boundary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Home is the folder of the cgroup v2 hierarchy in which runs' cgroups are made, each named after its
// run. It is there while one of them is.
type Home struct {
	Dir  string
	Unit bool // it is a unit's own cgroup, to which the service manager hands controllers down
}

// homeName is a home's name in the cgroup that it is made in.
const homeName = "longstop"

// FindHome finds where this process can make cgroups and put processes into them, or says in words
// why it cannot. Neither is guessed from permissions: from a login session one can make a cgroup that
// one may not enter. It starts a child for a moment, and is called by a process that does not Reap
// meanwhile.
func FindHome() (Home, error) {
	h, err := FindHierarchy()
	if err != nil {
		return Home{}, err
	}
	var refused []refusal
	for _, dir := range h.homes(os.Geteuid()) {
		home := Home{Dir: filepath.Join(dir, homeName)}
		err := home.try()
		if err == nil {
			return home, nil
		}
		refused = append(refused, refusal{dir, err})
	}
	return Home{}, inWords(h, refused)
}

// refusal is why one folder cannot be a home.
type refusal struct {
	dir string
	err error
}

// errEnter says that a cgroup could be made and a process could not be put into it.
var errEnter = errors.New("no process could be started in it")

func inWords(h Hierarchy, refused []refusal) error {
	for _, r := range refused {
		switch {
		case errors.Is(r.err, unix.ENOSYS) || errors.Is(r.err, unix.EINVAL) || errors.Is(r.err, unix.E2BIG):
			return fmt.Errorf("this kernel cannot start a process in a cgroup (Linux 5.7 can): %w", r.err)
		case errors.Is(r.err, errEnter):
			return fmt.Errorf("a cgroup can be made in %s, but not entered from here, as what is above both belongs to another user: %w", r.dir, r.err)
		case errors.Is(r.err, unix.EROFS):
			return fmt.Errorf("the cgroup v2 hierarchy at %s is mounted read-only, as in a container: %w", h.Mount, r.err)
		}
	}
	last := refused[len(refused)-1]
	if h.Self == "" {
		return fmt.Errorf("the cgroup v2 hierarchy at %s does not show this process's own cgroup, and at its top none can be made: %w", h.Mount, last.err)
	}
	return fmt.Errorf("no cgroup can be made in %s, where this process is, nor above: %w", h.Self, last.err)
}

// try makes a cgroup and lets a child be born in it.
func (h Home) try() error {
	c, err := h.create(probePrefix + string(longstop.NewRunID()))
	if err != nil {
		return err
	}
	defer c.Close()
	defer c.Remove(time.Second)
	// There is nothing to execute at an empty path: if that is what the child says, it was born.
	_, err = syscall.ForkExec("", []string{""}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: c.FD()}})
	if err != syscall.ENOENT {
		return fmt.Errorf("%w: clone3 with CLONE_INTO_CGROUP: %w", errEnter, err)
	}
	return nil
}

const probePrefix = "probe-"

// Create makes the cgroup of a run, which must not be there yet (fs.ErrExist).
func (h Home) Create(run longstop.RunID) (*Cgroup, error) { return h.create(string(run)) }

// Servants is a cgroup for those who answer for runs, beside the runs'. They are not in them, yet must
// not live shorter: in the cgroup of a login session they would end with it where the work does not.
func (h Home) Servants() (*Cgroup, error) {
	c, err := h.create(servants)
	for errors.Is(err, os.ErrExist) {
		if c, err = openCgroup(filepath.Join(h.Dir, servants)); errors.Is(err, ErrCgroupGone) {
			c, err = h.create(servants)
		}
	}
	return c, err
}

const servants = "servants"

// StepAside moves this process, its unit's main one, from the unit's cgroup into one beside the runs': what
// has processes itself hands no controller on to them.
func (h Home) StepAside() error {
	c, err := h.Servants()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.write("cgroup.procs", "0")
}

// create makes a cgroup. Between its making and its locking a Sweep may take it for one that its
// owner left: then it is made again.
func (h Home) create(name string) (*Cgroup, error) {
	dir := filepath.Join(h.Dir, name)
	for range 100 {
		if err := h.make(); err != nil {
			return nil, err
		}
		err := os.Mkdir(dir, 0700)
		if errors.Is(err, unix.ENOENT) { // the home was empty for a moment, and removed
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a cgroup: %w", err)
		}
		c, err := openCgroup(dir)
		if errors.Is(err, ErrCgroupGone) {
			continue
		}
		if err != nil {
			os.Remove(dir)
			return nil, err
		}
		c.inUnit = h.Unit
		// Whoever the work becomes (sudo) may read its limits there; none but the owner may lock it.
		if err := unix.Fchmod(c.dir, 0711); err != nil {
			err = errors.Join(fmt.Errorf("let the cgroup be read: %w", err), c.Remove(time.Second))
			c.Close()
			return nil, err
		}
		return c, nil
	}
	return nil, fmt.Errorf("make cgroup %s: it was removed again each time", dir)
}

// make makes the home, or finds that the one that is there is this user's.
func (h Home) make() error {
	if err := os.Mkdir(h.Dir, 0755); err == nil {
		os.Chmod(h.Dir, 0755) // whatever the umask is
	} else if !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	fd, _, err := openOwn(h.Dir)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // removed again: create will see it
	}
	return err
}

// Sweep removes the empty cgroups that nobody has open: those of runs whose owner died, and nobody
// has looked at them since; and the servants'. It returns the runs.
func (h Home) Sweep() (runs []longstop.RunID, err error) {
	entries, err := os.ReadDir(h.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		run, bad := longstop.ParseRunID(entry.Name())
		ours := bad == nil || entry.Name() == servants || strings.HasPrefix(entry.Name(), probePrefix)
		if !entry.IsDir() || !ours {
			continue
		}
		swept, failed := sweep(filepath.Join(h.Dir, entry.Name()))
		err = errors.Join(err, failed)
		if swept && bad == nil {
			runs = append(runs, run)
		}
	}
	removeHome(h.Dir)
	return runs, err
}

// removeHome removes a home in which nothing is, for which else it is refused. A unit's own cgroup is none of
// ours: its service manager would wait in vain to be told that it is empty.
func removeHome(dir string) {
	if filepath.Ext(dir) != ".service" {
		os.Remove(dir)
	}
}

func sweep(path string) (swept bool, err error) {
	c, err := openLocked(path, unix.LOCK_EX)
	if errors.Is(err, errHeld) || errors.Is(err, ErrCgroupGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close()
	if populated, err := c.Populated(); populated || err != nil {
		return false, err
	}
	err = c.Remove(0)
	if errors.Is(err, unix.EBUSY) { // it is not quite empty yet, or no longer
		return false, nil
	}
	return err == nil, err
}
