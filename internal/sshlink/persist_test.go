package sshlink

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// crowd takes all the logins that a server has at once (MaxStartups) until it is let go.
func crowd(t *testing.T, s *sshtest.Server, n int) (leave func()) {
	t.Helper()
	var all []net.Conn
	leave = func() {
		for _, c := range all {
			c.Close()
		}
	}
	for range n {
		sshtest.Eventually(t, "a login under way", func() bool {
			c, err := net.Dial("tcp", s.Addr)
			if err != nil {
				return false
			}
			if line, _ := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "SSH-") {
				c.Close()
				return false
			}
			all = append(all, c)
			return true
		})
	}
	t.Cleanup(leave)
	return leave
}

// TestC103MaxStartups: a server that turns a connection away before its banner, for it has too many logins under
// way, is tried again a few times, with pauses, and then named as that.
func TestC103MaxStartups(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Extra: []string{"MaxStartups 2:100:2"}})
		t.Run("for a moment", func(t *testing.T) {
			leave := crowd(t, s, 2)
			before := strings.Count(s.Log(), "MaxStartups")
			go func() {
				sshtest.Eventually(t, "a connection is turned away", func() bool { return strings.Count(s.Log(), "MaxStartups") > before })
				leave()
			}()
			if l, err := d.Dial(t.Context(), target(s)); err != nil {
				t.Error(err)
			} else {
				l.Close()
			}
		})
		t.Run("for good", func(t *testing.T) {
			crowd(t, s, 2)
			refused(t, d, target(s), longstop.CodeUnreachable, "closed the connection before saying it speaks SSH", "MaxStartups", "(5 times in ")
		})
	})
}

// TestBeforeTheBanner: what a server says instead of its banner is told, and is another reason to go or to try again.
func TestBeforeTheBanner(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		for name, c := range map[string]struct {
			says  string
			words []string
		}{
			"penalty":         {"Not allowed at this time\r\n", []string{"PerSourcePenalties", "Not allowed at this time"}},
			"another service": {"HTTP/1.1 400 Bad \x1b[31mRequest\r\n\r\n", []string{"no SSH server", "HTTP/1.1 400 Bad"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := sshtest.Start(t, sshtest.Options{Go: true})
				tries := make(chan struct{}, 10)
				config, err := s.Via(listen(t, func(conn net.Conn) {
					tries <- struct{}{}
					io.WriteString(conn, c.says)
					bufio.NewReader(conn).ReadString('\n') // or the client meets a reset
					conn.Close()
				}))
				if err != nil {
					t.Fatal(err)
				}
				refused(t, d, Target{Name: s.Alias, SSHConfig: config}, longstop.CodeUnreachable, c.words...)
				if len(tries) != 1 {
					t.Errorf("tried %d times", len(tries))
				}
			})
		}
	})
}
