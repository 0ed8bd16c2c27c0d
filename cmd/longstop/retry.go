package main

import (
	"context"
	"crypto/rand"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// retryFlags are what `longstop retry` was told beside the action.
type retryFlags struct {
	env                    []string
	stdin, noWait          bool
	preflight, key, reason string
}

func (a *app) retryVerb() *cobra.Command {
	var f retryFlags
	c := &cobra.Command{
		Use:   "retry ID",
		Short: "Ask for the work of an action again, where that is safe",
		Long: `Ask for the work of an action again, as a new action: the next attempt, with the same request and the same
LONGSTOP_EFFECT_TOKEN. Whether it is allowed depends on what a second execution would mean (run's --effect):

  read         always
  idempotent   once nothing of the earlier attempt can still be running
  once         only where it is shown that it did not happen: by the host's record, by a preflight, or by the
               word of a reviewer (longstop resolve)

longstop show says whether it is allowed and why not. A refused retry starts nothing. An action has one next
attempt at most; that one is what is retried then.

Values of an environment and standard input are not kept: give them again, with -e and --stdin.

Exit status: as of longstop run; 251 where it is refused.`,
		Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			a.verb = "run" // its statuses are
			return a.retry(c.Context(), args[0], &f)
		},
		ValidArgsFunction: a.completeActions,
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME to take its value from here; each that the action had")
	flags.BoolVar(&f.stdin, "stdin", false, "send standard input, where the action had one")
	flags.StringVar(&f.preflight, "preflight", "", "a script for sh -c on the host, asked first: 0 if the work is still to be done, 204 if it is done")
	flags.BoolVarP(&f.noWait, "no-wait", "d", false, "return once the host has accepted the run; print its id")
	flags.StringVar(&f.key, "key", "", "idempotency key of the new attempt")
	flags.StringVar(&f.reason, "reason", "", "why, for those who read the journal")
	a.jsonFlag(c, "the new action at its end (with -d: as accepted)")
	return c
}

func (a *app) retry(ctx context.Context, id string, flags *retryFlags) error {
	if flags.preflight != "" && strings.TrimSpace(flags.preflight) == "" {
		return usage("", "--preflight is empty")
	}
	env, err := environment(flags.env, os.LookupEnv)
	if err != nil {
		return err
	}
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	earlier, err := gateway.Action(ctx, id)
	if err != nil {
		return err
	}
	ask := longstop.RetryRequest{EnvValues: env, Preflight: flags.preflight, Key: flags.key, Reason: flags.reason, By: longstop.Requester{Via: "cli"}}
	if ask.Key == "" {
		ask.Key = "cli-" + rand.Text() // so that asking again after a lost answer starts nothing twice
	}
	if ask.StdinID, err = a.spool(ctx, gateway, flags.stdin); err != nil {
		return err
	}
	if earlier.Request.PTY {
		ask.Terminal = terminalHere(a.out, a.talk.file)
	}
	return a.launch(ctx, gateway, flags.noWait, func(ctx context.Context, from client.Offsets) (*client.Follow, error) {
		if flags.noWait {
			from = client.Offsets{Stdout: -1, Stderr: -1}
		}
		return gateway.Retry(ctx, string(earlier.ID), ask, from)
	})
}
