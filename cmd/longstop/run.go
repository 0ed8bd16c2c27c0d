package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/lifecycle"
)

func (a *app) runVerb() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run HOST [flags] [-c SCRIPT | -- COMMAND [ARG…]]",
		Short: "Run a command on a host and wait for its end",
		Long: `Run a command on a host, as ssh would: its output comes through byte for byte, and its exit status is
this command's own. Unlike ssh, the run has an owner on the host: a lost connection is resumed at the byte
where it broke, and the run is over when its main process has ended and nothing of it is left.

What follows -- are the arguments, exactly: no shell sees them, here or there. -c takes one script for sh -c;
--script-file one from a file ("-" is standard input), of up to 8 MiB.

The first Ctrl-C cancels the run and waits for the proof that nothing is left; a second one leaves that to
the gateway. Ending longstop in any other way (TERM, a hangup, a closed terminal) stops the waiting alone: the
run goes on, and longstop wait takes it up again. So does a reader that goes away, as in "| head": longstop
says so and ends with 253; longstop cancel stops the run.

With --pty the run has a terminal, of this one's size and kind: both streams come as one, and lines end in CR LF.
Nobody types there: a program that reads it finds its end, one that sets it up for typing waits in vain.

With --direct the command goes to the host as it is, over SSH alone: for hosts without a runner. Nobody there owns
it, so its outcome is called unknown whatever becomes of it; the exit status is the word of the SSH command alone.
Arguments that would have to be quoted, and a script's environment, are refused: -c gives what the host is to read.
Values given with -e are seen in the host's list of processes.

With --json the run's output is not shown (longstop logs has it): stdout carries one action as JSON, at the
end. With -d it carries the action's id alone.

Exit status: the command's own (128+n for a signal) · 250 the outcome is unknown · 251 nothing was started ·
252 cancelled · 253 still running, or waiting for approval: left to the gateway · 254 Longstop's own error. With
-d: 0 accepted, 250, 251, 253 waiting for approval (nothing was sent), 254. The last line, and --json, tell a command's own 250 from ours.`,
		Example: `  longstop run web-1 -- ./migrate.sh --to 42
  longstop run web-1 -c 'make test 2>&1 | tail -20' --deadline 30m
  longstop run -d --detached --deadline 6h db-1 -- pg_dumpall -f /backup/all.sql
  tar c . | longstop run web-1 --stdin --cwd /srv/app -- tar x`,
		RunE: func(c *cobra.Command, args []string) error {
			a.verb = "run"
			host, request, err := f.request(c, args)
			if err != nil {
				return err
			}
			return a.run(c.Context(), host, request, &f)
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		a.verb = "run"
		return flagError(c, err,
			"flags of the command itself go after --, as in: longstop run HOST -- COMMAND -x. longstop run --help lists those of run")
	})
	f.define(c.Flags())
	a.jsonFlag(c, "the action at its end (with -d: as accepted)")
	c.ValidArgsFunction = a.completeHosts
	return c
}

// run asks for the action and follows it.
func (a *app) run(ctx context.Context, host string, r longstop.Request, flags *runFlags) error {
	env, err := environment(flags.env, os.LookupEnv)
	if err != nil {
		return err
	}
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	ask := longstop.RunRequest{Host: host, Request: r, EnvValues: env, Key: flags.key,
		SessionID: longstop.SessionID(flags.session), By: longstop.Requester{Via: "cli"}}
	if ask.Key == "" {
		ask.Key = "cli-" + rand.Text() // so that asking again after a lost answer starts nothing twice
	}
	if ask.StdinID, err = a.spool(ctx, gateway, flags.stdin); err != nil {
		return err
	}
	if r.PTY {
		ask.Terminal = terminalHere(a.out, a.talk.file)
	}
	return a.launch(ctx, gateway, flags.noWait, func(ctx context.Context, from client.Offsets) (*client.Follow, error) {
		if flags.noWait {
			return gateway.Launch(ctx, ask)
		}
		return gateway.Run(ctx, ask, from)
	})
}

// spool sends standard input to the gateway, where it is wanted, and returns its id there.
func (a *app) spool(ctx context.Context, gateway *client.Client, wanted bool) (string, error) {
	if !wanted {
		return "", nil
	}
	if isTerminal(os.Stdin) {
		a.talk.note("reading standard input to its end (Ctrl-D)")
	}
	stdin, err := gateway.SpoolStdin(ctx, os.Stdin)
	return stdin.ID, err
}

// launch follows an action that open asks for, to its end or, with noWait, until the host has answered.
func (a *app) launch(ctx context.Context, gateway *client.Client, noWait bool, open func(context.Context, client.Offsets) (*client.Follow, error)) error {
	f := &follower{app: a, client: gateway, cancels: true}
	if !a.json && !noWait {
		f.stdout, f.stderr = newSink(a.out, 0), newSink(a.talk.file, 0)
	}
	from := client.Offsets{Stdout: f.stdout.offset(), Stderr: f.stderr.offset()}
	f.open = func(ctx context.Context) (*client.Follow, error) { return open(ctx, from) }
	f.first = func(action *longstop.Action) {
		a.talk.note("%s", opening(action))
		for _, line := range findingNotes(action) {
			a.talk.note("%s", line)
		}
		if noWait && !a.json {
			fmt.Fprintln(a.out, action.ID)
		}
	}
	if noWait {
		f.until = answered
	}
	a.begun = true
	action, err := f.follow(ctx)
	if err != nil && a.noGateway && action == nil && f.failures <= 1 {
		a.begun = false // there was never anybody to ask
	}
	return a.ranTo(ctx, f, action, err, noWait)
}

// answered reports whether the host has said whether it took the run, or nobody can tell, or a person is to
// be asked first.
func answered(a *longstop.Action) bool {
	return a.Settled() || awaitsApproval(a) || a.Launch.State == longstop.LaunchAccepted || a.Launch.State == longstop.LaunchUnknown
}

// ranTo says how a run ended, or was left, and with which status.
func (a *app) ranTo(ctx context.Context, f *follower, action *longstop.Action, err error, noWait bool) error {
	if gaveUp := (*givenUp)(nil); errors.As(err, &gaveUp) {
		if a.json && action != nil {
			a.printJSON(action)
		}
		return status(longstop.ExitStillRunning)
	}
	if err != nil {
		switch longstop.CodeOf(err) {
		case longstop.CodeKeyConflict, longstop.CodeNotRetriable:
			return err // its action is another request's, or the earlier attempt
		}
		if about := actionOf(ctx, f.client, err); about != nil {
			a.rejected = about.Launch.State == longstop.LaunchRejected
			if a.json {
				a.printJSON(about)
				a.json = false
			}
		}
		return err
	}
	if a.json {
		a.printJSON(action)
	}
	if noWait && awaitsApproval(action) {
		a.talk.must("nothing was sent%slongstop wait %s", between, action.ID)
		return status(longstop.ExitStillRunning)
	}
	if noWait && !action.Settled() {
		if action.Launch.State == longstop.LaunchAccepted {
			a.talk.note("%s", accepted(action, a.now()))
			return nil
		}
		a.talk.must("the launch is unknown%sthe gateway finds out whether it began%slongstop reconcile %s", between, between, action.ID)
		return status(longstop.ExitUnknown)
	}
	exit := lifecycle.ExitStatus(action)
	if exit == longstop.ExitNotStarted || exit == longstop.ExitUnknown {
		a.talk.must("%s", ending(action))
	} else {
		a.talk.note("%s", ending(action))
	}
	a.advise(action)
	if noWait && exit != longstop.ExitNotStarted && exit != longstop.ExitUnknown {
		exit = 0 // accepted, and over already
	}
	if exit != 0 {
		return status(exit)
	}
	return nil
}

// advise says what one can do about an unknown.
func (a *app) advise(action *longstop.Action) {
	if action.Outcome == longstop.OutcomeUnknown && action.Next != "" {
		a.talk.note("%s", plain(action.Next))
	}
}
