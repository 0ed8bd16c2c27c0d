package sshtest

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStart reaches every kind of server with ssh itself, directly and through a Proxy.
func TestStart(t *testing.T) {
	t.Parallel()
	client, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("needs ssh: apt-get install openssh-client")
	}
	for name, o := range map[string]Options{
		"sshd":   {Env: map[string]string{"LONGSTOP_X": "a b"}},
		"gosshd": {Go: true, Env: map[string]string{"LONGSTOP_X": "a b"}, Alias: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, o)
			via, err := s.Via(NewProxy(t, s.Addr).Addr)
			if err != nil {
				t.Fatal(err)
			}
			for _, config := range []string{s.SSHConfig, via} {
				cmd := exec.Command(client, "-F", config, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
					s.Alias, `echo "$LONGSTOP_X"; exit 7`)
				out, err := cmd.CombinedOutput()
				if strings.TrimSpace(string(out)) != "a b" || cmd.ProcessState.ExitCode() != 7 {
					t.Errorf("ssh said %q, %v", out, err)
				}
			}
		})
	}
}
