//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// TestPoint2LingeringMarker is the twelve-second probe: the command's main process ends at once,
// its child, redirected, leaves a marker twelve seconds later. The run ends when the child has.
func TestPoint2LingeringMarker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags []string
		ssh   longstop.SSHState
	}{
		{"shared channel", nil, longstop.SSHCarried},
		{"own channel", []string{"--own-channel"}, longstop.SSHExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, g := rig.Up(t, "h1"), newGateway(t)
			g.enrol(t, h)
			marker := "/tmp/marker-" + strings.ReplaceAll(c.name, " ", "-")
			h.Exec(t, "rm", "-f", marker)
			args := append([]string{"run"}, c.flags...)
			r := g.start(t, append(args, "h1", "-c", "(sleep 12; date > "+marker+") >/dev/null 2>&1 </dev/null & echo started")...)

			eventually(t, 3*time.Second, "started on stdout", func() bool { return r.stdout.String() == "started\n" })
			a := g.await(t, g.newest(t), 5*time.Second, "lingering", func(a longstop.Action) bool {
				return a.Workload.State == longstop.WorkloadLingering
			})
			main := a.Workload.Main
			if main == nil || main.ExitCode == nil || *main.ExitCode != 0 || a.Workload.Result != nil ||
				a.Alive != longstop.AliveYes || a.Outcome != longstop.OutcomePending || a.Launch.State != longstop.LaunchAccepted {
				t.Errorf("while lingering:\n%s", pretty(a))
			}
			if a.SSHCommand.State != c.ssh {
				t.Errorf("ssh_command is %s, want %s", a.SSHCommand.State, c.ssh)
			}
			if c.ssh == longstop.SSHExited && (a.SSHCommand.Status == nil || *a.SSHCommand.Status != 0) {
				t.Errorf("the own channel's status: %s", pretty(a.SSHCommand))
			}
			for !h.Exists(t, marker) {
				if r.over() && !h.Exists(t, marker) {
					t.Fatalf("returned before the marker exists: %s", r.end(t, time.Second))
				}
				if time.Since(r.began) > 20*time.Second {
					t.Fatal("no marker after 20 s")
				}
			}
			end := r.end(t, 5*time.Second)
			if end.status != 0 || end.stdout != "started\n" || end.took < 12*time.Second {
				t.Error(end)
			}
			a = g.show(t, a.ID)
			if a.Outcome != longstop.OutcomeSucceeded || a.Alive != longstop.AliveNo || a.Workload.Boundary.Empty == nil || !*a.Workload.Boundary.Empty {
				t.Errorf("at the end:\n%s", pretty(a))
			}
			wantExit(t, a, 0)
		})
	}
}
