package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) showVerb() *cobra.Command {
	var raw bool
	c := &cobra.Command{
		Use:   "show ID…",
		Short: "What is known of an action: each fact, who said it, and when",
		Long: `Show actions, each fact on its own line: what was asked, the launch, the SSH command, the workload, a cancel,
and when the host was last seen. --raw shows instead what came over the wire, byte for byte where it can be
printed (--json has the bytes in base64).`,
		Args: ids,
		RunE: func(c *cobra.Command, args []string) error {
			if raw {
				return a.showRaw(c.Context(), args)
			}
			return a.show(c.Context(), args)
		},
		ValidArgsFunction: a.completeActions,
	}
	c.Flags().BoolVar(&raw, "raw", false, "the host's answers as they came")
	a.jsonFlag(c, "one action as an object, several as one array,")
	return c
}

// each looks several actions up; the first that cannot be found ends it.
func (a *app) each(ctx context.Context, args []string, visit func(*client.Client, longstop.Action) error) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	for _, id := range args {
		action, err := gateway.Action(ctx, id)
		if err != nil {
			return err
		}
		if err := visit(gateway, action); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) show(ctx context.Context, args []string) error {
	var list []longstop.Action
	err := a.each(ctx, args, func(_ *client.Client, action longstop.Action) error {
		list = append(list, action)
		return nil
	})
	if err != nil {
		return err
	}
	if a.json {
		printOneOrAll(a, list)
		return nil
	}
	for i := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprint(a.out, lanes(&list[i], a.now(), width(a.out)))
	}
	return nil
}

func (a *app) showRaw(ctx context.Context, args []string) error {
	type answers struct {
		ActionID longstop.ActionID    `json:"action_id"`
		Raw      []longstop.RawAnswer `json:"raw"`
	}
	var all []answers
	err := a.each(ctx, args, func(gateway *client.Client, action longstop.Action) error {
		list, err := gateway.Raw(ctx, string(action.ID))
		all = append(all, answers{action.ID, list})
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		printOneOrAll(a, all)
		return nil
	}
	for _, one := range all {
		for _, answer := range one.Raw {
			fmt.Fprintf(a.out, "%s  %s  %s  %s bytes\n%s\n", one.ActionID, clock(answer.At, a.now()), words(answer.Kind),
				number(int64(len(answer.Bytes))), plainLines(strings.TrimRight(string(answer.Bytes), "\n"), ""))
		}
		if len(one.Raw) == 0 {
			a.talk.note("%s: nothing came over the wire", one.ActionID)
		}
	}
	return nil
}
