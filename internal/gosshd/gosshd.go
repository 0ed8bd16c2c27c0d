// Package gosshd is a small SSH server for machines that have none installed: `longstop demo`
// uses it there, and tests run against it beside OpenSSH's. It behaves to a client as sshd does
// where that matters here: commands run under the login shell, exit-status and exit-signal are
// told as soon as the command ends, the session closes when its output does, and a client that
// goes away leaves the processes alone.
//
// It logs in the user it runs as, by public key alone, and refuses terminals, shells, subsystems
// and forwardings. It is not a server to put on a network: it listens where its owner says, which
// is loopback, and never changes its identity.
package gosshd

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Config is what a server needs.
type Config struct {
	HostKey    ssh.Signer
	Authorized []ssh.PublicKey // keys that may log in
	Shell      string          // the login shell; empty: the user's $SHELL, else /bin/sh
	Env        []string        // beside what sshd sets, "NAME=value"
	// MaxSessions bounds the sessions of one connection; 0: 10, as sshd's.
	MaxSessions int
	Log         func(format string, args ...any) // nil: none
}

// Server is a listening server.
type Server struct {
	config   Config
	account  *user.User
	listener net.Listener

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	commands map[*os.Process]struct{} // not reaped yet
	closed   bool
	done     sync.WaitGroup // one for each connection and the listener; commands are not waited for
}

// handshakeTimeout bounds a connection's time to log in (sshd's LoginGraceTime).
const handshakeTimeout = 30 * time.Second

// Listen starts a server on a TCP address such as "127.0.0.1:0".
func Listen(addr string, config Config) (*Server, error) {
	if config.HostKey == nil {
		return nil, errors.New("gosshd: a host key is needed")
	}
	if config.MaxSessions == 0 {
		config.MaxSessions = 10
	}
	if config.Log == nil {
		config.Log = func(string, ...any) {}
	}
	account, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("gosshd: who am I: %w", err)
	}
	if config.Shell == "" {
		config.Shell = loginShell()
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("gosshd: %w", err)
	}
	s := &Server{config: config, account: account, listener: listener,
		conns: map[net.Conn]struct{}{}, commands: map[*os.Process]struct{}{}}
	s.done.Go(s.accept)
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the listener and all connections. Commands go on, as after the end of an sshd.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	return err
}

// Kill ends the commands that still run, each with its process group.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.commands {
		syscall.Kill(-p.Pid, syscall.SIGKILL) // it leads a group of its own, and is not reaped
	}
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.admit(c) {
			c.Close()
			return
		}
		s.done.Go(func() {
			defer s.forget(c)
			s.serve(c)
		})
	}
}

func (s *Server) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) forget(c net.Conn) {
	c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

func (s *Server) serve(c net.Conn) {
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	config := &ssh.ServerConfig{PublicKeyCallback: s.checkKey, MaxAuthTries: 6}
	config.AddHostKey(s.config.HostKey)
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		s.config.Log("login from %s: %v", c.RemoteAddr(), err)
		return
	}
	c.SetDeadline(time.Time{})
	s.config.Log("login from %s: key %s", c.RemoteAddr(), conn.Permissions.Extensions[keyFP])
	// Global requests, keepalives among them, are refused: that is answer enough.
	go ssh.DiscardRequests(requests)
	p := &peer{server: s, conn: conn}
	for ch := range channels {
		p.open(ch)
	}
	conn.Wait()
}

const keyFP = "key-fp"

func (s *Server) checkKey(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if meta.User() != s.account.Username {
		return nil, fmt.Errorf("user %q is not %q, whom this server runs as", meta.User(), s.account.Username)
	}
	for _, k := range s.config.Authorized {
		if bytes.Equal(k.Marshal(), key.Marshal()) {
			return &ssh.Permissions{Extensions: map[string]string{keyFP: ssh.FingerprintSHA256(key)}}, nil
		}
	}
	return nil, fmt.Errorf("key %s may not log in", ssh.FingerprintSHA256(key))
}

func loginShell() string {
	if sh := os.Getenv("SHELL"); sh != "" {
		return sh
	}
	return "/bin/sh"
}
