package sshlink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// Which key logs in: from files, from an agent, by certificate.

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

// TestC109KeysOfAnAgent: where an agent holds more keys than the server lets one try, ssh offers those first, as it
// does in a terminal; what is wrong is said, and with how many keys. The embedded client begins with the files.
func TestC109KeysOfAnAgent(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		var strays []string
		for i := range 7 {
			strays = append(strays, fmt.Sprintf("%s/stray%d", s.Dir, i))
			if _, err := loopback.WriteKey(strays[i]); err != nil {
				t.Fatal(err)
			}
		}
		to := configure(t, s, "IdentitiesOnly no", "IdentityAgent "+testAgent(t, strays...))
		if _, ok := d.(*OpenSSH); ok {
			refused(t, d, to, longstop.CodeAccessRefused, "6 keys", "too many authentication failures")
			return
		}
		l, err := d.Dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if l.Facts().Key != s.KeyFP {
			t.Errorf("%+v", l.Facts())
		}
	})
}

// TestC106SHA1Alone: a server that knows no signatures but those with SHA-1, for its own key or for those of users, is
// refused, and that is said.
func TestC106SHA1Alone(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		keygen(t, "-t", "rsa", "-b", "2048", "-m", "PEM", "-f", dir+"/rsa")
		data, err := os.ReadFile(dir + "/rsa")
		if err != nil {
			t.Fatal(err)
		}
		key, err := ssh.ParsePrivateKey(data)
		if err != nil {
			t.Fatal(err)
		}
		old, err := ssh.NewSignerWithAlgorithms(key.(ssh.AlgorithmSigner), []string{ssh.KeyAlgoRSA})
		if err != nil {
			t.Fatal(err)
		}
		t.Run("host key", func(t *testing.T) {
			to := keyServer(t, &ssh.ServerConfig{PublicKeyCallback: anyKey}, old, dir+"/rsa")
			refused(t, d, to, longstop.CodeUnsupported, "no common algorithms", "ssh-rsa")
		})
		t.Run("user's key", func(t *testing.T) {
			to := keyServer(t, &ssh.ServerConfig{PublicKeyCallback: anyKey, PublicKeyAuthAlgorithms: []string{ssh.KeyAlgoRSA}}, key, dir+"/rsa")
			refused(t, d, to, longstop.CodeAccessRefused, "SHA-1")
		})
	})
}

func anyKey(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }

// TestC107Prompts: a server that asks questions after the key is named as one at once: nobody is here to answer.
func TestC107Prompts(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		asked := make(chan struct{}, 10)
		config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			return nil, &ssh.PartialSuccessError{Next: ssh.ServerAuthCallbacks{
				KeyboardInteractiveCallback: func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
					asked <- struct{}{}
					_, err := ask("", "Push sent.\nOr a code:\x1b[31m", []string{"Code: "}, []bool{true})
					return nil, err
				}}}
		}}
		dir := sshtest.ShortDir(t)
		host, err := loopback.WriteKey(dir + "/host")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loopback.WriteKey(dir + "/id"); err != nil {
			t.Fatal(err)
		}
		to := keyServer(t, config, host, dir+"/id")
		within(t, 5*time.Second, "refusing", func() {
			refused(t, d, to, longstop.CodeAccessRefused, "took publickey", "keyboard-interactive", "nobody is here to answer")
		})
		if len(asked) > 0 {
			t.Error("a push was asked for that nobody answers")
		}
	})
}

// keyServer logs in as its configuration says, and takes no sessions.
func keyServer(t *testing.T, config *ssh.ServerConfig, host ssh.Signer, identity string) Target {
	t.Helper()
	config.AddHostKey(host)
	addr := listen(t, func(c net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			c.Close()
			return
		}
		go ssh.DiscardRequests(requests)
		for ch := range channels {
			ch.Reject(ssh.Prohibited, "none")
		}
	})
	_, port, _ := net.SplitHostPort(addr)
	known := write(t, "known", "odd "+string(ssh.MarshalAuthorizedKey(host.PublicKey())))
	return Target{Name: "odd", SSHConfig: write(t, "config", fmt.Sprintf("Host odd\n HostName 127.0.0.1\n Port %s\n HostKeyAlias odd\n"+
		" IdentityFile %s\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %s\n", port, identity, known))}
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
