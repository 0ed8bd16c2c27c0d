package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// site is the built commands with a home of their own, and a real sshd.
type site struct {
	t        *testing.T
	programs string
	env      []string
}

func (s *site) longstop(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	var out, talk strings.Builder
	c := exec.Command(filepath.Join(s.programs, "longstop"), args...)
	c.Env, c.Stdout, c.Stderr = s.env, &out, &talk
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), talk.String()
}

func (s *site) must(args ...string) string {
	s.t.Helper()
	status, out, talk := s.longstop(args...)
	if status != 0 {
		s.t.Fatalf("longstop %q: exit %d\n%s%s", args, status, out, talk)
	}
	return out
}

func (s *site) show(id string) (a longstop.Action) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must("show", "--json", id)), &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// kill ends the gateway as a crash does, and waits until it is gone.
func (s *site) kill() {
	s.t.Helper()
	var gateway longstop.DaemonStatus
	if err := json.Unmarshal([]byte(s.must("daemon", "status", "--json")), &gateway); err != nil || gateway.PID < 2 {
		s.t.Fatalf("pid %d: %v", gateway.PID, err)
	}
	if err := syscall.Kill(gateway.PID, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	sshtest.Eventually(s.t, "the gateway's end", func() bool {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(gateway.PID), "cmdline"))
		return err != nil || len(text) == 0
	})
}

// A gateway is killed with a direct action under way; its command may go on. The next gateway says three facts and
// no more: the launch was accepted, the SSH command was lost, and of the work nothing was ever known (law 1). Nobody
// testifies: what the command does later never becomes its end (law 2). Its key starts nothing again (law 5).
func TestLaw1Law2Law5DirectOfAKilledGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs everything")
	}
	t.Parallel()
	programs := build(t)
	for _, transport := range []string{"openssh", "embedded"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			server, home, work := sshtest.Start(t, sshtest.Options{}), sshtest.ShortDir(t), t.TempDir()
			s := &site{t: t, programs: programs, env: append(os.Environ(), "HOME="+home, "LONGSTOP_HOME="+filepath.Join(home, "gw"), "SSH_AUTH_SOCK=")}
			t.Cleanup(func() { s.longstop("daemon", "stop") })
			s.must("host", "add", "loop", "--ssh-config", server.SSHConfig, "--transport", transport, "--direct")
			killedDirect(s, work, strings.HasPrefix(server.Software, "OpenSSH"))
		})
	}
}

func killedDirect(s *site, work string, outlives bool) {
	t, begun, over := s.t, filepath.Join(work, "begun"), filepath.Join(work, "over")
	ask := []string{"run", "-d", "--direct", "--key", "nightly", "loop", "-c",
		"echo once >> " + begun + "; echo out; while [ -e " + work + " ] && [ ! -e " + work + "/go ]; do sleep 0.05; done; echo over > " + over}
	id := strings.TrimSpace(s.must(ask...))
	sshtest.Eventually(t, "the command's first output", func() bool { _, out, _ := s.longstop("logs", id); return out == "out\n" })
	if a := s.show(id); a.SSHCommand.State != longstop.SSHOpen || a.Outcome != longstop.OutcomePending && a.Outcome != longstop.OutcomeUnknown {
		t.Errorf("under way: %s, %s", a.SSHCommand.State, a.Outcome)
	}
	s.kill()

	a := s.show(id)
	if a.Launch.State != longstop.LaunchAccepted || a.SSHCommand.State != longstop.SSHLost || a.SSHCommand.Status != nil || a.SSHCommand.HostKey == "" ||
		a.Workload.State != longstop.WorkloadNone || a.Workload.Result != nil || a.Workload.Writer != nil || a.CompletionSource != "" {
		t.Errorf("launch %s, ssh %+v, workload %+v, by %q", a.Launch.State, a.SSHCommand, a.Workload, a.CompletionSource)
	}
	if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.NoOwner || a.Alive != longstop.AliveUnknown || a.Retry.Allowed {
		t.Errorf("%s because %q, alive %s, retry %+v", a.Outcome, a.UnknownBecause, a.Alive, a.Retry)
	}
	if len(a.Escalations) != 1 || a.Escalations[0].Because != "no_owner" || a.Output.StdoutBytes != 4 {
		t.Errorf("escalations %+v, output %+v", a.Escalations, a.Output)
	}
	if _, out, _ := s.longstop("logs", id); out != "out\n" {
		t.Errorf("kept output: %q", out)
	}
	if status, again, talk := s.longstop(ask...); status != longstop.ExitUnknown || strings.TrimSpace(again) != id || !strings.Contains(talk, "nothing new is started") {
		t.Errorf("the same key again, of %s: exit %d\n%s%s", id, status, again, talk)
	}

	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if outlives { // sshd leaves a command without a terminal alone
		sshtest.Eventually(t, "the command's end", func() bool { _, err := os.Stat(over); return err == nil })
	}
	if status, _, talk := s.longstop("reconcile", id); status != longstop.ExitUnknown || !strings.Contains(talk, "nobody on loop can be asked") {
		t.Errorf("asked about it: exit %d\n%s", status, talk)
	}
	s.kill() // and once more, with nothing under way
	if later := s.show(id); later.SSHCommand != a.SSHCommand || later.Outcome != a.Outcome || later.Alive != a.Alive || later.Workload.State != longstop.WorkloadNone {
		t.Errorf("it became ssh %+v, %s, alive %s", later.SSHCommand, later.Outcome, later.Alive)
	}
	if text, err := os.ReadFile(begun); err != nil || string(text) != "once\n" {
		t.Errorf("begun %q, %v", text, err)
	}
	s.must("journal", "verify")
	s.must("journal", "rebuild", "--check")
}
