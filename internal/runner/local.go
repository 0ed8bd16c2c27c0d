package runner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/wire"
)

// The processes of one user on one host talk over Unix sockets in the state folder, which is theirs
// alone (0700), and check each other's user besides. A message is its length in four bytes, the
// highest first, and JSON. Who connects asks once and reads answers until one says it is the last.
//
// Sockets are os.Files without package net: the same poller and deadlines, a third of the memory.

// maxLocal bounds one message: a script of 5 MB in base64, with room.
const maxLocal = 64 << 20

// errNobody says that there is no socket, or that nobody listens on it.
var errNobody = errors.New("nobody listens")

// link is one end of a connection.
type link struct{ file *os.File }

func (l *link) close() { l.file.Close() }

// send writes one message, with descriptors beside its first byte.
func (l *link) send(message any, fds ...int) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if len(body) > maxLocal {
		return fmt.Errorf("send: a message of %d bytes", len(body))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	frame = append(frame, body...)
	if len(fds) > 0 {
		if err := l.sendWith(frame[:1], fds); err != nil {
			return fmt.Errorf("send descriptors: %w", err)
		}
		frame = frame[1:]
	}
	_, err = l.file.Write(frame)
	return err
}

func (l *link) sendWith(first []byte, fds []int) error {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), first, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return sent != unix.EAGAIN
	})
	return errors.Join(err, sent)
}

// receive reads one message. io.EOF: the other end went before its first byte.
func (l *link) receive(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(l.file, head[:]); err != nil {
		return err
	}
	return l.receiveBody(head, message)
}

func (l *link) receiveBody(head [4]byte, message any) error {
	length := binary.BigEndian.Uint32(head[:])
	if length > maxLocal {
		return fmt.Errorf("receive: a message of %d bytes", length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(l.file, body); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if err := wire.Tolerant(body, message); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

// receiveWith reads one message and exactly count descriptors that came with it, closed on exec.
func (l *link) receiveWith(message any, count int) ([]int, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var head [4]byte
	control := make([]byte, unix.CmsgSpace(4*count))
	var n, controlled int
	var got error
	err = raw.Read(func(fd uintptr) bool {
		n, controlled, _, _, got = unix.Recvmsg(int(fd), head[:1], control, unix.MSG_CMSG_CLOEXEC)
		return got != unix.EAGAIN
	})
	if err := errors.Join(err, got); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	fds, err := rights(control[:controlled])
	if err != nil || len(fds) != count {
		return fds, fmt.Errorf("receive: %d descriptors, not %d: %w", len(fds), count, err)
	}
	if _, err := io.ReadFull(l.file, head[1:]); err != nil {
		return fds, fmt.Errorf("receive: %w", err)
	}
	return fds, l.receiveBody(head, message)
}

func rights(control []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

// closed tells when the other end goes, or says something that nobody asked for.
func (l *link) closed() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		var b [1]byte
		l.file.Read(b[:])
		close(gone)
	}()
	return gone
}

// pair makes two connected ends: a link for ourselves, and a descriptor to give to a child.
func pair() (*link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	unix.SetNonblock(fds[1], false)
	return &link{os.NewFile(uintptr(fds[0]), "pair")}, os.NewFile(uintptr(fds[1]), "pair"), nil
}

// inheritedLink makes a link of a descriptor that this process was started with.
func inheritedLink(fd int) (*link, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	return &link{os.NewFile(uintptr(fd), "pair")}, nil
}

// socketName is the address of a socket in a folder that is open: its path may be longer than the
// 108 bytes that an address holds.
func socketName(dir int, name string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name}
}

// dial connects to a socket of this user's in a folder. errNobody: there is none, or nobody behind
// it; os.ErrDeadlineExceeded: somebody is, and takes no connections.
func dial(dir int, name string) (*link, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	for deadline := time.Now().Add(heardWithin); ; time.Sleep(time.Millisecond) {
		err = unix.Connect(fd, socketName(dir, name))
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
		if time.Now().After(deadline) { // its queue stays full: it is stopped, or stuck
			err = os.ErrDeadlineExceeded
			break
		}
	}
	if err == nil {
		err = samePeer(fd)
	}
	if err == nil {
		return &link{os.NewFile(uintptr(fd), name)}, nil
	}
	unix.Close(fd)
	if err == unix.ENOENT || err == unix.ECONNREFUSED {
		return nil, errNobody
	}
	return nil, fmt.Errorf("connect to %s: %w", name, err)
}

// peer is who is at the other end: for one who listens, the process that called listen(2).
func peer(fd int) (*unix.Ucred, error) {
	return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
}

// samePeer refuses another user's process.
func samePeer(fd int) error {
	cred, err := peer(fd)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the process at the other end (pid %d) is of user %d", cred.Pid, cred.Uid)
	}
	return nil
}

// listener is a socket in a folder that others connect to.
type listener struct {
	file *os.File
	dir  int
	name string
}

// listen makes the socket, in place of one that a dead process left. Whoever calls it holds the
// lock that makes it the only one to do so.
func listen(dir int, name string) (*listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	unix.Unlinkat(dir, name, 0)
	err = unix.Bind(fd, socketName(dir, name))
	if err == nil {
		err = unix.Fchmodat(dir, name, 0600, 0)
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	return &listener{os.NewFile(uintptr(fd), name), dir, name}, nil
}

// accept waits for the next connection of this user's.
func (l *listener) accept() (*link, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		fd := -1
		var got error
		err := raw.Read(func(s uintptr) bool {
			fd, got = acceptOne(int(s))
			return got != unix.EAGAIN
		})
		if err := errors.Join(err, got); err != nil {
			return nil, err
		}
		if samePeer(fd) == nil {
			return &link{os.NewFile(uintptr(fd), l.name)}, nil
		}
		unix.Close(fd)
	}
}

// waiting returns a connection that is there already, or nil, beside another goroutine's accept.
func (l *listener) waiting() *link {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	raw.Control(func(s uintptr) { fd, err = acceptOne(int(s)) })
	if err != nil {
		return nil
	}
	if samePeer(fd) != nil {
		unix.Close(fd)
		return l.waiting()
	}
	return &link{os.NewFile(uintptr(fd), l.name)}
}

func acceptOne(listening int) (int, error) {
	for {
		fd, _, err := unix.Accept4(listening, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != unix.EINTR && err != unix.ECONNABORTED {
			return fd, err
		}
	}
}

// remove takes the socket's name away: nobody finds it from here on.
func (l *listener) remove() { unix.Unlinkat(l.dir, l.name, 0) }

func (l *listener) close() {
	l.remove()
	l.file.Close()
}
