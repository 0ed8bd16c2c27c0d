package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/lifecycle"
)

func (a *app) waitVerb() *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait until actions are over",
		Long: `Wait until the work of actions is over, wherever it was started from. Interrupting the wait, or its --timeout,
changes nothing about the work; that somebody stopped waiting is recorded.

Exit status for one action: as of longstop run. For several: 0 when all succeeded, else the first that applies
of 254 (an error of Longstop's), 250 (unknown), 253 (still running), 251 (not started), 252 (cancelled), 1
(failed).`,
		Args: ids,
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 || limit == 0 && c.Flags().Changed("timeout") {
				return usage("write it as 90s, 10m or 6h", "--timeout %s is no length of time", limit)
			}
			if len(args) == 1 {
				a.verb = "wait"
				return a.waitOne(c.Context(), args[0], limit)
			}
			return a.waitAll(c.Context(), args, limit)
		},
		ValidArgsFunction: a.completeActions,
	}
	c.Flags().DurationVar(&limit, "timeout", 0, "stop waiting after this long")
	a.jsonFlag(c, "one action as an object, several as one array,")
	return c
}

func (a *app) waitOne(ctx context.Context, id string, limit time.Duration) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	action, err := gateway.Action(ctx, id)
	if err != nil {
		return err
	}
	f := &follower{app: a, client: gateway, action: &action, limit: limit}
	f.open = f.again()
	end, err := f.follow(ctx)
	return a.ranTo(ctx, f, end, err, false)
}

// waitAll waits for several actions, each with a stream of its own.
func (a *app) waitAll(ctx context.Context, args []string, limit time.Duration) error {
	var actions []longstop.Action
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	err = a.each(ctx, args, func(_ *client.Client, action longstop.Action) error {
		actions = append(actions, action)
		return nil
	})
	if err != nil {
		return err
	}
	// A follower hears signals by itself: each leaves, and records it, on its own.
	signal.Ignore(syscall.SIGPIPE)
	exits := make([]int, len(actions))
	var all sync.WaitGroup
	for i := range actions {
		f := &follower{app: a, client: gateway, action: &actions[i], limit: limit}
		f.open = f.again()
		all.Go(func() { exits[i] = a.waited(ctx, f, &actions[i]) })
	}
	all.Wait()
	if a.json {
		printOneOrAll(a, actions)
	}
	if exit := worst(exits); exit != 0 {
		return status(exit)
	}
	return nil
}

// waited follows one of several actions and leaves its last sight in its place.
func (a *app) waited(ctx context.Context, f *follower, place *longstop.Action) int {
	end, err := f.follow(ctx)
	if end != nil {
		*place = *end
	}
	if gaveUp := (*givenUp)(nil); errors.As(err, &gaveUp) {
		return longstop.ExitStillRunning
	}
	if err != nil {
		a.talk.problem(errorText(asError(err), ""))
		return longstop.ExitOurs
	}
	a.talk.note("%s %s", end.ID, ending(end))
	if end.Outcome == longstop.OutcomeFailed {
		return 1 // of several, a workload's own status is not told, and must not be taken for one of ours
	}
	return lifecycle.ExitStatus(end)
}

// worst is the exit status of several waits: the first that applies.
func worst(exits []int) int {
	for _, first := range []int{longstop.ExitOurs, longstop.ExitUnknown, longstop.ExitStillRunning, longstop.ExitNotStarted, longstop.ExitCancelled} {
		for _, exit := range exits {
			if exit == first {
				return first
			}
		}
	}
	for _, exit := range exits {
		if exit != 0 {
			return 1
		}
	}
	return 0
}

// interrupted is a context that an interrupt, TERM or hangup ends.
func interrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
