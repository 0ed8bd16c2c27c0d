package sshlink

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestLoginKeys: the keys are those that ssh itself says it will try, in its order.
func TestLoginKeys(t *testing.T) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("needs ssh: apt-get install openssh-client")
	}
	dir := sshtest.ShortDir(t)
	s := sshtest.Start(t, sshtest.Options{})
	for _, name := range []string{"file", "both", "agent", "absent"} {
		if _, err := loopback.WriteKey(dir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	socket := testAgent(t, dir+"/agent", dir+"/both")
	os.Remove(dir + "/absent")
	os.Remove(dir + "/absent.pub")
	for _, only := range []string{"yes", "no"} {
		to := configure(t, s, "IdentityAgent "+socket, "IdentityFile "+dir+"/file", "IdentityFile "+dir+"/both", "IdentityFile "+dir+"/absent", "IdentitiesOnly "+only)
		said, _ := exec.Command(ssh, "-v", "-o", "BatchMode=yes", "-F", to.SSHConfig, to.Name, "true").CombinedOutput()
		var want []string
		for _, m := range regexp.MustCompile(`(?m)^debug1: Will attempt key: .* (SHA256:\S+)`).FindAllSubmatch(said, -1) {
			want = append(want, string(m[1]))
		}
		if len(want) < 3 {
			t.Fatalf("ssh says %s", said)
		}
		for name, d := range map[string]interface {
			Login(context.Context, Target) (Login, error)
		}{"openssh": &OpenSSH{Dir: dir}, "embedded": &Embedded{}} {
			login, err := d.Login(t.Context(), to)
			var got []string
			for _, k := range login.Keys {
				got = append(got, k.Fingerprint)
			}
			if err != nil || !slices.Equal(got, want) || login.User != s.User {
				t.Errorf("%s, IdentitiesOnly %s: %s has %q, want %q (%v)", name, only, login.User, got, want, err)
			}
		}
	}
}
