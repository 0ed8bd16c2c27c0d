package gosshd

import "golang.org/x/sys/unix"

// awaitDeath returns when a child has died and is still to be reaped: its id is its own as long.
func awaitDeath(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
