//go:build hosts

package hosts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

// What happens to the way to a host, and to those who asked, while runs go on: the id is never lost, and what is
// said follows what is known.

// underway is an account with a run that ends with 7 once it is let go, and one whose lease is short.
type underway struct {
	account
	id, leased longstop.ActionID
	run        longstop.RunID
	agent      *running // follows one like the first
}

func (a account) underway(t *testing.T) *underway {
	t.Helper()
	u := &underway{account: a}
	u.id = a.launch(t, "--detached", "--deadline", "1h", a.name, "-c", "until [ -e ~/go ]; do sleep 0.05; done; echo the end; exit 7")
	u.leased = a.launch(t, "--lease", "6s", "--grace", "1s", a.name, "--", "sleep", "600")
	u.run = a.show(t, u.id).RunID
	u.agent = a.start(t, "run", "--detached", "--deadline", "1h", a.name, "-c", "echo the beginning; until [ -e ~/go ]; do sleep 0.05; done; echo the end; exit 8")
	eventually(t, 20*time.Second, "the output of what is followed", func() bool { return u.agent.stdout.Len() > 0 })
	return u
}

// newWay ends the gateway's connections, so that it has to log in again.
func (a account) newWay(t *testing.T) {
	t.Helper()
	masters := a.masters(t)
	if len(masters) == 0 {
		t.Fatal("the gateway has no connection")
	}
	for _, pid := range masters {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// refused checks what is known while nobody is let in, and that nothing is sent to who refuses.
func (u *underway) refused(t *testing.T, because longstop.UnknownReason, code longstop.Code, says ...string) {
	t.Helper()
	a := u.await(t, u.id, time.Minute, string(because), func(a longstop.Action) bool { return a.UnknownBecause == because })
	if a.Alive != longstop.AliveUnknown || a.Outcome != longstop.OutcomeUnknown || a.Workload.State != longstop.WorkloadRunning ||
		a.Launch.State != longstop.LaunchAccepted || a.Next != "longstop host check "+u.name {
		t.Errorf("while nobody is let in:\n%s", pretty(a))
	}
	r := u.longstop(t, "run", u.name, "--", "touch", "/home/"+u.user+"/ran")
	refusedHere(t, u.account, r, "/home/"+u.user+"/ran", says...)
	if last := u.last(t); last.Launch.Because != string(code) {
		t.Errorf("want rejected because %s:\n%s", code, pretty(last.Launch))
	}
	if check := u.longstop(t, "host", "check", u.name); check.status == 0 || !strings.Contains(check.stderr, says[0]) {
		t.Errorf("the command that is named next: %s", check)
	}
	t.Log(r.stderr)
	// What the host does meanwhile: the lease ends, and so does what was let go.
	u.h.Exec(t, "touch", "/home/"+u.user+"/go")
	eventually(t, 30*time.Second, "the runs' ends on their host", func() bool {
		return len(ofRun(t, u.h, u.run)) == 0 && len(ofRun(t, u.h, u.show(t, u.leased).RunID)) == 0
	})
	if a := u.show(t, u.id); a.Workload.State.Final() || a.Outcome != longstop.OutcomeUnknown {
		t.Errorf("an end that nobody saw:\n%s", pretty(a))
	}
}

// found checks what is known once the way is whole again.
func (u *underway) found(t *testing.T) {
	t.Helper()
	a := u.final(t, u.id, time.Minute)
	wantExit(t, a, 7)
	if a.Workload.Writer == nil || a.Workload.Writer.Kind != longstop.WriterOwner {
		t.Errorf("said by %+v", a.Workload.Writer)
	}
	if r := u.longstop(t, "logs", string(u.id)); r.stdout != "the end\n" {
		t.Error(r)
	}
	if r := u.agent.end(t, time.Minute); r.status != 8 || r.stdout != "the beginning\nthe end\n" || strings.Contains(r.stderr, "could not be read") {
		t.Errorf("who followed a run through all this: %s", r)
	} else {
		t.Log(r.stderr)
	}
	if a := u.final(t, u.leased, time.Minute); a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseLease {
		t.Errorf("whose lease nobody could renew:\n%s", pretty(a))
	}
	if r := u.longstop(t, "run", u.name, "-c", "exit 3"); r.status != 3 {
		t.Error(r)
	}
	kinds := map[string]bool{}
	var entries []longstop.JournalEntry
	u.ask(t, &entries, "activity", "-n", "1000")
	for _, e := range entries {
		kinds[e.Kind] = true
	}
	if !kinds["host_refused"] || !kinds["reachable"] {
		t.Errorf("the journal: %s", pretty(entries))
	}
}

// TestPointKeyRotatedDuringRuns removes the key that logs in from the host, and configures another later.
func TestPointKeyRotatedDuringRuns(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	config, _ := ownConfig(t, h)
	dir := filepath.Dir(config)
	key := func(name string) (public []byte, fingerprint string) {
		t.Helper()
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v %s", err, out)
		}
		public, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ssh-keygen", "-l", "-f", filepath.Join(dir, name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		return public, strings.Fields(string(out))[1]
	}
	use := func(name string) {
		t.Helper()
		text, err := os.ReadFile(config)
		if err == nil {
			text = regexp.MustCompile(`(?m)^( *IdentityFile ).*`).ReplaceAll(text, []byte("${1}"+filepath.Join(dir, name)))
			err = os.WriteFile(config, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const keys = "/home/deploy/.ssh/authorized_keys"
	allow := func(public []byte) {
		h.WriteFile(t, keys, 0o600, public)
		h.Exec(t, "chown", "deploy:", keys)
	}
	oldKey, oldPrint := key("old")
	newKey, newPrint := key("new")
	use("old")
	allow(oldKey)
	a := account{g, h, "deploy", h.Name}
	g.must(t, "host", "add", h.Name, "--ssh-config", config)
	u := a.underway(t)
	hostKey := g.show(t, u.id).SSHCommand.HostKey
	allow(newKey)
	u.newWay(t)
	u.refused(t, longstop.AccessRefused, longstop.CodeAccessRefused, "was refused", "authorized_keys")
	use("new")
	u.found(t)
	for id, print := range map[longstop.ActionID]string{u.id: oldPrint, g.newest(t): newPrint} {
		if ssh := g.show(t, id).SSHCommand; ssh.Key != print || ssh.Auth != "publickey" || ssh.HostKey != hostKey || hostKey == "" {
			t.Errorf("%s: want key %s and host key %s: %s", id, print, hostKey, pretty(ssh))
		}
	}
}

// TestPointAccountLockedDuringRuns: in each way in which an account can be closed to its owner.
func TestPointAccountLockedDuringRuns(t *testing.T) {
	t.Parallel()
	h := rig.New(t)
	plain := rig.New(t) // where sshd itself looks at the password's lock
	plain.Sh(t, `for u in root deploy; do usermod -p '*' $u; done; sed -i 's/^UsePAM yes/UsePAM no/' /etc/ssh/sshd_config; systemctl restart ssh`)
	for _, c := range []struct {
		name, user  string
		h           *rig.Host
		close, open string
		says        []string
	}{
		{"expired", "zsh", h, "usermod -e 1 zsh", "usermod -e '' zsh", []string{"took the key and then hung up", "locked or expired"}},
		{"no shell", "other", h, "usermod -s /usr/sbin/nologin other", "usermod -s /bin/bash other", []string{"not available", "is the account open"}},
		{"password to be changed", "ash", h, "chage -d 0 ash", "chage -d 2026-01-01 ash", []string{"Password change required", "is the account open"}},
		{"locked", "deploy", plain, "usermod -p '!*' deploy", "usermod -p '*' deploy", []string{"was refused", "the account open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := enrolled(t, c.h, c.user).underway(t)
			c.h.Sh(t, c.close)
			u.newWay(t)
			u.refused(t, longstop.AccessRefused, longstop.CodeAccessRefused, c.says...)
			c.h.Sh(t, c.open)
			u.found(t)
		})
	}
}

// TestPointHostKeyChangedDuringRuns: nobody is spoken to under another host key, and what mends it is named.
func TestPointHostKeyChangedDuringRuns(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	config, known := ownConfig(t, h)
	g.must(t, "host", "add", h.Name, "--ssh-config", config)
	u := account{g, h, "deploy", h.Name}.underway(t)
	const file = "/etc/ssh/ssh_host_ed25519_key"
	h.Sh(t, "rm "+file+"*; ssh-keygen -q -t ed25519 -N '' -f "+file+"; systemctl restart ssh")
	u.newWay(t)
	u.refused(t, longstop.HostMismatch, longstop.CodeHostKeyChanged, "the host key has changed", "SHA256:", "ssh-keygen -f ")
	hint := u.last(t).Launch.Hint
	remove := regexp.MustCompile(`ssh-keygen -f \S+ -R \S+`).FindString(hint)
	if out, err := exec.Command("sh", "-c", remove).CombinedOutput(); err != nil || remove == "" {
		t.Fatalf("the command that is named: %q: %v %s", hint, err, out)
	}
	all, err := os.ReadFile(known)
	if err == nil {
		err = os.WriteFile(known, append(all, h.Addr+" "+string(h.ReadFile(t, file+".pub"))...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := g.show(t, u.id).SSHCommand.HostKey
	u.found(t)
	if after := g.show(t, g.newest(t)).SSHCommand.HostKey; after == before || after == "" {
		t.Errorf("host key %s, and before %s", after, before)
	}
}

// TestPointAgentStoppedAfterLaunch stops who asked, and then kills it, as soon as it has the id: nothing else changes.
func TestPointAgentStoppedAfterLaunch(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	for name, signals := range map[string][]syscall.Signal{"stopped": {syscall.SIGSTOP}, "killed": {syscall.SIGKILL}, "stopped, then killed": {syscall.SIGSTOP, syscall.SIGKILL}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := g.start(t, "run", "--lease", "8s", "h1", "-c", "sleep 12; echo the end; exit 4")
			id := regexp.MustCompile(`act_\w+`)
			eventually(t, 20*time.Second, "the id", func() bool { return id.MatchString(agent.stderr.String()) })
			for _, s := range signals {
				agent.Process.Signal(s)
			}
			action := longstop.ActionID(id.FindString(agent.stderr.String()))
			a := g.final(t, action, time.Minute)
			wantExit(t, a, 4) // beyond its lease: the gateway renews it, not who asked
			if r := g.longstop(t, "wait", string(action)); r.status != 4 {
				t.Error(r)
			}
			if r := g.longstop(t, "logs", string(action)); r.stdout != "the end\n" {
				t.Error(r)
			}
			if signals[0] == syscall.SIGSTOP && len(signals) == 1 {
				agent.Process.Signal(syscall.SIGCONT)
				if r := agent.end(t, 20*time.Second); r.status != 4 || r.stdout != "the end\n" {
					t.Errorf("once it goes on: %s", r)
				}
			}
		})
	}
}

// TestPointClientMachineGone kills everything on this side at once, right after launches: what comes back later, with
// what was on the disk, knows each by its id and learns what became of it.
func TestPointClientMachineGone(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.Exec(t, "rm", "-f", "/tmp/gone-go")
	wait := "until [ -e /tmp/gone-go ]; do sleep 0.05; done; exit 5"
	detached := g.launch(t, "--detached", "--deadline", "1h", "h1", "-c", wait)
	agent := g.start(t, "run", "--lease", "1m", "h1", "-c", wait)
	id := regexp.MustCompile(`act_\w+`)
	eventually(t, 20*time.Second, "the id", func() bool { return id.MatchString(agent.stderr.String()) })
	brief := g.launch(t, "--lease", "5s", "--grace", "1s", "h1", "--", "sleep", "600")
	briefRun := g.show(t, brief).RunID
	leased := longstop.ActionID(id.FindString(agent.stderr.String()))
	g.await(t, leased, 20*time.Second, "its launch", func(a longstop.Action) bool { return a.Launch.State == longstop.LaunchAccepted })
	masters := g.masters(t)
	for _, pid := range append(append([]int{agent.Process.Pid}, g.daemons(t)...), masters...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if len(masters) == 0 {
		t.Error("no master was there")
	}
	eventually(t, 30*time.Second, "the end of what has the short lease", func() bool { return len(ofRun(t, h, briefRun)) == 0 })
	h.Exec(t, "touch", "/tmp/gone-go")
	for _, run := range []longstop.ActionID{detached, leased} {
		wantExit(t, g.final(t, run, time.Minute), 5) // show starts a new gateway
	}
	if a := g.final(t, brief, time.Minute); a.Workload.State != longstop.WorkloadCancelled || a.Workload.Cause != longstop.CauseLease {
		t.Errorf("whose lease nobody renewed:\n%s", pretty(a))
	}
	h.Try(context.Background(), "rm", "-f", "/tmp/gone-go")
}
