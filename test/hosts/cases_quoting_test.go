//go:build hosts

package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K9: quoting, command size, environment, directory, limits.

// shells are the accounts whose login shell starts a runner.
var shells = []string{"deploy", "zsh", "fish", "tcsh", "ash", "noisy"}

func TestC089Arguments(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "h1")
	args := []string{"a  b", "it's", "$HOME", "*", "", "new\nline", "-n", "!x", "é", "`id`"}
	want := ""
	for _, arg := range args {
		want += "[" + arg + "]\n"
	}
	for _, user := range shells {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			a := enrolled(t, h, user)
			for _, flags := range [][]string{nil, {"--own-channel"}} {
				r := a.longstop(t, append(append(append([]string{"run"}, flags...), a.name, "--", "printf", `[%s]\n`), args...)...)
				if r.status != 0 || r.stdout != want {
					t.Error(r)
				}
			}
		})
	}
}

// TestC091LongCommands: one argument holds 128 KiB, a server's string 256 KiB, a script neither.
func TestC091LongCommands(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "h1"), "deploy")
	file := filepath.Join(t.TempDir(), "script")
	for _, n := range []int{100_000, 131_000, 140_000, 200_000, 300_000, 5_000_000} {
		if err := os.WriteFile(file, []byte("true "+strings.Repeat("x", n)+"\nexit 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flags := range [][]string{nil, {"--own-channel"}} {
			if r := a.longstop(t, append(append([]string{"run"}, flags...), "--script-file", file, a.name)...); r.status != 3 {
				t.Errorf("%d bytes: %s", n, r)
			}
		}
	}
	// Of an argument, what a program can be given here is what it can be given there.
	if r := a.longstop(t, "run", a.name, "--", "sh", "-c", "exit ${#1}", "sh", strings.Repeat("x", 131_000)); r.status != 131_000%256 {
		t.Error(r)
	}
	// What is over the limit is refused before anything is sent, with the limit and a way out.
	if err := os.WriteFile(file, []byte("#"+strings.Repeat("x", 13<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := a.longstop(t, "run", "--script-file", file, a.name)
	if r.status != longstop.ExitOurs || !strings.Contains(r.stderr, "8 MiB") || !strings.Contains(r.stderr, "copy it to the host") || !strings.Contains(r.stderr, "Nothing was started.") {
		t.Error(r)
	}
}

// TestC092Environment: values arrive exactly, whatever AcceptEnv says, and no process's arguments
// nor any file of ours shows them.
func TestC092Environment(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "h1")
	a := enrolled(t, h, "deploy")
	const secret = "s3cret-of-c092"
	r := a.start(t, "run", "--env", "FOO=bar", "--env", `WEIRD=a b$c"d`, "--env", "NL=1\n2", "--env", "BYTES=\xff", "--env", "TOKEN="+secret, a.name, "-c",
		`printf "%s|%s|%s|%s\n" "$FOO" "$WEIRD" "$NL" "$BYTES"; until [ -e /tmp/c092 ]; do sleep 0.05; done; rm /tmp/c092; echo "${#TOKEN}"`)
	want := "bar|a b$c\"d|1\n2|\xff\n"
	eventually(t, 20*time.Second, "the values", func() bool { return r.stdout.String() == want || r.over() })
	shown := h.Sh(t, "ps -eo args | grep -c "+secret[:6]+"'[-]of-c092' || :")
	if strings.TrimSpace(shown) != "0" {
		t.Errorf("%s processes show the value in their arguments", shown)
	}
	h.Exec(t, "touch", "/tmp/c092")
	if end := r.end(t, 10*time.Second); end.status != 0 || end.stdout != want+fmt.Sprint(len(secret))+"\n" {
		t.Error(end)
	}
	if found := h.Sh(t, "grep -rl "+secret+" /home/deploy/.local/state || :"); found != "" {
		t.Errorf("on the host's disk: %s", found)
	}
	if err := filepath.WalkDir(a.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), secret) {
			t.Errorf("on this machine's disk: %s", path)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"": {"--env", "=x"}, "LONGSTOP_RUN_ID": {"--env", "LONGSTOP_RUN_ID=x"}, "twice": {"--env", "A=1", "--env", "A=2"}} {
		r := a.longstop(t, append(append([]string{"run"}, flags...), a.name, "--", "true")...)
		if r.status != longstop.ExitOurs || !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, "Nothing was started.") {
			t.Errorf("%q: %s", flags, r)
		}
	}
}

// TestC094Umask: the login's umask is the work's, and touches nothing of ours.
func TestC094Umask(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	a := enrolled(t, h, "other")
	for umask, want := range map[string]string{"0777": "0777 0 300", "0077": "0077 600 700", "0000": "0000 666 777"} {
		a.startUp(t, ".bashrc", "umask "+umask+"\n")
		r := a.longstop(t, "run", "--cwd", "/tmp", a.name, "-c", "u=$(umask); touch f$u; mkdir -p d$u/x; echo $u $(stat -c %a f$u d$u)")
		if r.status != 0 || r.stdout != want+"\n" {
			t.Errorf("want %s: %s", want, r)
		}
		if open := h.Sh(t, "find /home/other/.local/state/longstop /home/other/.local/share/longstop -perm /077"); open != "" {
			t.Errorf("umask %s leaves open to others: %s", umask, open)
		}
	}
	a.startUp(t, ".bashrc", "")
}

// TestC095Limits: an account that may not have the processes of a login and a runner is refused in
// words of its own; one that may, and no more, has the work's own shell tell of what it lacks.
func TestC095Limits(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	config, _ := ownConfig(t, h)
	// The kernel counts a user's processes over all hosts of this machine: this user is on this one alone.
	uid := 30000 + os.Getpid()%20000
	h.Sh(t, fmt.Sprintf("useradd -m -u %d -s /bin/bash few; cp -r /home/deploy/.ssh /home/few/; chown -R few /home/few/.ssh", uid))
	text, _ := os.ReadFile(config)
	if err := os.WriteFile(config, []byte("Host few\n  User few\n  HostName "+h.Addr+"\n"+strings.ReplaceAll(string(text), "Host "+h.Name+" ", "Host few "+h.Name+" ")), 0o600); err != nil {
		t.Fatal(err)
	}
	g.must(t, "host", "add", "few", "--ssh-config", config)
	a := account{g, h, "few", "few"}
	limit := func(line string) {
		a.must(t, "daemon", "stop")
		h.Sh(t, "pkill -9 -u few; echo '"+line+"' >/etc/security/limits.d/few.conf")
		eventually(t, 10*time.Second, "end of the account's processes", func() bool { return strings.TrimSpace(h.Sh(t, "pgrep -c -u few || :")) == "0" })
	}
	limit("few hard nproc 3") // with those of the login itself
	r := a.longstop(t, "run", "few", "--", "touch", "/tmp/c095")
	refusedHere(t, a, r, "/tmp/c095")
	if !strings.Contains(r.stderr, "refuses to run commands") && !strings.Contains(r.stderr, "ulimit -u") && !strings.Contains(r.stderr, "connection was lost") {
		t.Error(r)
	}
	// A Go program maps more than half a gigabyte before it begins.
	limit("few hard as 524288")
	refusedHere(t, a, a.longstop(t, "run", "few", "--", "touch", "/tmp/c095"), "/tmp/c095", "ulimit -v")

	limit("few hard nproc 60\nfew hard nofile 77")
	r = a.longstop(t, "run", "--leftover", "kill", "few", "--", "bash", "-c", `ulimit -Hu; for i in {1..70}; do sleep 60 & done; echo never`)
	last := a.final(t, a.newest(t), 20*time.Second)
	if r.status != 254 || r.stdout != "60\n" || !strings.Contains(r.stderr, "fork: retry") || last.Workload.State != longstop.WorkloadFinished {
		t.Errorf("%s\n%s", r, pretty(last))
	}
	if r := a.longstop(t, "run", "few", "-c", "ulimit -Sn; ulimit -Hn"); r.status != 0 || r.stdout != "77\n77\n" {
		t.Error(r)
	}
	for _, c := range []struct {
		args   []string
		signal string
		status int
	}{
		{[]string{"few", "-c", "ulimit -f 10; yes >lim"}, "", 153},
		{[]string{"few", "-c", "ulimit -f 10; exec yes >lim"}, "XFSZ", 153},
		{[]string{"--limit", "file_bytes=5000", "few", "-c", "exec yes >lim"}, "XFSZ", 153},
		{[]string{"--limit", "open_files=20", "few", "-c", "exit $(ulimit -Hn)"}, "", 20},
		{[]string{"--limit", "cpu_s=1", "few", "-c", "while :; do :; done"}, "XCPU", 152},
	} {
		r := a.longstop(t, append([]string{"run"}, c.args...)...)
		last := a.last(t)
		if r.status != c.status || last.Workload.Result == nil || last.Workload.Result.Signal != c.signal {
			t.Errorf("want %d %s: %s\n%s", c.status, c.signal, r, pretty(last.Workload))
		}
	}
}

// TestC097PasswordExpired: the login works, the command does not.
func TestC097PasswordExpired(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	a := enrolled(t, h, "ash")
	for change, says := range map[string]string{"-d 0": "Password change required but no TTY available", "-E 0": "account may be locked or expired"} {
		a.must(t, "daemon", "stop")
		h.Sh(t, "chage "+change+" ash")
		refusedHere(t, a, a.longstop(t, "run", a.name, "-c", "touch /tmp/c097; exit 1"), "/tmp/c097", says)
		h.Sh(t, "chage -d 2026-01-01 -E -1 ash")
	}
	if r := a.longstop(t, "run", a.name, "-c", "exit 1"); r.status != 1 {
		t.Error(r)
	}
}
