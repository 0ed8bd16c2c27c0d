package loopback

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echo is a server that gives back what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

// client is a connection through a proxy.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return client{t, c}
}

func (c client) put(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// gets reads what is to come, within a bound.
func (c client) gets(want string) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// silent reads for a moment, in which nothing may come and nothing end.
func (c client) silent() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%d bytes, %v", n, err)
	}
}

// TestProxy: each way in which a link can fail is the one that it is called by.
func TestProxy(t *testing.T) {
	t.Parallel()
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := dial(t, p)
	c.put("one")
	c.gets("one")

	p.Freeze()
	c.put("two")
	late := dial(t, p)
	late.put("three")
	c.silent()
	late.silent()
	p.Thaw()
	c.gets("two")
	late.gets("three")

	p.Strand()
	c.put("lost")
	c.silent()
	fresh := dial(t, p)
	fresh.put("four")
	fresh.gets("four")

	p.Cut()
	fresh.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := fresh.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that was cut: %v", err)
	}
	again := dial(t, p)
	again.put("five")
	again.gets("five")

	p.Close()
	if c, err := net.Dial("tcp", p.Addr); err == nil {
		c.Close()
		t.Error("a closed proxy takes connections")
	}
}

// TestStopEndsWhatCommandsLeft: when a server is stopped, so is what its sessions run, in whatever session of theirs;
// stopping twice is no error.
func TestStopEndsWhatCommandsLeft(t *testing.T) {
	t.Parallel()
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("needs ssh: apt-get install openssh-client")
	}
	for name, o := range map[string]Options{"sshd": {}, "gosshd": {Go: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, found := FindSSHD(); !found && !o.Go {
				t.Skip("needs sshd: apt-get install openssh-server")
			}
			dir, err := os.MkdirTemp("", "lb") // short: sockets
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			s, err := Start(context.Background(), dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			if strings.HasPrefix(s.Software, "OpenSSH") == o.Go || !strings.HasPrefix(s.HostKeyFP, "SHA256:") {
				t.Errorf("software %q, host key %q", s.Software, s.HostKeyFP)
			}
			fifo := filepath.Join(dir, "alive")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(ssh, "-F", s.SSHConfig, s.Alias, "exec 9>"+fifo+"; echo up >&9; sleep 600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			alive, err := os.Open(fifo) // waits for the command; at its end when nobody has it open any more
			if err != nil {
				t.Fatal(err)
			}
			defer alive.Close()
			up := make([]byte, 3)
			if _, err := io.ReadFull(alive, up); err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			alive.SetReadDeadline(time.Now().Add(20 * time.Second))
			if n, err := alive.Read(up); n > 0 || err != io.EOF {
				t.Errorf("what the command left: %d bytes, %v", n, err)
			}
			if err := s.Stop(); err != nil {
				t.Errorf("stopped again: %v", err)
			}
			if c, err := net.Dial("tcp", s.Addr); err == nil {
				c.Close()
				t.Error("it takes connections still")
			}
		})
	}
}
