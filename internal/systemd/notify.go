package systemd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Notify tells the manager that started this process where it stands, as sd_notify(3): "READY=1",
// "STOPPING=1", "STATUS=…", "EXTEND_TIMEOUT_USEC=…". Where there is nobody to tell it does nothing.
func Notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer unix.Close(fd)
	bound := unix.NsecToTimeval(answersWithin.Nanoseconds())
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &bound); err == nil {
		err = unix.Sendto(fd, []byte(state), 0, &unix.SockaddrUnix{Name: socket}) // "@…" is abstract there, too
	}
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
