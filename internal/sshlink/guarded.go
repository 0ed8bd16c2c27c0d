package sshlink

import (
	"net"
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
	got    atomic.Bool // anything was read
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 && !g.got.Load() {
		g.got.Store(true)
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
