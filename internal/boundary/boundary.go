// Package boundary knows the processes of one host: who each one is, who descends from whom, what
// it may be sent, and when it is gone. It owns the reading of /proc, pidfds and the waiting for
// children, and knows nothing of runs but the mark that theirs carry in their environment.
//
// The rule it keeps: never signal a stranger. A process is named by its Identity, and nothing is
// sent before the process under that number has been seen to be the one that was meant, in a way
// that cannot change between the look and the signal. /proc finds whom to signal and never proves
// that nobody is left; that proof is the kernel's answer to a parent that waits (Reaper).
package boundary

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Identity names one process for as long as this boot and PID namespace last: numbers are used
// again, but not within one tick of the clock.
type Identity struct {
	PID   int
	Start uint64 // clock ticks since boot: field 22 of proc_pid_stat(5)
}

func (id Identity) String() string {
	return fmt.Sprintf("pid %d (started at tick %d)", id.PID, id.Start)
}

// Stat is what /proc says of one process now.
type Stat struct {
	Identity
	PPID, PGID, SID int
	State           byte // one letter, as ps(1)
	// Exiting says that its first thread has begun to end. A process whose children were handed on has
	// begun so with all its threads, though it may not show as a zombie yet.
	Exiting bool
	Threads int
	Name    string // of its executable or thread, at most 15 bytes
}

// Dead reports whether nothing of the process runs any more: a zombie waits for its parent alone.
// A thread group whose leader has ended shows Z too while its other threads live.
func (s Stat) Dead() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// ErrGone says that there is no such process, or that its number belongs to another one now.
var ErrGone = errors.New("no such process")

// ErrHidden says that there is a process of that number, and that /proc does not show it to this user.
var ErrHidden = errors.New("/proc hides processes from this user: it is mounted with hidepid (remount it with hidepid=0, or with gid= of a group of this user's)")

// ticksPerSecond is USER_HZ, in which /proc counts on every architecture that Go runs on.
const ticksPerSecond = 100

// Look reads /proc/PID/stat. A process that is not there is ErrGone, one that may not be seen ErrHidden.
func Look(pid int) (Stat, error) {
	var buf [1024]byte
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	data, err := readSmall(path, buf[:])
	if err == ErrGone && there(pid) { // hidden, or born since
		data, err = readSmall(path, buf[:])
		if err == ErrGone && there(pid) {
			err = ErrHidden
		}
	}
	if err == unix.EPERM || err == unix.EACCES {
		err = ErrHidden
	}
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(data)
	if err != nil || s.PID != pid {
		return Stat{}, fmt.Errorf("read /proc/%d/stat: not as proc_pid_stat(5) says", pid)
	}
	return s, nil
}

// there asks the kernel itself, which hides nobody from a signal's sender.
func there(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || err == unix.EPERM
}

// parseStat takes the fields after the last parenthesis: a process's name may hold anything,
// spaces, newlines and parentheses included.
func parseStat(data []byte) (Stat, error) {
	open, closed := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 2 || closed < open || closed+2 >= len(data) {
		return Stat{}, errors.New("no name in parentheses")
	}
	pid, err := strconv.Atoi(string(data[:open-1]))
	if err != nil {
		return Stat{}, err
	}
	fields := bytes.Fields(data[closed+2:])
	const start = 19 // field 22 overall; the state is field 3
	if len(fields) <= start || len(fields[0]) != 1 {
		return Stat{}, errors.New("too few fields")
	}
	s := Stat{Identity: Identity{PID: pid}, State: fields[0][0], Name: string(data[open+1 : closed])}
	for _, f := range []struct {
		at   int
		into *int
	}{{1, &s.PPID}, {2, &s.PGID}, {3, &s.SID}, {17, &s.Threads}} {
		if *f.into, err = strconv.Atoi(string(fields[f.at])); err != nil {
			return Stat{}, err
		}
	}
	const flags, exiting = 6, 0x4 // field 9; PF_EXITING of linux/sched.h
	bits, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	if err != nil {
		return Stat{}, err
	}
	s.Exiting = bits&exiting != 0
	s.Start, err = strconv.ParseUint(string(fields[start]), 10, 64)
	return s, err
}

// Is reports whether the process is seen to be there and not yet dead.
func Is(id Identity) bool { return alive(id) == nil }

// alive is nil for a process that is seen to be there, ErrGone for one that is not, or is dead.
func alive(id Identity) error {
	s, err := Look(id.PID)
	if err == nil && (s.Identity != id || s.Dead()) {
		err = ErrGone
	}
	return err
}

// readSmall reads a file of /proc that fits buf. Gone processes are ErrGone.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := openRetry(path)
	if err != nil {
		return nil, gone(err)
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, gone(err)
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// readWhole reads a file of /proc of any length up to limit.
func readWhole(path string, limit int) ([]byte, error) {
	fd, err := openRetry(path)
	if err != nil {
		return nil, gone(err)
	}
	defer unix.Close(fd)
	var data []byte
	buf := chunks.Get().(*[4096]byte)
	defer chunks.Put(buf)
	for len(data) < limit {
		n, err := unix.Read(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, gone(err)
		}
		if n == 0 {
			break
		}
		data = append(data, buf[:n]...)
	}
	return data[:min(len(data), limit)], nil
}

var chunks = sync.Pool{New: func() any { return new([4096]byte) }}

func openRetry(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func gone(err error) error {
	if err == unix.ENOENT || err == unix.ESRCH {
		return ErrGone
	}
	return err
}
