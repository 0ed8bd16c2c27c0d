package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// lockPatience is how long another gateway may take to start, or to end, before we give up.
const lockPatience = 20 * time.Second

// lock makes this process the only gateway of its home. It is a kernel lock (flock(2)): it ends
// with the process and never has to be removed.
type lock struct {
	held     *os.File // as long as the process lives
	starting *os.File // until it listens
}

// takeLock takes a home's lock. Nil without an error: another gateway has it and listens.
//
// Whoever starts holds the start lock first, so that a second starter waits until the first one
// listens instead of guessing. A gateway that has the lock and does not listen is ending: its
// successor waits for it.
func takeLock(home client.Home) (*lock, error) {
	starting, err := openLock(home.StartLock())
	if err != nil {
		return nil, err
	}
	if err := flockWithin(starting, lockPatience); err != nil {
		starting.Close()
		return nil, busy(home, "another gateway has been starting", err)
	}
	held, err := openLock(home.Lock())
	if err != nil {
		starting.Close()
		return nil, err
	}
	if err = flock(held, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if err := outlast(held, home); err != nil {
			held.Close()
			starting.Close()
			if err == errListens {
				return nil, nil
			}
			return nil, busy(home, "another gateway has the lock and does not listen", err)
		}
	}
	if !inPlace(held, home.Lock()) {
		held.Close()
		starting.Close()
		return nil, &longstop.Error{Code: longstop.CodeInternal, Message: "somebody removed the gateway's lock " + home.Lock() + " while it was taken",
			Hint: "the same command again"}
	}
	held.Truncate(0)
	held.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // for people; nobody acts on it
	return &lock{held, starting}, nil
}

func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the gateway's lock: %w", err)
	}
	return f, nil
}

// flock locks f, waiting for it where how does not say LOCK_NB.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// flockWithin waits for a lock, but not for ever. On a timeout the file must be closed.
func flockWithin(f *os.File, patience time.Duration) error {
	got := make(chan error, 1)
	go func() { got <- flock(f, syscall.LOCK_EX) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-got:
		return err
	case <-timer.C:
		return fmt.Errorf("not free after %s", patience)
	}
}

// errListens says that another gateway listens.
var errListens = errors.New("another gateway listens")

// outlast waits for a lock whose holder does not listen: it is ending, or its socket was removed and
// it is about to make it again (errListens).
func outlast(held *os.File, home client.Home) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		if listens(home) {
			return errListens
		}
		if err := flock(held, syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not free after %s", lockPatience)
		}
	}
}

// inPlace reports whether path still leads to the file: a lock on one that somebody removed keeps
// nobody out.
func inPlace(f *os.File, path string) bool {
	mine, err1 := f.Stat()
	there, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, there)
}

func listens(home client.Home) bool {
	conn, err := net.Dial("unix", home.Socket())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func busy(home client.Home, what string, err error) error {
	pid, _ := os.ReadFile(home.Lock())
	return &longstop.Error{Code: longstop.CodeInternal, Message: what, Err: err,
		Hint: fmt.Sprintf("look at process %.20s and at %s", trimNewline(pid), home.Log())}
}

func trimNewline(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return string(b)
}

// listening lets waiting starters look again.
func (l *lock) listening() {
	l.starting.Close()
	l.starting = nil
}

func (l *lock) release() {
	if l.starting != nil {
		l.starting.Close()
	}
	// held is closed by the end of the process, after everything else.
}
