// Command longstopd is the gateway's daemon: it chooses the hands (store, transports, runners),
// makes sure that it is the only gateway of its folder, serves the API on a Unix socket, and ends
// in good order on TERM. `longstop` starts it on demand; it may as well be started by hand, or by
// a service manager, and then speaks on standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/api"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/demo"
)

// endPatience is how long answers being given, and the gateway's channels, may take to end.
const endPatience = 5 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == "demo" { // what `longstop demo` becomes
		os.Exit(demo.Main(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == "journal" { // what `longstop journal` starts
		os.Exit(journalMain())
	}
	version := flag.Bool("version", false, "print the version and end")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), `longstopd is Longstop's gateway. longstop starts it when it needs one; started by hand it stays in the
foreground and writes its log to standard error. TERM ends it; runs go on without it until their leases end.

  LONGSTOP_HOME   its folder (default $XDG_STATE_HOME/longstopd, else ~/.local/state/longstopd)

In that folder, longstopd.json may say how long hosts keep the output of what is over, and how long a session in
which nothing happens stays open, here with the defaults:

  {"retention": {"keep_days": 7, "unread_days": 30, "max_age_days": 180, "every_s": 3600},
   "sessions": {"idle_hours": 24}}

keep_days after its end, output that was read to its end goes; unread_days, any of this gateway; max_age_days,
that of any gateway of the account. Results are kept for ever. Hosts are tidied every_s seconds.

It may also say what is secret, and is masked in all that is kept, shown, exported and sent (docs/redaction.md), and whose
cosignatures of the journal's checkpoints are kept:

  {"redact": {"literals_file": "secrets", "patterns": ["token=(\\S+)"]}, "witnesses": ["NAME+HASH+KEY"]}

It may also say who is told of what waiting does not mend (docs/escalation.md):

  {"escalate": {"webhook": {"url": "https://…", "timeout_s": 10, "secret_file": "/…"},
                "command": ["/usr/local/bin/page", "…"], "command_timeout_s": 10}}

`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *version {
		fmt.Println("longstopd", longstop.Version)
		return
	}
	starter := takeStarter()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(longstop.ExitOurs)
	}
	if err := run(starter); err != nil {
		starter.failed(err)
		fmt.Fprintln(os.Stderr, "longstopd:", err)
		if known := (*longstop.Error)(nil); errors.As(err, &known) && known.Hint != "" {
			fmt.Fprintln(os.Stderr, " ", known.Hint)
		}
		os.Exit(longstop.ExitOurs)
	}
}

// run is the daemon's life:
//
//  1. folders, and the lock that makes it the only gateway of its home; where another one listens
//     already, there is nothing to do;
//  2. the store and the gateway, which begins to ask about unresolved runs;
//  3. the socket; only now is it ready, and others that wait to start look again;
//  4. on TERM, INT or a client's request, and where its home was removed: no new requests, streams
//     told, channels closed, store closed. Runs are left alone. The lock goes with the process.
func run(starter *starter) error {
	syscall.Umask(0o077)
	home, err := client.FindHome(os.Getenv)
	if err != nil {
		return err
	}
	if err := home.Make(); err != nil {
		return err
	}
	lock, err := takeLock(home)
	if err != nil {
		return err
	}
	if lock == nil {
		if starter == nil {
			return &longstop.Error{Code: longstop.CodeUsage, Message: "a gateway of " + home.Dir + " runs already", Hint: "longstop daemon status"}
		}
		starter.ready()
		return nil
	}
	defer lock.release()

	out := new(logOutput)
	log := slog.New(slog.NewTextHandler(out, nil))
	log.Info("starting", "version", longstop.Version, "pid", os.Getpid(), "home", home.Dir)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP)

	gateway, closeAll, err := open(home, log, out)
	if err != nil {
		return err
	}
	defer closeAll()
	place := &place{home: home, lock: lock}
	listener, err := place.listen()
	if err != nil {
		return err
	}
	server := api.New(gateway, log, func() {
		select {
		case stop <- syscall.SIGTERM:
		default:
		}
	})
	served := make(chan error, 1)
	serve := func(l net.Listener) { go func() { served <- server.Serve(l) }() }
	serve(listener)
	gone := make(chan struct{})
	go func() { place.keep(serve, log); close(gone) }()
	lock.listening()
	starter.ready()
	log.Info("ready", "socket", home.Socket())

	select {
	case err := <-served:
		return err
	case why := <-stop:
		signal.Stop(stop) // a second one ends us at once
		log.Info("ending", "because", why.String())
	case <-gone:
		log.Warn("ending", "because", "the home "+home.Dir+" was removed, or is another gateway's now")
	}
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Warn("shutdown", "err", err)
	}
	return nil
}

// listen makes the socket, for this user alone. The lock is held: a socket that lies there is a
// dead gateway's.
func listen(home client.Home) (net.Listener, error) {
	if err := os.Remove(home.Socket()); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove a dead gateway's socket: %w", err)
	}
	l, err := net.Listen("unix", home.Socket())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(home.Socket(), 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
