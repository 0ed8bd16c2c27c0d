//go:build hosts

package hosts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// prelude comes before each script. Root is refused by PostgreSQL.
const prelude = `set -e; export ESCAPE=%s PATH=$PATH:/usr/sbin:/sbin; mkdir -m 755 $ESCAPE; cd $ESCAPE
until_there() { until test -e "$1"; do sleep 0.02; done; }
user=; root=
if test $(id -u) = 0; then root=1; else user=--user; export XDG_RUNTIME_DIR=/run/user/$(id -u); fi
`

// TestEscapes keeps the table true: each escape in each boundary with each leftover. What is left is
// looked for in the process table from outside the host, by the escape's folder, whatever our records
// say; and a record may be wrong in neither direction.
func TestEscapes(t *testing.T) {
	// Not beside other tests: its lanes keep the processors busy by themselves, and whoever forks and goes is
	// seen only by who looks quickly.
	yard := newYard(t)
	lanes := sideBySide{places: make(chan struct{}, 6)}
	n := 0
	for _, ground := range grounds {
		host := yard.g.enrolAs(t, yard.h, ground.account)
		for _, e := range escapes {
			for _, leftover := range leftovers {
				n++
				c := &cell{yard: yard, escape: e, ground: ground, leftover: leftover, on: host, dir: fmt.Sprintf("%s/%03d", escapeDir, n)}
				lanes.run(t, fmt.Sprintf("%s/%s/%s", e.name, ground.kind, leftover), c.run)
			}
		}
	}
	lanes.all.Wait()
	if left := yard.traces(escapeDir); len(left) > 0 {
		t.Errorf("left on the host in the end: %v", left)
	}
}

// yard is the host that all of them run on.
type yard struct {
	g    *gateway
	h    *rig.Host
	host inside
}

func newYard(t *testing.T) *yard {
	h, g := rig.New(t), newGateway(t)
	h.Sh(t, `mkdir -m 1777 `+escapeDir+` && systemctl start atd
echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/escapes
ssh-keygen -q -t ed25519 -N '' -f `+escapeDir+`/key && cat `+escapeDir+`/key.pub >>/home/deploy/.ssh/authorized_keys && chown deploy `+escapeDir+`/key
mkdir `+escapeDir+`/template && chown deploy: `+escapeDir+`/template
setpriv --reuid=deploy --regid=deploy --clear-groups $(echo /usr/lib/postgresql/*/bin)/initdb -N -A trust -D `+escapeDir+`/template >/dev/null`)
	return &yard{g: g, h: h, host: insideOf(t, h)}
}

// trace is a living process that something of an escape's folder was seen on.
type trace struct {
	here, there int // its number on this machine, and on the host
	command     string
}

// traces finds the processes of the host that have a name under dir in their arguments, their environment,
// as their folder, or open.
func (y *yard) traces(dir string) (found []trace) {
	namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", y.host.pid1))
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if its, err := os.Readlink(proc + "/ns/pid"); err != nil || its != namespace {
			continue
		}
		status, _ := os.ReadFile(proc + "/status")
		if !hasTrace(proc, dir) || bytes.Contains(status, []byte("\nState:\tZ")) {
			continue
		}
		_, numbers, _ := bytes.Cut(status, []byte("\nNSpid:"))
		numbers, _, _ = bytes.Cut(numbers, []byte("\n"))
		fields := strings.Fields(string(numbers))
		if len(fields) == 0 {
			continue // it has ended meanwhile
		}
		command, _ := os.ReadFile(proc + "/cmdline")
		t := trace{command: string(bytes.ReplaceAll(command[:min(len(command), 100)], []byte{0}, []byte(" ")))}
		t.here, _ = strconv.Atoi(filepath.Base(proc))
		t.there, _ = strconv.Atoi(fields[len(fields)-1])
		found = append(found, t)
	}
	return found
}

func hasTrace(proc, dir string) bool {
	for _, file := range []string{"environ", "cmdline"} {
		if content, _ := os.ReadFile(proc + "/" + file); bytes.Contains(content, []byte(dir)) {
			return true
		}
	}
	links, _ := filepath.Glob(proc + "/fd/*")
	for _, link := range append(links, proc+"/cwd") {
		if name, _ := os.Readlink(link); strings.Contains(name, dir) {
			return true
		}
	}
	return false
}

// cell is one escape in one boundary with one leftover.
type cell struct {
	*yard
	escape
	ground
	leftover longstop.Leftover
	on       string // the host's name for the account
	dir      string
}

func (c *cell) run(t *testing.T) {
	defer c.clear(t)
	args := c.args()
	fate := c.in(c.ground, c.leftover)
	if fate == refused {
		r := c.g.longstop(t, append([]string{"run", "-d"}, args...)...)
		if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, string(c.leftover)) || len(c.traces(c.dir)) > 0 {
			t.Errorf("%s\n%v", r, c.traces(c.dir))
		}
		return
	}
	id := c.launch(t, args)
	switch {
	case fate == unseen:
		c.notSeen(t, id)
	case c.leftover == longstop.LeftoverWait:
		c.waited(t, id, fate)
	case c.leftover == longstop.LeftoverKill:
		c.killed(t, id, fate)
	default:
		c.released(t, id, fate)
	}
}

func (c *cell) args() []string {
	script := fmt.Sprintf(prelude, c.dir) + c.script
	return append([]string{c.on, "--leftover", string(c.leftover), "--grace", "2s", "-c", script}, c.flags...)
}

// launch returns once the main process has ended and the escape is there, or was.
func (c *cell) launch(t *testing.T, args []string) longstop.ActionID {
	id := c.g.launch(t, args...)
	a := c.g.await(t, id, 40*time.Second, "the end of its main process", func(a longstop.Action) bool {
		return a.Workload.Main != nil && a.Workload.Main.ExitCode != nil
	})
	if *a.Workload.Main.ExitCode != 0 || a.Workload.Boundary.Kind != c.kind {
		t.Fatalf("%s\n%s", c.g.longstop(t, "logs", string(id)), pretty(a))
	}
	return id
}

// notSeen: the run is over as if there were nothing, and there is. Were it seen, or ended, the table would be too modest.
func (c *cell) notSeen(t *testing.T, id longstop.ActionID) {
	a := c.g.final(t, id, 20*time.Second)
	wantExit(t, a, 0)
	if w := a.Workload; len(w.Left)+len(w.Released)+len(w.Survivors) > 0 || a.Alive != longstop.AliveNo {
		t.Errorf("it was seen:\n%s", pretty(a))
	}
	if !c.there() {
		t.Errorf("it is gone:\n%s", pretty(a))
	}
}

// waited: the run lingers with it, until a cancel.
func (c *cell) waited(t *testing.T, id longstop.ActionID, fate fate) {
	a := c.g.await(t, id, 20*time.Second, "lingering", func(a longstop.Action) bool {
		return a.Workload.State == longstop.WorkloadLingering || a.Workload.State.Final()
	})
	if !c.there() || a.Workload.State != longstop.WorkloadLingering {
		t.Fatalf("%s", pretty(a))
	}
	if !c.moves {
		c.named(t, a, func() []longstop.Process { return c.g.inspect(t, id).Processes })
	}
	r := c.g.longstop(t, "cancel", string(id))
	if fate == survives {
		c.survivor(t, id, r)
	}
	a = c.g.final(t, id, 20*time.Second)
	c.empty(t, a)
	if a.Workload.State != longstop.WorkloadCancelled || a.Alive != longstop.AliveNo {
		t.Errorf("%s\n%s", r, pretty(a))
	}
}

// killed: it went with the main process, whose result stands.
func (c *cell) killed(t *testing.T, id longstop.ActionID, fate fate) {
	if fate == survives {
		c.survivor(t, id, result{})
	}
	a := c.g.final(t, id, 20*time.Second)
	c.empty(t, a)
	wantExit(t, a, 0)
	if len(a.Workload.Left) == 0 || a.Alive != longstop.AliveNo {
		t.Errorf("%s", pretty(a))
	}
}

// released: it lives on and is named, until a cancel.
func (c *cell) released(t *testing.T, id longstop.ActionID, fate fate) {
	a := c.g.final(t, id, 20*time.Second)
	wantExit(t, a, 0)
	if !c.there() || len(a.Workload.Released) == 0 || a.Alive != longstop.AliveYes {
		t.Fatalf("%s", pretty(a))
	}
	if !c.moves {
		c.named(t, a, func() []longstop.Process { return c.g.inspect(t, id).Processes })
	}
	r := c.g.longstop(t, "cancel", string(id))
	if fate == survives {
		if a = c.g.show(t, id); a.Alive != longstop.AliveYes || !c.there() || r.status != longstop.ExitUnknown || !strings.Contains(a.Cancel.Because, "may not be signalled") {
			t.Errorf("%s\n%s", r, pretty(a))
		}
		c.clear(t)
	}
	a = c.g.await(t, id, 20*time.Second, "nothing alive", func(a longstop.Action) bool { return a.Alive == longstop.AliveNo })
	c.empty(t, a)
	wantExit(t, a, 0)
}

// survivor: the run is not over while what it left lives, and says why it does. Then somebody else ends that.
func (c *cell) survivor(t *testing.T, id longstop.ActionID, r result) {
	a := c.g.await(t, id, 20*time.Second, "survivors", func(a longstop.Action) bool { return len(a.Workload.Survivors) > 0 })
	if a.Workload.State.Final() || a.Alive != longstop.AliveYes || a.Workload.Survivors[0].Why == "" {
		t.Errorf("%s\n%s", r, pretty(a))
	}
	c.named(t, a, func() []longstop.Process { return a.Workload.Survivors })
	c.clear(t)
}

// named checks that everything that can be found, and goes on to be, is on a list that is made meanwhile.
func (c *cell) named(t *testing.T, a longstop.Action, list func() []longstop.Process) {
	t.Helper()
	before, named := c.traces(c.dir), list()
	for _, found := range c.traces(c.dir) {
		if slices.Contains(before, found) && !slices.ContainsFunc(named, func(p longstop.Process) bool { return p.PID == found.there }) {
			t.Errorf("not named: %+v\namong %s\n%s", found, pretty(named), pretty(a))
		}
	}
}

// there looks more than once, as empty does.
func (c *cell) there() bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if len(c.traces(c.dir)) > 0 {
			return true
		}
	}
	return false
}

// empty looks more than once: whoever forks and goes can be missed by one look.
func (c *cell) empty(t *testing.T, a longstop.Action) {
	t.Helper()
	for range 3 {
		if left := c.traces(c.dir); len(left) > 0 {
			t.Fatalf("said to be over, and alive: %+v\n%s", left, pretty(a))
		}
	}
}

// clear ends what is left, as root and from outside.
func (c *cell) clear(t *testing.T) {
	eventually(t, 20*time.Second, "an empty yard", func() bool {
		left := c.traces(c.dir)
		for _, found := range left {
			syscall.Kill(found.here, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}
