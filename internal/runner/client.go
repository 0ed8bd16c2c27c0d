package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// What the verbs' processes do with keeper and owners: find them, start the keeper, ask.

// startWithin is how long a keeper may take to come or go.
const startWithin = 10 * time.Second

// EnsureKeeper makes sure that a keeper is there. This process then holds on to it: a keeper stays
// for as long as somebody does.
func EnsureKeeper(ctx context.Context, f *record.Folder) error {
	holds.Lock()
	defer holds.Unlock()
	if held := holds.by[f.Dir()]; held != nil {
		select {
		case <-held.gone:
		default:
			wake(held.keeper)
			return nil
		}
	}
	l, err := keeperLink(ctx, f)
	if err != nil {
		return err
	}
	var heard reply
	if err = l.send(ask{Verb: askHold}); err == nil {
		err = within(ctx, l, func() error { return l.receive(&heard) })
	}
	if err != nil {
		l.close()
		return keeperError(err)
	}
	keeper, _ := behind(l)
	holds.by[f.Dir()] = &hold{keeper: keeper.Identity, gone: l.closed()}
	return nil
}

// holds are the keepers that this process holds on to.
var holds = struct {
	sync.Mutex
	by map[string]*hold
}{by: map[string]*hold{}}

// hold is a connection that lets a keeper stay.
type hold struct {
	keeper boundary.Identity
	gone   <-chan struct{} // closed with the connection
}

// Heal lets a keeper look after the runs that nobody answers for.
func Heal(ctx context.Context, f *record.Folder) error {
	_, err := askKeeper(ctx, f, ask{Verb: askHeal})
	return err
}

// askKeeper asks the keeper, started if need be, and returns its last answer. A keeper that goes
// without a word was on its way out; asking the next one is safe, since nothing that is asked of a
// keeper happens twice.
func askKeeper(ctx context.Context, f *record.Folder, a ask) (reply, error) {
	for deadline := time.Now().Add(startWithin); ; {
		l, err := keeperLink(ctx, f)
		if err != nil {
			return reply{}, err
		}
		r, err := exchange(ctx, l, a, 0)
		l.close()
		if !lostWord(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return r, keeperError(err)
		}
	}
}

// lostWord reports whether a connection ended where an answer was expected.
func lostWord(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

func keeperError(err error) error {
	var known *longstop.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: "the keeper on the host cannot be talked to", Err: err}
}

// exchange asks on an open connection and returns the last answer. With hearing, the first must come
// within that time: os.ErrDeadlineExceeded.
func exchange(ctx context.Context, l *link, a ask, hearing time.Duration) (reply, error) {
	var r reply
	err := within(ctx, l, func() error {
		if hearing > 0 {
			l.file.SetReadDeadline(time.Now().Add(hearing))
		}
		if err := l.send(a); err != nil {
			return err
		}
		for {
			r = reply{}
			if err := l.receive(&r); err != nil {
				return err
			}
			if !r.Heard {
				break
			}
			l.file.SetReadDeadline(time.Time{})
		}
		if r.Error != nil {
			return r.Error
		}
		return nil
	})
	return r, err
}

// within runs act on a connection, and ends it with the context's error when that is over.
func within(ctx context.Context, l *link, act func() error) error {
	stop := context.AfterFunc(ctx, func() { l.file.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := act()
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return err
}

// keeperLink connects to the keeper, and starts one where there is none.
func keeperLink(ctx context.Context, f *record.Folder) (*link, error) {
	deadline := time.Now().Add(startWithin)
	for {
		l, err := dial(f.FD(), keeperSocket())
		if err == nil {
			if keeper, known := behind(l); known {
				wake(keeper.Identity)
			}
			return l, nil
		}
		if !errors.Is(err, errNobody) {
			return nil, keeperError(err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil, &longstop.Error{Code: longstop.CodeInternal, Message: "no keeper came up in " + f.Dir() + " within " + startWithin.String(),
				Hint: "Nothing was started. Look at the host: is /proc there, may the user start processes?"}
		}
		came, err := startKeeper(f)
		if err != nil {
			return nil, keeperError(err)
		}
		if !came { // another is about to be there, or to go
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// startKeeper starts a keeper, with more of an environment where a test has some, and returns when it
// listens, or when it found another one.
func startKeeper(f *record.Folder, env ...string) (came bool, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer read.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"longstop-runner", "keeper", f.Dir()}, &syscall.ProcAttr{
		Dir: "/", Env: append(servantEnv("keeper"), env...), Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), write.Fd()},
	})
	write.Close()
	if err != nil {
		return false, fmt.Errorf("start the keeper: %w", err)
	}
	read.SetReadDeadline(time.Now().Add(startWithin))
	var ready [1]byte
	n, _ := read.Read(ready[:])
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			break // it only starts the keeper, and goes
		}
	}
	return n == 1, nil
}

// detachKeeper starts the keeper proper.
func detachKeeper(dir string) int {
	null := uintptr(0)
	args := []string{"longstop-runner", "keeper", keeperStays, dir}
	how := &syscall.SysProcAttr{Setsid: true}
	home, err := cgroupHome()
	if err != nil {
		home, err = homeInScope(dir)
	}
	if err == nil {
		args = append(args, home.Dir)
		// Where runs outlive the login's cgroup, so does whoever answers for them.
		if servants, err := home.Servants(); err == nil {
			defer servants.Close()
			how.UseCgroupFD, how.CgroupFD = true, servants.FD()
		}
	}
	_, err = syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Dir: "/", Env: servantEnv("keeper"), Files: []uintptr{null, null, null, keeperReady}, Sys: how,
	})
	if err != nil {
		return exitNoAnswer
	}
	return exitAnswered
}

// loginOOM is read once: it is the login's, which nobody changes under a process that serves.
var loginOOM = sync.OnceValue(boundary.OOMScoreAdj)

// ourLogin is what workloads have from the login that this process belongs to.
func ourLogin() login {
	from := login{Dir: os.Getenv("HOME"), Umask: LoginUmask(), OOM: loginOOM()}
	if from.Dir == "" {
		from.Dir = "/"
	}
	if from.Umask < 0 {
		from.Umask = 0022
	}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); name != boundary.RunMark {
			from.Environ = append(from.Environ, []byte(entry))
		}
	}
	return from
}
