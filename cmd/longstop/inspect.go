package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) inspectVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "inspect ID",
		Short: "Every process of a run, as its host sees them now",
		Args:  exactly("ID"),
		RunE: a.asks(func(ctx context.Context, gateway *client.Client, args []string) error {
			seen, err := gateway.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(seen)
				return nil
			}
			if len(seen.Processes) > 0 || seen.Owner != nil || seen.Keeper != nil {
				a.printTable(processTable(&seen))
			}
			if len(seen.Processes) == 0 {
				a.talk.note("its host has no process of it%slongstop show %s", between, plain(args[0]))
			}
			if !seen.Complete {
				a.talk.note("an owner is gone: there may be processes that cannot be told from others'")
			}
			return nil
		}),
		ValidArgsFunction: a.completeActions,
	}
	a.jsonFlag(c, "the processes")
	return c
}

// processTable shows the work's processes as a tree, and above them Longstop's own.
func processTable(seen *client.Inspection) *table {
	t := new(table)
	t.row("", "PID", "PPID", "PGID", "SID", "UID", "STATE", "FOR", "COMMAND")
	show := func(p *longstop.Process, depth int, remark string) {
		t.row(remark, strconv.Itoa(p.PID), strconv.Itoa(p.PPID), strconv.Itoa(p.PGID), strconv.Itoa(p.SID), strconv.Itoa(p.UID),
			plain(p.State), rough(time.Duration(p.ElapsedMS)*time.Millisecond), strings.Repeat("  ", depth)+plain(p.Command))
	}
	if seen.Keeper != nil {
		show(seen.Keeper, 0, "(keeper)")
	}
	if seen.Owner != nil {
		show(seen.Owner, 0, "(owner)")
	}
	children, inside := map[int][]int{}, map[int]bool{}
	for _, p := range seen.Processes {
		inside[p.PID] = true
	}
	for i, p := range seen.Processes {
		if !inside[p.PPID] || p.PPID == p.PID {
			p.PPID = -1 // a root of what is shown
		}
		children[p.PPID] = append(children[p.PPID], i)
	}
	shown := map[int]bool{}
	var walk func(parent, depth int)
	walk = func(parent, depth int) {
		for _, i := range children[parent] {
			if !shown[i] {
				shown[i] = true
				show(&seen.Processes[i], depth, "")
				walk(seen.Processes[i].PID, depth+1)
			}
		}
	}
	walk(-1, 0)
	for i := range seen.Processes { // parents that name each other are no tree; show them anyway
		if !shown[i] {
			show(&seen.Processes[i], 0, "")
		}
	}
	return t
}
