package runner

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gate"
)

// limitsOf are the limits that a tree can hold. They bind each process, and files and processes by
// number: RLIMIT_NPROC counts all of the user's. What may not be set is refused before anything runs.
func limitsOf(l *longstop.Limits) ([]gate.Limit, *longstop.LaunchError) {
	if l == nil {
		l = &longstop.Limits{}
	}
	var limits []gate.Limit
	for _, r := range []struct {
		name     string
		resource int
		value    int64
	}{
		{"open_files", unix.RLIMIT_NOFILE, l.OpenFiles},
		{"processes", unix.RLIMIT_NPROC, l.Processes},
		{"cpu_s", unix.RLIMIT_CPU, l.CPUS},
		{"file_bytes", unix.RLIMIT_FSIZE, l.FileBytes},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(r.resource, &now); err != nil {
			return nil, launchError("limits", r.name, err)
		}
		value, most := uint64(r.value), uint64(r.value)
		switch {
		case r.value <= 0 && r.resource == unix.RLIMIT_NOFILE:
			value, most = givenOpenFiles(now), now.Max
		case r.value <= 0:
			continue
		case value > now.Max && os.Geteuid() != 0:
			return nil, launchError("limits", r.name, unix.EPERM)
		case r.resource == unix.RLIMIT_CPU && (now.Max > value || os.Geteuid() == 0):
			most++ // for XCPU, which names what the work died of; at the hard limit comes KILL
		}
		limits = append(limits, gate.Limit{Name: r.name, Resource: r.resource, Rlimit: unix.Rlimit{Cur: value, Max: most}})
	}
	return limits, nil
}

// The Go runtime raises the soft limit on open files for itself and keeps to itself what it was. A
// keeper asks a shell, which is started with the login's; its owners have it from their environment.
const openFilesEnv = "LONGSTOP_OPEN_FILES"

// givenOpenFiles is the soft limit on open files that the work has where none was asked for.
func givenOpenFiles(now unix.Rlimit) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(openFilesEnv), 10, 64); err == nil && n > 0 && n <= now.Max {
		return n
	}
	return now.Cur
}

// loginOpenFiles is the soft limit on open files of the login that started this keeper; 0 where it
// cannot be found out.
var loginOpenFiles = sync.OnceValue(func() uint64 {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0
	}
	answer, theirs := os.NewFile(uintptr(ends[0]), "pipe"), os.NewFile(uintptr(ends[1]), "pipe")
	defer answer.Close()
	pid, err := syscall.ForkExec(shell, []string{"sh", "-c", "ulimit -Sn"}, &syscall.ProcAttr{Files: []uintptr{0, theirs.Fd(), 2}})
	theirs.Close()
	if err != nil {
		return 0
	}
	said, _ := io.ReadAll(io.LimitReader(answer, 64))
	unix.Wait4(pid, nil, 0, nil)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(said)), 10, 64)
	return n
})
