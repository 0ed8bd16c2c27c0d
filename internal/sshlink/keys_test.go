package sshlink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// Which key logs in: from files, from an agent, by certificate (C106, C109).

func keygen(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("needs ssh-keygen: apt-get install openssh-client")
	}
	if out, err := exec.Command(path, append([]string{"-q", "-N", ""}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v %s", args, err, out)
	}
}

// publicFP is the fingerprint of a key in a .pub file.
func publicFP(t *testing.T, file string) string {
	t.Helper()
	key := readPublic(file)
	if key == nil {
		t.Fatalf("%s is no public key", file)
	}
	return ssh.FingerprintSHA256(key)
}

// testAgent serves keys on a socket until the test ends.
func testAgent(t *testing.T, files ...string) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ssh.ParseRawPrivateKey(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
			t.Fatal(err)
		}
	}
	path := sshtest.ShortDir(t) + "/agent"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { agent.ServeAgent(ring, c); c.Close() }()
		}
	}()
	return path
}

func TestC106C109Keys(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		keygen(t, "-t", "rsa", "-b", "2048", "-f", dir+"/rsa")
		keygen(t, "-t", "ed25519", "-f", dir+"/ca")
		keygen(t, "-t", "rsa", "-b", "2048", "-f", dir+"/certified")
		s := sshtest.Start(t, sshtest.Options{Extra: []string{
			"TrustedUserCAKeys " + dir + "/ca.pub", "AuthorizedKeysFile " + dir + "/allowed"}})
		keygen(t, "-s", dir+"/ca", "-I", "test", "-n", s.User, dir+"/certified.pub")
		public, _ := os.ReadFile(dir + "/rsa.pub")
		own, _ := os.ReadFile(s.KeyPath + ".pub")
		os.WriteFile(dir+"/allowed", append(public, own...), 0o600)
		var strays []string
		for i := range 7 {
			strays = append(strays, fmt.Sprintf("%s/stray%d", dir, i))
			if _, err := loopback.WriteKey(strays[i]); err != nil {
				t.Fatal(err)
			}
		}
		os.WriteFile(dir+"/selector.pub", public, 0o600)
		for name, c := range map[string]struct {
			lines []string
			want  string
		}{
			"rsa file":            {[]string{"IdentityFile " + dir + "/rsa"}, publicFP(t, dir+"/rsa.pub")},
			"rsa agent":           {[]string{"IdentityAgent " + testAgent(t, dir+"/rsa"), "IdentityFile " + dir + "/selector", "IdentitiesOnly yes"}, publicFP(t, dir+"/rsa.pub")},
			"rsa certificate":     {[]string{"IdentityFile " + dir + "/certified"}, publicFP(t, dir+"/certified.pub")},
			"strays in the agent": {[]string{"IdentityAgent " + testAgent(t, strays...), "IdentitiesOnly yes"}, s.KeyFP},
		} {
			t.Run(name, func(t *testing.T) {
				l, err := d.Dial(t.Context(), configure(t, s, c.lines...))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if f := l.Facts(); f.Key != c.want || f.Auth != "publickey" {
					t.Errorf("%+v, want key %s", f, c.want)
				}
			})
		}
	})
}

// TestC118CertificateAndClock: a server that refuses a certificate for its times does not say so. Its times are
// told, with what the clock here says.
func TestC118CertificateAndClock(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		keygen(t, "-t", "ed25519", "-f", dir+"/ca")
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"TrustedUserCAKeys " + dir + "/ca.pub", "AuthorizedKeysFile none"}})
		for name, c := range map[string]struct{ valid, user, message, hint string }{
			"early":   {"+1h:+2h", s.User, " is valid from ", "is the clock here right?"},
			"late":    {"-2h:-1h", s.User, " was valid until ", "certified anew"},
			"in time": {"-1h:+1h", "somebody else", "", "is the host's clock right?"},
			"always":  {"always:forever", "somebody else", "", ""},
		} {
			key := dir + "/" + strings.ReplaceAll(name, " ", "")
			keygen(t, "-t", "ed25519", "-f", key)
			keygen(t, "-s", dir+"/ca", "-I", "test", "-n", c.user, "-V", c.valid, key+".pub")
			l, err := d.Dial(t.Context(), configure(t, s, "IdentityFile "+key, "IdentitiesOnly yes"))
			if err == nil {
				l.Close()
			}
			var e *longstop.Error
			if !errors.As(err, &e) || e.Code != longstop.CodeAccessRefused || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) ||
				c.message == "" && strings.Contains(e.Message, "valid") || c.hint == "" && strings.Contains(e.Hint, "clock") {
				t.Errorf("%s: %+v", name, e)
			} else {
				t.Logf("%s: %s. %s", name, e.Message, e.Hint)
			}
		}
	})
}
