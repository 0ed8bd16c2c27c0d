// Package demo tells what Longstop is for, in a page of output, on this machine alone: an SSH
// server on loopback, a daemon of its own, and the commands as a person types them. It believes no
// command: what it says about the work it saw in the process table and in files, and where that is
// not what the page promises, it says so and fails. Everything it starts, it ends.
//
// It is part of longstopd, since longstop links no SSH library.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options of one telling.
type options struct {
	longstop string        // path of the command
	work     time.Duration // how long the work of the first two chapters takes
	goServer bool          // the SSH server in Go, even where there is an sshd
}

// Main is `longstopd demo`, which `longstop demo` becomes. It returns the exit status: 0 if all
// that it promises was seen.
func Main(args []string) int {
	flags := flag.NewFlagSet("longstop demo", flag.ContinueOnError)
	beside := filepath.Join(filepath.Dir(self()), "longstop")
	longstop := flags.String("longstop", beside, "path of the longstop command")
	quick := flags.Bool("quick", false, "four seconds of work instead of twelve")
	goServer := flags.Bool("go-server", false, "use the SSH server in Go, even where OpenSSH's is installed")
	if err := flags.Parse(args); err != nil {
		return 254
	}
	o := options{longstop: *longstop, work: 12 * time.Second, goServer: *goServer}
	if *quick {
		o.work = 4 * time.Second
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch err := tell(ctx, o); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "longstop demo: interrupted; what it started has been ended")
		return 130
	default:
		fmt.Fprintln(os.Stderr, "longstop demo:", err)
		return 254
	}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// tell sets the stage, plays the chapters in order and clears the stage, whatever happened.
func tell(ctx context.Context, o options) (err error) {
	began := time.Now()
	s, err := newStage(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	if err := s.set(ctx); err != nil {
		return err
	}
	s.page.title("What Longstop is for, in a page")
	s.page.say("host %q: %s, started for this on %s; logging in as %s with %s", s.host, s.serverName(), s.server.Addr, s.server.User, s.clientName())
	for _, chapter := range []func(*stage, context.Context) error{
		(*stage).plainSSH, (*stage).sameWorkAsRun, (*stage).cancelTree, (*stage).lostConnection, (*stage).killedDaemon,
	} {
		if err := chapter(s, ctx); err != nil {
			return err
		}
	}
	s.page.title("The end, after %s", seconds(time.Since(began)))
	return nil
}
