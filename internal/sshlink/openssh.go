package sshlink

import (
	"context"
	"errors"
	"time"
)

// OpenSSH dials with the user's ssh: one master connection per Link, in a session of its own, so
// that an interrupt typed at a terminal does not reach it.
type OpenSSH struct {
	Dir  string // holds control sockets and logs; made 0700. At most 70 bytes: a socket's path is short
	Path string // the ssh to run; empty: "ssh"

	// MaxSessions bounds the sessions on one Link; 0: 8. An OpenSSH server allows 10 unless told
	// otherwise, and a refused session spoils the master.
	MaxSessions int
	// AliveInterval and AliveCountMax are ssh's ServerAliveInterval and ServerAliveCountMax, and
	// the same for ourselves and the master; 0: 2 s and 3.
	AliveInterval time.Duration
	AliveCountMax int
}

// Dial starts a master and waits until it is logged in.
func (d *OpenSSH) Dial(ctx context.Context, to Target) (Link, error) {
	return nil, errors.ErrUnsupported
}

// Sweep ends the masters that a killed predecessor left in Dir, by asking them, and removes what
// they left. To be called once, before the first Dial, by the only process that uses Dir.
func (d *OpenSSH) Sweep(ctx context.Context) error { return errors.ErrUnsupported }

// Overrides lists, in words for people, the settings of the user's ssh_config for a target that
// do not hold for Longstop's connections (RemoteCommand, LocalCommand, forwardings, …). It runs
// ssh -G, which runs commands of Match exec: for an operator's request alone.
func (d *OpenSSH) Overrides(ctx context.Context, to Target) ([]string, error) {
	return nil, errors.ErrUnsupported
}
