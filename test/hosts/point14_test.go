//go:build hosts

package hosts

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// spoilt is a way to an enrolled account that leads nowhere any more.
type spoilt struct {
	name  string
	user  string
	code  longstop.Code
	words string // of the message
	next  string // what to do
	kind  string // of the journal's entry about the host
	spoil func(t *testing.T, h *rig.Host, knownHosts string)
}

// arrange enrols the account with its way whole, and then spoils it.
func (c spoilt) arrange(t *testing.T, h *rig.Host) account {
	t.Helper()
	g := newGateway(t)
	config, knownHosts := ownConfig(t, h)
	a := account{g, h, c.user, h.Account(c.user)}
	g.must(t, "host", "add", a.name, "--ssh-config", config)
	g.must(t, "daemon", "stop")
	c.spoil(t, h, knownHosts)
	return a
}

func (c spoilt) marker() string { return "/home/" + c.user + "/ran" }

// check holds what a run over the spoilt way came to against what it should: an error that says what
// and why and names the next command, exit 251, and what happened in the journal. Nothing is started.
func (c spoilt) check(t *testing.T, a account, r result) {
	t.Helper()
	refusedHere(t, a, r, c.marker(), c.words, c.next)
	if r.took > 40*time.Second || r.took > 3*time.Second && !strings.Contains(r.stderr, "connecting to "+a.name) {
		t.Errorf("too long, or nothing said meanwhile: %s", r)
	}
	last := a.last(t)
	if last.Launch.Because != string(c.code) {
		t.Errorf("want rejected because %s:\n%s", c.code, pretty(last.Launch))
	}
	var entries []longstop.JournalEntry
	a.ask(t, &entries, "activity", string(last.ID))
	if len(entries) == 0 || !strings.Contains(fmt.Sprint(entries[len(entries)-1].Body), string(c.code)) {
		t.Errorf("the action's journal: %s", pretty(entries))
	}
	a.ask(t, &entries, "activity")
	told := false
	for _, e := range entries {
		told = told || e.Kind == c.kind && e.Host == a.name && strings.Contains(fmt.Sprint(e.Body), string(c.code))
	}
	if !told {
		t.Errorf("no %s of %s in the journal: %s", c.kind, a.name, pretty(entries))
	}
	t.Logf("%s", r.stderr)
}

func TestPoint14ClearErrors(t *testing.T) {
	t.Parallel()
	h := rig.New(t) // each account is spoilt by one case
	folder := func(user string) string { return "/home/" + user + "/.local/state/longstop" }
	for _, c := range []spoilt{
		{"host key unknown", "deploy", longstop.CodeHostKeyUnknown, "SHA256:", "check it, then connect once with ssh -F ", "host_refused",
			func(t *testing.T, h *rig.Host, knownHosts string) { os.WriteFile(knownHosts, nil, 0o600) }},
		{"host key changed", "other", longstop.CodeHostKeyChanged, "SHA256:", "ssh-keygen", "host_refused", func(t *testing.T, h *rig.Host, knownHosts string) {
			key := filepath.Join(t.TempDir(), "key")
			if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			public, _ := os.ReadFile(key + ".pub")
			os.WriteFile(knownHosts, append([]byte(h.Addr+" "), public...), 0o600)
		}},
		{"login refused", "zsh", longstop.CodeAccessRefused, "zsh@", "authorized_keys", "host_refused", func(t *testing.T, h *rig.Host, _ string) {
			h.Exec(t, "rm", "/home/zsh/.ssh/authorized_keys")
		}},
		{"state folder open to others", "ash", longstop.CodeStateFolder, "0777", "chmod 0700 " + folder("ash"), "host_refused", func(t *testing.T, h *rig.Host, _ string) {
			h.Exec(t, "chmod", "0777", folder("ash"))
		}},
		{"a link in its place", "fish", longstop.CodeStateFolder, "is a symbolic link", "longstop", "host_refused", func(t *testing.T, h *rig.Host, _ string) {
			h.Sh(t, "mv "+folder("fish")+" /home/fish/elsewhere && ln -s /home/fish/elsewhere "+folder("fish"))
		}},
		{"no state folder", "tcsh", longstop.CodeHostMismatch, "no state folder", "longstop host remove", "host_refused", func(t *testing.T, h *rig.Host, _ string) {
			h.Exec(t, "mv", folder("tcsh"), "/home/tcsh/elsewhere")
		}},
		{"another state folder", "noisy", longstop.CodeHostMismatch, "state folder", "longstop host remove", "host_refused", func(t *testing.T, h *rig.Host, _ string) {
			id := h.ReadFile(t, folder("noisy")+"/id")
			id[0] = "10"[(id[0]-'0')&1] // another digit
			h.WriteFile(t, folder("noisy")+"/id", 0o600, id)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := c.arrange(t, h)
			c.check(t, a, a.longstop(t, "run", a.name, "--", "touch", c.marker()))
		})
	}
}

// TestPoint14SilentHosts: one whose link is cut, and one that accepts connections and says nothing.
func TestPoint14SilentHosts(t *testing.T) {
	t.Parallel()
	cases := []spoilt{
		{"no link", "deploy", longstop.CodeUnreachable, "connect", "ssh -v -F ", "unreachable", func(t *testing.T, h *rig.Host, _ string) { h.Cut(t) }},
		{"no word", "deploy", longstop.CodeUnreachable, "no SSH banner came in", "ssh -v -F ", "unreachable", func(t *testing.T, h *rig.Host, _ string) { h.Freeze(t) }},
	}
	var accounts []account
	var runs []*running
	for _, c := range cases {
		a := c.arrange(t, rig.New(t))
		accounts, runs = append(accounts, a), append(runs, a.start(t, "run", a.name, "--", "touch", c.marker()))
	}
	for i, c := range cases {
		c.check(t, accounts[i], runs[i].end(t, time.Minute))
	}
}

// TestPoint14DiskFull has the host's disk fill up under a run, once with bytes and once with files.
// The work's own code is kept, and what cannot be recorded is not begun.
func TestPoint14DiskFull(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t, rig.SmallDisk("6m", 100)), newGateway(t)
	g.enrol(t, h, "--state-dir", "/srv/small/state")
	fullOfBytes(t, h, g)
	fullOfFiles(t, h, g)
}

// fullOfBytes: output is lost, and that is said.
func fullOfBytes(t *testing.T, h *rig.Host, g *gateway) {
	t.Helper()
	r := g.longstop(t, "run", h.Name, "-c", "head -c 20000000 /dev/zero; echo end >&2; exit 5")
	a := g.final(t, g.newest(t), 20*time.Second)
	wantExit(t, a, 5)
	if a.Output.DroppedBytes == 0 || a.Output.DropReason != "ENOSPC" || a.Output.StdoutBytes+a.Output.StderrBytes != 20000004 {
		t.Errorf("output: %s", pretty(a.Output))
	}
	shown := int64(len(r.stdout) + strings.Count(r.stderr, "\nend\n")*4)
	if r.status != 5 || shown+a.Output.DroppedBytes != 20000004 || !strings.Contains(r.stderr, "bytes of output were not kept on the host (its disk was full: ENOSPC)") {
		t.Errorf("exit %d, %d bytes: %s", r.status, len(r.stdout), r.stderr)
	}
	for _, flags := range [][]string{nil, {"-f"}, {"--stderr"}} {
		if logs := g.must(t, append(append([]string{"logs"}, flags...), string(a.ID))...); !strings.Contains(logs.stderr, " were not kept on the host (its disk was full: ENOSPC)") {
			t.Errorf("what is shown is not all, and that is not said: exit %d, %d bytes, %s", logs.status, len(logs.stdout), logs.stderr)
		}
	}
	h.Sh(t, "head -c 20000000 /dev/zero >/srv/small/fill || :")
	refusedHere(t, account{g, h, "deploy", h.Name}, g.longstop(t, "run", h.Name, "--", "touch", "/home/deploy/ran"), "/home/deploy/ran",
		"the disk, its inodes or a quota are used up", "df -h /srv/small/state")
	h.Sh(t, "rm -rf /srv/small/fill /srv/small/state/runs/"+string(a.RunID)) // whatever else an operator may think of
	if r := g.longstop(t, "run", h.Name, "-c", "echo again; exit 3"); r.status != 3 || r.stdout != "again\n" {
		t.Error(r)
	}
}

// fullOfFiles: nothing is lost where the inodes are used up.
func fullOfFiles(t *testing.T, h *rig.Host, g *gateway) {
	t.Helper()
	r := g.longstop(t, "run", h.Name, "-c", "cd /srv/small; i=0; while : 2>/dev/null >f$i; do i=$((i+1)); done; echo filled; exit 4")
	a := g.final(t, g.newest(t), 20*time.Second)
	// A redirection that fails ends a shell's special built-in, and dash with it: 2, unless the loop ended first.
	if code, err := exitCode(a.Workload.Result); err != nil || r.status != code || a.Workload.State != longstop.WorkloadFinished || a.Output.DroppedBytes != 0 {
		t.Errorf("%s\n%s", r, pretty(a))
	}
	refusedHere(t, account{g, h, "deploy", h.Name}, g.longstop(t, "run", h.Name, "--", "touch", "/home/deploy/ran"), "/home/deploy/ran",
		"the disk, its inodes or a quota are used up", "df -i /srv/small/state")
	h.Sh(t, "rm /srv/small/f*")
	if r := g.longstop(t, "run", h.Name, "-c", "echo again; exit 3"); r.status != 3 || r.stdout != "again\n" {
		t.Error(r)
	}
}

// TestPoint14RecordAltered has the work's user rewrite final records, to have failed look like
// success, in each way that its means allow. None is believed; each is named.
func TestPoint14RecordAltered(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	success := func(record []byte) []byte {
		return bytes.ReplaceAll(record, []byte(`"exit_code":7`), []byte(`"exit_code":0`))
	}
	unsigned := func(record []byte, writer string) []byte {
		at := bytes.LastIndex(record, []byte(`,"mac":"`))
		return bytes.Replace(append(record[:at:at], '}'), []byte(`"kind":"owner"`), []byte(`"kind":"`+writer+`"`), 1)
	}
	forgeries := []struct {
		name, says string
		forge      func(record []byte) []byte
	}{
		{"with its old MAC", "MAC", success},
		{"with a MAC of its own", "MAC", func(r []byte) []byte {
			at := bytes.LastIndex(r, []byte(`"mac":"`)) + len(`"mac":"`)
			return append(append(success(r)[:at:at], fmt.Sprintf("%x", sha256.Sum256(r))...), `"}`...)
		}},
		{"without a MAC", "bears no MAC", func(r []byte) []byte { return unsigned(success(r), "owner") }},
		{"in an heir's name", "successor", func(r []byte) []byte { return unsigned(success(r), "successor") }},
		{"without its checksum", "altered", nil},
	}
	h.Exec(t, "rm", "-f", "/tmp/point14-go")
	var ids []longstop.ActionID
	for range forgeries {
		ids = append(ids, g.launch(t, "--detached", "--deadline", "1h", "h1", "-c", "until [ -e /tmp/point14-go ]; do sleep 0.05; done; exit 7"))
	}
	runs := map[longstop.ActionID]longstop.RunID{}
	for _, id := range ids {
		runs[id] = g.show(t, id).RunID
	}
	g.kill9(t) // it would have heard the truth
	h.Exec(t, "touch", "/tmp/point14-go")
	for i, f := range forgeries {
		file := "/home/deploy/.local/state/longstop/runs/" + string(runs[ids[i]]) + "/final"
		eventually(t, 20*time.Second, "the final record", func() bool { return h.Exists(t, file) })
		lead, record, ok := bytes.Cut(h.ReadFile(t, file), []byte("\n"))
		record, _, _ = bytes.Cut(record, []byte("\n"))
		if !ok || !bytes.Contains(record, []byte(`"exit_code":7`)) || !json.Valid(record) {
			t.Fatalf("no record to forge: %s\n%s", lead, record)
		}
		if f.forge == nil {
			h.Sh(t, `sed -i 's/"exit_code":7/"exit_code":0/g' `+file)
			continue
		}
		h.WriteFile(t, file, 0o600, sealed(string(lead), f.forge(record)))
	}
	for i, f := range forgeries {
		r := g.longstop(t, "reconcile", string(ids[i]))
		a := g.show(t, ids[i])
		if r.status != longstop.ExitUnknown || a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.UnreadableRecord || a.Workload.Result != nil ||
			a.Observation == nil || !strings.Contains(a.Observation.Message, f.says) {
			t.Errorf("%s: believed, or not named: %s\n%s", f.name, r, pretty(a))
		}
		if shown := g.must(t, "show", string(ids[i])); !strings.Contains(shown.stdout, f.says) {
			t.Errorf("%s: not shown: %s", f.name, shown)
		}
		// Waiting for it says why there is nothing to wait for, and no status is made up.
		if r := g.longstop(t, "wait", "--timeout", "1s", string(ids[i])); r.status != longstop.ExitUnknown && r.status != longstop.ExitStillRunning {
			t.Errorf("%s: %s", f.name, r)
		}
	}
}

// sealed is a record in an envelope whose checksum is right (internal/record): no secret is needed
// for that. Kind, version and sequence are as in the first line of the true one.
func sealed(firstLine string, record []byte) []byte {
	words := strings.Fields(firstLine)
	lead := strings.Join(words[:3], " ") + fmt.Sprintf(" %010d", len(record))
	return fmt.Appendf(nil, "%s %x\n%s\n", lead, sha256.Sum256([]byte(lead+"\n"+string(record))), record)
}
