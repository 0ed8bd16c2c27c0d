//go:build hosts

package hosts

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

func TestPoint11Ends(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		check  func(longstop.Action) bool
	}{
		{"0", []string{"-c", "exit 0"}, 0, ended(0, longstop.OutcomeSucceeded)},
		{"1", []string{"-c", "exit 1"}, 1, ended(1, longstop.OutcomeFailed)},
		{"7", []string{"-c", "exit 7"}, 7, ended(7, longstop.OutcomeFailed)},
		{"127", []string{"-c", "no-such-command-at-all"}, 127, ended(127, longstop.OutcomeFailed)},
		{"255", []string{"-c", "exit 255"}, 255, ended(255, longstop.OutcomeFailed)},
		{"251 of its own", []string{"-c", "exit 251"}, 251, ended(251, longstop.OutcomeFailed)},
		{"SIGSEGV", []string{"-c", "kill -SEGV $$"}, 128 + 11, func(a longstop.Action) bool {
			return a.Outcome == longstop.OutcomeFailed && a.Workload.Result != nil && a.Workload.Result.Signal == "SEGV" && a.Workload.Result.ExitCode == nil
		}},
		{"no such program", []string{"--", "/no/such/program"}, longstop.ExitNotStarted, func(a longstop.Action) bool {
			return a.Workload.State == longstop.WorkloadLaunchFailed && a.Outcome == longstop.OutcomeNotStarted &&
				a.Workload.LaunchError != nil && a.Workload.LaunchError.Errno == "ENOENT" && a.Workload.Result == nil
		}},
		{"a folder", []string{"--", "/tmp"}, longstop.ExitNotStarted, func(a longstop.Action) bool {
			return a.Workload.State == longstop.WorkloadLaunchFailed && a.Workload.LaunchError != nil && a.Workload.LaunchError.Errno == "EACCES"
		}},
		{"a syntax error", []string{"-c", "if then"}, 2, ended(2, longstop.OutcomeFailed)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := g.longstop(t, append([]string{"run", "h1"}, c.args...)...)
			a := g.final(t, g.newest(t), 10*time.Second)
			if r.status != c.status || !c.check(a) {
				t.Errorf("want exit %d: %s\n%s", c.status, r, pretty(a))
			}
		})
	}
}

func ended(code int, outcome longstop.Outcome) func(longstop.Action) bool {
	return func(a longstop.Action) bool {
		got, err := exitCode(a.Workload.Result)
		return err == nil && got == code && a.Outcome == outcome && a.Workload.State == longstop.WorkloadFinished
	}
}
