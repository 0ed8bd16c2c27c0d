//go:build hosts

package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// ownConfig copies what reaches the host into a folder of the test's, where the test may spoil it.
func ownConfig(t *testing.T, h *rig.Host) (config, knownHosts string) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(h.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	config, knownHosts = filepath.Join(dir, "ssh_config"), filepath.Join(dir, "known_hosts")
	theirs := filepath.Join(filepath.Dir(h.SSHConfig), "known_hosts")
	known, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{config: strings.ReplaceAll(string(text), theirs, knownHosts), knownHosts: string(known)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config, knownHosts
}

// TestPoint14ClearErrors spoils the way to an enrolled host: an error that says what and why and
// names the next command, exit 251, and a journal entry. Nothing is started.
func TestPoint14ClearErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		code  longstop.Code
		words string // of the message
		next  string // what to do
		spoil func(t *testing.T, h *rig.Host, config, knownHosts string)
	}{
		{"host key unknown", longstop.CodeHostKeyUnknown, "SHA256:", "connect once with ssh", func(t *testing.T, h *rig.Host, _, knownHosts string) {
			os.WriteFile(knownHosts, nil, 0o600)
		}},
		{"host key changed", longstop.CodeHostKeyChanged, "SHA256:", "ssh-keygen", func(t *testing.T, h *rig.Host, _, knownHosts string) {
			h.Sh(t, "rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; systemctl restart ssh")
		}},
		{"login refused", longstop.CodeAccessRefused, "deploy", "authorized_keys", func(t *testing.T, h *rig.Host, _, _ string) {
			h.Exec(t, "rm", "/home/deploy/.ssh/authorized_keys")
		}},
		{"no answer", longstop.CodeUnreachable, "", "ssh", func(t *testing.T, h *rig.Host, _, _ string) { h.Cut(t) }},
		{"state folder open to others", longstop.CodeStateFolder, "0777", "chmod 0700", func(t *testing.T, h *rig.Host, _, _ string) {
			h.Exec(t, "chmod", "0777", "/home/deploy/.local/state/longstop")
		}},
		{"a link in its place", longstop.CodeStateFolder, "link", "longstop", func(t *testing.T, h *rig.Host, _, _ string) {
			h.Sh(t, "cd /home/deploy/.local/state && mv longstop /home/deploy/elsewhere && ln -s /home/deploy/elsewhere longstop")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, g := rig.New(t), newGateway(t)
			config, knownHosts := ownConfig(t, h)
			g.must(t, "host", "add", h.Name, "--ssh-config", config)
			g.must(t, "daemon", "stop")
			c.spoil(t, h, config, knownHosts)

			r := g.longstop(t, "run", h.Name, "--", "touch", "/tmp/ran")
			if r.status != longstop.ExitNotStarted || r.took > 40*time.Second {
				t.Error(r)
			}
			if !strings.Contains(r.stderr, h.Name) || !strings.Contains(r.stderr, c.words) || !strings.Contains(r.stderr, "Nothing was started") {
				t.Errorf("not clear: %s", r.stderr)
			}
			if !strings.Contains(strings.ToLower(r.stderr), strings.ToLower(c.next)) {
				t.Errorf("it does not say what to do (%s): %s", c.next, r.stderr)
			}
			if h.Exists(t, "/tmp/ran") {
				t.Error("something ran")
			}
			a := g.show(t, g.newest(t))
			if a.Outcome != longstop.OutcomeNotStarted || a.Launch.State != longstop.LaunchRejected || a.Launch.Because != string(c.code) {
				t.Errorf("want rejected because %s:\n%s", c.code, pretty(a))
			}
			var journal []longstop.JournalEntry
			g.ask(t, &journal, "activity", string(a.ID))
			if len(journal) < 2 {
				t.Errorf("the journal has %s", pretty(journal))
			}
		})
	}
}

// TestPoint14DiskFull has the host's disk fill up under a run: output is lost, and that is said;
// the work's own code is kept.
func TestPoint14DiskFull(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t, rig.SmallDisk("6m", 0)), newGateway(t)
	g.enrol(t, h, "--state-dir", "/srv/small/state")
	r := g.longstop(t, "run", h.Name, "-c", "head -c 20000000 /dev/zero; echo end >&2; exit 5")
	if r.status != 5 {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	a := g.final(t, g.newest(t), 20*time.Second)
	wantExit(t, a, 5)
	if a.Output.DroppedBytes == 0 || a.Output.DropReason != "ENOSPC" || a.Output.StdoutBytes+a.Output.StderrBytes+a.Output.DroppedBytes != 20000004 {
		t.Errorf("output: %s", pretty(a.Output))
	}
	if !strings.Contains(r.stderr, "dropped") && !strings.Contains(r.stderr, "lost") {
		t.Errorf("the loss is not said: %s", r.stderr)
	}
	// And again, with nothing free from the start: refused or run, never half said.
	h.Sh(t, "head -c 20000000 /dev/zero >/srv/small/fill || :")
	again := g.longstop(t, "run", h.Name, "--", "touch", "/home/deploy/ran-again")
	if ran := h.Exists(t, "/home/deploy/ran-again"); ran != (again.status == 0) {
		t.Errorf("ran: %v: %s", ran, again)
	}
}

// TestPoint14RecordAltered has the work's user rewrite its record, to have failed look like success.
func TestPoint14RecordAltered(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, "--detached", "--deadline", "1h", h.Name, "-c", "sleep 2; exit 7")
	run := g.show(t, id).RunID
	g.kill9(t)
	eventually(t, 20*time.Second, "the end on the host", func() bool { return len(ofRun(t, h, run)) == 0 })
	final := "/home/deploy/.local/state/longstop/runs/" + string(run) + "/final"
	eventually(t, 10*time.Second, "the final record", func() bool { return h.Exists(t, final) })
	h.Sh(t, `sed -i 's/"exit_code":7/"exit_code":0/g' `+final)
	g.longstop(t, "reconcile", string(id))
	a := g.show(t, id)
	if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.UnreadableRecord || a.Workload.Result != nil {
		t.Errorf("an altered record was believed, or not named:\n%s", pretty(a))
	}
}
