package sshlink

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitDeath returns when the process has died, leaving it to be reaped (waitid(2), WNOWAIT).
func awaitDeath(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// starter is a thread that starts processes and does nothing else, for as long as this process lives.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go startAll(work)
	return work
})

func startAll(work <-chan func()) {
	runtime.LockOSThread()
	for start := range work {
		start()
	}
}

// startBound starts a process that is sent TERM when this one has ended, also by KILL: the kernel
// sends it when the thread that started it is gone (PR_SET_PDEATHSIG, prctl(2)), hence starter.
func startBound(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
