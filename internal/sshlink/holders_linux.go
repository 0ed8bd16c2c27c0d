package sshlink

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalHolders signals every other process whose standard error is the file, and says how many
// there were. A process is held by a pidfd before it is looked at, so that none is signalled that
// took a dead one's id in between.
func signalHolders(file os.FileInfo, signal syscall.Signal) (int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	found := 0
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil || pid == os.Getpid() || !holds(pid, file) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it ended meanwhile
		}
		if holds(pid, file) {
			found++
			err = unix.PidfdSendSignal(fd, signal, nil, 0)
		}
		unix.Close(fd)
		if err != nil && err != unix.ESRCH {
			return found, fmt.Errorf("signal process %d: %w", pid, err)
		}
	}
	return found, nil
}

// holds looks through the link to the open file itself: same file system, same inode. Processes
// of other users cannot be looked at, and are not ours.
func holds(pid int, file os.FileInfo) bool {
	held, err := os.Stat(fmt.Sprintf("/proc/%d/fd/2", pid))
	return err == nil && os.SameFile(held, file)
}
