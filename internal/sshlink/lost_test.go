package sshlink

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// Connections that break, freeze and are stopped: nothing hangs, and lost is told from no_status.

// TestNoStatus: a server that closes the session without a status is not a lost connection.
func TestNoStatus(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := silentServer(t)
		l, err := d.Dial(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r, err := Run(t.Context(), l, "anything", nil, 100)
		if err != nil || r.Exit != (Exit{State: longstop.SSHNoStatus}) || string(r.Stdout) != "out" {
			t.Errorf("%q %+v, %v", r.Stdout, r.Exit, err)
		}
		if err := l.Err(); err != nil {
			t.Errorf("the link is said to be lost: %v", err)
		}
	})
}

// TestLost: the server's process killed (C025), the link cut, the master killed. Every session
// ends as lost, output as an error, and the link says why.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		t.Run("server process killed", func(t *testing.T) {
			l := dial(t, d, s)
			expectLost(t, l, func(ch Channel) { killSSHD(t, ch, syscall.SIGKILL) }, 3*time.Second)
		})
		t.Run("cut", func(t *testing.T) {
			p := sshtest.NewProxy(t, s.Addr)
			l := dialVia(t, d, s, via(t, s, p))
			expectLost(t, l, func(Channel) { p.Cut() }, 3*time.Second)
		})
		t.Run("master killed", func(t *testing.T) {
			l := dial(t, d, s)
			m, ok := l.(*link).carrier.(*master)
			if !ok {
				t.Skip("this transport has no master")
			}
			err := expectLost(t, l, func(Channel) { m.cmd.Process.Kill() }, 3*time.Second)
			if !strings.Contains(err.Error(), "signal: killed") {
				t.Errorf("the reason is %v", err)
			}
		})
	})
}

// TestC100Frozen: a link that moves nothing, a stopped server and a stopped master are given up
// within the keepalive's bound; opening a session keeps to its own deadline meanwhile.
func TestC100Frozen(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		t.Run("link", func(t *testing.T) {
			t.Parallel()
			p := sshtest.NewProxy(t, s.Addr)
			l := dialVia(t, d, s, via(t, s, p))
			expectFrozen(t, l, func(Channel) { p.Freeze() })
		})
		t.Run("server", func(t *testing.T) {
			t.Parallel()
			l := dial(t, d, s)
			expectFrozen(t, l, func(ch Channel) { killSSHD(t, ch, syscall.SIGSTOP) })
		})
		t.Run("master", func(t *testing.T) {
			t.Parallel()
			l := dial(t, d, s)
			m, ok := l.(*link).carrier.(*master)
			if !ok {
				t.Skip("this transport has no master")
			}
			err := expectFrozen(t, l, func(Channel) { m.cmd.Process.Signal(syscall.SIGSTOP) })
			if !strings.Contains(err.Error(), "master gives no answer") {
				t.Errorf("the reason is %v", err)
			}
		})
	})
}

// TestCloseFrozen: closing a link whose master is stopped, or whose peer is, is bounded too.
func TestCloseFrozen(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		l := dial(t, d, s)
		ch := start(t, l, "echo $PPID; cat")
		if m, ok := l.(*link).carrier.(*master); ok {
			m.cmd.Process.Signal(syscall.SIGSTOP)
		} else {
			killSSHD(t, ch, syscall.SIGSTOP)
		}
		within(t, 5*time.Second, "closing", func() { l.Close() })
		if err := l.Err(); err != nil {
			t.Errorf("a link that was closed here has an error: %v", err)
		}
	})
}

// TestThawed: a pause shorter than the keepalive's bound costs nothing.
func TestThawed(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{})
		p := sshtest.NewProxy(t, s.Addr)
		l := dialVia(t, d, s, via(t, s, p))
		ch := start(t, l, "cat")
		p.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := l.Exec(ctx, "echo never > /dev/full")
		wantCode(t, err, longstop.CodeUnreachable)
		p.Thaw()
		sshtest.Eventually(t, "the session given up is over", func() bool { return l.Sessions() == 1 })
		io.WriteString(ch.Stdin(), "whole")
		ch.Stdin().Close()
		if data, err := io.ReadAll(ch.Stdout()); string(data) != "whole" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// expectLost breaks a link that carries a session in each kind of waiting.
func expectLost(t *testing.T, l Link, breakIt func(Channel), bound time.Duration) error {
	t.Helper()
	ch := start(t, l, "echo $PPID; sleep 100")
	reading := start(t, l, "cat")
	writing := start(t, l, "sleep 100")
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := io.ReadAll(reading.Stdout()); err == nil {
			t.Error("the output of a lost session ended as if it were whole")
		}
	})
	all.Go(func() {
		if _, err := writing.Stdin().Write(make([]byte, 10<<20)); err == nil {
			t.Error("a write to a lost session did not fail")
		}
	})
	for _, c := range []Channel{ch, reading, writing} {
		all.Go(func() {
			if e := c.Wait(); e.State != longstop.SSHLost {
				t.Errorf("%+v, want lost", e)
			}
		})
	}
	breakIt(ch)
	within(t, bound, "losing the connection", func() { all.Wait(); <-l.Done() })
	err := l.Err()
	wantCode(t, err, longstop.CodeUnreachable)
	t.Log(err)
	_, execErr := l.Exec(t.Context(), "true")
	wantCode(t, execErr, longstop.CodeUnreachable)
	return err
}

func expectFrozen(t *testing.T, l Link, freeze func(Channel)) error {
	t.Helper()
	return expectLost(t, l, func(ch Channel) {
		freeze(ch)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		within(t, 2*time.Second, "opening a session", func() {
			_, err := l.Exec(ctx, "true")
			wantCode(t, err, longstop.CodeUnreachable)
		})
	}, aliveBound)
}

// killSSHD signals the sshd process that serves a session's connection; the command of ch printed
// its parent first.
func killSSHD(t *testing.T, ch Channel, signal syscall.Signal) {
	t.Helper()
	var pid int
	if _, err := fmt.Fscan(ch.Stdout(), &pid); err != nil || pid < 2 {
		t.Fatalf("the session's sshd: %d, %v", pid, err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	if signal == syscall.SIGSTOP {
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
}

func via(t *testing.T, s *sshtest.Server, p *sshtest.Proxy) string {
	t.Helper()
	config, err := s.Via(p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// silentServer accepts any command, prints "out" and closes the session without a status.
func silentServer(t *testing.T) Target {
	return oddServer(t, func(open ssh.NewChannel) {
		ch, requests, err := open.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				r.Reply(r.Type == "exec", nil)
				if r.Type == "exec" {
					io.WriteString(ch, "out")
					ch.Close()
				}
			}
		}()
	})
}

// oddServer logs anybody in and treats sessions as a test wants.
func oddServer(t *testing.T, open func(ssh.NewChannel)) Target {
	t.Helper()
	dir := sshtest.ShortDir(t)
	hostKey, err := loopback.WriteKey(dir + "/host")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loopback.WriteKey(dir + "/id"); err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(hostKey)
	addr := listen(t, func(c net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(requests)
		for ch := range channels {
			open(ch)
		}
	})
	_, port, _ := net.SplitHostPort(addr)
	os.WriteFile(dir+"/known", []byte("odd "+string(ssh.MarshalAuthorizedKey(hostKey.PublicKey()))), 0o600)
	os.WriteFile(dir+"/config", fmt.Appendf(nil, "Host odd\n HostName 127.0.0.1\n Port %s\n HostKeyAlias odd\n"+
		" IdentityFile %s/id\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %s/known\n", port, dir, dir), 0o600)
	return Target{Name: "odd", SSHConfig: dir + "/config"}
}
