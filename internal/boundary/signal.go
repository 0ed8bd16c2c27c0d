package boundary

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrRefused says that a number was not one that may ever be signalled.
var ErrRefused = errors.New("refused: not a process that may be signalled")

// Signal sends a signal to exactly that process, whoever's child it is, and those that are to follow it at
// once, as long as it hears them. ErrGone if it has ended or its number belongs to another one;
// unix.EPERM if it may not be signalled by this user.
func Signal(id Identity, sig unix.Signal, following ...unix.Signal) error {
	if err := sendable(id.PID); err != nil {
		return err
	}
	// The descriptor is opened first and the start time read after: if both name the same process
	// then, the descriptor does for ever, and the number may be used again as it likes.
	fd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case err == unix.ENOSYS: // before Linux 5.3: the window between look and signal stays open
		return signalNumber(id, sig, following)
	case err == unix.ESRCH || err == unix.EINVAL:
		return ErrGone
	case err != nil:
		return fmt.Errorf("open pidfd of %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if err := alive(id); err != nil { // what is dead takes a signal too, which would then count as one that reached it
		return err
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return gone(err)
	}
	for _, sig := range following {
		unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	return nil
}

func signalNumber(id Identity, sig unix.Signal, following []unix.Signal) error {
	if err := alive(id); err != nil {
		return err
	}
	err := gone(unix.Kill(id.PID, sig))
	for _, sig := range following {
		if err == nil && Is(id) {
			unix.Kill(id.PID, sig)
		}
	}
	return err
}

// sendable refuses what kill(2) would take for a group, everybody, init, or ourselves.
func sendable(pid int) error {
	if pid <= 1 || pid == os.Getpid() || pid == os.Getppid() || pid > 1<<22 {
		return fmt.Errorf("pid %d: %w", pid, ErrRefused)
	}
	return nil
}
