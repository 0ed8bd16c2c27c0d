//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// C125, C149: a host that runs filled, once with output and once with files of ours, is emptied of what was
// read, and takes runs again with nobody's help: whether it had to refuse one (the second time), or had room
// for one still, made ahead (the first). What nobody has read is kept, and results are.
func TestC149AFullHostIsEmptied(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t, rig.SmallDisk("12m", 120)), newGateway(t)
	g.enrol(t, h, "--state-dir", "/srv/small/state")
	unread := g.launch(t, h.Name, "-c", "head -c 1000000 /dev/zero; exit 2")
	g.final(t, unread, 20*time.Second)
	g.longstop(t, "run", h.Name, "-c", "until ls /srv/small/state/spool/room.*/final.spare; do :; done; head -c 20000000 /dev/zero; exit 5")
	full := g.newest(t)
	wantExit(t, g.final(t, full, 20*time.Second), 5)
	g.untilTaken(t, h, "echo again; exit 3", 3)

	a := g.await(t, full, 20*time.Second, "its output is removed", func(a longstop.Action) bool { return a.Removed != nil })
	if a.Removed.Because != longstop.RemovedHostFull || a.Workload.Result == nil || a.Output.DroppedBytes == 0 {
		t.Errorf("what is known of it:\n%s", pretty(a))
	}
	for _, flags := range [][]string{nil, {"-f"}, {"--stderr"}} {
		r := g.longstop(t, append(append([]string{"logs"}, flags...), string(full))...)
		if r.status != longstop.ExitOurs || r.stdout != "" || !strings.Contains(r.stderr, "was removed from "+h.Name) ||
			!strings.Contains(r.stderr, a.Removed.At.Format("2006-01-02T15:04")) {
			t.Errorf("logs %v: %s", flags, r)
		}
	}
	if logs := g.must(t, "logs", string(unread)); len(logs.stdout) != 1000000 {
		t.Errorf("what nobody had read: %d bytes", len(logs.stdout))
	}
	if r := g.longstop(t, "wait", string(full)); r.status != 5 {
		t.Errorf("its result: %s", r)
	}
	for range 20 { // each leaves two files for ever; all that it has would not fit
		g.untilTaken(t, h, "exit 3", 3)
	}
}

// untilTaken runs a script until the host does not refuse it any more.
func (g *gateway) untilTaken(t *testing.T, h *rig.Host, script string, status int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		r := g.longstop(t, "run", h.Name, "-c", script)
		if r.status == status {
			return
		}
		if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "used up") || time.Now().After(end) {
			t.Fatalf("a run on a full host: %s", r)
		}
	}
}
