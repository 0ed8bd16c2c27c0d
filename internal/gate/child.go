package gate

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// child is what the new process does, in numbers and addresses alone. It runs in its maker's memory, or a copy, on a
// stack of its own, unknown to the runtime: nothing on the way may allocate, grow the stack, wait for a lock
// or be scheduled. Addresses are of memory that the maker keeps (Gate); Go's heap does not move.
type child struct {
	stack      [stackTop + 64]byte
	state      *[4]uint32 // the report's head
	stream     uintptr
	files      [3]uintptr
	dir, umask uintptr
	maxFD      uintptr
	cgroup     uint64
	inCgroup   bool
	apart      bool    // in a copy of its maker's memory
	terminal   bool    // files[1] is to be the session's
	oom        uintptr // what is written to oomFile
	oomFile    uintptr
	oomLength  uintptr
	limits     []rlimit
	paths      []candidate
	command    uint32 // the text that names the command as it was given
	argv, env  []uintptr
	shell      uintptr
	shellArgv  []uintptr // its second word is set to the file that is tried
	faults     [4]struct{ kind, ms int64 }

	// What system calls write to.
	stat  [8]uint64
	one   [1]byte
	mask  uint64
	clone cloneArgs
}

// stackTop is many times what functions that do not grow their stack may use (go:nosplit).
const stackTop = 4 << 10

type rlimit struct {
	resource uintptr
	value    unix.Rlimit
	text     uint32
}

type candidate struct {
	path uintptr
	text uint32
}

// cloneArgs is struct clone_args of clone3(2), as far as CLONE_INTO_CGROUP needs it.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

const atFDCWD = ^uintptr(99) // AT_FDCWD, -100

// The runtime's own steps around a fork: signals are blocked meanwhile. The child resets each before it
// lets any through.
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// clone calls clone(2), or clone3(2), with two arguments. In the child, which has the stack that they name,
// it calls life with c as Go's own calls do: in a build for the race detector, what stands between assembly and a
// function of Go's would tell the detector of it, on a stack of its maker's.
//
//go:noescape
func clone(call, a, b, life uintptr, c *child) (pid uintptr)

// bottom is where the child's stack begins: at a multiple of 16, without which arm64 faults at its first use. The
// heap's are of 8.
func (c *child) bottom() uintptr { return (uintptr(unsafe.Pointer(&c.stack)) + 15) &^ 15 }

// fork makes the child, which shares this process's memory and nothing else of it until it executes: no
// page is copied, neither for the child nor afterwards for us. One that is apart has a copy.
//
//go:noinline
//go:norace
func (c *child) fork() (pid uintptr, errno syscall.Errno) {
	life := become
	entry := **(**uintptr)(unsafe.Pointer(&life))
	bottom, share := c.bottom(), uintptr(unix.CLONE_VM)
	if c.apart {
		share = 0
	}
	c.clone = cloneArgs{flags: uint64(share | unix.CLONE_INTO_CGROUP), exitSignal: uint64(syscall.SIGCHLD), cgroup: c.cgroup,
		stack: uint64(bottom), stackSize: stackTop}
	beforeFork()
	if c.inCgroup {
		pid = clone(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.clone)), unsafe.Sizeof(c.clone), entry, c)
	} else {
		pid = clone(unix.SYS_CLONE, share|uintptr(syscall.SIGCHLD), bottom+stackTop, entry, c)
	}
	afterFork()
	if most := ^uintptr(4094); pid >= most { // -4095 to -1
		return 0, syscall.Errno(-pid)
	}
	return pid, 0
}

// become is the child's life. It does not return.
//
//  1. A session of its own, and its terminal; descriptors 0 to 2; no others but the stream; its folder; every signal
//     as a new program has it.
//  2. "Ready", and the wait for the byte.
//  3. "Opened", the limits, and exec.
//
//go:nosplit
//go:norace
func become(c *child) {
	c.fault(0)
	c.settle()
	c.say(Ready)
	c.fault(1)
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, 3, uintptr(unsafe.Pointer(&c.one)), 1)
		if errno == syscall.EINTR {
			continue
		}
		if n != 1 || errno != 0 {
			c.say(Never)
			c.exit(126)
		}
		break
	}
	c.fault(2)
	c.say(Opened)
	c.fault(3)
	for i := range c.limits {
		l := &c.limits[i]
		if _, _, errno := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, l.resource, uintptr(unsafe.Pointer(&l.value)), 0, 0, 0); errno != 0 {
			c.fail(stepLimits, l.text, errno)
		}
	}
	c.execute()
}

//go:nosplit
//go:norace
func (c *child) settle() {
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		c.fail(stepGate, 0, errno)
	}
	if c.terminal {
		if _, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, c.files[1], unix.TIOCSCTTY, 0); errno != 0 {
			c.fail(stepTerminal, 0, errno)
		}
	}
	for to := range c.files {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, c.files[to], uintptr(to), 0); errno != 0 {
			c.fail(stepGate, 0, errno)
		}
	}
	if c.stream != 3 {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, c.stream, 3, unix.O_CLOEXEC); errno != 0 {
			c.fail(stepGate, 0, errno)
		}
	}
	c.stream = 3
	if _, _, errno := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 4, 1<<32-1, 0); errno != 0 {
		for fd := uintptr(4); fd <= c.maxFD; fd++ { // a kernel before 5.9
			syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_CHDIR, c.dir, 0, 0); errno != 0 {
		c.fail(stepChdir, 1, errno)
	}
	syscall.RawSyscall(unix.SYS_UMASK, c.umask, 0, 0)
	if c.oomLength > 0 {
		// Who may not write there was not protected by it either.
		fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, atFDCWD, c.oomFile, unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno == 0 {
			syscall.RawSyscall(unix.SYS_WRITE, fd, c.oom, c.oomLength)
			syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	for signal := uintptr(1); signal <= 64; signal++ { // struct sigaction all zero: the default, without flags
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&c.stat)), 0, 8, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&c.mask)), 0, 8, 0, 0)
}

// execute tries the files in turn, as execvp(3): one that is there and may not be executed is
// remembered. A file without an interpreter, and of no known format, is given to the shell.
//
//go:nosplit
//go:norace
func (c *child) execute() {
	failure, text := syscall.ENOENT, c.command
	for i := range c.paths {
		p := &c.paths[i]
		_, _, errno := syscall.RawSyscall(unix.SYS_EXECVE, p.path, uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))
		if errno == syscall.ENOEXEC {
			c.shellArgv[1] = p.path
			_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, c.shell, uintptr(unsafe.Pointer(&c.shellArgv[0])), uintptr(unsafe.Pointer(&c.env[0])))
		}
		if len(c.paths) == 1 {
			c.fail(stepExec, p.text, errno)
		}
		switch errno {
		case syscall.ENOENT, syscall.ENOTDIR:
		case syscall.EACCES:
			failure = errno
		default:
			c.fail(stepExec, p.text, errno)
		}
	}
	c.fail(stepExec, text, failure)
}

// say puts a change into the report, then wakes the maker.
//
//go:nosplit
//go:norace
func (c *child) say(state State) {
	c.state[0] = uint32(state)
	c.one[0] = byte(state)
	syscall.RawSyscall6(unix.SYS_SENDTO, c.stream, uintptr(unsafe.Pointer(&c.one)), 1, unix.MSG_NOSIGNAL, 0, 0)
}

//go:nosplit
//go:norace
func (c *child) fail(step, text uint32, errno syscall.Errno) {
	c.state[1], c.state[2], c.state[3] = step, uint32(errno), text
	c.say(Failed)
	c.exit(127)
}

//go:nosplit
//go:norace
func (c *child) exit(status uintptr) {
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, status, 0, 0)
	}
}

// fault does what tests have planned for a point.
//
//go:nosplit
//go:norace
func (c *child) fault(point int) {
	f := &c.faults[point]
	pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	switch f.kind {
	case 'k':
		syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(syscall.SIGKILL), 0)
	case 's':
		syscall.RawSyscall(unix.SYS_KILL, pid, uintptr(syscall.SIGSTOP), 0)
	case 'd':
		wait := syscall.Timespec{Sec: f.ms / 1000, Nsec: f.ms % 1000 * 1e6}
		syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&wait)), 0, 0)
	}
}
