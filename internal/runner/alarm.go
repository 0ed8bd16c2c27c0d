package runner

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// alarm rings at an instant of the boot clock: setting the wall clock does not move it, and time
// that the host slept counts (timerfd_create(2)).
type alarm struct {
	file *os.File
	rang chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	a := &alarm{file: os.NewFile(uintptr(fd), "timer"), rang: make(chan struct{}, 1)}
	go a.listen()
	return a, nil
}

func (a *alarm) listen() {
	var count [8]byte
	for {
		if _, err := a.file.Read(count[:]); err != nil {
			return
		}
		select {
		case a.rang <- struct{}{}:
		default:
		}
	}
}

// set lets it ring at that instant, at once if that has passed; 0 lets it be quiet.
func (a *alarm) set(at longstop.BootTime) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	set := raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil) })
	if set != nil {
		return set
	}
	return err
}

func (a *alarm) close() { a.file.Close() }
