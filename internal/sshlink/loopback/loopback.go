// Package loopback runs an SSH server on 127.0.0.1 with keys and configuration of its own, and
// writes the ssh_config that reaches it: for tests, and for `longstop demo`. OpenSSH's sshd where
// it is installed, package gosshd where it is not.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop/internal/gosshd"
)

// Options of a server. The zero value is a plain one: sshd if there is one.
type Options struct {
	Alias        string            // the name in SSHConfig; empty: "loop"
	Go           bool              // gosshd, even where there is an sshd
	MaxSessions  int               // 0: 10
	ForceCommand string            // sshd only: runs instead of what was asked for
	Env          map[string]string // set for every command; HOME, unless given, is Server.Home
	Shell        string            // gosshd only: the login shell
	Extra        []string          // sshd only: further lines of sshd_config, before ours
	ClientExtra  []string          // further lines of the Host block in SSHConfig, before ours
}

// Server is a running server.
type Server struct {
	Alias     string // ssh -F SSHConfig Alias
	SSHConfig string // absolute path of a configuration with one Host block
	Addr      string // "127.0.0.1:port"
	Dir       string // keys, configuration and log
	Software  string // "OpenSSH_9.2p1 Debian-2" or "Go"
	User      string // who logs in: who this process is
	Home      string // $HOME of commands, empty at first: no start-up files, and nothing is left behind

	KeyPath    string // private key that may log in
	KeyFP      string // "SHA256:…" of it
	HostKey    ssh.PublicKey
	HostKeyFP  string // "SHA256:…"
	KnownHosts string // path of the known_hosts file that knows the host key

	clientExtra []string
	stop        func() error
}

// Start runs a server with its files in dir, which must exist and be this user's alone.
func Start(ctx context.Context, dir string, o Options) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	account, err := user.Current()
	if err != nil {
		return nil, err
	}
	s := &Server{Alias: o.Alias, Dir: dir, User: account.Username, clientExtra: o.ClientExtra,
		SSHConfig: filepath.Join(dir, "ssh_config"), KnownHosts: filepath.Join(dir, "known_hosts"),
		Home: filepath.Join(dir, "home")}
	if err := os.Mkdir(s.Home, 0o700); err != nil {
		return nil, err
	}
	env := map[string]string{"HOME": s.Home}
	maps.Copy(env, o.Env)
	o.Env = env
	if s.Alias == "" {
		s.Alias = "loop"
	}
	keys, err := s.makeKeys()
	if err != nil {
		return nil, err
	}
	sshd, found := FindSSHD()
	if o.Go || !found {
		err = s.startGo(keys, o)
	} else {
		err = s.startSSHD(ctx, sshd, o)
	}
	if err != nil {
		return nil, err
	}
	if err := s.writeClient(s.SSHConfig, s.KnownHosts, s.Addr); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// Stop ends the server, its connections and, for sshd, whatever still descends from them. It may
// be called again.
func (s *Server) Stop() error { return s.stop() }

// Via writes another configuration that reaches the server by another address, such as a Proxy's,
// under the same alias, and returns its path.
func (s *Server) Via(addr string) (string, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	config := filepath.Join(s.Dir, "ssh_config."+port)
	return config, s.writeClient(config, filepath.Join(s.Dir, "known_hosts."+port), addr)
}

func (s *Server) writeClient(config, knownHosts, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(s.HostKey))
	lines := append([]string{"Host " + s.Alias}, s.clientExtra...)
	lines = append(lines, "HostName "+host, "Port "+port, "User "+s.User,
		"IdentityFile "+quote(s.KeyPath), "IdentitiesOnly yes", "IdentityAgent none",
		"UserKnownHostsFile "+quote(knownHosts), "GlobalKnownHostsFile /dev/null")
	return errors.Join(
		os.WriteFile(knownHosts, []byte(line), 0o600),
		os.WriteFile(config, []byte(strings.Join(lines, "\n  ")+"\n"), 0o600))
}

func (s *Server) startGo(k keys, o Options) error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	server, err := gosshd.Listen("127.0.0.1:0", gosshd.Config{
		HostKey: k.host, Authorized: []ssh.PublicKey{k.login.PublicKey()},
		Shell: o.Shell, Env: environ(o.Env), MaxSessions: o.MaxSessions,
		Log: func(format string, args ...any) {
			fmt.Fprintf(log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
		}})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.Addr, s.Software = server.Addr(), "Go"
	s.stop = sync.OnceValue(func() error {
		err := server.Close()
		server.Kill()
		return errors.Join(err, log.Close())
	})
	return nil
}

// Log is what the server logged so far.
func (s *Server) Log() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

func (s *Server) logPath() string { return filepath.Join(s.Dir, "sshd.log") }

func environ(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// quote protects a path with spaces in ssh_config and sshd_config.
func quote(path string) string { return `"` + path + `"` }
