package runner

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// The size and kind of a terminal that nobody said anything of.
const (
	defaultRows, defaultColumns = 24, 80
	defaultTerm                 = "dumb"
)

// openTerminal makes a pseudo-terminal: the master, read as the reading end of a pipe would be, and the
// slave, which the work has. Nobody types: whoever reads the terminal as it is finds its end, at once and
// each time (a read without ICANON, VMIN and VTIME waits for nothing). Who sets it up for typing waits.
func openTerminal(size *longstop.Terminal) (master, slave int, err error) {
	fail := func(what string, err error) (int, int, error) {
		if master >= 0 {
			unix.Close(master)
		}
		return -1, -1, fmt.Errorf("make a terminal: %s: %w", what, err)
	}
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("/dev/ptmx", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock it", err)
	}
	if slave, err = openSlave(master); err != nil {
		return fail("its other end", err)
	}
	window := unix.Winsize{Row: defaultRows, Col: defaultColumns}
	if size != nil && size.Rows > 0 && size.Columns > 0 {
		window = unix.Winsize{Row: uint16(min(size.Rows, 1<<15)), Col: uint16(min(size.Columns, 1<<15))}
	}
	err = unix.IoctlSetWinsize(slave, unix.TIOCSWINSZ, &window)
	if err == nil {
		var modes *unix.Termios
		if modes, err = unix.IoctlGetTermios(slave, unix.TCGETS); err == nil {
			modes.Lflag &^= unix.ICANON
			modes.Cc[unix.VMIN], modes.Cc[unix.VTIME] = 0, 0
			err = unix.IoctlSetTermios(slave, unix.TCSETS, modes)
		}
	}
	if err != nil {
		unix.Close(slave)
		return fail("set it up", err)
	}
	return master, slave, nil
}

// openSlave opens it by way of the master, which finds it in whatever namespace it is (Linux 4.13), or by
// its name.
func openSlave(master int) (int, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return int(fd), nil
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(number), flags, 0)
}

// noTerminal is why there can be none here, or nil.
func noTerminal() error {
	master, slave, err := openTerminal(nil)
	if err == nil {
		unix.Close(master)
		unix.Close(slave)
	}
	return err
}

// outputEnds makes what a run writes into, in pairs of reading and writing ends for its two streams: pipes,
// or twice the same terminal.
func outputEnds(req longstop.Request, size *longstop.Terminal) (read, write [2]int, err error) {
	read, write = [2]int{-1, -1}, [2]int{-1, -1}
	if req.PTY {
		read[0], write[0], err = openTerminal(size)
		if err == nil {
			read[1], err = unix.FcntlInt(uintptr(read[0]), unix.F_DUPFD_CLOEXEC, 0)
		}
		if err == nil {
			write[1], err = unix.FcntlInt(uintptr(write[0]), unix.F_DUPFD_CLOEXEC, 0)
		}
	} else {
		for i := 0; i < len(read) && err == nil; i++ {
			read[i], write[i], err = outputPipe()
		}
	}
	if err != nil {
		for _, fd := range []int{read[0], read[1], write[0], write[1]} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
		return [2]int{-1, -1}, [2]int{-1, -1}, err
	}
	return read, write, nil
}

// hungUp notes what the main process's end did to others of the run: it led the terminal's session, so that
// the kernel sent HUP to the group in its foreground, and none of them has a controlling terminal any more.
// Whoever lives on still writes to it.
func (c *custody) hungUp() {
	if !c.rec.Output.Merged {
		return
	}
	others := 0
	c.within.walk(func(s boundary.Stat) bool {
		if s.PID != c.rec.Main.PID {
			others++
		}
		return true
	})
	if others > 0 {
		c.rec.Anomalies = append(c.rec.Anomalies, fmt.Sprintf(
			"when the main process ended, %d more of the run were there: the kernel hung up their terminal, with HUP to those in its foreground", others))
	}
}
