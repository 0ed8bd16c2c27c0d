package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/longstop/longstop"
)

// This file is HTTP/1.1 (RFC 9112) as one client of one server needs it: a connection per request,
// no redirects, no compression. The standard library's client costs a third of a
// millisecond at each start of the command, whose whole life may be seven.

// ErrGone says that the gateway went away, or stopped answering, in the middle of an exchange.
// What it was asked to do may or may not have happened.
var ErrGone = errors.New("the gateway went away")

// defaultPatience is for answers that may have to ask a host: a connection made from cold, and a look.
const defaultPatience = 2 * time.Minute

// maxHeader bounds an answer's status line and headers; maxJSON a body that is read whole.
const (
	maxHeader = 64 << 10
	maxJSON   = 64 << 20
)

// request is one request. Body nil sends none; Length < 0 sends it in chunks.
type request struct {
	method, path string
	contentType  string
	token        string // of an agent, or empty
	body         io.Reader
	length       int64
	again        bool          // asking twice does no harm: do so when a dying gateway answers nothing
	patience     time.Duration // from the request's last byte to the answer's head; 0: defaultPatience
}

// response is an answer whose body has not been read. Close it.
type response struct {
	status int
	kind   string // Content-Type without parameters
	api    string // Longstop-API
	body   io.Reader
	conn   net.Conn
	in     *patient
	stop   func() bool
}

func (r *response) Close() {
	r.stop()
	r.conn.Close()
}

// send makes one exchange on the connection, which it owns from here. Ending ctx closes it.
func send(ctx context.Context, conn net.Conn, q request) (*response, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	fail := func(err error) (*response, error) {
		stop()
		conn.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	writeErr := writeRequest(conn, q)
	if unread := (*unreadable)(nil); errors.As(writeErr, &unread) {
		return fail(unread) // the server sees a body that breaks off, and refuses it
	}
	if writeErr != nil && q.body == nil {
		return fail(fmt.Errorf("%w: %w", ErrGone, writeErr))
	}
	// A server that refuses a body answers before it has read all of it: read that answer, though
	// the writing failed.
	patience := q.patience
	if patience == 0 {
		patience = defaultPatience
	}
	in := &patient{conn: conn, patience: patience}
	r, err := readResponse(in)
	in.patience = 0
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return fail(fmt.Errorf("%w: %w", ErrGone, err))
	}
	r.conn, r.in, r.stop = conn, in, stop
	return r, nil
}

func writeRequest(conn net.Conn, q request) error {
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: longstop\r\nConnection: close\r\n%s: %d\r\n",
		q.method, q.path, longstop.APIHeader, longstop.APIVersion)
	if q.token != "" {
		head.WriteString("Authorization: Bearer " + q.token + "\r\n")
	}
	if q.contentType != "" {
		head.WriteString("Content-Type: " + q.contentType + "\r\n")
	}
	if q.body == nil {
		head.WriteString("\r\n")
		_, err := conn.Write(head.Bytes())
		return err
	}
	if q.length >= 0 {
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", q.length)
		if _, err := io.CopyN(&head, q.body, q.length); err != nil {
			return &unreadable{err}
		}
		_, err := conn.Write(head.Bytes())
		return err
	}
	head.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	if _, err := conn.Write(head.Bytes()); err != nil {
		return err
	}
	return writeChunks(conn, q.body)
}

// writeChunks sends body in chunks. A body that cannot be read to its end is left unterminated, so
// that the server never takes a part of it for the whole.
func writeChunks(conn io.Writer, body io.Reader) error {
	const room = 10 // for a length in hex and CR LF
	buffer := make([]byte, room+256<<10)
	for {
		n, err := body.Read(buffer[room : len(buffer)-2])
		if n > 0 {
			size := strconv.FormatInt(int64(n), 16) + "\r\n"
			start := room - len(size)
			copy(buffer[start:], size)
			copy(buffer[room+n:], "\r\n")
			if _, err := conn.Write(buffer[start : room+n+2]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			_, err = io.WriteString(conn, "0\r\n\r\n")
			return err
		}
		if err != nil {
			return &unreadable{err}
		}
	}
}

// unreadable is a body of ours that could not be read to its end.
type unreadable struct{ why error }

func (u *unreadable) Error() string { return "read what to send: " + u.why.Error() }
func (u *unreadable) Unwrap() error { return u.why }

// readResponse reads a status line and headers, and leaves the body to be read.
func readResponse(conn io.Reader) (*response, error) {
	in := bufio.NewReaderSize(conn, maxHeader)
	line, err := headerLine(in)
	if err != nil {
		return nil, err
	}
	proto, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || !strings.HasPrefix(proto, "HTTP/1.") {
		return nil, fmt.Errorf("not an HTTP answer: %.80q", line)
	}
	r := &response{status: status}
	length, chunked := int64(-1), false
	for total := len(line); ; {
		line, err := headerLine(in)
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		if total += len(line); total > maxHeader {
			return nil, errors.New("headers too long")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("bad header line %.80q", line)
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.ParseInt(value, 10, 63); err != nil || length < 0 {
				return nil, fmt.Errorf("bad Content-Length %.40q", value)
			}
		case "transfer-encoding":
			if chunked = strings.EqualFold(value, "chunked"); !chunked {
				return nil, fmt.Errorf("transfer coding %.40q is not known", value)
			}
		case "content-type":
			r.kind, _, _ = strings.Cut(value, ";")
		case strings.ToLower(longstop.APIHeader):
			r.api = value
		}
	}
	switch {
	case status == 204:
		r.body = strings.NewReader("")
	case chunked:
		r.body = &chunks{in: in}
	case length >= 0:
		r.body = &exactly{in: in, left: length}
	default:
		return nil, errors.New("an answer without a length")
	}
	return r, nil
}

func headerLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
}

// exactly reads a body of known length; an early end is an error, never a short body.
type exactly struct {
	in   *bufio.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > e.left {
		p = p[:e.left]
	}
	n, err := e.in.Read(p)
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunks reads a chunked body (RFC 9112 §7.1); an early end is an error, never a short body.
type chunks struct {
	in   *bufio.Reader
	left int64
	open bool // inside a chunk whose closing CR LF is still to come
	done bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
		if c.done {
			return 0, io.EOF
		}
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.in.Read(p)
	c.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads up to the next chunk's first byte, or past the last chunk.
func (c *chunks) next() error {
	if c.open {
		if line, err := headerLine(c.in); err != nil || line != "" {
			return errors.Join(err, errors.New("a chunk that does not end where it says"))
		}
		c.open = false
	}
	line, err := headerLine(c.in)
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(line, ";")
	c.left, err = strconv.ParseInt(size, 16, 63)
	if err != nil || c.left < 0 {
		return fmt.Errorf("bad chunk length %.40q", line)
	}
	if c.left > 0 {
		c.open = true
		return nil
	}
	for { // trailers, none of which we know
		line, err := headerLine(c.in)
		if err != nil {
			return err
		}
		if line == "" {
			c.done = true
			return nil
		}
	}
}

// dial connects to the gateway's socket and makes sure that it is this user's own process that
// listens there.
func dial(socket string) (net.Conn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: socket}) // at once, or not at all: unix(7)
	if err != nil {
		return nil, err
	}
	uid, err := peerUID(conn)
	if err == nil && uid != os.Getuid() {
		err = &longstop.Error{Code: longstop.CodeAccessRefused,
			Message: fmt.Sprintf("the socket %s is served by uid %d, you are uid %d", socket, uid, os.Getuid()),
			Hint:    "set LONGSTOP_HOME to a folder of your own"}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// peerUID is who listens, or listened when the socket was made (SO_PEERCRED, unix(7)).
func peerUID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, optErr); err != nil {
		return 0, fmt.Errorf("ask who listens: %w", err)
	}
	return int(cred.Uid), nil
}

// readJSON reads a whole JSON body.
func (r *response) readJSON(into any) error {
	data, err := io.ReadAll(io.LimitReader(r.body, maxJSON+1))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if len(data) > maxJSON {
		return &longstop.Error{Code: longstop.CodeBadAnswer, Message: "the gateway's answer is too long"}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &longstop.Error{Code: longstop.CodeBadAnswer, Message: "the gateway's answer cannot be read", Err: err}
	}
	return nil
}

// problem reads an error answer (RFC 9457).
func (r *response) problem() error {
	var p longstop.Problem
	if err := r.readJSON(&p); err != nil || p.Code == "" {
		return &longstop.Error{Code: longstop.CodeBadAnswer, Err: err,
			Message: fmt.Sprintf("the gateway answered %d without saying why", r.status)}
	}
	return &longstop.Error{Code: p.Code, Message: p.Detail, Hint: p.Hint, ActionID: p.ActionID, Noise: p.Noise}
}

// stall is how long a connection may be silent while an answer with heartbeats is read.
const stall = 2 * longstop.FollowBeatEvery

// patient reads from a connection, waiting a while for each piece; 0: for ever.
type patient struct {
	conn     net.Conn
	patience time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if p.patience == 0 {
		p.conn.SetReadDeadline(time.Time{})
		return p.conn.Read(b)
	}
	p.conn.SetReadDeadline(time.Now().Add(p.patience))
	n, err := p.conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		// Who was stopped meanwhile (^Z), or slept with the machine, finds the deadline passed and the
		// other side well: it gets another moment.
		p.conn.SetReadDeadline(time.Now().Add(min(p.patience, longstop.FollowBeatEvery)))
		n, err = p.conn.Read(b)
	}
	return n, err
}
