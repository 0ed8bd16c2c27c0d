package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) activityVerb() *cobra.Command {
	var limit int
	var after int64
	c := &cobra.Command{
		Use:   "activity [ID]",
		Short: "What was asked, done and seen, in order: the journal",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("", "activity takes one action, or none for all")
			}
			if limit < 1 || limit > 10_000 {
				return usage("", "--limit is a number from 1 to 10000")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f := client.JournalFilter{After: after, Limit: limit, Newest: !c.Flags().Changed("after")}
			if len(args) == 1 {
				f.Action = args[0]
			}
			return a.activity(c.Context(), f)
		},
		ValidArgsFunction: a.completeActions,
	}
	c.Flags().Int64Var(&after, "after", -1, "entries after this number, instead of the newest; -1: from the first")
	c.Flags().Lookup("after").DefValue = "0" // unless given, the newest: help has no default to show
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many")
	a.jsonFlag(c, "the entries as one array")
	return c
}

func (a *app) activity(ctx context.Context, f client.JournalFilter) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	entries, err := gateway.Journal(ctx, f)
	if err != nil {
		return err
	}
	if a.json {
		if entries == nil {
			entries = []longstop.JournalEntry{}
		}
		a.printJSON(entries)
		return nil
	}
	t := new(table)
	t.row("", "N", "AT", "WHAT", "ACTION", "HOST", "BY", "BODY")
	for _, e := range entries {
		t.row("", strconv.FormatInt(e.Index, 10), clock(e.At, a.now()), words(e.Kind), dash(string(e.ActionID)), dash(e.Host), dash(e.By), bodyText(e.Body))
	}
	if len(entries) == 0 {
		a.talk.note("no entries")
		return nil
	}
	fmt.Fprint(a.out, t.render(width(a.out)))
	page := ""
	if f.Limit != 100 {
		page = fmt.Sprintf(" -n %d", f.Limit)
	}
	switch first, last := entries[0].Index, entries[len(entries)-1].Index; {
	case len(entries) < f.Limit || f.Newest && first == 0:
	case f.Newest && f.Action == "":
		a.talk.note("%d older ones: longstop activity --after %d%s", first, max(first-int64(f.Limit)-1, -1), page)
	case f.Action == "":
		a.talk.note("newer ones: longstop activity --after %d%s", last, page)
	default:
		a.talk.note("newer ones: longstop activity %s --after %d%s", plain(f.Action), last, page)
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}
