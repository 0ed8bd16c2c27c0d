package boundary

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupLimits bounds what all of a run's work may take together. Zero is no limit.
type CgroupLimits struct {
	CPUs        float64 // CPU time per time: 1.5 is one processor and a half
	MemoryBytes int64   // all of the work is killed where it cannot stay below it
	Tasks       int64   // processes and threads
}

// ErrCannotLimit says that a limit that was asked for would not hold here.
var ErrCannotLimit = errors.New("this limit cannot be held here")

// Limit sets limits, all of them or it fails; before there is a process in the cgroup.
func (c *Cgroup) Limit(l CgroupLimits) error {
	const period = 100_000 // microseconds, the kernel's own default
	for _, limit := range []struct {
		asked             bool
		controller, file  string
		value, also, with string
	}{
		{l.CPUs > 0, "cpu", "cpu.max", fmt.Sprintf("%d %d", int64(l.CPUs*period), period), "", ""},
		{l.MemoryBytes > 0, "memory", "memory.max", strconv.FormatInt(l.MemoryBytes, 10), "memory.oom.group", "1"},
		{l.Tasks > 0, "pids", "pids.max", strconv.FormatInt(l.Tasks, 10), "", ""},
	} {
		if !limit.asked {
			continue
		}
		err := c.enable(limit.controller)
		if err == nil {
			err = c.write(limit.file, limit.value)
		}
		if err == nil && limit.also != "" {
			err = c.write(limit.also, limit.with)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCannotLimit, err)
		}
	}
	return nil
}

// enable has a controller handed down to the cgroup: from the one that the home is made in, to the
// home, to it.
func (c *Cgroup) enable(controller string) error {
	if has, _ := c.controllers("."); slices.Contains(has, controller) {
		return nil
	}
	above := filepath.Dir(filepath.Dir(c.place.Path))
	has, err := c.controllers("../..")
	if err != nil {
		return err
	}
	if !slices.Contains(has, controller) {
		return fmt.Errorf("cgroup %s has no controller %q (it has: %s)%s", above, controller, cmp.Or(strings.Join(has, " "), "none"), elsewhere(controller))
	}
	for _, dir := range []string{"../..", ".."} {
		switch err := c.write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller); {
		case errors.Is(err, unix.EBUSY):
			return fmt.Errorf("cgroup %s holds processes itself, and so hands on no controller %q: %w", above, controller, err)
		case err != nil:
			return fmt.Errorf("hand on the controller %q: %w", controller, err)
		}
	}
	if has, err := c.controllers("."); !slices.Contains(has, controller) {
		return errors.Join(fmt.Errorf("the controller %q was not handed on to %s", controller, c.place.Path), err)
	}
	return nil
}

func (c *Cgroup) controllers(dir string) ([]string, error) {
	data, err := c.read(filepath.Join(dir, "cgroup.controllers"))
	return strings.Fields(string(data)), err
}

// elsewhere says that a controller that v2 lacks is a v1 hierarchy's.
func elsewhere(controller string) string {
	self, _ := os.ReadFile("/proc/self/cgroup")
	if slices.Contains(strings.FieldsFunc(v1Controllers(string(self)), func(r rune) bool { return strings.ContainsRune("(,)", r) }), controller) {
		return "; it belongs to a v1 hierarchy here"
	}
	return ""
}

// OOM is what the kernel's memory killer did to a run's work.
type OOM struct {
	Kills   int64 // processes that it killed, for whatever reason
	AtLimit bool  // a limit of the cgroup's was reached, or of one below it; not the machine's memory alone
}

// OOM reads what the memory killer did, from memory.events. Where the cgroup has no memory controller
// nobody knows: fs.ErrNotExist.
func (c *Cgroup) OOM() (OOM, error) {
	data, err := c.read("memory.events")
	if err != nil {
		return OOM{}, err
	}
	return parseOOM(string(data))
}

func parseOOM(events string) (OOM, error) {
	var oom OOM
	known := false
	for line := range strings.Lines(events) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "oom" && name != "oom_kill" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return OOM{}, fmt.Errorf("read memory.events: %w", err)
		}
		if name == "oom" {
			oom.AtLimit = n > 0
		} else {
			oom.Kills, known = n, true
		}
	}
	if !known {
		return OOM{}, errors.New("read memory.events: it does not say whether a process was killed")
	}
	return oom, nil
}
