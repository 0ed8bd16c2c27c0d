package sshlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Messages of OpenSSH's multiplexing protocol (PROTOCOL.mux in its sources) about a master itself, and
// about sessions that it serves itself.
const (
	muxHello      = 0x00000001
	muxNewSession = 0x10000002
	muxAlive      = 0x10000004
	muxTerminate  = 0x10000005
	muxOK         = 0x80000001
	muxDenied     = 0x80000002
	muxFailure    = 0x80000003
	muxExit       = 0x80000004
	muxIsAlive    = 0x80000005
	muxOpened     = 0x80000006

	muxVersion  = 4
	muxLongest  = 64 << 10 // bytes of a message that make sense here
	muxPatience = time.Second
)

// control is a connection to a master's socket beside the one that carries sessions: it asks about the
// master, or has one session of the master's own. Its methods are for one goroutine at a time.
type control struct {
	conn net.Conn
	last uint32 // request id
}

// dialControl connects to a master; ctx bounds the handshake.
func dialControl(ctx context.Context, socket string) (*control, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c := &control{conn: conn}
	if err := c.hello(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the ssh master: %w", err)
	}
	return c, nil
}

func (c *control) hello() error {
	if err := c.send(muxHello, muxVersion); err != nil {
		return err
	}
	kind, body, err := c.receive()
	if err != nil {
		return err
	}
	if kind != muxHello || len(body) < 4 || binary.BigEndian.Uint32(body) != muxVersion {
		return errors.New("it speaks another multiplexing protocol")
	}
	return nil
}

// alive asks whether the master serves its socket, for as long as the answer takes.
func (c *control) alive() error { return c.ask(muxAlive, muxIsAlive) }

// terminate asks the master to exit, and waits a while for its consent.
func (c *control) terminate() error {
	c.conn.SetDeadline(time.Now().Add(muxPatience))
	return c.ask(muxTerminate, muxOK)
}

// ended waits until the master closes the connection, as its exit does.
func (c *control) ended(within time.Duration) bool {
	c.conn.SetReadDeadline(time.Now().Add(within))
	for {
		if _, _, err := c.receive(); err != nil {
			var timeout net.Error
			return !errors.As(err, &timeout) || !timeout.Timeout()
		}
	}
}

func (c *control) ask(request, want uint32) error {
	c.last++
	if err := c.send(request, c.last); err != nil {
		return err
	}
	kind, body, err := c.receive()
	if err != nil {
		return err
	}
	if kind != want || len(body) < 4 || binary.BigEndian.Uint32(body) != c.last {
		return fmt.Errorf("the ssh master answered request %#x with %#x", request, kind)
	}
	return nil
}

func (c *control) send(words ...uint32) error {
	packet := binary.BigEndian.AppendUint32(nil, uint32(4*len(words)))
	for _, w := range words {
		packet = binary.BigEndian.AppendUint32(packet, w)
	}
	_, err := c.conn.Write(packet)
	return err
}

func (c *control) receive() (kind uint32, body []byte, err error) {
	var length [4]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 4 || n > muxLongest {
		return 0, nil, fmt.Errorf("a message of %d bytes from the ssh master", n)
	}
	packet := make([]byte, n)
	if _, err := io.ReadFull(c.conn, packet); err != nil {
		return 0, nil, err
	}
	return binary.BigEndian.Uint32(packet), packet[4:], nil
}
