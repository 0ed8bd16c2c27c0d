package record

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// C124: what hello says of a folder whose file system has no locks, in a process that the kernel answers so:
// no file system that is at hand does.
func TestC124AFolderWithoutLocksIsNamedBeforeAnyRun(t *testing.T) {
	t.Parallel()
	f := folder(t)
	must(t, f.Room())
	out, err := helper(t, "no locks", f.Dir()).Output()
	if err != nil {
		t.Skipf("skipped: system calls cannot be filtered here: %v: %s", err, out)
	}
	for _, who := range []string{"room: ", "lock: "} {
		_, said, _ := strings.Cut(string(out), who)
		said, _, _ = strings.Cut(said, "\n")
		if !strings.HasPrefix(said, string(longstop.CodeStateFolder)) || !strings.Contains(said, "no usable locks") || !strings.Contains(said, "no locks available") || !strings.Contains(said, "--state-dir") {
			t.Errorf("%s%q", who, said)
		}
	}
}

// helpNoLocks has every lock refused with ENOLCK, and says what becomes of a folder.
func helpNoLocks(dir string) int {
	if err := refuseLocks(); err != nil {
		fmt.Println(err)
		return 1
	}
	f, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, lockErr := f.Lock("keeper.lock")
	for who, err := range map[string]error{"room": f.Room(), "lock": lockErr} {
		var e *longstop.Error
		errors.As(err, &e)
		if e == nil {
			e = &longstop.Error{}
		}
		fmt.Printf("%s: %s %v %s\n", who, longstop.CodeOf(err), err, e.Hint)
	}
	return 0
}

// refuseLocks is a filter (seccomp(2)) for all threads: fcntl(2) with F_OFD_SETLK or F_OFD_GETLK fails.
func refuseLocks() error {
	const nr, second = 0, 24 // offsets in struct seccomp_data; the latter's low half, on little endian
	const load, equals, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	const allow, refuse = 0x7fff0000, 0x00050000 | uint32(unix.ENOLCK) // SECCOMP_RET_ALLOW, _ERRNO
	filter := []unix.SockFilter{
		{Code: load, K: nr}, {Code: equals, K: unix.SYS_FCNTL, Jf: 4},
		{Code: load, K: second}, {Code: equals, K: unix.F_OFD_SETLK, Jt: 1}, {Code: equals, K: unix.F_OFD_GETLK, Jf: 1},
		{Code: answer, K: refuse}, {Code: answer, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const setFilter, allThreads = 1, 1 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
