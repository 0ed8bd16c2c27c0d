package sshlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// Embedded dials without an ssh binary. It knows of ssh_config: HostName, Port, User,
// IdentityFile, IdentitiesOnly, IdentityAgent, UserKnownHostsFile, GlobalKnownHostsFile,
// HostKeyAlias, ProxyJump. Where there is an ssh all the same, `ssh -G` reads the configuration;
// elsewhere Match exec and the like are refused rather than ignored.
type Embedded struct {
	MaxSessions   int           // as OpenSSH.MaxSessions
	AliveInterval time.Duration // as OpenSSH.AliveInterval, by keepalive@openssh.com
	AliveCountMax int
	NoSSH         bool // never ask ssh -G
}

// Dial connects, checks the host key and logs in.
func (d *Embedded) Dial(ctx context.Context, to Target) (Link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := checkName(to.Name); err != nil {
		return nil, err
	}
	hops, err := d.hops(ctx, to)
	if err != nil {
		return nil, err
	}
	return persist(ctx, func() (Link, error) { return d.dial(ctx, to, hops) })
}

// dial makes the connections of a route, each through the one before.
func (d *Embedded) dial(ctx context.Context, to Target, hops []settings) (Link, error) {
	t := &tunnel{}
	// Closing the first connection frees whatever waits on those inside it.
	stop := context.AfterFunc(ctx, t.close)
	defer stop()
	for i, hop := range hops {
		last := i == len(hops)-1
		l := &login{to: to, hop: hop, jump: !last}
		if err := l.connect(ctx, t); err != nil {
			t.close()
			return nil, l.explain(ctx, err)
		}
		if last {
			return d.join(l, t), nil
		}
	}
	panic("unreachable: a route has a last hop")
}

func (d *Embedded) join(l *login, t *tunnel) *link {
	link := &link{name: l.to.Name, conn: l.conn, wire: l.wire, carrier: t, facts: l.facts(), places: newPlaces(d.MaxSessions, l.to.Limit),
		pulse: newPulse(d.AliveInterval, d.AliveCountMax, func() error {
			_, _, err := l.conn.SendRequest("keepalive@openssh.com", true, nil)
			return err // refused is an answer, too
		})}
	link.begin(l.channels, l.requests)
	return link
}

// errCircle says that a jump host is reached through itself.
var errCircle = errors.New("its jump hosts go in a circle")

func circle(to Target) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: to.Name + ": " + errCircle.Error(),
		Hint: "see what ProxyJump says of it and of each: " + to.Command("-G")}
}

// hops is the route to a target.
func (d *Embedded) hops(ctx context.Context, to Target) ([]settings, error) {
	hops, err := d.route(ctx, to, 0)
	if errors.Is(err, errCircle) {
		err = circle(to)
	}
	return hops, err
}

// route resolves a target and its jump hosts, in the order in which to connect.
func (d *Embedded) route(ctx context.Context, to Target, depth int) ([]settings, error) {
	const deepest = 8
	if depth > deepest {
		return nil, errCircle
	}
	s, err := d.resolve(ctx, to)
	if err != nil {
		return nil, err
	}
	if command := s.first("proxycommand"); command != "" && command != "none" {
		return nil, &longstop.Error{Code: longstop.CodeUnsupported,
			Message: to.Name + ": its ssh_config has a ProxyCommand, which the embedded transport does not run",
			Hint:    "enrol the host with --transport openssh"}
	}
	var hops []settings
	if jumps := s.first("proxyjump"); jumps != "" && jumps != "none" {
		for i, name := range strings.Split(jumps, ",") {
			hop, err := d.route(ctx, Target{Name: jumpName(name), SSHConfig: to.SSHConfig}, depth+1)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				hop = hop[len(hop)-1:] // named after another: reached through that one
			}
			hops = append(hops, hop...)
		}
	}
	return append(hops, s), nil
}

func (d *Embedded) resolve(ctx context.Context, to Target) (settings, error) {
	if path, err := exec.LookPath("ssh"); err == nil && !d.NoSSH {
		return resolveBySSH(ctx, path, to)
	}
	return resolveHere(to)
}

// jumpName writes [user@]host:port of ProxyJump as a target.
func jumpName(name string) string {
	name = strings.TrimSpace(name)
	if strings.HasPrefix(name, "ssh://") || !strings.Contains(name, ":") {
		return name
	}
	return "ssh://" + name
}

// tunnel is a chain of connections, each through the one before.
type tunnel struct {
	via *ssh.Client // the innermost so far

	mu     sync.Mutex
	root   net.Conn // the outermost: closing it ends them all
	closed bool
}

func (t *tunnel) dial(ctx context.Context, addr string) (*guarded, error) {
	if t.via != nil {
		conn, err := t.via.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return &guarded{Conn: conn}, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wire := &guarded{Conn: conn}
	if t.root = wire; t.closed {
		wire.Close()
	}
	return wire, nil
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed = true; t.root != nil {
		t.root.Close()
	}
}

func (t *tunnel) bury(reason error) error {
	t.close()
	switch {
	case errors.Is(reason, errSilent):
		return fmt.Errorf("the server gives %w", reason)
	case errors.Is(reason, io.EOF):
		return errors.New("the server closed it")
	}
	return reason
}

// login is one connection on its way to being authenticated, and what was learnt on it.
type login struct {
	to   Target // whom it is all for
	hop  settings
	jump bool

	wire     *guarded
	conn     ssh.Conn
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request

	keys    *keyring
	hostKey ssh.PublicKey
	hostErr error
	allowed []string // methods that the server takes, and those it took without being content
	partial []string
}

func (l *login) connect(ctx context.Context, t *tunnel) error {
	var err error
	if l.wire, err = t.dial(ctx, l.addr()); err != nil {
		return err
	}
	config, err := l.config(ctx)
	if err != nil {
		return err
	}
	defer l.keys.close()
	l.conn, l.channels, l.requests, err = ssh.NewClientConn(l.wire, l.addr(), config)
	if err != nil {
		return err
	}
	if l.jump {
		t.via = ssh.NewClient(l.conn, l.channels, l.requests)
	}
	return nil
}

func (l *login) addr() string { return net.JoinHostPort(l.hop.first("hostname"), l.hop.first("port")) }

func (l *login) config(ctx context.Context) (*ssh.ClientConfig, error) {
	known, err := l.hop.knownHosts()
	if err != nil {
		return nil, err
	}
	name := l.addr()
	if alias := l.hop.first("hostkeyalias"); alias != "" {
		name = alias + ":22" // an alias stands for itself, whatever the port
	}
	check := known.HostKeyCallback()
	l.keys = openKeyring(ctx, l.hop)
	return &ssh.ClientConfig{
		User: l.hop.first("user"),
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(l.keys.signers)},
		// The algorithms of the keys we hold: a server with several keys is to show one of those.
		HostKeyAlgorithms: hostKeyAlgorithms(known, name),
		HostKeyCallback: func(_ string, remote net.Addr, key ssh.PublicKey) error {
			l.hostKey = key
			l.hostErr = check(name, remote, key)
			return l.hostErr
		},
		AuthCallback: func(c *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
			l.allowed, l.partial = c.AllowedMethods, c.PartialSuccessMethods
			return nil, nil
		},
	}, nil
}

func (l *login) facts() Facts {
	f := Facts{Auth: "publickey", Key: l.keys.signed, HostKey: fingerprint(l.hostKey),
		Server: strings.TrimPrefix(string(l.conn.ServerVersion()), "SSH-2.0-")}
	if f.Key == "" {
		f.Auth = "none"
	}
	return f
}

// fingerprint is a key's, or that of the key in a certificate, as ssh shows it.
func fingerprint(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	return ssh.FingerprintSHA256(key)
}

func (l *login) name() string {
	if l.jump {
		return fmt.Sprintf("%s: jump host %s", l.to.Name, l.addr())
	}
	return l.to.Name
}
