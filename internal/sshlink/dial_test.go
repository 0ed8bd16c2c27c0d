package sshlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// Logins that fail, each with a code, what and why, and the next command; and logins that a
// stricter client would fail.

// dialers are all ways to dial, configuration read by ssh -G and without it.
func dialers(t *testing.T, test func(t *testing.T, d Dialer)) {
	each(t, func(t *testing.T, d Dialer) {
		test(t, d)
		if _, ok := d.(*Embedded); ok {
			t.Run("without ssh", func(t *testing.T) { test(t, &Embedded{NoSSH: true}) })
		}
	})
}

// refused dials and wants to fail.
func refused(t *testing.T, d Dialer, to Target, code longstop.Code, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := d.Dial(ctx, to)
	if err == nil {
		l.Close()
		t.Fatalf("dialling %s worked", to.Name)
	}
	e := wantCode(t, err, code, append(words, to.Name)...)
	if e.Hint == "" {
		t.Errorf("no hint beside %q", e.Message)
	}
	t.Logf("%s\n  %s", e.Error(), e.Hint)
	if o, ok := d.(*OpenSSH); ok {
		if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func target(s *sshtest.Server) Target { return Target{Name: s.Alias, SSHConfig: s.SSHConfig} }

// configure writes a configuration beside a server's, with further lines first.
func configure(t *testing.T, s *sshtest.Server, lines ...string) Target {
	t.Helper()
	config, err := os.ReadFile(s.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	head := "Host " + s.Alias + "\n"
	path := filepath.Join(sshtest.ShortDir(t), "config")
	text := head + "  " + strings.Join(lines, "\n  ") + "\n" + strings.TrimPrefix(string(config), head)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Target{Name: s.Alias, SSHConfig: path}
}

func write(t *testing.T, name string, text string) string {
	t.Helper()
	path := filepath.Join(sshtest.ShortDir(t), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestC104HostKeyTrouble(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		_, port, _ := net.SplitHostPort(s.Addr)
		name := "[127.0.0.1]:" + port + " "
		other, err := loopback.WriteKey(filepath.Join(sshtest.ShortDir(t), "k"))
		if err != nil {
			t.Fatal(err)
		}
		known := func(line string) Target {
			return configure(t, s, "UserKnownHostsFile "+write(t, "known", line))
		}
		t.Run("unknown", func(t *testing.T) {
			refused(t, d, known(""), longstop.CodeHostKeyUnknown, "not known", "ssh-ed25519 "+s.HostKeyFP)
		})
		t.Run("changed", func(t *testing.T) {
			refused(t, d, known(name+string(ssh.MarshalAuthorizedKey(other.PublicKey()))),
				longstop.CodeHostKeyChanged, "has changed", "ssh-ed25519 "+s.HostKeyFP, "/known:1")
		})
		t.Run("revoked", func(t *testing.T) {
			refused(t, d, known("@revoked "+name+string(ssh.MarshalAuthorizedKey(s.HostKey))),
				longstop.CodeHostKeyChanged, "revoked", s.HostKeyFP)
		})
	})
}

func TestAccessRefused(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"MaxAuthTries 3", "PasswordAuthentication yes"}})
		dir := sshtest.ShortDir(t)
		var files []string
		for i := range 5 {
			files = append(files, fmt.Sprintf("IdentityFile %s/k%d", dir, i))
			if _, err := loopback.WriteKey(fmt.Sprintf("%s/k%d", dir, i)); err != nil {
				t.Fatal(err)
			}
		}
		only := func(lines ...string) Target {
			to := configure(t, s, lines...)
			text, _ := os.ReadFile(to.SSHConfig)
			os.WriteFile(to.SSHConfig, []byte(strings.ReplaceAll(string(text), s.KeyPath, "/nonexistent")), 0o600)
			return to
		}
		t.Run("wrong key", func(t *testing.T) {
			refused(t, d, only(files[0]), longstop.CodeAccessRefused, "1 key offered", "publickey")
		})
		t.Run("no key", func(t *testing.T) {
			refused(t, d, only(), longstop.CodeAccessRefused, "no key was offered")
		})
		t.Run("too many keys", func(t *testing.T) {
			refused(t, d, only(files...), longstop.CodeAccessRefused, "too many authentication failures")
		})
	})
}

// TestC107SecondFactor: a login that wants more than a key is named as one.
func TestC107SecondFactor(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"PasswordAuthentication yes", "AuthenticationMethods publickey,password"}})
		refused(t, d, target(s), longstop.CodeAccessRefused, "took publickey", "password")
	})
}

func TestUnreachable(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		t.Run("closed port", func(t *testing.T) {
			listener, _ := net.Listen("tcp", "127.0.0.1:0")
			addr := listener.Addr().String()
			listener.Close()
			config, err := s.Via(addr)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, d, Target{Name: s.Alias, SSHConfig: config}, longstop.CodeUnreachable, "onnection refused", "127.0.0.1")
		})
		t.Run("no such name", func(t *testing.T) {
			refused(t, d, configure(t, s, "HostName no-such-host.invalid"), longstop.CodeUnreachable, "no-such-host.invalid")
		})
		t.Run("hangs up", func(t *testing.T) {
			addr := listen(t, func(c net.Conn) { c.Close() })
			config, _ := s.Via(addr)
			refused(t, d, Target{Name: s.Alias, SSHConfig: config}, longstop.CodeUnreachable, "closed the connection before")
		})
		t.Run("speaks something else", func(t *testing.T) {
			addr := listen(t, func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); c.Close() })
			config, _ := s.Via(addr)
			refused(t, d, Target{Name: s.Alias, SSHConfig: config}, longstop.CodeUnreachable)
		})
	})
}

// TestC098NoBanner: a listener that accepts and says nothing costs the dial's deadline, no more.
func TestC098NoBanner(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		hold := make(chan struct{})
		config, err := s.Via(listen(t, func(c net.Conn) { <-hold; c.Close() }))
		if err != nil {
			t.Fatal(err)
		}
		defer close(hold)
		for name, giveUp := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 1200*time.Millisecond)
			},
			"cancel": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(300*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := giveUp()
			within(t, 3*time.Second, name, func() {
				_, err := d.Dial(ctx, Target{Name: s.Alias, SSHConfig: config})
				e := wantCode(t, err, longstop.CodeUnreachable)
				if name == "deadline" && !strings.Contains(e.Message, "no SSH banner") {
					t.Errorf("%s", e.Message)
				}
			})
			cancel()
		}
	})
}

// TestC098Stages: of a login that does not end, it is said how far it came.
func TestC098Stages(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		host, err := loopback.WriteKey(dir + "/host")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loopback.WriteKey(dir + "/id"); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		t.Cleanup(func() { close(hold) })
		slow := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			<-hold
			return nil, errors.New("too late")
		}}
		login := keyServer(t, slow, host, dir+"/id")
		kex := sshtest.Start(t, sshtest.Options{Go: true})
		config, err := kex.Via(listen(t, func(c net.Conn) {
			io.WriteString(c, "SSH-2.0-Slow\r\n")
			<-hold
			c.Close()
		}))
		if err != nil {
			t.Fatal(err)
		}
		for stage, to := range map[string]Target{
			"the server answered, but the key exchange did not end": {Name: kex.Alias, SSHConfig: config},
			"the host key was good, but the login did not end":      login,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			within(t, 4*time.Second, stage, func() {
				_, err := d.Dial(ctx, to)
				wantCode(t, err, longstop.CodeUnreachable, stage)
			})
			cancel()
		}
	})
}

// TestC104HostKeyKinds: a server with several host keys shows one that is known, in any of the forms
// that known_hosts has.
func TestC104HostKeyKinds(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		keygen(t, "-t", "rsa", "-b", "2048", "-f", dir+"/rsa")
		keygen(t, "-t", "ecdsa", "-f", dir+"/ecdsa")
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"HostKey " + dir + "/rsa", "HostKey " + dir + "/ecdsa"}})
		_, port, _ := net.SplitHostPort(s.Addr)
		name := "[127.0.0.1]:" + port
		line := func(name, kind string) string {
			data, err := os.ReadFile(dir + "/" + kind + ".pub")
			if err != nil {
				t.Fatal(err)
			}
			return name + " " + string(data)
		}
		for form, known := range map[string]string{
			"rsa alone":   line(name, "rsa"),
			"ecdsa alone": line(name, "ecdsa"),
			"hashed":      line(knownhosts.HashHostname(name), "ecdsa"),
			"list":        line("other,"+name+",127.0.0.1", "ecdsa"),
			"wildcard":    line("[127.0.0.*]:"+port, "ecdsa"),
			"two kinds":   line(name, "rsa") + line(name, "ecdsa"),
		} {
			t.Run(form, func(t *testing.T) {
				l, err := d.Dial(t.Context(), configure(t, s, "UserKnownHostsFile "+write(t, "known", known)))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if got := l.Facts().HostKey; got == s.HostKeyFP || got == "" {
					t.Errorf("host key %s", got)
				}
			})
		}
		t.Run("alias", func(t *testing.T) {
			l, err := d.Dial(t.Context(), configure(t, s, "HostKeyAlias box", "UserKnownHostsFile "+write(t, "known", line("box", "rsa"))))
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		})
		t.Run("negated", func(t *testing.T) {
			refused(t, d, configure(t, s, "UserKnownHostsFile "+write(t, "known", line("!"+name+",[127.0.0.*]:"+port, "rsa"))),
				longstop.CodeHostKeyUnknown, "not known")
		})
	})
}

// TestC104HostCertificate: a server whose key is vouched for by an authority is known by that.
func TestC104HostCertificate(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		dir := sshtest.ShortDir(t)
		keygen(t, "-t", "ed25519", "-f", dir+"/ca")
		keygen(t, "-t", "ecdsa", "-f", dir+"/host")
		keygen(t, "-s", dir+"/ca", "-I", "box", "-h", "-n", "box,127.0.0.1", dir+"/host.pub")
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"HostKey " + dir + "/host", "HostCertificate " + dir + "/host-cert.pub"}})
		ca, _ := os.ReadFile(dir + "/ca.pub")
		l, err := d.Dial(t.Context(), configure(t, s, "HostKeyAlias box", "UserKnownHostsFile "+write(t, "known", "@cert-authority box "+string(ca))))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if want := publicFP(t, dir+"/host.pub"); l.Facts().HostKey != want {
			t.Errorf("host key %s, want %s", l.Facts().HostKey, want)
		}
	})
}

// TestConfigTrouble: a configuration that ssh does not take, and names that are none.
func TestConfigTrouble(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		for _, name := range []string{"", "-oProxyCommand=x", "a b", "a\nb"} {
			_, err := d.Dial(t.Context(), Target{Name: name})
			wantCode(t, err, longstop.CodeUsage)
		}
		_, err := d.Dial(t.Context(), Target{Name: s.Alias, SSHConfig: "/nonexistent/config"})
		wantCode(t, err, longstop.CodeUsage, "/nonexistent/config")
		if e, ok := d.(*Embedded); !ok || !e.NoSSH {
			refused(t, d, configure(t, s, "NoSuchOption yes"), longstop.CodeUsage, "nosuchoption")
		}
	})
}

// listen serves connections on loopback until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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
			go serve(c)
		}
	}()
	return listener.Addr().String()
}
