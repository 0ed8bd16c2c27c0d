package boundary

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
)

// ErrCannotLimit says that a limit that was asked for would not hold here.
var ErrCannotLimit = errors.New("this limit cannot be held here")

// controllers hold the limits on all of a run's work together (longstop.LimitsOfRun).
var controllers = map[string]string{"memory_bytes": "memory", "cpu_percent": "cpu", "tasks": "pids"}

// Holdable says which of those limits hold for runs whose home is made in a cgroup, or below a service
// manager's. It changes nothing.
func Holdable(dir string) (all []longstop.LimitOffer) {
	has, err := controllersOf(dir)
	for _, name := range longstop.LimitsOfRun {
		o := longstop.LimitOffer{Name: name}
		switch controller := controllers[name]; {
		case err != nil:
			o.Because = "which controllers there are could not be found out: " + err.Error()
		case !slices.Contains(has, controller):
			o.Because = lacks(dir, controller, has).Error()
			o.Remedy = remedy(dir, controller)
		case occupied(dir, controller):
			o.Because = holdsProcesses(dir, controller).Error()
		default:
			o.Can = true
		}
		all = append(all, o)
	}
	return all
}

func controllersOf(dir string) ([]string, error) {
	data, err := os.ReadFile(fault.StandIn(filepath.Join(dir, "cgroup.controllers")))
	return strings.Fields(string(data)), err
}

// occupied reports whether a cgroup that does not yet hand a controller on may not, for the processes
// that are in it themselves. At the top of all there is no such rule, and no cgroup.type.
func occupied(dir, controller string) bool {
	read := func(name string) string {
		data, _ := os.ReadFile(fault.StandIn(filepath.Join(dir, name)))
		return string(data)
	}
	handed := slices.Contains(strings.Fields(read("cgroup.subtree_control")), controller)
	return !handed && read("cgroup.type") != "" && strings.TrimSpace(read("cgroup.procs")) != ""
}

func lacks(dir, controller string, has []string) error {
	return fmt.Errorf("cgroup %s has no controller %q (it has: %s)%s", dir, controller, cmp.Or(strings.Join(has, " "), "none"), elsewhere(controller))
}

func holdsProcesses(dir, controller string) error {
	return fmt.Errorf("cgroup %s holds processes itself, and so hands on no controller %q", dir, controller)
}

// remedy lets a host have a controller: one that a v1 hierarchy has is v2's after another boot; one that
// is further up is handed down by whoever that belongs to.
func remedy(dir, controller string) string {
	if elsewhere(controller) != "" {
		return "boot it with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"
	}
	if name := filepath.Base(dir); strings.HasPrefix(name, "user@") {
		return "as root: systemctl edit " + name + ", with Delegate=cpu memory pids under [Service]; then log in anew"
	}
	return ""
}

// elsewhere says that a controller that v2 lacks is a v1 hierarchy's.
func elsewhere(controller string) string {
	self, _ := os.ReadFile("/proc/self/cgroup")
	if slices.Contains(strings.FieldsFunc(v1Controllers(string(self)), func(r rune) bool { return strings.ContainsRune("(,)", r) }), controller) {
		return "; it belongs to a v1 hierarchy here"
	}
	return ""
}

// Limit sets the limits on all of the run's work together, all of them or it fails; before there is a
// process in the cgroup. Work that cannot stay below its memory is killed as a whole.
func (c *Cgroup) Limit(l *longstop.Limits) error {
	const period = 100_000 // microseconds, the kernel's own default
	files := map[string][][2]string{
		"memory_bytes": {{"memory.max", strconv.FormatInt(l.MemoryBytes, 10)}, {"memory.oom.group", "1"}},
		"cpu_percent":  {{"cpu.max", fmt.Sprintf("%d %d", l.CPUPercent*period/100, period)}},
		"tasks":        {{"pids.max", strconv.FormatInt(l.Tasks, 10)}},
	}
	for _, name := range l.OfRun() {
		err := c.enable(controllers[name])
		for _, file := range files[name] {
			if err == nil {
				err = c.set(file[0], file[1])
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", name, ErrCannotLimit, err)
		}
	}
	return nil
}

// enable has a controller handed down to the cgroup: from the one that its home was made in, to the home,
// to it. To a unit its manager hands down what it will, and nobody else.
func (c *Cgroup) enable(controller string) error {
	dirs := []string{filepath.Dir(c.place.Path), c.place.Path}
	if !c.inUnit {
		dirs = append([]string{filepath.Dir(dirs[0])}, dirs...)
	}
	for i, dir := range dirs[1:] {
		above := dirs[i]
		if has, _ := controllersOf(dir); slices.Contains(has, controller) {
			continue
		}
		if has, err := controllersOf(above); err != nil {
			return err
		} else if !slices.Contains(has, controller) {
			return lacks(above, controller, has)
		}
		err := writeFile(filepath.Join(above, "cgroup.subtree_control"), "+"+controller)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w: %w", holdsProcesses(above, controller), err)
		} else if err != nil {
			return fmt.Errorf("hand on the controller %q: %w", controller, err)
		}
	}
	if has, err := controllersOf(c.place.Path); !slices.Contains(has, controller) {
		return errors.Join(fmt.Errorf("the controller %q was not handed on to %s", controller, c.place.Path), err)
	}
	return nil
}

// set writes to a controller's file of the cgroup, which nobody sweeps while it is held.
func (c *Cgroup) set(name, value string) error {
	return writeFile(filepath.Join(c.place.Path, name), value)
}

// writeFile writes to a file of the kernel's, which is there or not: it is never made.
func writeFile(path, value string) error {
	file, err := os.OpenFile(fault.StandIn(path), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// OOM reads what the memory killer did to the cgroup's processes, nil if nothing. Where the cgroup has no
// memory controller nobody knows (fs.ErrNotExist), but its unit's may: who asks is the main process, and lives.
func (c *Cgroup) OOM() (*longstop.OOM, error) {
	const events = "memory.events"
	data, err := os.ReadFile(fault.StandIn(filepath.Join(c.place.Path, events)))
	if errors.Is(err, fs.ErrNotExist) && c.inUnit {
		data, err = os.ReadFile(fault.StandIn(filepath.Join(filepath.Dir(c.place.Path), events)))
	}
	if err != nil {
		return nil, err
	}
	return parseOOM(string(data))
}

func parseOOM(events string) (*longstop.OOM, error) {
	var oom longstop.OOM
	known := false
	for line := range strings.Lines(events) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "oom" && name != "oom_kill" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read memory.events: %w", err)
		}
		if name == "oom" {
			oom.AtLimit = n > 0
		} else {
			oom.Kills, known = n, true
		}
	}
	switch {
	case !known:
		return nil, errors.New("read memory.events: it does not say whether a process was killed")
	case oom.Kills == 0:
		return nil, nil
	}
	return &oom, nil
}
