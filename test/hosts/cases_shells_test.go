//go:build hosts

package hosts

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K8: login shells and forced commands that are not a POSIX sh. They share the host c1
// with the other cases; whoever spoils an account there has it alone.

// account is one account of a host, enrolled, with a gateway of its own.
type account struct {
	*gateway
	h    *rig.Host
	user string
	name string // what one types
}

func enrolled(t *testing.T, h *rig.Host, user string, flags ...string) account {
	t.Helper()
	g := newGateway(t)
	return account{g, h, user, g.enrolAs(t, h, user, flags...)}
}

// startUp gives the account a start-up file, and ends the gateway whose channel was opened without
// it. An empty text takes the file away again.
func (a account) startUp(t *testing.T, file, text string) {
	t.Helper()
	path := "/home/" + a.user + "/" + file
	if text == "" {
		a.h.Exec(t, "rm", "-f", path)
	} else {
		a.h.WriteFile(t, path, 0o644, []byte(text))
	}
	a.must(t, "daemon", "stop")
}

// last is the action asked for last.
func (a account) last(t *testing.T) longstop.Action {
	t.Helper()
	return a.show(t, a.newest(t))
}

// refusedHere holds a run against what a launch that reached no runner must be: nothing of it ran,
// nobody says accepted, what was printed instead is told, and so is a command to go on with.
func refusedHere(t *testing.T, a account, r result, marker string, says ...string) {
	t.Helper()
	if r.status != longstop.ExitNotStarted || r.stdout != "" || !strings.Contains(r.stderr, "Nothing was started.") ||
		strings.Contains(r.stderr, "accepted") || strings.Contains(r.stderr, "What became of it") {
		t.Errorf("want a refusal: %s", r)
	}
	for _, words := range append(says, a.name) {
		if !strings.Contains(r.stderr, words) {
			t.Errorf("it does not say %q: %s", words, r)
		}
	}
	last := a.last(t)
	if last.Launch.State != longstop.LaunchRejected || last.Outcome != longstop.OutcomeNotStarted || last.Workload.State != longstop.WorkloadNone ||
		last.Workload.Result != nil || last.Launch.Hint == "" {
		t.Errorf("want a rejected launch with a hint:\n%s", pretty(last))
	}
	if a.h.Exists(t, marker) {
		t.Errorf("%s: something ran", r)
	}
}

func TestC079Fish(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "c9"), "fish")
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := a.longstop(t, append(append([]string{"run"}, flags...), a.name, "-c", "X=1; echo $X; exit 4")...)
		if r.status != 4 || r.stdout != "1\n" {
			t.Error(r)
		}
	}
}

func TestC080Tcsh(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "c9"), "tcsh")
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := a.longstop(t, append(append([]string{"run"}, flags...), a.name, "-c", "printf '%s\\n' \"a!b\" \"line1\nline2\" 2>&1; exit 4")...)
		if r.status != 4 || r.stdout != "a!b\nline1\nline2\n" {
			t.Error(r)
		}
	}
}

// TestC082RestrictedShell: rbash refuses what starts the runner. The refusal quotes it, and nothing
// of ours is left in the account.
func TestC082RestrictedShell(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "c9"), newGateway(t)
	name := h.Account("rbash")
	r := g.longstop(t, "host", "add", name, "--ssh-config", h.SSHConfig)
	if r.status != longstop.ExitOurs || !strings.Contains(r.stderr, "rbash: ") || !strings.Contains(r.stderr, "restricted") || !strings.Contains(r.stderr, "ssh -F ") {
		t.Errorf("want an error that quotes the shell, and what to type: %s", r)
	}
	if left := h.Sh(t, "find /home/rbash -mindepth 1 -not -path '*/.ssh*'; pgrep -u rbash -l longstop || :"); left != "" {
		t.Errorf("left on the host: %s", left)
	}
	var entries []longstop.JournalEntry
	g.ask(t, &entries, "activity")
	if last := entries[len(entries)-1]; last.Kind != "host_refused" || last.Host != name {
		t.Errorf("the journal ends with %s", pretty(last))
	}
}

// TestC083ForcedCommand: the key's forced command succeeds in place of ours.
func TestC083ForcedCommand(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	// Enrolled while it was free.
	keys := string(h.ReadFile(t, "/home/forced/.ssh/authorized_keys"))
	h.WriteFile(t, "/home/forced/.ssh/authorized_keys", 0o644, []byte(keys[strings.Index(keys, "ssh-"):]))
	a := enrolled(t, h, "forced")
	ranInstead(t, a)
	h.WriteFile(t, "/home/forced/.ssh/authorized_keys", 0o644,
		[]byte(`command="date >>/tmp/c083-forced; echo forced: $SSH_ORIGINAL_COMMAND" `+keys[strings.Index(keys, "ssh-"):]))
	a.must(t, "daemon", "stop")
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		h.Exec(t, "rm", "-f", "/tmp/c083-forced")
		r := a.longstop(t, append(append([]string{"run"}, flags...), a.name, "-c", "touch /tmp/c083; exit 7")...)
		refusedHere(t, a, r, "/tmp/c083", "forced: ")
		if tries := strings.Count(string(h.ReadFile(t, "/tmp/c083-forced")), "\n"); tries > 2 { // serve, and a look why it did not answer
			t.Errorf("the other command was run %d times", tries)
		}
	}
}

// ranInstead has something else answer on a channel of the run's own, while the shared one is up: it is
// run once, nothing is started, and what it repeats of the request is kept without its secrets.
func ranInstead(t *testing.T, a account) {
	t.Helper()
	const secret = "correct-horse-of-c083"
	a.must(t, "run", a.name, "--", "true")
	a.h.Exec(t, "rm", "-f", "/tmp/c083-forced")
	for _, instead := range []string{"echo go away; exit 3", "exec cat", "exec sh"} {
		a.h.WriteFile(t, "/home/forced/.bashrc", 0o644, []byte("date >>/tmp/c083-forced; "+instead+"\n"))
		r := a.longstop(t, "run", "--own-channel", "--env", "TOKEN="+secret, a.name, "--", "touch", "/tmp/c083")
		last := a.last(t)
		if r.status != longstop.ExitNotStarted || r.took > 20*time.Second || a.h.Exists(t, "/tmp/c083") || last.Launch.State != longstop.LaunchRejected ||
			last.Workload.State != longstop.WorkloadNone || !strings.Contains(r.stderr, "ran something else than the runner") {
			t.Errorf("%s: %s\n%s", instead, r, pretty(last))
		}
		if times := strings.Count(string(a.h.ReadFile(t, "/tmp/c083-forced")), "\n"); times != 1 {
			t.Errorf("%s: run %d times", instead, times)
		}
		a.h.Exec(t, "rm", "-f", "/tmp/c083-forced", "/home/forced/.bashrc")
	}
	stores, _ := filepath.Glob(filepath.Join(a.home, "longstop.db*"))
	for _, file := range stores {
		if kept, err := os.ReadFile(file); err != nil || strings.Contains(string(kept), base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("%s holds the value (%v)", file, err)
		}
	}
}

// TestC085ZshStartUpFails: .zshenv is read for every command; and zsh's own rules for patterns are
// not the work's.
func TestC085ZshStartUpFails(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "c9"), "zsh")
	a.startUp(t, ".zshenv", "echo from-zshenv\nnosuchcmd\nexit 3\n")
	refusedHere(t, a, a.longstop(t, "run", a.name, "--", "touch", "/tmp/c085"), "/tmp/c085", "exited 3", "from-zshenv", "command not found: nosuchcmd")
	a.startUp(t, ".zshenv", "")
	r := a.longstop(t, "run", a.name, "-c", "for f in *.nomatch; do echo $f; done")
	if r.status != 0 || r.stdout != "*.nomatch\n" {
		t.Error(r)
	}
}

// TestC086StartUpExits: start-up files that leave, or become another shell that waits for input.
func TestC086StartUpExits(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "c9"), "deploy")
	a.startUp(t, ".bashrc", "exit 0\n")
	refusedHere(t, a, a.longstop(t, "run", a.name, "-c", "touch /tmp/c086; exit 5"), "/tmp/c086", "exited 0", "printed nothing")

	a.startUp(t, ".bashrc", "echo 'one moment'; exec cat >/dev/null\n")
	r := a.longstop(t, "run", a.name, "-c", "touch /tmp/c086; exit 5")
	refusedHere(t, a, r, "/tmp/c086", "one moment")
	if r.took > 30*time.Second {
		t.Error(r)
	}
	a.startUp(t, ".bashrc", "")
	if r := a.longstop(t, "run", a.name, "-c", "exit 5"); r.status != 5 {
		t.Error(r)
	}
}

// TestC088ForeignSettings: what a person's ssh_config asks of their own sessions is not Longstop's
// business; it is told, once, and nothing of it happens.
func TestC088ForeignSettings(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "c9"), newGateway(t)
	name := h.Account("root") // the other accounts' start-up files are other tests' to change
	dir := t.TempDir()
	theirs, err := os.ReadFile(h.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "ssh_config")
	settings := []string{"RemoteCommand bash -l", "RequestTTY force", "SessionType none", "PermitLocalCommand yes",
		"LocalCommand touch " + dir + "/local", "ControlMaster auto", "ControlPath " + dir + "/cm-%C", "ControlPersist 60", "ForwardAgent yes",
		"LocalForward " + dir + "/forward localhost:22", "LogLevel QUIET", "StrictHostKeyChecking no", "EscapeChar x"}
	if err := os.WriteFile(config, []byte("Host "+name+"\n  "+strings.Join(settings, "\n  ")+"\n"+string(theirs)), 0o600); err != nil {
		t.Fatal(err)
	}
	added := g.must(t, "host", "add", name, "--ssh-config", config)
	for _, setting := range []string{"remotecommand", "requesttty", "sessiontype", "localcommand", "forwardagent"} {
		if n := strings.Count(added.stderr, setting+" "); n != 1 {
			t.Errorf("%s is told %d times: %s", setting, n, added)
		}
	}
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := g.longstop(t, append(append([]string{"run"}, flags...), name, "-c", "echo real; test -t 0 && echo terminal; exit 4")...)
		if r.status != 4 || r.stdout != "real\n" {
			t.Error(r)
		}
	}
	if made, _ := filepath.Glob(dir + "/*"); len(made) != 1 {
		t.Errorf("their settings were followed: %v", made)
	}
}
