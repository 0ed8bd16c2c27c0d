//go:build hosts

package hosts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// threeWays writes to standard output also by its name, which truncates a plain file.
const threeWays = "echo a; echo b >/dev/stdout; printf 'c\\000d'; echo e | tee /dev/stderr"

func TestPoint12LoginShells(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "h1")
	for _, account := range []string{"deploy", "root", "zsh", "fish", "tcsh", "ash", "noisy"} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			name := g.enrolAs(t, h, account)
			for _, flags := range [][]string{nil, {"--own-channel"}} {
				r := g.longstop(t, append(append([]string{"run"}, flags...), name, "-c", threeWays+"; exit 9")...)
				if r.status != 9 || r.stdout != "a\nb\nc\000de\n" {
					t.Error(r)
				}
				a := g.final(t, g.newest(t), 10*time.Second)
				wantExit(t, a, 9)
				if account == "noisy" && !strings.Contains(a.SSHCommand.Noise, "welcome to h1") {
					t.Errorf("the start-up file's noise is not told: %s", pretty(a.SSHCommand))
				}
			}
		})
	}
}

// TestPoint12NoShell has accounts that run something else than what was asked for.
func TestPoint12NoShell(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "h1")
	for account, prints := range map[string]string{
		"nologin": "This account is currently not available", "leaving": "go away", "forced": "only this", "rbash": "restricted",
	} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			name := h.Account(account)
			r := g.longstop(t, "host", "add", name, "--ssh-config", h.SSHConfig)
			if r.status != longstop.ExitOurs || strings.Count(r.stderr, prints) != 1 || !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, "ssh -F "+h.SSHConfig+" "+name) {
				t.Errorf("want a clear error with what was printed instead (%q), once, and a command to see it: %s", prints, r)
			}
			var entries []longstop.JournalEntry
			g.ask(t, &entries, "activity")
			if last := entries[len(entries)-1]; last.Kind != "host_refused" || last.Host != name || !strings.Contains(fmt.Sprint(last.Body), prints) {
				t.Errorf("the journal ends with %s", pretty(last))
			}
			if r := g.longstop(t, "run", name, "--", "touch", "/tmp/point12-"+account); r.status != longstop.ExitNotStarted {
				t.Error(r)
			}
			if h.Exists(t, "/tmp/point12-"+account) {
				t.Error("something ran")
			}
		})
	}
}

// TestPoint12ShellChanged has an enrolled account's shell stop working: never "accepted".
func TestPoint12ShellChanged(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "c9")
	h.Exec(t, "rm", "-f", "/home/leaving/.bashrc")
	a := enrolled(t, h, "leaving")
	a.must(t, "run", a.name, "--", "true")
	a.must(t, "daemon", "stop")
	h.Exec(t, "usermod", "-s", "/usr/sbin/nologin", "leaving")
	defer h.Exec(t, "usermod", "-s", "/bin/bash", "leaving")
	refusedHere(t, a, a.longstop(t, "run", a.name, "--", "touch", "/tmp/point12-changed"), "/tmp/point12-changed", "not available")
}
