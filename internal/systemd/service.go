package systemd

import (
	"fmt"
	"math"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
)

// Service is a transient service whose main process is a run's owner. It is never restarted, gets
// TERM alone when it is stopped (the rest of the unit is its own to end, in a cgroup delegated to
// it), and KILL with all the rest once StopWithin has passed.
type Service struct {
	Name        string // see ServiceName
	Description string
	Argv        []string // of the main process, to the byte; Argv[0] is its file's absolute path
	Env         []string // NAME=value, to the byte
	Dir         string   // "" for the manager's default, /
	User        string   // whom the system's manager runs it as; "" for itself
	Notify      bool     // started once it says READY=1 (Notify), else once it was executed (systemd 240)
	StartWithin time.Duration
	StopWithin  time.Duration
	// Forget has the manager drop the unit when it has failed, too. Otherwise it is kept, and shown
	// as failed, until ResetFailed.
	Forget bool
	// Stdin, Stdout and Stderr are /dev/null if nil. The manager keeps copies until the unit is
	// over: the other end of a pipe sees no end of file before that.
	Stdin, Stdout, Stderr *os.File
}

// Scope is a transient scope around processes that are there, with a cgroup delegated to them.
type Scope struct {
	Name        string // see ScopeName
	Description string
	PIDs        []int
	StopWithin  time.Duration
}

// property is one property of a unit to be started.
type property struct {
	Name  string
	Value dbus.Variant
}

func prop(name string, value any) property { return property{name, dbus.MakeVariant(value)} }

// execution is an element of ExecStart.
type execution struct {
	Path          string
	Argv          []string
	IgnoreFailure bool
}

// properties says the service in systemd's terms. The files are apart: see files.
func (s Service) properties() ([]property, error) {
	if len(s.Argv) == 0 || !path.IsAbs(s.Argv[0]) {
		return nil, fmt.Errorf("a unit's program is to be an absolute path, not %q", first(anys(s.Argv)))
	}
	for _, text := range append(append([]string{s.Description, s.Dir}, s.Argv...), s.Env...) {
		if err := expressible(text); err != nil {
			return nil, err
		}
	}
	kind, collect := "exec", "inactive"
	if s.Notify {
		kind = "notify"
	}
	if s.Forget {
		collect = "inactive-or-failed"
	}
	all := []property{
		prop("Description", s.Description),
		prop("Type", kind),
		prop("ExecStart", []execution{{s.Argv[0], literal(s.Argv), false}}),
		prop("Restart", "no"),
		prop("KillMode", "mixed"),
		prop("SendSIGHUP", false),
		prop("IgnoreSIGPIPE", false), // the work is to find signals and limits as in a login
		prop("TasksMax", uint64(math.MaxUint64)),
		prop("Delegate", true),
		prop("CollectMode", collect),
		prop("TimeoutStartUSec", usec(s.StartWithin)),
		prop("TimeoutStopUSec", usec(s.StopWithin)),
	}
	if len(s.Env) > 0 {
		all = append(all, prop("Environment", s.Env))
	}
	if s.Dir != "" {
		all = append(all, prop("WorkingDirectory", s.Dir))
	}
	if s.User != "" {
		all = append(all, prop("User", s.User))
	}
	return all, nil
}

// files are the three streams. Like os/exec, it makes a given file blocking, which is what programs
// expect of theirs.
func (s Service) files() (all []property) {
	for i, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		name := []string{"StandardInput", "StandardOutput", "StandardError"}[i]
		if f == nil {
			all = append(all, prop(name, "null"))
		} else {
			all = append(all, prop(name+"FileDescriptor", dbus.UnixFD(f.Fd())))
		}
	}
	return all
}

func (s Scope) properties() []property {
	return []property{
		prop("Description", s.Description),
		prop("PIDs", uints(s.PIDs)),
		prop("TasksMax", uint64(math.MaxUint64)),
		prop("Delegate", true),
		prop("SendSIGHUP", false),
		prop("CollectMode", "inactive-or-failed"), // a scope has no status that would be worth keeping
		prop("TimeoutStopUSec", usec(s.StopWithin)),
	}
}

// literal is argv as ExecStart must have it: variables are expanded when it is executed, also those
// of a unit that came over D-Bus, while percent signs and backslashes are left alone.
func literal(argv []string) []string {
	all := make([]string, len(argv))
	for i, a := range argv {
		all[i] = strings.ReplaceAll(a, "$", "$$")
	}
	return all
}

// expressible refuses what D-Bus or systemd cannot carry.
func expressible(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("a service manager takes UTF-8 alone, not %q", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }); i >= 0 {
		return fmt.Errorf("a service manager takes no control characters: %q", text)
	}
	return nil
}

// usec is a duration as systemd counts; none is infinity.
func usec(d time.Duration) uint64 {
	if d <= 0 {
		return math.MaxUint64
	}
	return uint64(d / time.Microsecond)
}

func uints(pids []int) []uint32 {
	all := make([]uint32, len(pids))
	for i, pid := range pids {
		all[i] = uint32(pid)
	}
	return all
}

func anys(all []string) (out []any) {
	for _, s := range all {
		out = append(out, s)
	}
	return out
}
