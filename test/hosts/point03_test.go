//go:build hosts

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// node is one process of a tree: it writes what it gets and goes on until TERM. $1 is the folder,
// $2 its name, $3 what it starts first.
const node = `#!/bin/bash
trap 'echo TERM >>$1/$2; exit 0' TERM
trap 'echo HUP >>$1/$2' HUP
eval "$3"
echo $BASHPID >$1/$2.pid
[[ $2 == stopped ]] && kill -STOP $BASHPID
while :; do read -t 0.1 <> <(:) || :; done
`

// tree is a shell, its child, a grandchild, a grandchild that called setsid twice, and a stopped one.
const tree = `/home/deploy/node $D child 'setsid setsid /home/deploy/node $1 escaped & /home/deploy/node $1 grandchild &' &
/home/deploy/node $D stopped &
trap 'echo TERM >>$D/shell; exit 0' TERM
echo $BASHPID >$D/shell.pid
while :; do read -t 0.1 <> <(:) || :; done`

var treeNames = []string{"shell", "child", "grandchild", "escaped", "stopped"}

func TestPoint3CancelTree(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.WriteFile(t, "/home/deploy/node", 0o755, []byte(node))
	const dir = "/tmp/point3"
	h.Sh(t, "rm -rf "+dir+"; mkdir "+dir+"; chown deploy "+dir)

	other := g.launch(t, "h1", "--", "sleep", "600")
	id := g.launch(t, "h1", "--", "bash", "-c", "D="+dir+"; export D; "+tree)
	for _, name := range treeNames {
		eventually(t, 10*time.Second, name+" of the tree", func() bool { return h.Exists(t, dir+"/"+name+".pid") })
	}
	eventually(t, 10*time.Second, "the stopped one", func() bool {
		return strings.HasPrefix(strings.TrimSpace(h.Sh(t, "ps -o stat= -p $(cat "+dir+"/stopped.pid) || :")), "T")
	})
	before := g.show(t, id)
	if got := ofRun(t, h, before.RunID); len(got) < len(treeNames) {
		t.Fatalf("only %d processes of the run:\n%s", len(got), strings.Join(got, "\n"))
	}

	r := g.longstop(t, "cancel", string(id))
	if left := ofRun(t, h, before.RunID); len(left) > 0 {
		t.Errorf("cancel returned, and these are left:\n%s", strings.Join(left, "\n"))
	}
	if r.status != 0 {
		t.Error(r)
	}
	for _, name := range treeNames {
		if got := h.Sh(t, "cat "+dir+"/"+name+" || :"); got != "TERM\n" {
			t.Errorf("%s got %q, want TERM once", name, got)
		}
	}
	a := g.show(t, id)
	if a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseRequest || a.Cancel.State != longstop.CancelConfirmed ||
		a.Workload.Boundary.Empty == nil || !*a.Workload.Boundary.Empty || a.Alive != longstop.AliveNo || a.Outcome != longstop.OutcomeCancelled {
		t.Errorf("after cancel:\n%s", pretty(a))
	}
	if b := g.show(t, other); b.Workload.State != longstop.WorkloadRunning || len(ofRun(t, h, b.RunID)) != 1 {
		t.Errorf("the other run of the same user:\n%s", pretty(b))
	}
	g.must(t, "cancel", string(other))
}

// TestPoint3Stubborn has trees that do not go when asked.
func TestPoint3Stubborn(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ignores TERM":    `trap "" TERM; echo ready >$R; while :; do sleep 0.2; done`,
		"forks on TERM":   `trap 'setsid bash "$0" & exit 0' TERM; echo ready >$R; while :; do read -t 0.1 <> <(:) || :; done`,
		"forks for ever":  `trap "" TERM; echo ready >$R; setsid bash "$0" & exit 0`,
		"storm of setsid": `trap "" TERM; echo ready >$R; for i in 1 2 3; do setsid sh -c "trap '' TERM; while :; do setsid true & wait; done" & done; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, g := rig.Up(t, "h1"), newGateway(t)
			g.enrol(t, h)
			file := "/home/deploy/stubborn-" + strings.ReplaceAll(name, " ", "-")
			h.WriteFile(t, file, 0o755, []byte("#!/bin/bash\nR=/tmp/$(basename $0).ready\n"+script+"\n"))
			ready := "/tmp/" + file[len("/home/deploy/"):] + ".ready"
			h.Exec(t, "rm", "-f", ready)

			id := g.launch(t, "--grace", "1s", "h1", "--", "bash", file)
			eventually(t, 10*time.Second, "its start", func() bool { return h.Exists(t, ready) })
			run := g.show(t, id).RunID
			r := g.longstop(t, "cancel", string(id))
			if left := ofRun(t, h, run); len(left) > 0 {
				t.Errorf("cancel returned, and these are left:\n%s", strings.Join(left, "\n"))
				g.longstop(t, "cancel", string(id))
			}
			if r.status != 0 || r.took > 30*time.Second {
				t.Error(r)
			}
			a := g.show(t, id)
			if a.Workload.State != longstop.WorkloadCancelled || a.Cancel.State != longstop.CancelConfirmed {
				t.Errorf("after cancel:\n%s", pretty(a))
			}
			if name == "ignores TERM" && (a.Cancel.KilledAt.IsZero() || r.took < time.Second) {
				t.Errorf("was to be killed after its grace:\n%s\n%s", r, pretty(a.Cancel))
			}
		})
	}
}
