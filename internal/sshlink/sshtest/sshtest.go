// Package sshtest gives tests a real sshd on loopback, with keys, configuration and port of its
// own, and a link to it that can be frozen and cut. It is package loopback, bound to a test.
package sshtest

import (
	"os"
	"testing"
	"time"

	"github.com/longstop/longstop/internal/sshlink/loopback"
)

// Options of a server. The zero value is a plain one.
type Options = loopback.Options

// Server is a running server.
type Server = loopback.Server

// Proxy is a link that can be frozen and cut.
type Proxy = loopback.Proxy

// Start runs a server until the test ends; whoever logs in is whom the test runs as. Without
// Options.Go it is OpenSSH's sshd, and the test is skipped, saying so, where there is none. Its
// log is shown if the test fails.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if _, found := loopback.FindSSHD(); !found && !o.Go {
		t.Skip("needs OpenSSH's sshd: apt-get install openssh-server")
	}
	s, err := loopback.Start(t.Context(), ShortDir(t), o)
	if err != nil {
		t.Fatalf("start an SSH server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop the SSH server: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the SSH server %s:\n%s", s.Addr, s.Log())
		}
	})
	return s
}

// NewProxy puts a link in front of an address until the test ends; Server.Via writes the
// configuration that goes through it.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	p, err := loopback.NewProxy(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// ShortDir is a folder of the test's own whose path leaves room for a socket's name, which
// t.TempDir, named after the test, may not.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A host's processes that are just ending may still write a last file.
		Eventually(t, "remove "+dir, func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}

// Eventually polls until a condition holds, for events that nothing announces (a process in the
// process table, a line in another's log), and fails the test after a generous bound.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	const bound = 20 * time.Second
	for end := time.Now().Add(bound); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}
