//go:build hosts

package hosts

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// TestC124OneHomeForTwoHosts: the second host sees the state folder of the first where its own would be. It leaves
// that alone, says how to have another, and both are as good as any. What they share is a copy here: namespaces on
// one machine have no NFS between them.
func TestC124OneHomeForTwoHosts(t *testing.T) {
	t.Parallel()
	first, second, g := rig.Up(t, "h1"), rig.Up(t, "k6"), newGateway(t)
	const dir = "/var/tmp/c124"
	for _, h := range []*rig.Host{first, second} {
		h.Sh(t, "rm -rf "+dir+"*")
	}
	g.enrol(t, first, "--state-dir", dir)
	id := g.launch(t, "--lease", "10m", first.Name, "-c", "echo here; sleep 600")
	home := first.Sh(t, "tar -C /var/tmp -cf - --exclude=*.sock c124 | base64 -w0")
	second.WriteFile(t, "/var/tmp/c124.tar", 0o600, []byte(home))
	second.Sh(t, "base64 -d /var/tmp/c124.tar | tar -C /var/tmp -xpf -")
	before := second.Sh(t, "cd "+dir+" && find . -type f | sort | xargs sha256sum")

	r := g.longstop(t, "host", "add", second.Name, "--ssh-config", second.SSHConfig, "--state-dir", dir)
	if r.status != longstop.ExitOurs || !strings.Contains(r.stderr, dir+" is of another machine") || !strings.Contains(r.stderr, "--state-dir DIR") {
		t.Errorf("the folder of another machine: %s", r)
	}
	if after := second.Sh(t, "cd "+dir+" && find . -type f | sort | xargs sha256sum"); after != before {
		t.Errorf("it was changed:\n%s\n%s", before, after)
	}
	g.enrol(t, second, "--state-dir", dir+"-own")
	for _, h := range []*rig.Host{first, second} {
		if r := g.longstop(t, "run", h.Name, "-c", "hostname; exit 3"); r.status != 3 || r.stdout != h.Name+"\n" {
			t.Error(r)
		}
	}
	if a := g.show(t, id); a.Workload.State != longstop.WorkloadRunning || a.Alive != longstop.AliveYes {
		t.Errorf("%s", pretty(a))
	}
	g.emptied(t, first, id)
}
