//go:build hosts

package hosts

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K3 that need a host: lost, wrong or ambiguous exit status.

// TestC023TwoFiveFive: the work's own 255 beside a connection that was refused.
func TestC023TwoFiveFive(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	config, _ := ownConfig(t, h)
	a := account{g, h, "deploy", h.Name}
	g.must(t, "host", "add", h.Name, "--ssh-config", config)
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := g.longstop(t, append(append([]string{"run"}, flags...), h.Name, "-c", "exit 255")...)
		last := a.last(t)
		wantExit(t, last, 255)
		if r.status != 255 || last.Launch.State != longstop.LaunchAccepted || flags != nil && (last.SSHCommand.Status == nil || *last.SSHCommand.Status != 0) ||
			flags == nil && last.SSHCommand.Status != nil {
			t.Errorf("%s\n%s", r, pretty(last))
		}
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	g.must(t, "daemon", "stop")
	if err := os.WriteFile(config, append([]byte("Host "+h.Name+"\n  Port 2299\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	refusedHere(t, a, g.longstop(t, "run", h.Name, "--", "touch", "/tmp/c023"), "/tmp/c023", "Connection refused", "2299")
	if last := a.last(t); last.SSHCommand.State != longstop.SSHNotOpened || last.SSHCommand.Noise != "" || last.Launch.Because != string(longstop.CodeUnreachable) {
		t.Errorf("%s", pretty(last))
	}
}

// TestC026NobodyReads: the end of the work waits for no reader. The command that reads stands still
// with its pipes full; the work goes on, ends and is known; then everything arrives.
func TestC026NobodyReads(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "h1"), "deploy")
	r := a.start(t, "run", a.name, "-c", `head -c 50000000 /dev/zero | tr "\0" x; head -c 50000000 /dev/zero | tr "\0" y >&2; exit 6`)
	eventually(t, 20*time.Second, "the first output", func() bool { return r.stdout.Len() > 0 })
	r.Process.Signal(syscall.SIGSTOP)
	last := a.final(t, a.newest(t), 30*time.Second)
	wantExit(t, last, 6)
	if last.Output.StdoutBytes != 50_000_000 || last.Output.StderrBytes != 50_000_000 || last.Output.DroppedBytes != 0 {
		t.Errorf("%s", pretty(last.Output))
	}
	if other := a.longstop(t, "run", a.name, "--", "echo", "others"); other.status != 0 || other.stdout != "others\n" || other.took > 10*time.Second {
		t.Errorf("while one reader stands still: %s", other)
	}
	r.Process.Signal(syscall.SIGCONT)
	end := r.end(t, time.Minute)
	if end.status != 6 || strings.Count(end.stdout, "x") != 50_000_000 || len(end.stdout) != 50_000_000 || strings.Count(end.stderr, "y") < 50_000_000 {
		t.Errorf("exit %d, %d and %d bytes", end.status, len(end.stdout), len(end.stderr))
	}
}

// TestC029LooksLikeOurs: neither what the work prints nor what start-up files print is believed, be
// it our own frames; the latter is kept apart.
func TestC029LooksLikeOurs(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "c9"), "noisy")
	const frame = "LONGSTOP/1 0123456789abcdef0123456789abcdef 24\n{\"final\":true,\"body\":{}}\nEND 0123456789abcdef0123456789abcdef\n"
	a.startUp(t, ".bashrc", "printf '%s' '{\"ok\":true,\"job\":\"x\"}\n"+frame+"'\n")
	const script = `printf '{"state":"done","exit":0}\n'; printf '\n__EXIT__:0\n'; printf '` + frame + `'; exit 9`
	const printed = "{\"state\":\"done\",\"exit\":0}\n\n__EXIT__:0\n" + frame
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := a.longstop(t, append(append([]string{"run"}, flags...), a.name, "-c", script)...)
		if r.status != 9 || r.stdout != printed {
			t.Error(r)
		}
		if last := a.last(t); !strings.Contains(last.SSHCommand.Noise, `{"ok":true,"job":"x"}`) || !strings.Contains(last.SSHCommand.Noise, "LONGSTOP/1") {
			t.Errorf("what came before is not kept: %s", pretty(last.SSHCommand))
		}
	}
}

// TestC031NoHome: a home that is missing, another's or closed is a launch failure with its path and
// errno, before anything has run.
func TestC031NoHome(t *testing.T) {
	t.Parallel()
	h := rig.New(t)
	// Keys elsewhere, so that the login works without the home.
	h.Sh(t, `mkdir /etc/ssh/keys; cp /home/other/.ssh/authorized_keys /etc/ssh/keys/other
echo "AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/keys/%u" >>/etc/ssh/sshd_config; systemctl restart ssh`)

	// Without a home to put the records into, enrolment says so, and what to name instead.
	h.Exec(t, "chmod", "555", "/home/other")
	g := newGateway(t)
	name := h.Account("other")
	r := g.longstop(t, "host", "add", name, "--ssh-config", h.SSHConfig)
	for _, words := range []string{name, "/home/other", "permission denied", "--state-dir"} {
		if !strings.Contains(r.stderr, words) {
			t.Errorf("it does not say %q: %s", words, r)
		}
	}
	if r.status != longstop.ExitOurs {
		t.Error(r)
	}
	h.Exec(t, "chmod", "755", "/home/other")

	a := enrolled(t, h, "other", "--state-dir", "/var/tmp/c031/state")
	for _, c := range []struct{ spoil, mend, errno string }{
		{"mv /home/other /home/away", "mv /home/away /home/other", "ENOENT"},
		{"chown root /home/other; chmod 700 /home/other", "chown other /home/other; chmod 755 /home/other", "EACCES"},
	} {
		h.Sh(t, c.spoil)
		r := a.longstop(t, "run", a.name, "--", "touch", "/tmp/c031")
		last := a.last(t)
		failure := last.Workload.LaunchError
		if r.status != longstop.ExitNotStarted || failure == nil || failure.Step != "chdir" || failure.Errno != c.errno || failure.Path != "/home/other" ||
			!strings.Contains(r.stderr, "/home/other") || !strings.Contains(r.stderr, c.errno) || !strings.Contains(r.stderr, "--cwd") || h.Exists(t, "/tmp/c031") {
			t.Errorf("%s\n%s", r, pretty(last.Workload))
		}
		if r := a.longstop(t, "run", "--cwd", "/", a.name, "--", "pwd"); r.status != 0 || r.stdout != "/\n" {
			t.Error(r)
		}
		h.Sh(t, c.mend)
	}
	// A home that can be entered and not written into is the work's own affair.
	h.Exec(t, "chmod", "555", "/home/other")
	if r := a.longstop(t, "run", a.name, "-c", "pwd; touch x"); r.status != 1 || r.stdout != "/home/other\n" {
		t.Error(r)
	}
}

// TestC032SpecialCodes: the shell's codes are the work's; what the runner itself could not run is none.
func TestC032SpecialCodes(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "h1"), "deploy")
	for script, code := range map[string]int{"nosuchcmd": 127, "/etc/passwd": 126, "exit 300": 44, "exit 126": 126, "exit 127": 127, "bash -c 'exit -1'": 255, "exit 250": 250, "exit 254": 254} {
		r := a.longstop(t, "run", a.name, "-c", script)
		last := a.last(t)
		if got, err := exitCode(last.Workload.Result); r.status != code || err != nil || got != code {
			t.Errorf("%s: want %d: %s\n%s", script, code, r, pretty(last.Workload))
		}
	}
	for program, errno := range map[string]string{"/no/such/binary": "ENOENT", "/etc/passwd": "EACCES", "nosuchcmd": "ENOENT"} {
		r := a.longstop(t, "run", a.name, "--", program)
		last := a.last(t)
		if e := last.Workload.LaunchError; r.status != longstop.ExitNotStarted || e == nil || e.Errno != errno || last.Workload.Result != nil || last.Outcome != longstop.OutcomeNotStarted {
			t.Errorf("%s: want %s: %s\n%s", program, errno, r, pretty(last.Workload))
		}
	}
}
