package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop/internal/client"
)

// completing gives a completion a moment, and a gateway only if one runs already.
func (a *app) completing(c *cobra.Command) (context.Context, context.CancelFunc, *client.Client) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	gateway, err := a.present()
	if err != nil {
		gateway = &client.Client{}
	}
	return ctx, cancel, gateway
}

// completeHosts completes the name of an enrolled host.
func (a *app) completeHosts(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel, gateway := a.completing(c)
	defer cancel()
	hosts, _ := gateway.Hosts(ctx)
	var names []string
	for _, h := range hosts {
		names = append(names, plain(h.Name))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeActions completes the id of an action, the newest first.
func (a *app) completeActions(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel, gateway := a.completing(c)
	defer cancel()
	list, _ := gateway.Actions(ctx, client.Filter{All: true, Limit: 30})
	var ids []string
	for i := range list {
		ids = append(ids, string(list[i].ID)+"\t"+cut(command(&list[i].Request), 60)+" on "+plain(list[i].Host))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
