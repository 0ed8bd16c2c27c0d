//go:build hosts

package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// extDisk puts an ext4 of its own at /srv/disk of a host, deploy's. fail has it turn read-only, as a disk with an
// error does.
func extDisk(t *testing.T, h *rig.Host) (fail func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	run := func(words ...string) string {
		t.Helper()
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Skipf("skipped: no disk of its own can be made here: %q: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("truncate", "-s", "16M", image)
	run("mkfs.ext4", "-q", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() }) // when its last user has gone
	number := strings.TrimPrefix(filepath.Base(device), "loop")
	h.Sh(t, "mknod /dev/disk b 7 "+number+" && mkdir /srv/disk && mount -t ext4 -o errors=remount-ro /dev/disk /srv/disk && chown deploy: /srv/disk && chmod 700 /srv/disk")
	return func() {
		t.Helper()
		if err := os.WriteFile("/sys/fs/ext4/"+filepath.Base(device)+"/trigger_fs_error", []byte("a test"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// C122: the disk of the state folder turns read-only under runs. One whose owner lives ends as it ended, and
// show says that no disk took it; of one whose owner dies too nobody makes up an end; nothing new begins, and
// the host says why.
func TestC122TheDiskTurnsReadOnlyUnderRuns(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	fail := extDisk(t, h)
	g.enrol(t, h, "--state-dir", "/srv/disk/state")
	waits := func(file, end string) longstop.ActionID {
		return g.launch(t, "--lease", "5m", h.Name, "-c", "until [ -e /tmp/"+file+" ]; do sleep .05; done; "+end)
	}
	told, never := waits("go-told", "exit 4"), waits("go-never", "exit 4")
	for _, id := range []longstop.ActionID{told, never} {
		g.await(t, id, 10*time.Second, "it runs", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadRunning })
	}
	i := g.inspect(t, never)
	fail()
	h.Exec(t, "touch", "/tmp/go-told")
	a := g.final(t, told, 20*time.Second)
	wantExit(t, a, 4)
	if show := g.must(t, "show", string(told)).stdout; !strings.Contains(show, "! the final record could not be written at first: ") || !strings.Contains(show, "read-only") {
		t.Errorf("%s", show)
	}

	r := g.longstop(t, "run", h.Name, "--", "touch", "/tmp/ran")
	if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "read-only") || h.Exists(t, "/tmp/ran") {
		t.Errorf("a new run: %s", r)
	}
	if r := g.longstop(t, "host", "check", h.Name); !strings.Contains(r.stderr, "no run can be started") || !strings.Contains(r.stderr, "read-only") {
		t.Errorf("%s", r)
	}

	kill(t, h, "KILL", i.Keeper)
	kill(t, h, "KILL", i.Owner)
	h.Exec(t, "touch", "/tmp/go-never")
	eventually(t, 20*time.Second, "the work's end", func() bool { return len(ofRun(t, h, g.show(t, never).RunID)) == 0 })
	g.longstop(t, "reconcile", string(never))
	if a := g.show(t, never); a.Workload.Result != nil || a.Outcome == longstop.OutcomeSucceeded || a.Outcome == longstop.OutcomeFailed || a.Outcome == longstop.OutcomeCancelled {
		t.Errorf("an end that nobody saw:\n%s", pretty(a))
	}
}
