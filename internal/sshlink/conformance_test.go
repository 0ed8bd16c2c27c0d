package sshlink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// The suite that both transports pass, against OpenSSH's sshd and the server of gosshd.

// transports are what the suite runs on. The keepalive is short, so that what waits for it does not
// wait long: whole seconds, which is what ssh takes.
var transports = map[string]func(testing.TB) Dialer{
	"openssh": func(t testing.TB) Dialer {
		return &OpenSSH{Dir: sshtest.ShortDir(t), AliveInterval: time.Second, AliveCountMax: 2}
	},
	"embedded": func(t testing.TB) Dialer {
		return &Embedded{AliveInterval: time.Second, AliveCountMax: 2}
	},
}

// aliveBound is what the keepalive above may take, with room for a busy machine.
const aliveBound = 10 * time.Second

// each runs a test on every transport.
func each(t *testing.T, test func(t *testing.T, d Dialer)) {
	t.Parallel()
	for name, make := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

// eachServer runs a test on every transport and kind of server.
func eachServer(t *testing.T, o sshtest.Options, test func(t *testing.T, d Dialer, s *sshtest.Server)) {
	each(t, func(t *testing.T, d Dialer) {
		for name, isGo := range map[string]bool{"sshd": false, "gosshd": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := o
				o.Go = isGo
				test(t, d, sshtest.Start(t, o))
			})
		}
	})
}

func dial(t *testing.T, d Dialer, s *sshtest.Server) Link {
	t.Helper()
	return dialVia(t, d, s, s.SSHConfig)
}

func dialVia(t *testing.T, d Dialer, s *sshtest.Server, config string) Link {
	t.Helper()
	l, err := d.Dial(t.Context(), Target{Name: s.Alias, SSHConfig: config})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func start(t *testing.T, l Link, command string) Channel {
	t.Helper()
	ch, err := l.Exec(t.Context(), command)
	if err != nil {
		t.Fatalf("exec %q: %v", command, err)
	}
	t.Cleanup(func() { ch.Close() })
	return ch
}

// within fails the test if f takes longer.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(d):
		t.Errorf("%s took longer than %v", what, d)
		<-done
	}
}

func wantCode(t *testing.T, err error, code longstop.Code, words ...string) *longstop.Error {
	t.Helper()
	e, ok := err.(*longstop.Error)
	if !ok || e.Code != code {
		t.Fatalf("error %T %v, want code %s", err, err, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("message %q lacks %q", e.Error(), w)
		}
	}
	return e
}

// TestExit: each end of a command is told apart (C023: 255 is a status like any other).
func TestExit(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		for command, want := range map[string]Exit{
			"exit 0":                   {State: longstop.SSHExited},
			"exit 7":                   {State: longstop.SSHExited, Status: 7},
			"exit 255":                 {State: longstop.SSHExited, Status: 255},
			"/no/such/command":         {State: longstop.SSHExited, Status: 127},
			"kill -SEGV $$; sleep 9":   {State: longstop.SSHSignaled, Signal: "SEGV"},
			"exec 2>&-; kill -9 $$":    {State: longstop.SSHSignaled, Signal: "KILL"},
			"kill -USR1 $$; sleep 9":   {State: longstop.SSHSignaled, Signal: "USR1"},
			"sh -c 'kill $$'; exit $?": {State: longstop.SSHExited, Status: 143},
			"trap '' TERM; kill 0; :":  {State: longstop.SSHExited},
		} {
			r, err := Run(t.Context(), l, command, nil, 1<<20)
			if err != nil || r.Exit != want {
				t.Errorf("%s: %+v, %v; want %+v", command, r.Exit, err, want)
			}
		}
		sshtest.Eventually(t, "no session counted", func() bool { return l.Sessions() == 0 })
	})
}

// TestFacts: the connection says how it was authenticated, both ways.
func TestFacts(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		want := Facts{Auth: "publickey", Key: s.KeyFP, HostKey: s.HostKeyFP, Server: s.Software}
		if got := dial(t, d, s).Facts(); got != want {
			t.Errorf("facts %+v, want %+v", got, want)
		}
		if got := dial(t, &Embedded{NoSSH: true}, s).Facts(); got != want {
			t.Errorf("facts without ssh -G %+v, want %+v", got, want)
		}
	})
}

// TestStreams: 50 MB in and out again, and on both outputs at once (less where both ends are Go).
func TestStreams(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		size := 50 << 20
		if s.Software == "Go" {
			size = 5 << 20
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i ^ i>>8 ^ i>>16)
		}
		r, err := Run(t.Context(), l, "cat", bytes.NewReader(data), size)
		if err != nil || !bytes.Equal(r.Stdout, data) {
			t.Errorf("cat gave %d bytes of %d back, equal %v: %v", len(r.Stdout), size, bytes.Equal(r.Stdout, data), err)
		}
		r, err = Run(t.Context(), l, fmt.Sprintf("head -c %d /dev/zero >&2; head -c %d /dev/zero; exit 6", size, size), nil, size)
		if err != nil || len(r.Stdout) != size || len(r.Stderr) != size || r.Exit.Status != 6 {
			t.Errorf("%d and %d bytes, %+v: %v", len(r.Stdout), len(r.Stderr), r.Exit, err)
		}
	})
}

// TestStdinEnd: end-of-file reaches the command, empty input included.
func TestStdinEnd(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		for _, input := range []string{"", "abc"} {
			r, err := Run(t.Context(), l, "wc -c", strings.NewReader(input), 100)
			if got := strings.TrimSpace(string(r.Stdout)); got != fmt.Sprint(len(input)) || err != nil {
				t.Errorf("wc of %q says %q: %v", input, got, err)
			}
		}
		ch := start(t, l, "exit 0")
		ch.Wait()
		sshtest.Eventually(t, "the session is over", func() bool { return l.Sessions() == 0 })
		if _, err := ch.Stdin().Write([]byte("x")); err == nil {
			t.Error("a write to an ended session did not fail")
		}
	})
}

// TestEight: eight sessions at once, each with its own bytes, the last of them kept for what must get through;
// a ninth is refused without asking the server, and a place that is free again is used.
func TestEight(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		var open []Channel
		for range 7 {
			open = append(open, start(t, l, "cat"))
		}
		_, err := l.Exec(t.Context(), "true")
		wantCode(t, err, longstop.CodeSessionRefused, "7 sessions")
		kept, err := l.ExecKept(t.Context(), "cat")
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		_, err = l.ExecKept(t.Context(), "true")
		wantCode(t, err, longstop.CodeSessionRefused, "8 sessions")
		open = append(open, kept)
		var all sync.WaitGroup
		for i, ch := range open {
			all.Go(func() {
				block := bytes.Repeat([]byte{byte('a' + i)}, 1<<20)
				go func() { ch.Stdin().Write(block); ch.Stdin().Close() }()
				back, err := io.ReadAll(ch.Stdout())
				if err != nil || !bytes.Equal(back, block) {
					t.Errorf("session %d gave %d bytes back: %v", i, len(back), err)
				}
				if e := ch.Wait(); e.State != longstop.SSHExited {
					t.Errorf("session %d ended with %+v", i, e)
				}
			})
		}
		all.Wait()
		sshtest.Eventually(t, "no session counted", func() bool { return l.Sessions() == 0 })
		if _, err := Run(t.Context(), l, "true", nil, 1); err != nil {
			t.Error(err)
		}
	})
}

// TestC101RefusedSession: the server's own limit is a refusal of one session, not the end of the
// others; whoever asked at the same moment, it is met once, and never again by a connection that shares what
// is known.
func TestC101RefusedSession(t *testing.T) {
	for _, allows := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(allows), func(t *testing.T) {
			eachServer(t, sshtest.Options{MaxSessions: allows}, func(t *testing.T, d Dialer, s *sshtest.Server) {
				to := target(s)
				to.Limit = NewLimit(0)
				l, err := d.Dial(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				open := manyAtOnce(t, l, allows)
				for i, ch := range open {
					fmt.Fprintf(ch.Stdin(), "still here %d", i)
					ch.Stdin().Close()
					if data, err := io.ReadAll(ch.Stdout()); string(data) != fmt.Sprintf("still here %d", i) || err != nil {
						t.Errorf("session %d gave %q, %v", i, data, err)
					}
				}
				sshtest.Eventually(t, "the sessions are over", func() bool { return l.Sessions() == 0 })
				if r, err := Run(t.Context(), l, "exit 3", nil, 1); err != nil || r.Exit.Status != 3 {
					t.Errorf("the next session: %+v, %v", r.Exit, err)
				}
				within(t, 3*time.Second, "closing", func() { l.Close() })

				again, err := d.Dial(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				manyAtOnce(t, again, allows)
				if n := strings.Count(s.Log(), "no more sessions"); n > 3 {
					t.Errorf("the server's limit was met %d times:\n%s", n, s.Log())
				}
			})
		})
	}
}

// manyAtOnce asks for twelve sessions at once, and wants as many as the server allows.
func manyAtOnce(t *testing.T, l Link, allows int) (open []Channel) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 12 {
		all.Go(func() {
			ch, err := l.ExecKept(t.Context(), "cat")
			if err != nil {
				wantCode(t, err, longstop.CodeSessionRefused)
				return
			}
			t.Cleanup(func() { ch.Close() })
			mu.Lock()
			defer mu.Unlock()
			open = append(open, ch)
		})
	}
	all.Wait()
	if len(open) != allows {
		t.Errorf("%d sessions of %d", len(open), allows)
	}
	return open
}

// TestChurn: seven at a time, one after the other, on a server that allows ten: no caller meets a
// refusal, though sshd counts a session a little longer than its client does.
func TestChurn(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		var all sync.WaitGroup
		for range 7 {
			all.Go(func() {
				for i := range 20 {
					r, err := Run(t.Context(), l, fmt.Sprintf("exit %d", i), nil, 1)
					if err != nil || r.Exit != (Exit{State: longstop.SSHExited, Status: i}) {
						t.Errorf("%+v, %v", r.Exit, err)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestHeldOpen: a background process that inherited an output holds the channel, not the status
// (C001, C002); giving the channel up works at once, and its place stays taken on the server.
func TestHeldOpen(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		for name, command := range map[string]string{
			"both outputs": "sleep 100 & echo $!; exit 3",
			"stderr alone": "sleep 100 >/dev/null & echo $!; exit 3",
		} {
			var pid int
			within(t, 5*time.Second, name, func() {
				ch := start(t, l, command)
				if e := ch.Wait(); e != (Exit{State: longstop.SSHExited, Status: 3}) {
					t.Errorf("%s: %+v", name, e)
				}
				if _, err := fmt.Fscan(ch.Stdout(), &pid); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				read := make(chan error)
				go func() { _, err := io.ReadAll(ch.Stderr()); read <- err }()
				ch.Close()
				if err := <-read; err == nil {
					t.Errorf("%s: reading ended as if the stream had", name)
				}
			})
			killTestProcess(t, pid)
		}
	})
}

// TestUnread: a session whose output nobody reads holds up its command alone (C026).
func TestUnread(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		start(t, l, "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2")
		within(t, 10*time.Second, "another session", func() {
			r, err := Run(t.Context(), l, "head -c 5000000 /dev/zero | sha256sum", nil, 1000)
			want := fmt.Sprintf("%x", sha256.Sum256(make([]byte, 5000000)))
			if err != nil || !strings.HasPrefix(string(r.Stdout), want) {
				t.Errorf("%q, %v", r.Stdout, err)
			}
		})
	})
}

// TestGivingUp: Close frees whoever reads, writes or waits, though the command goes on.
func TestGivingUp(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		ch := start(t, l, "sleep 100")
		var all sync.WaitGroup
		all.Go(func() { io.ReadAll(ch.Stdout()) })
		all.Go(func() { io.ReadAll(ch.Stderr()) })
		all.Go(func() { ch.Stdin().Write(make([]byte, 10<<20)) })
		all.Go(func() {
			if e := ch.Wait(); e.State != longstop.SSHNoStatus {
				t.Errorf("%+v", e)
			}
		})
		ch.Close()
		within(t, time.Second, "giving up", all.Wait)
	})
}

// TestWriteDeadline: a command that does not read holds a writer no longer than asked.
func TestWriteDeadline(t *testing.T) {
	eachServer(t, sshtest.Options{}, func(t *testing.T, d Dialer, s *sshtest.Server) {
		l := dial(t, d, s)
		ch := start(t, l, "sleep 100")
		ch.Stdin().SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		within(t, 5*time.Second, "writing", func() {
			_, err := ch.Stdin().Write(make([]byte, 20<<20))
			wantCode(t, err, longstop.CodeTimeout)
		})
		ch.Stdin().SetWriteDeadline(time.Time{})
		if _, err := ch.Stdin().Write([]byte("x")); err == nil {
			t.Error("writing went on after a missed deadline, with a hole in it")
		}
		if _, err := Run(context.Background(), l, "true", nil, 1); err != nil {
			t.Errorf("another session: %v", err)
		}
	})
}
