package runner

import (
	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/boundary"
)

// Keeper and owners are of the same user as the work, which can stop them (SIGSTOP). Stopped, they
// hold their locks and sockets, so that nobody takes their place, and say nothing. They have no
// business being stopped: whoever finds one so lets it go on.

// wake lets a stopped process of ours go on.
func wake(id boundary.Identity) {
	if s, err := boundary.Look(id.PID); err == nil && s.Identity == id && s.State == 'T' {
		boundary.Signal(id, unix.SIGCONT)
	}
}

// behind is the living process at the other end of a link that was dialled: the kernel's word, not a
// record's. The link is open still after its start time was read, and so it is the one that had the
// number then.
func behind(l *link) (s boundary.Stat, known bool) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return s, false
	}
	open := false
	controlled := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = peer(int(fd)); err == nil {
			s, err = boundary.Look(int(cred.Pid))
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, pollErr := unix.Poll(poll, 0)
		open = n == 0 && pollErr == nil
	})
	return s, controlled == nil && err == nil && open && !s.Dead()
}

// listensAt is the living process that listens on a socket of ours.
func listensAt(dir int, name string) (s boundary.Stat, known bool) {
	l, err := dial(dir, name)
	if err != nil {
		return s, false
	}
	defer l.close()
	return behind(l)
}
