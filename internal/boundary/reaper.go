package boundary

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reaper does all the waiting of one process, so that no two waiters take each other's statuses:
// a process that has one uses neither os/exec nor wait4 beside it.
//
// As long as nobody has waited for a child its number cannot be used again. Holding the lock that
// waiting needs is therefore all it takes to signal a child safely.
type Reaper struct {
	mu    sync.Mutex
	known map[int]Identity // children that were looked at, and not waited for: their numbers are theirs
}

// Exit is how one child ended.
type Exit struct {
	Stat
	Status syscall.WaitStatus
	At     time.Time
}

// Start runs start, which makes a child and returns its pid, while nobody waits: whatever becomes
// of the child, its status is found by Reap and not before Start has returned.
func (r *Reaper) Start(start func() (pid int, err error)) (Identity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := start()
	if err != nil {
		return Identity{}, err
	}
	s, err := r.child(pid)
	if err == nil && s.State == Hidden { // from the first: we could not know it again
		return Identity{}, ErrHidden
	}
	return s.Identity, err
}

// Hidden is the state of a child that /proc does not show to this user.
const Hidden = '?'

// child is a process as it looks now; of a child that is hidden, what is known otherwise. r.mu is held.
func (r *Reaper) child(pid int) (Stat, error) {
	s, err := Look(pid)
	switch {
	case err == nil && s.PPID == os.Getpid():
		if r.known == nil {
			r.known = map[int]Identity{}
		}
		r.known[pid] = s.Identity
		return s, nil
	case err != ErrHidden:
		return s, err
	}
	ours, ended := askKernel(pid)
	if !ours {
		return Stat{}, ErrHidden
	}
	s = Stat{Identity: Identity{PID: pid}, PPID: os.Getpid(), State: Hidden, Threads: 1}
	if id, known := r.known[pid]; known {
		s.Identity = id
	}
	if ended {
		s.State = 'Z'
	}
	return s, nil
}

// askKernel asks, without waiting, whether that is a child of ours, and one that has ended: a tenth of what
// reading /proc takes.
func askKernel(pid int) (ours, ended bool) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	return err == nil, err == nil && (*siginfo)(unsafe.Pointer(&info)).pid != 0
}

// Reap waits for every child that has ended, without blocking. For each, witness is called while
// the child is still a zombie: should this process die before witness returns, its own parent
// inherits the zombie with its status. It reports whether the process has no child left, which is
// the kernel's own word (ECHILD). One goroutine at a time calls it.
func (r *Reaper) Reap(witness func(Exit)) (empty bool) {
	return r.ReapMany(func(int) bool { return true }, witness)
}

// ReapMany is Reap for whoever inherits very many: of those that do not concern it, witness is told the
// number and the status alone, for which nothing is read.
func (r *Reaper) ReapMany(concerns func(pid int) bool, witness func(Exit)) (empty bool) {
	for {
		exit, found, none := peek()
		if found {
			if concerns(exit.PID) {
				r.mu.Lock()
				if s, err := r.child(exit.PID); err == nil {
					exit.Stat = s
				}
				r.mu.Unlock()
			}
			if witness != nil {
				witness(exit)
			}
			r.wait(exit.PID, unix.WALL)
			continue
		}
		if !none {
			return false
		}
		// Neither is there a child of the other kind, whose exit signal is not SIGCHLD. Reaping
		// one may have handed us its children: look again.
		if pid, err := r.wait(-1, unix.WCLONE); pid <= 0 {
			return err == unix.ECHILD
		}
	}
}

func (r *Reaper) wait(pid, kind int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(pid, &status, unix.WNOHANG|kind, nil)
		if err != unix.EINTR {
			delete(r.known, got)
			return got, err
		}
	}
}

// siginfo is the start of siginfo_t as waitid(2) fills it in, on 64-bit Linux.
type siginfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
}

// peek finds a child that has ended and leaves it a zombie. none is the kernel's ECHILD: there is
// no child, dead or alive.
func peek() (exit Exit, found, none bool) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		child := (*siginfo)(unsafe.Pointer(&info))
		if err != nil || child.pid == 0 {
			return Exit{}, false, err == unix.ECHILD
		}
		return Exit{Stat: Stat{Identity: Identity{PID: int(child.pid)}}, Status: waitStatus(child), At: time.Now()}, true, false
	}
}

// waitStatus makes the status of wait4(2) from waitid's code and value.
func waitStatus(child *siginfo) syscall.WaitStatus {
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	switch child.code {
	case exited:
		return syscall.WaitStatus(child.status&0xff) << 8
	case dumped:
		return syscall.WaitStatus(child.status&0x7f | 0x80)
	}
	return syscall.WaitStatus(child.status & 0x7f)
}

// Children returns every child of this process, dead or alive, and misses none: nobody is waited
// for meanwhile, so that the kernel's list only grows at its end. A child that comes later comes
// from under one that is in the list.
func (r *Reaper) Children() []Stat {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Stat
	for _, pid := range Children(os.Getpid(), 0) {
		if s, err := r.child(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// ChildNumbers is Children for whoever looks only at some of them, in the order in which they came. A number
// is that child's until somebody waits for it.
func (r *Reaper) ChildNumbers() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Children(os.Getpid(), 0)
}

// Walk is Walk from this process on, beginning with those of its children. Of one that /proc hides it visits
// what is known otherwise.
func (r *Reaper) Walk(children []int, visit func(Stat) (descend bool)) {
	walk(os.Getpid(), children, func(pid int) (Stat, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.child(pid)
	}, visit)
}

// Signal is Signal, with the certainty of a parent where the process is our own child.
func (r *Reaper) Signal(id Identity, sig unix.Signal, following ...unix.Signal) error {
	if err := sendable(id.PID); err != nil {
		return err
	}
	if done, err := r.signalChild(id, sig, following); done {
		return err
	}
	return Signal(id, sig, following...)
}

// signalChild looks once for all signals: the number of a child is its own until it is waited for, which
// nobody does meanwhile.
func (r *Reaper) signalChild(id Identity, sig unix.Signal, following []unix.Signal) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ours, ended := false, false
	if r.known[id.PID] == id {
		ours, ended = askKernel(id.PID)
	}
	if !ours {
		s, err := r.child(id.PID)
		if err == ErrHidden {
			return true, err
		}
		if err != nil || s.Identity != id {
			return true, ErrGone
		}
		if ended = s.Dead(); !ended && s.PPID != os.Getpid() {
			return false, nil
		}
	}
	if ended {
		return true, ErrGone
	}
	if err := gone(unix.Kill(id.PID, sig)); err != nil {
		return true, err
	}
	for _, sig := range following {
		unix.Kill(id.PID, sig)
	}
	return true, nil
}
