package gosshd

import (
	"crypto/ed25519"
	"os/user"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// The rest of what a client sees is package sshlink's conformance suite.

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, mine, other := newKey(t), newKey(t), newKey(t)
	s, err := Listen("127.0.0.1:0", Config{HostKey: host, Authorized: []ssh.PublicKey{mine.PublicKey()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	login := func(name string, key ssh.Signer) (*ssh.Client, error) {
		return ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{User: name, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
			HostKeyCallback: ssh.FixedHostKey(host.PublicKey())})
	}
	if _, err := login(me.Username, other); err == nil {
		t.Error("another key logged in")
	}
	if _, err := login("not-"+me.Username, mine); err == nil {
		t.Error("another user logged in")
	}
	client, err := login(me.Username, mine)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, ask := range map[string]func(*ssh.Session) error{
		"shell":     (*ssh.Session).Shell,
		"terminal":  func(c *ssh.Session) error { return c.RequestPty("vt100", 1, 1, nil) },
		"subsystem": func(c *ssh.Session) error { return c.RequestSubsystem("sftp") },
		"variable":  func(c *ssh.Session) error { return c.Setenv("LD_PRELOAD", "x") },
	} {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if ask(session) == nil {
			t.Errorf("%s was granted", name)
		}
		session.Close()
	}
	if _, err := client.Dial("tcp", "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "only sessions") {
		t.Errorf("a forwarding: %v", err)
	}
}

// TestEnvironment: a command sees what a login gives it, and nothing of the server's own.
func TestEnvironment(t *testing.T) {
	t.Setenv("LONGSTOP_SECRET_OF_THE_SERVER", "x")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, mine := newKey(t), newKey(t)
	s, err := Listen("127.0.0.1:0", Config{HostKey: host, Authorized: []ssh.PublicKey{mine.PublicKey()},
		Shell: "/bin/sh", Env: []string{"GIVEN=yes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := ssh.Dial("tcp", s.Addr(), &ssh.ClientConfig{User: me.Username, Auth: []ssh.AuthMethod{ssh.PublicKeys(mine)},
		HostKeyCallback: ssh.FixedHostKey(host.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	session.Setenv("LC_ALL", "C")
	out, err := session.Output("env; pwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GIVEN=yes\n", "LC_ALL=C\n", "USER=" + me.Username + "\n", "SHELL=/bin/sh\n", "SSH_CONNECTION=127.0.0.1 ", "\n" + me.HomeDir + "\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	if strings.Contains(string(out), "LONGSTOP_SECRET") {
		t.Error("the server's own environment reached the command")
	}
}
