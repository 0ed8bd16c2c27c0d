// Package sshlink is the way to a host: SSH connections, the sessions on them, and exact facts
// about both. Two transports stand behind one seam. OpenSSH starts a master connection with the
// user's own ssh and speaks through it, so that everything in their ssh_config holds and no
// private key enters this process. Embedded speaks SSH itself, for machines without an ssh binary.
//
// The rule it keeps: nothing hangs past a deadline. A dead, cut, frozen or stopped peer, at
// whichever end, closes Link.Done within a known bound, and Close unblocks at once whoever reads,
// writes or waits. What it refuses: to run a command without a checked host key, to ask anybody
// for a password, and to guess. A session that ended without a status says so.
package sshlink

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// Target is a host as the user would name it to ssh.
type Target struct {
	Name      string // what one types after ssh: an alias, a host, user@host, ssh://user@host:port
	SSHConfig string // absolute path, for ssh -F; empty: the user's own configuration
	Limit     *Limit // of the server's sessions, where connections to it share what they learn; may be nil
}

// Command is what a person would type to reach the same host with ssh.
func (to Target) Command(flags ...string) string {
	words := append([]string{"ssh"}, flags...)
	if to.SSHConfig != "" {
		words = append(words, "-F", to.SSHConfig)
	}
	return strings.Join(append(words, to.Name), " ")
}

// Dialer connects to hosts. ctx bounds the whole of dialling: connecting, banner, key exchange,
// login. The Link outlives it. Errors are *longstop.Error.
type Dialer interface {
	Dial(ctx context.Context, to Target) (Link, error)
}

// Link is one authenticated connection to a host. Its methods may be called from any goroutine.
type Link interface {
	// Exec opens a session and starts command in it; ctx bounds the opening alone. Errors are
	// *longstop.Error:
	//
	//   - CodeSessionRefused: no session is free, here or on the server. The Link is sound; try
	//     later, or over another Link. Nothing was started.
	//   - CodeUnreachable: the connection went away, or ctx ended, before the command was sent.
	//     Nothing was started.
	//   - CodeTimeout: the command was sent and the answer did not come. It may have started.
	//   - CodeUnsupported: the server refuses to run commands.
	Exec(ctx context.Context, command string) (Channel, error)
	// ExecKept is Exec for what must get through, as stopping must: it alone may take the last
	// session that the connection may have.
	ExecKept(ctx context.Context, command string) (Channel, error)
	// Stream is Exec for a command that writes much, at the rate of `ssh` itself. Its outputs end with
	// io.EOF also where the connection was lost: their end is to be known by what they say.
	Stream(ctx context.Context, command string) (Channel, error)
	// Facts says how the connection was made.
	Facts() Facts
	// Sessions counts the sessions that the server may still count: those whose end it has not
	// confirmed, closed here or not.
	Sessions() int
	// Done is closed when the connection is gone, for whatever reason.
	Done() <-chan struct{}
	// Err says why the connection is gone, as a *longstop.Error; nil before Done is closed, and
	// after Close.
	Err() error
	// Close ends the connection and all sessions on it, and waits, within a bound, until what
	// serves it on this machine is gone. Remote processes are not told to stop.
	Close() error
}

// Channel is one session and the command in it.
type Channel interface {
	// Stdin is the command's standard input; closing it sends end-of-file.
	Stdin() Stdin
	// Stdout and Stderr end with io.EOF when the server closed them, and with an error when the
	// Channel was closed here or the connection lost. A background process that inherited them
	// holds them open after the command's exit. Each has one reader at a time; one that is not
	// read holds up the command once its window (2 MiB) is full, and no other session.
	Stdout() io.Reader
	Stderr() io.Reader
	// Wait returns what became of the command as soon as that is known: output may still be on
	// its way, so a caller who wants it reads to the end. It may be called many times.
	Wait() Exit
	// Close gives the session up: readers, writers and Wait return at once. The remote process is
	// not told to stop.
	Close() error
}

// Stdin is a session's standard input.
type Stdin interface {
	io.WriteCloser
	// SetWriteDeadline bounds present and later Writes, which otherwise wait for the command to
	// read. A Write that missed its deadline returns a *longstop.Error with CodeTimeout; how much
	// of it goes out is then open, so every later Write fails as well.
	SetWriteDeadline(t time.Time) error
}

// Exit is what an SSH channel said of its command (RFC 4254 §6.10): nothing about the work.
type Exit struct {
	State  longstop.SSHState // SSHExited, SSHSignaled, SSHNoStatus or SSHLost
	Status int               // with SSHExited
	Signal string            // with SSHSignaled: "SEGV"
}

// Facts are how a connection was authenticated, both ways.
type Facts struct {
	Auth    string // method that ended the login: "publickey"
	Key     string // "SHA256:…" of the key that the server accepted; empty for other methods
	HostKey string // "SHA256:…"
	Server  string // software version from the server's banner: "OpenSSH_9.2p1 Debian-2"
}
