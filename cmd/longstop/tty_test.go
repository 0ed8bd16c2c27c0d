package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// types is the script command
//
//	types N FILE CMD…
//
// CMD has a terminal of its own, at which somebody types a line of FILE (^C: Ctrl-C) at each prompt, and
// nothing ahead of one. It ends with exit status N, and leaves the terminal with its echo. What that showed
// is left in the file tty, stdout and stderr in out and err.
func types(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: types N FILE CMD…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[1]), "\n"), "\n")
	var env []string
	for _, name := range []string{"PATH", "HOME", "LONGSTOP_HOME", "LONGSTOP_TOKEN", "TZ", "SSH_AUTH_SOCK"} {
		if value := ts.Getenv(name); value != "" || name == "SSH_AUTH_SOCK" {
			env = append(env, name+"="+value)
		}
	}
	path := ""
	for _, dir := range strings.Split(ts.Getenv("PATH"), ":") {
		if _, err := os.Stat(dir + "/" + args[2]); err == nil && path == "" {
			path = dir + "/" + args[2]
		}
	}
	var out, errs bytes.Buffer
	command := &exec.Cmd{Path: path, Args: args[2:], Env: env, Dir: ts.MkAbs("."), Stdout: &out, Stderr: &errs}
	shown, got, err := typed(command, lines)
	ts.Check(err)
	for name, text := range map[string]string{"tty": shown, "out": out.String(), "err": errs.String()} {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
	ts.Logf("[tty]\n%s[out]\n%s[err]\n%s", shown, out.String(), errs.String())
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// typed runs a command on a new terminal and types a line at each prompt: what ends with ": ".
func typed(command *exec.Cmd, lines []string) (shown string, exit int, err error) {
	master, slave, err := newTerminal()
	if err != nil {
		return "", 0, err
	}
	defer master.Close()
	command.ExtraFiles = []*os.File{slave}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	err = command.Start()
	slave.Close()
	if err != nil {
		return "", 0, err
	}
	bound := time.AfterFunc(time.Minute, func() { command.Process.Kill() })
	defer bound.Stop()
	var all bytes.Buffer
	part := make([]byte, 4096)
	for {
		n, err := master.Read(part)
		all.Write(part[:n])
		if err != nil {
			break // EIO: nobody has the other end any more
		}
		if bytes.HasSuffix(all.Bytes(), []byte(": ")) && len(lines) > 0 {
			fmt.Fprint(master, strings.Replace(lines[0]+"\n", "^C\n", "\x03", 1))
			lines = lines[1:]
		}
	}
	err = command.Wait()
	if now, failed := unix.IoctlGetTermios(int(master.Fd()), unix.TCGETS); failed != nil || now.Lflag&unix.ECHO == 0 {
		return all.String(), 0, fmt.Errorf("the terminal is left without its echo (%v)", failed)
	}
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return all.String(), ended.ExitCode(), nil
	}
	return all.String(), 0, err
}

// newTerminal makes a pseudo-terminal (pty(7)).
func newTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err == nil {
		var number int
		if number, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN); err == nil {
			slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
		}
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
