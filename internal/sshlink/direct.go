package sshlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// direct is a Channel that OpenSSH's master serves itself, as it does for an `ssh` that joins it: what
// the command writes goes from the master into a pipe that was handed to it, where a session on the
// connection in common is packed a second time by the master and unpacked here.
type direct struct {
	link    *link
	place   *place
	control *control
	ends    [3]*os.File // ours of its standard input, output and error

	known   chan struct{} // exit is set
	exit    Exit
	closing sync.Once
	closed  chan struct{}
}

// direct opens such a session. Its errors are those of exec.
func (l *link) direct(ctx context.Context, place *place, m *master, command string) (Channel, error) {
	d := &direct{link: l, place: place, known: make(chan struct{}), closed: make(chan struct{})}
	if err := d.open(ctx, m.socket, command); err != nil {
		return nil, d.notOpened(err)
	}
	place.confirm()
	go d.watch()
	return d, nil
}

// open asks the master for the session and hands it the pipes.
func (d *direct) open(ctx context.Context, socket, command string) error {
	var theirs [3]*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			d.closeEnds()
			return err
		}
		d.ends[i], theirs[i] = r, w
		if i == 0 {
			d.ends[i], theirs[i] = w, r
		}
	}
	widen(d.ends[1])
	c, err := dialControl(ctx, socket)
	if err != nil {
		d.closeEnds()
		return err
	}
	d.control = c
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	err = c.newSession(command, theirs)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.conn.Close()
		d.closeEnds()
	}
	return err
}

// notOpened says why a session did not open, and gives back its place unless it is to be asked for again.
func (d *direct) notOpened(err error) error {
	l := d.link
	var rejected *ssh.OpenChannelError
	if errors.As(err, &rejected) {
		return &refusal{rejected, d.place.refused()}
	}
	d.place.cancel()
	if l.isLost() {
		return l.lost(err)
	}
	l.pulse.check()
	return &longstop.Error{Code: longstop.CodeTimeout, Message: l.name + ": the ssh master opened no session; the command may have started", Err: err}
}

// watch reads what the master says of the session until its end, then gives its place back.
func (d *direct) watch() {
	defer d.control.conn.Close()
	for {
		kind, body, err := d.control.receive()
		if err != nil {
			break
		}
		if kind == muxExit && len(body) >= 8 {
			d.settle(Exit{State: longstop.SSHExited, Status: int(binary.BigEndian.Uint32(body[4:]))})
		}
	}
	select {
	case <-d.known:
	case <-d.closed: // sshd ends it once the command has met its closed output
		d.settle(Exit{State: longstop.SSHNoStatus})
	case <-d.link.gone:
		d.settle(Exit{State: longstop.SSHLost})
	case <-time.After(muxPatience): // a connection that ends takes a moment to be known to have
		d.settle(Exit{State: longstop.SSHNoStatus})
	}
	d.place.leave()
}

// settle is watch's alone.
func (d *direct) settle(e Exit) {
	select {
	case <-d.known:
	default:
		d.exit = e
		d.place.end()
		close(d.known)
	}
}

func (d *direct) Stdin() Stdin      { return d.ends[0] }
func (d *direct) Stdout() io.Reader { return d.ends[1] }
func (d *direct) Stderr() io.Reader { return d.ends[2] }

func (d *direct) Wait() Exit {
	select {
	case <-d.known:
		return d.exit
	case <-d.closed:
		return Exit{State: longstop.SSHNoStatus}
	}
}

func (d *direct) Close() error {
	d.closing.Do(func() {
		close(d.closed)
		d.control.conn.Close()
		d.closeEnds()
	})
	return nil
}

func (d *direct) closeEnds() {
	for _, f := range d.ends {
		f.Close()
	}
}

// newSession asks for a session whose standard input, output and error are the files. A refusal, most
// often the server's, is an *ssh.OpenChannelError.
func (c *control) newSession(command string, files [3]*os.File) error {
	c.last++
	words := []uint32{muxNewSession, c.last, 0 /* reserved: an empty string */, 0 /* no terminal */, 0 /* no X11 */, 0, /* no agent */
		0 /* no subsystem */, 0xffffffff /* no escape character */, 0 /* no terminal's name */, uint32(len(command))}
	packet := binary.BigEndian.AppendUint32(nil, uint32(4*len(words)+len(command)))
	for _, w := range words {
		packet = binary.BigEndian.AppendUint32(packet, w)
	}
	if _, err := c.conn.Write(append(packet, command...)); err != nil {
		return err
	}
	for _, f := range files {
		if err := c.handOver(f); err != nil {
			return err
		}
	}
	kind, body, err := c.receive()
	switch {
	case err != nil:
		return err
	case len(body) < 4 || binary.BigEndian.Uint32(body) != c.last:
		return fmt.Errorf("the ssh master answered another request, with %#x", kind)
	case kind == muxOpened:
		return nil
	case kind == muxFailure || kind == muxDenied:
		said := ""
		if len(body) >= 8 {
			said = string(body[8:min(len(body), 8+int(binary.BigEndian.Uint32(body[4:])))])
		}
		return &ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: said}
	}
	return fmt.Errorf("the ssh master answered a new session with %#x", kind)
}

// handOver sends a file's descriptor beside one byte (unix(7), SCM_RIGHTS).
func (c *control) handOver(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, _, failed = c.conn.(*net.UnixConn).WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, failed)
}
