package sshlink

import "golang.org/x/sys/unix"

// awaitDeath returns when the process has died, leaving it to be reaped (waitid(2), WNOWAIT).
func awaitDeath(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
