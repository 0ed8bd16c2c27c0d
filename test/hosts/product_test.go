//go:build hosts

package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// How a test here reads: it takes a host (rig.Up for one that it leaves as it was, rig.New for one
// that it reboots, cuts or breaks), a gateway of its own, and then does what a person would:
//
//	h, g := rig.Up(t, "h1"), newGateway(t)
//	g.enrol(t, h)
//	r := g.longstop(t, "run", "h1", "--", "true")
//	a := g.show(t, g.newest(t))
//
// Tests run in parallel, each with its own gateway; what nothing announces is polled for with
// eventually. A test of issue point N is named TestPointN….

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// build makes the commands, once; nothing is done where they are newer than their sources.
var build = sync.OnceValues(func() (dir string, err error) {
	if dir := os.Getenv("LONGSTOP_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("make", "-s", "-C", root, "build", "bin/faults/longstop-runner").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return filepath.Join(root, "bin"), nil
})

// gateway is a LONGSTOP_HOME of its own and the commands that use it. Its daemon is started by the
// first command, as for anybody, and ended with the test.
type gateway struct {
	home string
	bin  string
	env  []string
}

// newGateway makes an empty home. env is set for commands and daemon alike, "NAME=value".
func newGateway(t *testing.T, env ...string) *gateway {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "lsg") // short: there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{home: home, bin: bin, env: append(os.Environ(), append(env, "LONGSTOP_HOME="+home)...)}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(home, "longstopd.log"))
			t.Logf("the gateway's log:\n%s", tail(log, 6000))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if r := g.run(ctx, nil, "daemon", "stop"); r.status != 0 {
			t.Logf("longstop daemon stop: %s", r)
			g.kill9(t)
		}
		os.RemoveAll(home)
	})
	return g
}

// withFaults has the commands, the daemon and the runner that it puts on hosts be those with fault
// hooks compiled in. What shall fail on a host is said in its /etc/environment (LONGSTOP_FAULT).
func (g *gateway) withFaults() *gateway {
	g.bin = filepath.Join(g.bin, "faults")
	return g
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// result is what a command did.
type result struct {
	args           []string
	stdout, stderr string
	status         int // -1: it could not be started, or a signal ended it
	took           time.Duration
	err            error
}

func (r result) String() string {
	return fmt.Sprintf("longstop %s: exit %d after %s (%v)\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.status,
		r.took.Round(time.Millisecond), r.err, tail([]byte(r.stdout), 3000), tail([]byte(r.stderr), 3000))
}

// problem is the error in a command's --json output.
func (r result) problem(t *testing.T) longstop.Error {
	t.Helper()
	var p struct{ Error longstop.Error }
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || p.Error.Code == "" {
		t.Fatalf("no error in the JSON (%v): %s", err, r)
	}
	return p.Error
}

// commandBound ends a command that hangs: a failure, never a way to stop one.
const commandBound = 3 * time.Minute

func (g *gateway) run(ctx context.Context, stdin []byte, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, commandBound)
	defer cancel()
	c := g.command(ctx, args...)
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	err := c.Run()
	return result{args, stdout.String(), stderr.String(), c.ProcessState.ExitCode(), time.Since(began), err}
}

func (g *gateway) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(g.bin, "longstop"), args...)
	c.Env, c.Dir = g.env, g.home
	c.WaitDelay = 5 * time.Second
	return c
}

// longstop runs a command to its end, whatever its status.
func (g *gateway) longstop(t *testing.T, args ...string) result {
	t.Helper()
	return g.run(t.Context(), nil, args...)
}

// must is longstop of a command that has to exit 0.
func (g *gateway) must(t *testing.T, args ...string) result {
	t.Helper()
	r := g.longstop(t, args...)
	if r.status != 0 {
		t.Fatal(r)
	}
	return r
}

// ask reads what a command prints with --json.
func (g *gateway) ask(t *testing.T, into any, args ...string) {
	t.Helper()
	r := g.must(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
}

// enrol adds the host under its own name; account and further flags may follow.
func (g *gateway) enrol(t *testing.T, h *rig.Host, flags ...string) {
	t.Helper()
	g.enrolAs(t, h, "deploy", flags...)
}

// enrolAs adds one account of the host and returns the name it goes by.
func (g *gateway) enrolAs(t *testing.T, h *rig.Host, account string, flags ...string) string {
	t.Helper()
	name := h.Account(account)
	args := append([]string{"host", "add", name, "--ssh-config", h.SSHConfig}, flags...)
	if r := g.longstop(t, args...); r.status == 0 {
		return name
	} else if !strings.Contains(r.stderr, "timed out") {
		said, err := h.Try(t.Context(), "journalctl", "-b", "--no-pager", "-n", "60")
		t.Fatalf("%s\nthe journal of %s (%v):\n%s", r, h.Name, err, said)
	}
	g.must(t, args...) // a machine that boots many hosts at once may keep one waiting for too long
	return name
}

// running is a command that goes on while the test does something else.
type running struct {
	*exec.Cmd
	args           []string
	began          time.Time
	stdout, stderr *buffer
	ended          chan struct{}
	err            error
}

// buffer is a bytes.Buffer that may be looked at while it grows.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }
func (b *buffer) Len() int                    { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Len() }

// start starts a command; what is left of it at the end of the test is killed.
func (g *gateway) start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{args: args, began: time.Now(), stdout: &buffer{}, stderr: &buffer{}, ended: make(chan struct{})}
	r.Cmd = g.command(context.Background(), args...)
	r.Stdout, r.Stderr = r.stdout, r.stderr
	if err := r.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.err = r.Cmd.Wait(); close(r.ended) }()
	t.Cleanup(func() { r.Process.Kill(); <-r.ended })
	return r
}

// over reports whether the command has ended.
func (r *running) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// end waits for the command's end.
func (r *running) end(t *testing.T, bound time.Duration) result {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(bound):
		r.Process.Signal(syscall.SIGQUIT)
		<-r.ended
		t.Fatalf("not within %v: the end of longstop %s\nstdout: %s\nstderr: %s", bound, strings.Join(r.args, " "),
			tail([]byte(r.stdout.String()), 2000), tail([]byte(r.stderr.String()), 6000))
	}
	return result{r.args, r.stdout.String(), r.stderr.String(), r.ProcessState.ExitCode(), time.Since(r.began), r.err}
}

// launch is run -d: it returns the id that was printed.
func (g *gateway) launch(t *testing.T, args ...string) longstop.ActionID {
	t.Helper()
	r := g.must(t, append([]string{"run", "-d"}, args...)...)
	id := strings.TrimSpace(r.stdout)
	if !strings.HasPrefix(id, "act_") {
		t.Fatalf("no action id on stdout: %s", r)
	}
	return longstop.ActionID(id)
}

// show is what the gateway knows of an action.
func (g *gateway) show(t *testing.T, id longstop.ActionID) (a longstop.Action) {
	t.Helper()
	g.ask(t, &a, "show", string(id))
	return a
}

// newest is the id of the action asked for last.
func (g *gateway) newest(t *testing.T) longstop.ActionID {
	t.Helper()
	var all []longstop.Action
	g.ask(t, &all, "ps", "-a")
	if len(all) == 0 {
		t.Fatal("no action yet")
	}
	return all[0].ID
}

// await polls an action until it is as wanted, and returns it.
func (g *gateway) await(t *testing.T, id longstop.ActionID, bound time.Duration, what string, is func(longstop.Action) bool) longstop.Action {
	t.Helper()
	var a longstop.Action
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		if a = g.show(t, id); is(a) {
			return a
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s of %s\n%s", bound, what, id, pretty(a))
		}
	}
}

func pretty(v any) string {
	out, _ := json.MarshalIndent(v, "", "  ")
	return string(out)
}

// final awaits a final workload.
func (g *gateway) final(t *testing.T, id longstop.ActionID, bound time.Duration) longstop.Action {
	t.Helper()
	return g.await(t, id, bound, "the end", func(a longstop.Action) bool { return a.Workload.State.Final() })
}

// kill9 kills the gateway without a word. Nothing is left running here but what it started.
func (g *gateway) kill9(t *testing.T) {
	t.Helper()
	for _, pid := range g.daemons(t) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, 10*time.Second, "end of the gateway", func() bool { return len(g.daemons(t)) == 0 })
}

// daemons finds this home's gateway in the process table: the program by its file, the home by its
// environment.
func (g *gateway) daemons(t *testing.T) (pids []int) {
	t.Helper()
	return processes(filepath.Join(g.bin, "longstopd"), "LONGSTOP_HOME="+g.home)
}

// processes finds processes of a program with an entry in their environment.
func processes(program, entry string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if exe, err := os.Readlink(dir + "/exe"); err != nil || strings.TrimSuffix(exe, " (deleted)") != program {
			continue
		}
		env, _ := os.ReadFile(dir + "/environ")
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00")) {
			var pid int
			fmt.Sscan(filepath.Base(dir), &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually polls for what nothing announces.
func eventually(t *testing.T, bound time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !holds(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// ofRun lists the processes of a run on its host, by what is in their environment: none may hide
// by leaving its parent, its session or its group.
func ofRun(t *testing.T, h *rig.Host, id longstop.RunID) []string {
	t.Helper()
	out := h.Sh(t, `for e in /proc/[0-9]*/environ; do
  if tr '\0' '\n' <$e 2>/dev/null | grep -qx 'LONGSTOP_RUN_ID=`+string(id)+`'; then p=${e%/environ}; read -r s <$p/stat 2>/dev/null && case $s in *') Z '*) ;; *) echo "$s";; esac; fi
done; :`)
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// inspection is what `longstop inspect --json` shows.
type inspection struct {
	Processes     []longstop.Process
	Owner, Keeper *longstop.Process
	Complete      bool
}

func (g *gateway) inspect(t *testing.T, id longstop.ActionID) (i inspection) {
	t.Helper()
	g.ask(t, &i, "inspect", string(id))
	return i
}

// kill signals a process on a host. Its pid is the host's own.
func kill(t *testing.T, h *rig.Host, signal string, p *longstop.Process) {
	t.Helper()
	if p == nil {
		t.Fatal("no process to signal")
	}
	h.Exec(t, "kill", "-"+signal, fmt.Sprint(p.PID))
}

func exitCode(r *longstop.Result) (int, error) {
	if r == nil || r.ExitCode == nil {
		return 0, errors.New("no exit code")
	}
	return *r.ExitCode, nil
}

// wantExit checks how the main process ended, by the final record.
func wantExit(t *testing.T, a longstop.Action, code int) {
	t.Helper()
	if got, err := exitCode(a.Workload.Result); err != nil || got != code || a.Workload.State != longstop.WorkloadFinished {
		t.Errorf("want finished with %d, got (%v):\n%s", code, err, pretty(a))
	}
}
