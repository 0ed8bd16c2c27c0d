//go:build hosts

package hosts

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Limits on a whole run: what the host's kernel has no controller for is refused before anything begins, in
// every boundary, with why; hello says the same before anybody asks.
func TestLimitsOnAWholeRun(t *testing.T) {
	t.Parallel()
	h, g, names := unitHost(t)
	held := map[string]bool{}
	for _, controller := range strings.Fields(h.Exec(t, "cat", "/sys/fs/cgroup/cgroup.controllers")) {
		held[controller] = true
	}
	for manager, name := range names {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			var host longstop.Host
			g.ask(t, &host, "host", "check", name, "--json")
			for limit, controller := range map[string]string{"memory_bytes": "memory", "cpu_percent": "cpu", "tasks": "pids"} {
				if held[controller] {
					t.Errorf("this host's kernel has %s: TestLimitsOfARunOnThisKernel of internal/runner is for it", controller)
					continue
				}
				for _, flags := range [][]string{nil, {"--owner", "systemd"}, {"--boundary", "tree"}, {"--owner", "runner"}, {"--detached", "--deadline", "1m"}} {
					r := g.longstop(t, append(append([]string{"run", "--limit", limit + "=50"}, flags...), name, "--", "touch", "/tmp/ran-"+manager)...)
					if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, limit) || !strings.Contains(r.stderr, `no controller "`+controller+`"`) {
						t.Errorf("%q: %s", flags, r)
					}
				}
				for _, b := range host.Hello.Boundaries {
					for _, l := range b.Limits {
						if l.Name == limit && (l.Can || l.Because == "") {
							t.Errorf("%s says of %s: %+v", name, b.Kind, l)
						}
					}
				}
			}
			if left := h.Sh(t, "ls /tmp/ran-"+manager+" 2>/dev/null || :"); left != "" {
				t.Errorf("something ran: %s", left)
			}
			r := g.longstop(t, "run", "--limit", "open_files=55", name, "-c", "ulimit -n")
			if r.status != 0 || r.stdout != "55\n" {
				t.Errorf("a limit of each process: %s", r)
			}
		})
	}
}

// The owner of a limited run in a unit, on a host with a service manager: a stand-in for the controllers.
func TestLimitsInAUnitWithAStandIn(t *testing.T) {
	t.Parallel()
	faultTestsOnHost(t, rig.New(t), "LiveLimits")
}
