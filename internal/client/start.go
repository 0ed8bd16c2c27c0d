package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/longstop/longstop"
)

const (
	// ReadyEnv names the descriptor, in a gateway's environment, on which it says once that it
	// listens (ReadyWord) or, as one JSON longstop.Error, why it cannot.
	ReadyEnv = "LONGSTOP_READY_FD"
	// ReadyWord is what a gateway that listens says.
	ReadyWord = "ready\n"

	startPatience = 30 * time.Second // how long a gateway may take until it listens
	longestLog    = 8 << 20          // bytes; a longer log is put aside at the next start
	stopPatience  = 30 * time.Second // how long a gateway may take to end
	startTries    = 3                // how often a gateway is started that is killed before it listens
)

// FindDaemon finds longstopd: beside this very executable, then on PATH.
func FindDaemon() (string, error) {
	if self, err := os.Executable(); err == nil {
		for _, dir := range []string{filepath.Dir(self), filepath.Dir(resolve(self))} {
			beside := filepath.Join(dir, "longstopd")
			if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
				return beside, nil
			}
		}
	}
	found, err := exec.LookPath("longstopd")
	if err != nil {
		return "", &longstop.Error{Code: longstop.CodeInternal,
			Message: "longstopd, the gateway, is neither beside longstop nor on PATH",
			Hint:    "install it beside longstop (make build leaves both in bin/)"}
	}
	return filepath.Abs(found)
}

// Start starts the gateway of a home and returns once one listens: the one it started, or another
// that was quicker (the gateway's lock decides). The gateway is a session of its own and keeps no
// descriptor of its starter's: what it prints goes to the home's log.
func Start(ctx context.Context, home Home) error {
	if err := home.Make(); err != nil {
		return err
	}
	program, err := FindDaemon()
	if err != nil {
		return err
	}
	err = start(ctx, home, program)
	for tries := 1; tries < startTries && errors.Is(err, errKilled); tries++ {
		err = start(ctx, home, program)
	}
	return err
}

// errKilled says that a signal ended the gateway before it listened.
var errKilled = errors.New("it was killed")

func start(ctx context.Context, home Home, program string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	defer null.Close()
	turnLog(home.Log())
	log, err := os.OpenFile(home.Log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return folderError(home.Dir, err)
	}
	defer log.Close()
	ready, told, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	defer ready.Close()
	keepFromChildren()
	process, err := os.StartProcess(program, []string{program}, &os.ProcAttr{
		Dir:   "/",
		Env:   daemonEnv(home),
		Files: []*os.File{null, log, log, told},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	told.Close()
	if err != nil {
		return &longstop.Error{Code: longstop.CodeInternal, Message: "the gateway could not be started", Err: err, Hint: "longstop doctor"}
	}
	defer process.Release() // who ends before it leaves it to init
	return awaitReady(ctx, ready, home, process)
}

// daemonEnv is the starter's environment with the gateway's own values in place of what it has: of a
// name that is there twice, most programs take the first.
func daemonEnv(home Home) []string {
	own := map[string]string{"LONGSTOP_HOME": home.Dir, ReadyEnv: "3"}
	if home.LendAgent(os.Getenv) {
		own[agentEnv] = home.agent() // later commands keep it up to date
	}
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, replaced := own[name]
		return replaced
	})
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// turnLog puts a long log aside, in place of the one that was put aside before.
func turnLog(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > longestLog {
		os.Rename(path, path+".1") // else it grows on
	}
}

// keepFromChildren marks every descriptor but the first three as this process's alone: what our own
// starter left open to us (a lock, a pipe that somebody reads to its end) is not for a daemon to hold.
func keepFromChildren() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: they are left as they are
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

func awaitReady(ctx context.Context, ready *os.File, home Home, process *os.Process) error {
	ready.SetReadDeadline(time.Now().Add(startPatience))
	defer context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })()
	said, err := io.ReadAll(io.LimitReader(ready, 64<<10))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &longstop.Error{Code: longstop.CodeInternal,
			Message: fmt.Sprintf("the gateway was started but does not listen after %s", startPatience), Hint: "see " + home.Log()}
	case err != nil:
		return fmt.Errorf("start the gateway: %w", err)
	case string(said) == ReadyWord:
		return nil
	case len(said) == 0:
		return endedEarly(home, process)
	}
	problem := new(longstop.Error)
	if err := json.Unmarshal(said, problem); err != nil || problem.Message == "" {
		return &longstop.Error{Code: longstop.CodeInternal, Message: fmt.Sprintf("the gateway said %.200q instead of being ready", said), Hint: "see " + home.Log()}
	}
	return problem
}

// endedEarly is for a gateway that has said nothing and never will.
func endedEarly(home Home, process *os.Process) error {
	early := &longstop.Error{Code: longstop.CodeInternal, Message: "the gateway ended before it listened", Hint: "see " + home.Log()}
	state, err := process.Wait()
	if err == nil {
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			early.Err = errKilled
			return early
		}
	}
	early.Message += lastWords(home.Log())
	return early
}

// lastWords is the last line of a log, to be put behind a sentence.
func lastWords(path string) string {
	log, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > 4<<10 {
		log.Seek(-4<<10, io.SeekEnd)
	}
	last := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			last = line
		}
	}
	if last == "" {
		return ""
	}
	return ": " + last
}

// Running reports whether a gateway's process holds the home's lock, listening or not.
func Running(home Home) (bool, error) {
	lock, err := os.Open(home.Lock())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the gateway's lock: %w", err)
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the gateway's lock: %w", err)
	}
	return false, nil
}

// Holder is the process id that the gateway wrote into its lock: for people, who may find another
// process under it by now. 0: none.
func Holder(home Home) int {
	text, err := os.ReadFile(home.Lock())
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// AwaitEnd returns once no process holds the home's lock: what it asked to stop has ended.
func AwaitEnd(ctx context.Context, home Home) error {
	lock, err := os.Open(home.Lock())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the gateway's lock: %w", err)
	}
	free := make(chan error, 1)
	go func() { // left behind on a timeout, blocked in flock(2); the command ends soon after
		defer lock.Close()
		free <- syscall.Flock(int(lock.Fd()), syscall.LOCK_SH)
	}()
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case err := <-free:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return &longstop.Error{Code: longstop.CodeInternal,
			Message: fmt.Sprintf("the gateway did not end within %s", stopPatience), Hint: "see " + home.Log()}
	}
}
