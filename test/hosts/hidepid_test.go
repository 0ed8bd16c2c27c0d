//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// TestLaw3HiddenProcesses: where /proc hides processes from a plain user, no run is started, and why is said. Where
// it comes to hide them under runs, none of theirs is taken for gone: what was released may be alive and is not
// signalled, a status is known all the same, and a run that shows itself to nobody can be stopped.
func TestLaw3HiddenProcesses(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	h.Exec(t, "sh", "-c", "echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/hidden")
	released := g.launch(t, "--leftover", "release", h.Name, "--", "ssh-agent")
	concealed := g.launch(t, h.Name, "--", "ssh-agent", "-d")
	roots := g.launch(t, h.Name, "--", "sudo", "-n", "sh", "-c", "until test -e /run/hidden; do sleep 0.05; done; exit 7")
	g.await(t, released, 10*time.Second, "over", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadFinished })
	eventually(t, 10*time.Second, "sudo has begun", func() bool { return h.Sh(t, "pgrep -u root -f '^sh -c until test -e /run/hidden'; :") != "" })

	h.Exec(t, "mount", "-o", "remount,hidepid=2", "/proc")
	h.Exec(t, "touch", "/run/hidden")
	wantExit(t, g.final(t, roots, 20*time.Second), 7)
	g.await(t, released, 20*time.Second, "not known", func(a longstop.Action) bool { return a.Alive == longstop.AliveUnknown })
	if r := g.longstop(t, "cancel", string(released)); r.status != longstop.ExitUnknown || !strings.Contains(r.stderr, "hidepid") {
		t.Errorf("cancel of what cannot be seen: %s", r)
	}
	g.emptied(t, h, concealed)
	if r := g.longstop(t, "run", h.Name, "--", "true"); r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "hidepid") {
		t.Errorf("a run: %s", r)
	}
	if r := g.longstop(t, "host", "check", h.Name); !strings.Contains(r.stdout+r.stderr, "no run can be started: /proc hides") {
		t.Errorf("%s", r)
	}

	h.Exec(t, "mount", "-o", "remount,hidepid=0", "/proc")
	g.must(t, "cancel", string(released))
	if left := ofRun(t, h, g.show(t, released).RunID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
