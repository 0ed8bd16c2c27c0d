package sshlink

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// writeTimeout bounds one write to the socket beneath a connection. No peer that is alive makes
// it wait: OpenSSH's master takes what it gets, and a TCP link that moves nothing for this long is
// dead by the keepalive as well.
const writeTimeout = 20 * time.Second

// guarded is the socket beneath a connection. It bounds writes, and notes the connection's end
// before x/crypto learns of it: its sessions end the same way whether the server closed them or
// the connection broke, and failed tells which.
type guarded struct {
	net.Conn
	failed atomic.Bool

	full atomic.Bool // head is
	mu   sync.Mutex
	head []byte // of what was read
}

// longestHead is how much is kept of what a server says first.
const longestHead = 256

// said is what the server said first, and whether its banner is in it. A banner may follow other lines (RFC 4253 §4.2).
func (g *guarded) said() (before string, banner bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := "\n" + string(g.head)
	before, _, banner = strings.Cut(lines, "\nSSH-")
	return strings.TrimPrefix(before, "\n"), banner || len(g.head) == longestHead
}

func (g *guarded) keep(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.head = append(g.head, p[:min(len(p), longestHead-len(g.head))]...)
	g.full.Store(len(g.head) == longestHead)
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 && !g.full.Load() {
		g.keep(p[:n])
	}
	if err != nil {
		g.failed.Store(true)
	}
	return n, err
}

// Write closes the connection when it fails: part of a packet may have gone out.
func (g *guarded) Write(p []byte) (int, error) {
	g.Conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := g.Conn.Write(p)
	if err != nil {
		g.Close()
	}
	return n, err
}

func (g *guarded) Close() error {
	g.failed.Store(true)
	return g.Conn.Close()
}
