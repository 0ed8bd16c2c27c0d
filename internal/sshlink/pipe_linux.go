package sshlink

import (
	"os"

	"golang.org/x/sys/unix"
)

// widen gives a pipe the room that a user may give one (pipe(7)): with the usual 64 KiB a stream costs
// its two ends more in waking each other than in moving bytes. Where a user has too many, it stays.
func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}
