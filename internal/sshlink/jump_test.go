package sshlink

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// route is hosts behind hosts, and the configuration that leads through them.
type route struct {
	inner, gate, outer *sshtest.Server // inner is reached through gate, gate through outer
	blocks             map[*sshtest.Server]string
}

func newRoute(t *testing.T) *route {
	t.Helper()
	r := &route{blocks: map[*sshtest.Server]string{},
		inner: sshtest.Start(t, sshtest.Options{Alias: "inner"}),
		gate:  sshtest.Start(t, sshtest.Options{Alias: "gate"}),
		outer: sshtest.Start(t, sshtest.Options{Alias: "outer"})}
	for _, s := range []*sshtest.Server{r.inner, r.gate, r.outer} {
		text, err := os.ReadFile(s.SSHConfig)
		if err != nil {
			t.Fatal(err)
		}
		r.blocks[s] = string(text)
	}
	return r
}

// to writes the configuration: lines come first, and change replaces parts of the rest.
func (r *route) to(t *testing.T, lines string, change ...string) Target {
	t.Helper()
	text := lines + "\n" + r.blocks[r.inner] + r.blocks[r.gate] + r.blocks[r.outer]
	return Target{Name: "inner", SSHConfig: write(t, "config", strings.NewReplacer(change...).Replace(text))}
}

// TestC110Jump: through jump hosts as ssh itself goes, each with its own address, user, key and host key; what is said
// of the login is about the host at the end, and what is said of a hop names it.
func TestC110Jump(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		r := newRoute(t)
		_, port, _ := net.SplitHostPort(r.gate.Addr)
		const chain = "Host inner\n ProxyJump gate\nHost gate\n ProxyJump outer\n"
		for name, lines := range map[string]string{
			"one":               "Host inner\n ProxyJump gate\n",
			"two, each its own": chain,
			"two in a list":     "Host inner\n ProxyJump outer,gate\n",
			"a list's own":      "Host inner\n ProxyJump outer,gate\nHost gate\n ProxyJump nowhere\n",
			"user and port":     fmt.Sprintf("Host inner\n ProxyJump %s@gate:%s\nHost gate\n ProxyJump none\n Port 1\n", r.gate.User, port),
			"as a URI":          fmt.Sprintf("Host inner\n ProxyJump ssh://%s@gate:%s\nHost gate\n Port 1\n", r.gate.User, port),
			"none":              "Host inner\n ProxyJump none\nHost *\n ProxyJump gate\n",
		} {
			t.Run(name, func(t *testing.T) {
				before := len(r.gate.Log())
				l, err := fresh(t, d).Dial(t.Context(), r.to(t, lines))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if f := l.Facts(); f.HostKey != r.inner.HostKeyFP || f.Key != r.inner.KeyFP {
					t.Errorf("facts %+v, want host key %s", f, r.inner.HostKeyFP)
				}
				if got, err := Run(t.Context(), l, "exit 5", nil, 1); err != nil || got.Exit.Status != 5 {
					t.Errorf("%+v, %v", got, err)
				}
				if through := strings.Contains(r.gate.Log()[before:], "Accepted publickey"); through != (name != "none") {
					t.Errorf("through the gate: %v", through)
				}
			})
		}
		other, err := loopback.WriteKey(sshtest.ShortDir(t) + "/k")
		if err != nil {
			t.Fatal(err)
		}
		_, outerPort, _ := net.SplitHostPort(r.outer.Addr)
		changed := write(t, "known", "[127.0.0.1]:"+outerPort+" "+string(ssh.MarshalAuthorizedKey(other.PublicKey())))
		for name, c := range map[string]struct {
			change []string
			code   longstop.Code
			words  []string
		}{
			"a hop's host key is not known": {[]string{r.outer.KnownHosts, "/dev/null"}, longstop.CodeHostKeyUnknown, []string{"the host key", "jump host", "not known"}},
			"a hop's host key has changed":  {[]string{r.outer.KnownHosts, changed}, longstop.CodeHostKeyChanged, []string{"jump host", outerPort, r.outer.HostKeyFP}},
			"a hop refuses the key":         {[]string{r.outer.KeyPath, r.inner.KeyPath}, longstop.CodeAccessRefused, []string{"jump host", r.outer.User + "@127.0.0.1", "publickey"}},
			"the last refuses the key":      {[]string{r.inner.KeyPath, r.outer.KeyPath}, longstop.CodeAccessRefused, []string{"the login of " + r.inner.User + "@127.0.0.1", "1 key"}},
		} {
			t.Run(name, func(t *testing.T) {
				refused(t, fresh(t, d), r.to(t, chain, c.change...), c.code, c.words...)
			})
		}
		t.Run("in a circle", func(t *testing.T) {
			within(t, 8*time.Second, "finding that out", func() {
				refused(t, fresh(t, d), r.to(t, "Host inner\n ProxyJump gate\nHost gate\n ProxyJump inner\n"), longstop.CodeUsage, "in a circle")
			})
		})
	})
}

// fresh is a dialer like another, with a folder of its own.
func fresh(t *testing.T, d Dialer) Dialer {
	if o, ok := d.(*OpenSSH); ok {
		return &OpenSSH{Dir: sshtest.ShortDir(t), AliveInterval: o.AliveInterval, AliveCountMax: o.AliveCountMax}
	}
	return d
}

// TestIPv6: addresses with colons, in each place in which one writes them.
func TestIPv6(t *testing.T) {
	if c, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("needs ::1: ", err)
	} else {
		c.Close()
	}
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		port := forward6(t, s.Addr)
		known := write(t, "known", "[::1]:"+port+" "+string(ssh.MarshalAuthorizedKey(s.HostKey)))
		block := func(host, more string) string {
			return fmt.Sprintf("Host %s\n%s  UserKnownHostsFile %s\n  IdentityFile %s\n  IdentitiesOnly yes\n  IdentityAgent none\n", host, more, known, s.KeyPath)
		}
		for name, c := range map[string]struct{ target, config string }{
			"HostName":     {"six", block("six", "  HostName ::1\n  Port "+port+"\n")},
			"the name":     {"::1", block("::1", "  Port "+port+"\n")},
			"user@address": {s.User + "@::1", block("::1", "  Port "+port+"\n")},
			"URI":          {"ssh://" + s.User + "@[::1]:" + port, block("::1", "")},
		} {
			t.Run(name, func(t *testing.T) {
				l, err := fresh(t, d).Dial(t.Context(), Target{Name: c.target, SSHConfig: write(t, "config", c.config)})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if got, err := Run(t.Context(), l, "exit 6", nil, 1); err != nil || got.Exit.Status != 6 || l.Facts().HostKey != s.HostKeyFP {
					t.Errorf("%+v, %v, %+v", got, err, l.Facts())
				}
			})
		}
		t.Run("not known", func(t *testing.T) {
			refused(t, fresh(t, d), Target{Name: "six", SSHConfig: write(t, "config", strings.ReplaceAll(block("six", "  HostName ::1\n  Port "+port+"\n"), known, "/dev/null"))},
				longstop.CodeHostKeyUnknown, s.HostKeyFP)
		})
	})
}

// forward6 listens on ::1 and passes connections on; it returns the port.
func forward6(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					pair[0].(*net.TCPConn).ReadFrom(pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// TestMatch: conditional settings hold as they do for ssh; where they cannot be judged they are not passed over.
func TestMatch(t *testing.T) {
	dialers(t, func(t *testing.T, d Dialer) {
		s := sshtest.Start(t, sshtest.Options{Go: true})
		_, port, _ := net.SplitHostPort(s.Addr)
		text, err := os.ReadFile(s.SSHConfig)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.Replace(string(text), "Port "+port, "", 1)
		for name, match := range map[string]string{
			"originalhost":   "Match originalhost " + s.Alias,
			"exec":           `Match exec "test %n = ` + s.Alias + `"`,
			"user, negated":  "Match !user nobody-at-all",
			"host, all that": "Match host 127.*",
		} {
			t.Run(name, func(t *testing.T) {
				// Match host is about what HostName says, which stands before.
				config := "Host " + s.Alias + "\n HostName 127.0.0.1\n" + match + "\n Port " + port + "\n" + rest
				to := Target{Name: s.Alias, SSHConfig: write(t, "config", config)}
				if e, ok := d.(*Embedded); ok && e.NoSSH {
					refused(t, d, to, longstop.CodeUsage, "cannot be read without an ssh binary")
					return
				}
				l, err := fresh(t, d).Dial(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if f := l.Facts(); f.HostKey != s.HostKeyFP || f.Key != s.KeyFP {
					t.Errorf("%+v", f)
				}
			})
		}
	})
}
