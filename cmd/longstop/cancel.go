package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) cancelVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel ID…",
		Short: "Stop runs, and wait for the proof that nothing is left",
		Long: `Stop runs: TERM to all of each, KILL after its grace, until nothing of it is left. A run that had ended
before keeps its own end. Interrupting this stops the waiting alone: the gateway goes on until the host answers.

Exit status: 0 nothing is left, whatever ended it · 250 not confirmed, or something survives · 254 an error.`,
		Args: ids,
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), args, "cancel", a.cancelOne)
		},
		ValidArgsFunction: a.completeActions,
	}
	a.jsonFlag(c, "one action as an object, several as one array,")
	return c
}

func (a *app) reconcileVerb() *cobra.Command {
	var q inquiryFlags
	c := &cobra.Command{
		Use:   "reconcile ID…",
		Short: "Ask hosts again what became of actions; nothing is started",
		Long: `Ask each host now what became of an action whose outcome is not known. What is found is taken over; a launch
that never arrived is made void, and can then never begin. Nothing is ever started by this.

With --preflight or --verify the application is asked instead, about one action: its own script, or the one of
--with-script, is run on the host as an action of its own, and what that came to is kept with the earlier one. A
retry and a reviewer can build on it. The exit status is then the script's, as of longstop run.

Exit status: 0 known now, or still running · 250 still unknown · 254 an error.`,
		Args: ids,
		RunE: func(c *cobra.Command, args []string) error {
			if asked, err := q.ask(args); asked != nil || err != nil {
				return a.inquire(c.Context(), asked, args, err)
			}
			return a.asking(c.Context(), args, "reconcile", a.reconcileOne)
		},
		ValidArgsFunction: a.completeActions,
	}
	q.define(c.Flags())
	a.jsonFlag(c, "one action as an object, several as one array,")
	return c
}

// asking does something to each action, one after the other, and prints what each has come to. One that
// fails does not keep the others from being asked.
func (a *app) asking(ctx context.Context, args []string, verb string, one func(context.Context, *client.Client, string) (longstop.Action, int, error)) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	ctx, stop := interrupted(ctx)
	defer stop()
	var list []longstop.Action
	exits := make([]int, 0, len(args))
	for _, id := range args {
		action, exit, err := one(ctx, gateway, id)
		if ctx.Err() != nil {
			a.talk.note("left: the gateway goes on with %s%slongstop show %s", plain(id), between, plain(id))
			exits = append(exits, longstop.ExitUnknown)
			break
		}
		if err != nil && len(args) == 1 {
			if a.json {
				a.json = !a.printAction(ctx, gateway, err)
			}
			if exit != 0 {
				a.fail(err)
				return status(exit)
			}
			return err
		}
		if err != nil {
			a.talk.problem(errorText(asError(err), ""))
			exit = max(exit, longstop.ExitOurs)
		}
		if action.ID != "" {
			list = append(list, action)
		}
		exits = append(exits, exit)
	}
	if a.json {
		printOneOrAll(a, list)
	}
	if exit := worst(exits); exit != 0 {
		return status(exit)
	}
	return nil
}

func (a *app) cancelOne(ctx context.Context, gateway *client.Client, id string) (longstop.Action, int, error) {
	before, err := gateway.Action(ctx, id)
	if err != nil {
		return longstop.Action{}, 0, err
	}
	id = string(before.ID)
	if before.Alive == longstop.AliveNo && before.Settled() {
		a.talk.note("%s was over already%s%s", id, between, ending(&before))
		return before, 0, nil
	}
	a.talk.note("cancelling %s%s%s on %s", id, between, cut(command(&before.Request), 60), plain(before.Host))
	action, err := gateway.Cancel(ctx, id, func(line string) { a.talk.note("%s", plain(line)) })
	switch {
	case errors.Is(err, client.ErrGone):
		// The wish is kept in the journal before it is carried out: whoever comes next goes on with it.
		if action, err = gateway.Action(ctx, id); err != nil {
			return action, longstop.ExitOurs, err
		}
	case err != nil:
		return action, cancelStatus(asError(err)), err
	}
	a.talk.note("%s %s", id, cancelEnding(&action))
	if action.Alive == longstop.AliveNo {
		return action, 0, nil
	}
	return action, longstop.ExitUnknown, nil
}

// cancelStatus tells an unconfirmed cancel, which goes on, from an error of ours.
func cancelStatus(e *longstop.Error) int {
	switch longstop.Codes[e.Code].Exit {
	case longstop.ExitUnknown, longstop.ExitNotStarted:
		return longstop.ExitUnknown
	}
	return longstop.ExitOurs
}

// cancelEnding is what a cancel has come to.
func cancelEnding(a *longstop.Action) string {
	if a.Settled() && !a.ReleasedAlive() {
		return ending(a)
	}
	text := "is not stopped yet: cancel " + words(string(a.Cancel.State))
	if a.Cancel.Because != "" {
		text += " (" + plain(a.Cancel.Because) + ")"
	}
	if n := len(a.Workload.Survivors); n > 0 {
		return text + between + count(n, "process", "processes") + " cannot be stopped: " + survivors(a.Workload.Survivors)
	}
	switch {
	case a.Cancel.State == longstop.CancelRefused:
		return text + between + "nothing was signalled"
	case a.Cancel.State == longstop.CancelDelivered && a.Cancel.Because != "":
		return text
	}
	return text + between + "it is asked until the host answers"
}

func (a *app) reconcileOne(ctx context.Context, gateway *client.Client, id string) (longstop.Action, int, error) {
	action, err := gateway.Reconcile(ctx, id, func(line string) { a.talk.note("%s", plain(line)) })
	if err != nil {
		exit := longstop.ExitOurs
		if known, lookErr := gateway.Action(ctx, id); lookErr == nil && known.Outcome == longstop.OutcomeUnknown {
			action, exit = known, longstop.ExitUnknown
		}
		return action, exit, err
	}
	switch {
	case action.Request.Owner == longstop.OwnerNone:
		a.talk.note("%s is a direct action: nobody on %s can be asked about it%slongstop show %s", action.ID, plain(action.Host), between, action.ID)
	case action.Settled():
		a.talk.note("%s %s", action.ID, ending(&action))
	default:
		a.talk.note("%s %s%salive %s%soutcome %s", action.ID, state(&action), between, action.Alive, between, verdict(&action))
		if why := unseen(&action); why != "" {
			a.talk.note("%s", lostSight(&action, why, a.now()))
		}
	}
	if action.Outcome == longstop.OutcomeUnknown {
		a.advise(&action)
		return action, longstop.ExitUnknown, nil
	}
	return action, 0, nil
}
