package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) auditVerb() *cobra.Command {
	var f client.AuditFilter
	var asCSV bool
	c := &cobra.Command{
		Use:   "audit [QUERY]",
		Short: "What reviewers ask: what a green tick would hide",
		Long: `Answer a reviewer's question about all actions there ever were. Without a query: the list of them, each with its
number of hits. A page has the newest first (of unknown outcomes the oldest), and says how to go on.`,
		Example: `  longstop audit
  longstop audit missing
  longstop audit unapproved --csv > unapproved.csv
  longstop audit session ses_01KB6Y3T0000AAA --json`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 2, len(args) == 2 && args[0] != "session":
				return usage("longstop audit lists them", "audit takes one query, and session the id of one")
			case asCSV && a.json:
				return usage("", "--json and --csv exclude each other")
			case f.Limit < 1 || f.Limit > 10_000:
				return usage("", "--limit is a number from 1 to 10000")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.auditQueries(c.Context(), asCSV)
			}
			f.Query = args[0]
			if len(args) == 2 {
				f.Session = args[1]
			}
			return a.audit(c.Context(), f, asCSV)
		},
		ValidArgsFunction: a.completeQueries,
	}
	c.Flags().IntVarP(&f.Limit, "limit", "n", 100, "at most so many rows")
	c.Flags().StringVar(&f.After, "before", "", "the next page: the rows before this one in time, as the last line of a page names it")
	c.Flags().BoolVar(&asCSV, "csv", false, "the rows as CSV on stdout, with a first line of names")
	a.jsonFlag(c, "the rows as one array: actions, or entries of the journal")
	return c
}

func (a *app) completeQueries(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	gateway, err := a.present()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	queries, _ := gateway.AuditQueries(c.Context())
	var names []string
	for _, q := range queries {
		names = append(names, q.Name+"\t"+q.Words)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) auditQueries(ctx context.Context, asCSV bool) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	queries, err := gateway.AuditQueries(ctx)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		a.printJSON(queries)
		return nil
	case asCSV:
		rows := [][]string{{"query", "hits", "more", "rows"}}
		for _, q := range queries {
			rows = append(rows, []string{q.Name, strconv.Itoa(q.Hits), strconv.FormatBool(q.More), q.Words})
		}
		return writeCSV(a.out, rows)
	}
	t := new(table)
	t.row("", "QUERY", "HITS", "ROWS")
	for _, q := range queries {
		t.row("", q.Name, hits(q), q.Words)
	}
	a.printTable(t)
	a.talk.note("longstop audit QUERY shows them")
	return nil
}

func hits(q longstop.AuditQuery) string {
	switch {
	case q.Name == "session":
		return "-"
	case q.More:
		return number(int64(q.Hits)) + "+"
	}
	return number(int64(q.Hits))
}

func (a *app) audit(ctx context.Context, f client.AuditFilter, asCSV bool) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	page, err := gateway.Audit(ctx, f)
	if err != nil {
		return err
	}
	entries := page.Query.Of == longstop.AuditOfEntries
	switch {
	case a.json && entries:
		a.printJSON(orEmpty(page.Entries))
	case a.json:
		a.printJSON(orEmpty(page.Actions))
	case asCSV && entries:
		err = writeCSV(a.out, entryRows(page.Entries))
	case asCSV:
		err = writeCSV(a.out, actionRows(page.Actions))
	case len(page.Entries) > 0:
		a.printTable(entryTable(page.Entries, a.now()))
	case len(page.Actions) > 0:
		a.printTable(auditTable(page.Actions, a.now()))
	}
	if err != nil {
		return err
	}
	switch found := len(page.Actions) + len(page.Entries); {
	case page.Next != "":
		a.talk.note("there may be more: longstop audit %s --before %s", strings.TrimSpace(f.Query+" "+plain(f.Session)), page.Next)
	case found == 0 && f.After == "":
		a.talk.note("none: %s", page.Query.Words)
	}
	return nil
}
