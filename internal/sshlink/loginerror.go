package sshlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/longstop/longstop"
)

// explain says why the embedded transport could not log in, in the words of explainDial.
func (l *login) explain(ctx context.Context, err error) error {
	var ours *longstop.Error
	if errors.As(err, &ours) {
		return ours
	}
	e := &longstop.Error{Code: longstop.CodeUnreachable, Err: root(err)}
	say := func(format string, args ...any) *longstop.Error {
		e.Message = l.name() + ": " + fmt.Sprintf(format, args...)
		return e
	}
	before, banner := l.said()
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case l.hostErr != nil:
		return l.explainHostKey()
	case errors.Is(ctx.Err(), context.Canceled):
		return say("connecting was given up")
	case ctx.Err() != nil:
		e.Err = nil
		return say("%s in time", l.stage())
	case l.wire == nil:
		e.Hint = nobodyThere(l.to)
		return say("no connection to %s", l.addr())
	case errors.As(err, &negotiation):
		e.Code, e.Err = longstop.CodeUnsupported, negotiation
		e.Hint = "have the server's SSH renewed, or enrol the host with --transport openssh and " + theirsHint
		return say("no common algorithms")
	case strings.Contains(err.Error(), "Too many authentication failures"):
		e.Code, e.Err = longstop.CodeAccessRefused, nil
		e.Hint = "name the right key for this host in ssh_config: IdentityFile, with IdentitiesOnly yes"
		return say("the server gave up: too many authentication failures (%d keys at hand)", l.keys.offered)
	case l.hostKey != nil && strings.Contains(err.Error(), "no common public key signature algorithm"):
		e.Code, e.Err, e.Hint = longstop.CodeAccessRefused, nil, weakHint
		return say("%s", weakWords(l.hop.first("user")+"@"+l.hop.first("hostname")))
	case l.hostKey != nil && strings.Contains(err.Error(), "unable to authenticate"):
		return l.explainRefusal()
	case l.hostKey != nil && l.keys.signed != "":
		e.Code, e.Hint = longstop.CodeAccessRefused, lockedHint
		return say("the server took the key and then hung up")
	case !banner:
		why := ""
		if e.Err != nil {
			why = e.Err.Error()
		}
		message, hint, err := beforeBanner(l.to, before, why)
		e.Hint, e.Err = hint, err
		return say("%s", message)
	}
	e.Hint = "is that an SSH server? Its own log says why"
	return say("the server hung up during the login")
}

// root drops what the message says already: whom x/crypto and net were talking to, and that a
// connection ends with end-of-file.
func root(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (l *login) stage() string {
	switch {
	case l.wire == nil:
		return "no connection to " + l.addr()
	case l.hostKey != nil:
		return "the host key was good, but the login did not end"
	case l.hasBanner():
		return "the server answered, but the key exchange did not end"
	}
	return fmt.Sprintf("connected to %s, but no SSH banner came", l.addr())
}

// said is what the server said before its banner, and whether that came.
func (l *login) said() (before string, banner bool) {
	if l.wire == nil {
		return "", false
	}
	return l.wire.said()
}

func (l *login) hasBanner() bool {
	_, banner := l.said()
	return banner
}

func (l *login) explainHostKey() error {
	words := keyWords(l.hostKey.Type(), fingerprint(l.hostKey))
	e := &longstop.Error{Code: longstop.CodeHostKeyChanged}
	var revoked *xknownhosts.RevokedError
	var other *xknownhosts.KeyError
	switch {
	case errors.As(l.hostErr, &revoked):
		e.Message = l.name() + ": the host key is marked as revoked" + words
		e.Hint = "do not connect before you know why"
	case errors.As(l.hostErr, &other) && len(other.Want) > 0:
		at := other.Want[0]
		e.Message = fmt.Sprintf("%s: the host key has changed%s; %s:%d has another", l.name(), words, at.Filename, at.Line)
		e.Hint = fmt.Sprintf("if that is right: ssh-keygen -f %q -R %q, then connect once with %s; if not, somebody may be in between",
			at.Filename, knownhosts.Normalize(l.addr()), l.to.Command())
	case errors.As(l.hostErr, &other):
		e.Code = longstop.CodeHostKeyUnknown
		e.Message = l.name() + ": the host key is not known" + words
		e.Hint = unknownKeyHint(l.to, l.hop.first("hostname"), l.hop.first("port"))
	default: // a certificate that does not hold
		e.Code = longstop.CodeHostKeyUnknown
		e.Message, e.Err = l.name()+": the host key does not hold"+words, l.hostErr
	}
	return e
}

func (l *login) explainRefusal() error {
	e := &longstop.Error{Code: longstop.CodeAccessRefused}
	methods := strings.Join(l.allowed, ",")
	who := l.hop.first("user") + "@" + l.hop.first("hostname")
	switch {
	case len(l.partial) > 0:
		e.Message = fmt.Sprintf("the server took %s and asks for more (%s), which nobody is here to answer", strings.Join(l.partial, ","), methods)
		e.Hint = "allow this key to log in alone"
	case l.keys.offered == 0:
		e.Message = fmt.Sprintf("the login of %s was refused: no key was offered; the server takes %s", who, methods)
		e.Hint = "unlock the key (ssh-add), or name it in ssh_config (IdentityFile)"
		if len(l.keys.locked) > 0 {
			e.Hint = "unlock the key: ssh-add " + l.keys.locked[0]
		}
	default:
		message, hint := doubts(l.keys.certified, time.Now())
		e.Message = fmt.Sprintf("the login of %s was refused (%d %s offered; the server takes %s)", who,
			l.keys.offered, plural(l.keys.offered, "key", "keys"), methods) + message
		e.Hint = join("is the key in the host's authorized_keys, and the account open?", hint)
	}
	e.Message = l.name() + ": " + e.Message
	return e
}
