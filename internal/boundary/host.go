package boundary

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// MachineID is what names this installation (machine-id(5)), or empty where it has none.
func MachineID() string { return machineID() }

// BootID names this boot of this kernel; PID namespaces share it.
func BootID() string { return bootID() }

// A process sees none of them change.
var (
	machineID = sync.OnceValue(func() string { return longstop.MachineID(os.ReadFile) })
	bootID    = sync.OnceValue(func() string { return firstLine("/proc/sys/kernel/random/boot_id") })
	pidNS     = sync.OnceValue(func() string { name, _ := os.Readlink("/proc/self/ns/pid"); return name })
)

// PIDNamespace names the table that process numbers belong to: "pid:[4026531836]".
func PIDNamespace() string { return pidNS() }

// BootNow is the present instant of CLOCK_BOOTTIME.
func BootNow() longstop.BootTime {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("boundary: no boot clock: %v", err)) // Linux has had it since 2.6.39
	}
	return longstop.BootTime(now.Nano())
}

// Ticks is an instant of the boot clock in the unit of start times.
func Ticks(at longstop.BootTime) uint64 { return uint64(at) / (1e9 / ticksPerSecond) }

// Conceal makes this process not dumpable: no other process of the same user can read its memory
// or trace it. One of root still can. The flag goes with exec.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process not dumpable: %w", err)
	}
	return nil
}

// protected is the oom_score_adj of those who answer for runs: almost everything else is killed sooner.
const protected = -900

// ProtectFromOOM has the kernel's memory killer take this process late, where it may be asked for that (root
// may); before Conceal, after which the file is root's. What this process starts is taken as late, until
// that is undone.
func ProtectFromOOM() {
	if now, err := strconv.Atoi(OOMScoreAdj()); err == nil && now > protected {
		SetOOMScoreAdj(strconv.Itoa(protected))
	}
}

// SetOOMScoreAdj sets this process's, where that is allowed.
func SetOOMScoreAdj(value string) { os.WriteFile("/proc/self/oom_score_adj", []byte(value), 0) }

// OOMScoreAdj is this process's, or empty where that cannot be read.
func OOMScoreAdj() string { return firstLine("/proc/self/oom_score_adj") }

// Subreap makes this process the one that inherits orphans among its descendants.
func Subreap() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// Rename sets the name that ps(1) shows for a process that was started as /proc/self/exe, at most
// 15 bytes. Not by prctl(2), which names the calling thread alone; and before Conceal, after which
// the file is root's.
func Rename(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// CloseInherited closes whatever descriptors above the given one this process was started with. A
// descriptor that our own runtime opened closes on exec and is not touched; one that is inherited
// was, by that very fact, not marked so.
func CloseInherited(above int) error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list own descriptors: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		fd, ok := number(name)
		if !ok || fd <= above {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return err
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	return strings.TrimSpace(string(line))
}

// Errno is the name of an error number, "ENOENT", or empty where err is none.
func Errno(err error) string {
	var number unix.Errno
	if errors.As(err, &number) {
		return unix.ErrnoName(number)
	}
	return ""
}

// Forget gives back the pages of this program's own file that are mapped now. They come back one by
// one as they are needed again, which for a process that mostly waits are few.
func Forget() {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		// Never one that can be written to: what was written there is nowhere else.
		if len(fields) < 6 || fields[5] != exe || len(fields[1]) != 4 || fields[1][1] != '-' || fields[1][3] != 'p' {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err == nil {
			unix.RawSyscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}
