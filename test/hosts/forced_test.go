//go:build hosts

package hosts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// boundAccount is an account of a host that this test's own key alone may enter, bound to the runner by
// the line that `host add --forced` has said.
type boundAccount struct {
	account
	config string
	keys   string // authorized_keys there
	others string // its lines of other tests
	path   string // of the runner there
	line   string
}

// newBound makes the key, an ssh_config that offers no other, and asks what to install.
func newBound(t *testing.T, h *rig.Host, user string) *boundAccount {
	t.Helper()
	dir := t.TempDir()
	b := &boundAccount{account: account{newGateway(t), h, user, h.Account(user)}, config: filepath.Join(dir, "ssh_config"),
		keys: "/home/" + user + "/.ssh/authorized_keys", path: "/opt/longstop-" + user + "/longstop-runner"}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "forced", "-f", dir+"/key").CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	theirs, err := os.ReadFile(h.SSHConfig)
	if err == nil {
		ours := regexp.MustCompile(`(?m)^( *IdentityFile ).*`).ReplaceAll(theirs, []byte("${1}"+dir+"/key"))
		err = os.WriteFile(b.config, ours, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.others = string(h.ReadFile(t, b.keys))
	h.Exec(t, "cp", "-p", b.keys, b.keys+".others")
	t.Cleanup(func() { h.Try(context.Background(), "mv", b.keys+".others", b.keys) })
	r := b.add(t)
	for text := range strings.Lines(r.stdout) {
		if strings.HasPrefix(text, "command=") {
			b.line = text
		}
	}
	if r.status != longstop.ExitOurs || !strings.Contains(r.stderr, "refused") || !strings.Contains(b.line, ",restrict ssh-ed25519 ") {
		t.Fatalf("want what to install: %s", r)
	}
	sum := sha256.Sum256(b.runner(t))
	if !strings.Contains(r.stdout, hex.EncodeToString(sum[:])) {
		t.Errorf("it does not name the SHA-256 of what longstop runner writes, %x: %s", sum, r)
	}
	return b
}

func (b *boundAccount) add(t *testing.T) result {
	t.Helper()
	return b.longstop(t, "host", "add", b.name, "--forced", "--ssh-config", b.config, "--runner", b.path)
}

func (b *boundAccount) runner(t *testing.T) []byte {
	t.Helper()
	return []byte(b.must(t, "runner").stdout)
}

// bind installs a line for the key; it holds from the next connection on.
func (b *boundAccount) bind(t *testing.T, line string) {
	t.Helper()
	b.h.WriteFile(t, b.keys, 0o644, []byte(b.others+line))
	b.must(t, "daemon", "stop")
}

// install puts a runner there, as install(1) does: what runs keeps the file that it runs.
func (b *boundAccount) install(t *testing.T, binary []byte) {
	t.Helper()
	b.h.WriteFile(t, b.path+".new", 0o755, binary)
	b.h.Exec(t, "mv", b.path+".new", b.path)
}

// refused sees that plain ssh with the key gets nowhere.
func (b *boundAccount) refused(t *testing.T, command ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "ssh", append([]string{"-F", b.config, b.name}, command...)...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if code := c.ProcessState.ExitCode(); err == nil || code == 255 || stdout.Len() > 0 ||
		!strings.Contains(stderr.String(), "longstop-runner forced: refused ") && !slices.Contains(command, "-s") { // a subsystem's is not sent
		t.Errorf("ssh %q: exit %d, stdout %q, stderr %q", command, code, &stdout, &stderr)
	}
}

// TestForcedHost: what the operator is told to do is enough; a wrong step is named; then everything goes
// by a key that can do nothing else.
func TestForcedHost(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	b := newBound(t, h, "ash")
	_, free, _ := strings.Cut(b.line, ",restrict ")
	for _, c := range []struct {
		what, line string
		binary     []byte
		says       string
	}{
		{"a free key", free, nil, "it ran the command"},
		{"no runner", b.line, nil, "exited 127"},
		{"another runner", b.line, append(b.runner(t), "other"...), "the runner that is installed on " + b.name},
	} {
		b.bind(t, c.line)
		if c.binary != nil {
			b.install(t, c.binary)
		}
		if r := b.add(t); r.status != longstop.ExitOurs || !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stdout, b.line) {
			t.Errorf("%s: want %q, and what to install: %s", c.what, c.says, r)
		}
	}
	b.install(t, b.runner(t))
	if r := b.add(t); r.status != 0 || r.stdout != "" || !strings.Contains(r.stderr, "its forced command allows: submit, ") {
		t.Fatal(r)
	}
	for _, command := range [][]string{{"id"}, nil, {"exec sh -c 'id'"}, {b.path, "serve;", "id"}, {b.path, "keeper"}, {"-s", "sftp"}} {
		b.refused(t, command...)
	}
	if log := h.Exec(t, "journalctl", "-t", "longstop", "-o", "cat", "_UID="+strings.TrimSpace(h.Exec(t, "id", "-u", b.user))); !strings.Contains(log, `forced: refused "id"`+"\n") {
		t.Errorf("the host's log does not tell of the refusal:\n%s", log)
	}
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		b.ends(t, flags)
		b.lingers(t, flags)
		b.cancels(t, flags)
	}
	if r := b.run(t.Context(), bytes.Repeat([]byte("line\n"), 500_000), "run", "--stdin", b.name, "--", "sh", "-c", "tee /dev/stderr | wc -c"); r.status != 0 ||
		strings.TrimSpace(r.stdout) != "2500000" || len(strings.ReplaceAll(r.stderr, "line\n", "")) != len(r.stderr)-2500000 {
		t.Errorf("input and output: exit %d, stdout %.100q, stderr of %d bytes", r.status, r.stdout, len(r.stderr))
	}
	id := b.launch(t, b.name, "-c", "sleep 2; echo over; exit 5")
	b.kill9(t)
	if r := b.longstop(t, "wait", string(id)); r.status != 5 {
		t.Errorf("after the gateway's death: %s", r)
	}
	if out := b.must(t, "logs", string(id)).stdout; out != "over\n" {
		t.Errorf("its output is %q", out)
	}
	b.upgrade(t)
}

// ends is issue point 11 in short.
func (b *boundAccount) ends(t *testing.T, flags []string) {
	t.Helper()
	for script, status := range map[string]int{"exit 0": 0, "echo out; echo err >&2; exit 7": 7, "kill -SEGV $$": 139, "exit 255": 255} {
		r := b.longstop(t, append(append([]string{"run"}, flags...), b.name, "-c", script)...)
		if r.status != status || strings.Contains(script, "out") && (r.stdout != "out\n" || !strings.Contains(r.stderr, "err\n")) {
			t.Errorf("%q: %s", script, r)
		}
	}
	if r := b.longstop(t, append(append([]string{"run"}, flags...), b.name, "--", "/no/such/program")...); r.status != longstop.ExitNotStarted {
		t.Errorf("no such program: %s", r)
	}
}

// lingers is issue point 2 in short.
func (b *boundAccount) lingers(t *testing.T, flags []string) {
	t.Helper()
	marker := "/tmp/forced-marker"
	b.h.Exec(t, "rm", "-f", marker)
	r := b.longstop(t, append(append([]string{"run"}, flags...), b.name, "-c", "(sleep 2; date > "+marker+") >/dev/null 2>&1 </dev/null & echo started")...)
	if r.status != 0 || r.stdout != "started\n" || r.took < 2*time.Second || !b.h.Exists(t, marker) {
		t.Errorf("want the end of what was left running: %s", r)
	}
}

// cancels is issue point 3 in short.
func (b *boundAccount) cancels(t *testing.T, flags []string) {
	t.Helper()
	args := append(append([]string{}, flags...), b.name, "-c", "trap '' TERM; setsid sleep 300 & sleep 300 & wait; wait")
	id := b.launch(t, append([]string{"--grace", "1s"}, args...)...)
	if n := len(b.inspect(t, id).Processes); n < 3 {
		eventually(t, 10*time.Second, "three processes", func() bool { return len(b.inspect(t, id).Processes) == 3 })
	}
	r := b.longstop(t, "cancel", string(id))
	a := b.show(t, id)
	if left := ofRun(t, b.h, a.RunID); r.status != 0 || a.Outcome != longstop.OutcomeCancelled || len(left) > 0 {
		t.Errorf("%s\nleft: %q", r, left)
	}
}

// upgrade: a runner that is not this gateway's own is told of, and goes on to be used; nothing is put in
// its place but by the operator.
func (b *boundAccount) upgrade(t *testing.T) {
	t.Helper()
	id := b.launch(t, b.name, "-c", "sleep 3; echo over; exit 5")
	b.install(t, append(b.runner(t), "another version"...))
	b.must(t, "daemon", "stop")
	said := "the runner that is installed on " + b.name
	if r := b.longstop(t, "run", b.name, "--", "true"); r.status != 0 || strings.Count(r.stderr, said) != 1 || !strings.Contains(r.stderr, "host add "+b.name+" --forced") {
		t.Errorf("want a word about the other runner: %s", r)
	}
	if r := b.must(t, "host", "check", b.name); strings.Count(r.stderr, said) != 1 {
		t.Errorf("checked: %s", r)
	}
	if r := b.longstop(t, "wait", string(id)); r.status != 5 {
		t.Errorf("the run of the earlier runner: %s", r)
	}
	b.h.Exec(t, "rm", b.path)
	b.must(t, "daemon", "stop")
	r := b.longstop(t, "run", b.name, "--", "touch", "/tmp/forced-no")
	if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "host add "+b.name+" --forced") || !strings.Contains(r.stderr, "Nothing was started.") || b.h.Exists(t, b.path) {
		t.Errorf("without a runner: %s", r)
	}
	b.install(t, b.runner(t))
	if r := b.add(t); r.status != 0 {
		t.Error(r)
	}
	if r := b.longstop(t, "host", "check", b.name); r.status != 0 || strings.Contains(r.stderr, said) {
		t.Errorf("with the new one: %s", r)
	}
}

// TestForcedReadOnly: with a line for looking alone, what is known is shown and read, and nothing can be
// started, sent or stopped.
func TestForcedReadOnly(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	b := newBound(t, h, "fish")
	b.install(t, b.runner(t))
	b.bind(t, b.line)
	if r := b.add(t); r.status != 0 {
		t.Fatal(r)
	}
	going := b.launch(t, b.name, "-c", "echo said; exec sleep 300")
	over := b.launch(t, b.name, "-c", "echo earlier; exit 3")
	b.final(t, over, 20*time.Second)

	b.bind(t, strings.Replace(b.line, `forced"`, `forced --read-only"`, 1))
	marker := "/tmp/forced-read-only"
	const only = "does not allow submit, only find, status, list, inspect, output"
	for _, flags := range [][]string{nil, {"--own-channel"}, {"--stdin"}} {
		r := b.run(t.Context(), []byte("input"), append(append([]string{"run"}, flags...), b.name, "--", "touch", marker)...)
		last := b.last(t)
		if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, only) || !strings.Contains(r.stderr, "Nothing was started.") || h.Exists(t, marker) ||
			last.Launch.State != longstop.LaunchRejected || last.Outcome != longstop.OutcomeNotStarted {
			t.Errorf("%q: %s\n%s", flags, r, pretty(last))
		}
		if left := ofRun(t, h, last.RunID); len(left) > 0 || strings.Contains(h.Sh(t, "ls /home/fish/.local/state/longstop/runs"), string(last.RunID)) {
			t.Errorf("%q left something: %q", flags, left)
		}
	}
	for id, out := range map[longstop.ActionID]string{going: "said\n", over: "earlier\n"} {
		if r := b.longstop(t, "logs", string(id)); r.status != 0 || r.stdout != out {
			t.Errorf("logs: %s", r)
		}
	}
	if a := b.show(t, going); a.Alive != longstop.AliveYes || a.Observation == nil || a.Observation.Source != "live" {
		t.Errorf("show:\n%s", pretty(a))
	}
	if i := b.inspect(t, going); len(i.Processes) != 1 {
		t.Errorf("inspect: %s", pretty(i))
	}
	if list := b.must(t, "host", "list").stdout; !strings.Contains(list, "openssh, forced") {
		t.Errorf("the list of hosts: %s", list)
	}
	r := b.longstop(t, "cancel", string(going))
	a := b.show(t, going)
	if r.status != longstop.ExitUnknown || !strings.Contains(r.stderr, "does not allow cancel") || a.Cancel.State != longstop.CancelRefused || a.Alive != longstop.AliveYes {
		t.Errorf("cancel: %s\n%s", r, pretty(a))
	}
	if r := b.longstop(t, "host", "check", b.name); r.status != 0 || !strings.Contains(r.stderr, "allows: find, status, list, inspect, output") {
		t.Errorf("check: %s", r)
	}
	b.refused(t, "id")

	b.bind(t, b.line)
	if r := b.longstop(t, "cancel", string(going)); r.status != 0 {
		t.Errorf("by the key that may: %s", r)
	}
}
