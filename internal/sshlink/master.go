package sshlink

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// A master's files in OpenSSH.Dir are NAME.sock and NAME.log.
const (
	socketSuffix = ".sock"
	logSuffix    = ".log"
	// ssh binds its socket under a temporary name, 17 bytes longer, in an address of 108 with its
	// final zero (unix(7)).
	longestSocket = 108 - 1 - 17
	nameBytes     = 12 // of NAME
	longestDir    = longestSocket - len("/") - nameBytes - len(socketSuffix)
	longestLog    = 1 << 20
)

// master is an ssh of ours that holds a connection open and serves its control socket.
type master struct {
	socket, log string
	cmd         *exec.Cmd
	child       *child
	control     *control
	loggedIn    atomic.Int64 // bytes of the log that are about the login
	final       string       // the log, once the master is gone and its files are
}

// startMaster runs ssh in a session of its own: an interrupt typed at our terminal is not for it,
// and it has no terminal to ask anything at. Where the kernel can see to it, it ends with this process,
// however that ends; sweep finds what does not. Its stderr is a file: whoever inherits that (a
// ProxyCommand, a jump host's ssh) holds up nobody.
func startMaster(dir, path string, args []string, to Target) (*master, error) {
	name := masterName(to)
	m := &master{socket: filepath.Join(dir, name+socketSuffix), log: filepath.Join(dir, name+logSuffix)}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m.cmd = exec.Command(path, append([]string{"-M", "-S", m.socket}, args...)...)
	m.cmd.Stderr = log
	m.cmd.Stdout = log
	// A jump host's ssh is started without our options: without a terminal it would ask on a screen.
	m.cmd.Env = append(os.Environ(), "SSH_ASKPASS_REQUIRE=never", "SSH_ASKPASS=/bin/false")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startBound(m.cmd); err != nil {
		os.Remove(m.log)
		return nil, err
	}
	m.child = watchChild(m.cmd)
	return m, nil
}

// circleAfter is how long a login through jump hosts may take before it is found out whether they go in a
// circle: ssh would start itself again and again. Not at once: to ask runs the commands of Match exec once more.
const circleAfter = 700 * time.Millisecond

func (m *master) circular(ctx context.Context, to Target) bool {
	login := parseLog(m.text())
	if login.jump == "" || login.software != "" {
		return false
	}
	_, err := (&Embedded{}).route(ctx, to, 0)
	return errors.Is(err, errCircle)
}

// masterName is short, since a socket's path is, and the same in its first half for one target.
func masterName(to Target) string {
	sum := sha256.Sum256([]byte(to.Name + "\x00" + to.SSHConfig))
	var random [3]byte
	rand.Read(random[:])
	return hex.EncodeToString(append(sum[:3:3], random[:]...))
}

// isMasterName tells a master's files from others that a folder may hold.
func isMasterName(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == nameBytes
}

var errMasterExited = errors.New("ssh ended")

// ready waits until the master is logged in: it makes its socket then.
func (m *master) ready(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(m.socket); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-m.child.exited:
			return errMasterExited
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect opens the connection that carries sessions, and the one that asks about the master. All
// sessions share one, for as long as the master lives: it exits when a connection goes on which a
// session was refused, or has not been answered yet.
func (m *master) connect(ctx context.Context) (*guarded, ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	var err error
	if m.control, err = dialControl(ctx, m.socket); err != nil {
		return nil, nil, nil, nil, err
	}
	socket, err := (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	wire := &guarded{Conn: socket}
	stop := context.AfterFunc(ctx, func() { wire.Close() })
	defer stop()
	conn, channels, requests, err := ssh.NewControlClientConn(wire)
	if err != nil {
		wire.Close()
		return nil, nil, nil, nil, err
	}
	return wire, conn, channels, requests, nil
}

// end makes the master go away, by asking it, then by its own process id, which stays its own
// until we reap it; and removes its files. A silent one is stopped or stuck, and not asked.
func (m *master) end(silent bool) {
	if !silent {
		if m.control != nil {
			// The pulse may be asking at this moment: a second connection has its own answers.
			go m.askToExit()
		}
		if !m.within(muxPatience) {
			m.child.signal(syscall.SIGTERM)
			m.within(muxPatience / 2)
		}
	}
	// With it ends what it started in its session: a ProxyCommand, a jump host's ssh.
	m.child.signalGroup(syscall.SIGKILL)
	m.within(5 * muxPatience) // a process that the kernel holds dies when it lets go, and is reaped then
	if m.control != nil {
		m.control.conn.Close()
	}
	m.final = m.text()
	os.Remove(m.socket)
	os.Remove(m.log)
}

func (m *master) bury(reason error) error {
	m.end(errors.Is(reason, errSilent))
	return m.lastWords(reason)
}

func (m *master) askToExit() {
	ctx, cancel := context.WithTimeout(context.Background(), muxPatience)
	defer cancel()
	c, err := dialControl(ctx, m.socket)
	if err != nil {
		return // it is exiting, or will be signalled
	}
	c.terminate()
	c.conn.Close()
}

func (m *master) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-m.child.exited:
		return true
	case <-timer.C:
		return false
	}
}

// text is what the master logged so far.
func (m *master) text() string {
	data, err := os.ReadFile(m.log)
	if err != nil {
		return ""
	}
	return string(data)
}

// alive asks the master, and keeps its log from growing for ever: ssh appends, so a log that was
// cut goes on at its new end.
func (m *master) alive() error {
	if info, err := os.Stat(m.log); err == nil && info.Size() > longestLog {
		m.loggedIn.Store(0)
		os.Truncate(m.log, 0)
	}
	return m.control.alive()
}

// lastWords says why the master ended, which it has.
func (m *master) lastWords(reason error) error {
	if errors.Is(reason, errSilent) {
		return fmt.Errorf("the ssh master gives %w", reason)
	}
	said := plainLines(m.final[min(int(m.loggedIn.Load()), len(m.final)):])
	if len(said) > 0 {
		return errors.New(said[len(said)-1])
	}
	if state, reaped := m.child.state(); reaped && !state.Exited() {
		return fmt.Errorf("the ssh master ended: %v", state)
	}
	if errors.Is(reason, io.EOF) {
		return m.wordless(reason)
	}
	return reason
}

// wordless is the end of a master that told nobody why: how it exited, and where its log ends.
func (m *master) wordless(reason error) error {
	how := "the ssh master closed it"
	if state, reaped := m.child.state(); reaped {
		how = fmt.Sprintf("the ssh master ended: %v", state)
	}
	lines := strings.Split(strings.TrimSpace(m.final), "\n")
	return fmt.Errorf("%s without a word (%q): %w", how, printable(lines[len(lines)-1]), reason)
}

// checkDir makes the folder of sockets and logs, and refuses one that others can reach.
func checkDir(dir string) error {
	if len(dir) > longestDir {
		return &longstop.Error{Code: longstop.CodeUsage,
			Message: fmt.Sprintf("the path of the folder for ssh's sockets is too long: %s has %d bytes, and a socket's name leaves room for %d", dir, len(dir), longestDir),
			Hint:    "choose a shorter LONGSTOP_HOME"}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "make the folder for ssh's sockets", Err: err}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "look at the folder for ssh's sockets", Err: err}
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || owner == nil || int(owner.Uid) != os.Geteuid() {
		return &longstop.Error{Code: longstop.CodeUsage,
			Message: fmt.Sprintf("the folder for ssh's sockets must be a folder of this user's own with mode 0700: %s is %v", dir, info.Mode()),
			Hint:    "chmod 700 " + dir}
	}
	return nil
}

// checkName refuses what ssh would take for something else than a host.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return &longstop.Error{Code: longstop.CodeUsage,
			Message: fmt.Sprintf("%q cannot be the name of a host: give what you would type after ssh", name)}
	}
	return nil
}
