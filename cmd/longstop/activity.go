package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// followEvery is how often activity -f looks for more.
const followEvery = 500 * time.Millisecond

// activityFlags are what longstop activity was told.
type activityFlags struct {
	client.JournalFilter
	since  string
	follow bool
}

func (a *app) activityVerb() *cobra.Command {
	var f activityFlags
	c := &cobra.Command{
		Use:   "activity [ID]",
		Short: "What was asked, done and seen, in order: the journal",
		Long: `Show the newest entries of the journal, oldest first: of one action, session, host or kind, or all. -f goes on with
what comes.`,
		Example: `  longstop activity --since 2h --host web-1
  longstop activity --session ses_01KB6Y3T0000AAA -f
  longstop activity --kind contradiction`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("", "activity takes one action, or none for all")
			}
			if f.Limit < 1 || f.Limit > 10_000 {
				return usage("", "--limit is a number from 1 to 10000")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.Newest = !c.Flags().Changed("after")
			if len(args) == 1 {
				f.Action = args[0]
			}
			f.Kind = strings.ReplaceAll(f.Kind, " ", "_")
			return a.activity(c.Context(), &f)
		},
		ValidArgsFunction: a.completeActions,
	}
	c.Flags().StringVar(&f.Session, "session", "", "of this session alone")
	c.Flags().StringVar(&f.Host, "host", "", "of this host alone")
	c.Flags().StringVar(&f.Kind, "kind", "", "of this kind alone, as WHAT names it")
	c.Flags().StringVar(&f.since, "since", "", "not before: 2h, 3d, 2026-11-29 or 2026-11-29T14:02:11Z")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	c.Flags().Int64Var(&f.After, "after", -1, "entries after this number, instead of the newest; -1: from the first")
	c.Flags().Lookup("after").DefValue = "0" // unless given, the newest: help has no default to show
	c.Flags().Int64Var(&f.Before, "before", 0, "entries before this number: the page before")
	c.Flags().IntVarP(&f.Limit, "limit", "n", 100, "at most so many")
	a.jsonFlag(c, "the entries as one array, with -f as lines")
	c.RegisterFlagCompletionFunc("host", a.completeHosts)
	return c
}

// instantOf reads a time: how long ago, a day, or an instant.
func instantOf(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := days(flag, text); err == nil {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usage("write it as 2h, 3d, 2026-11-29 or 2026-11-29T14:02:11Z", "%s %s is no time", flag, plain(text))
}

func (a *app) activity(ctx context.Context, f *activityFlags) (err error) {
	if f.since != "" {
		if f.Since, err = instantOf("--since", f.since, a.now()); err != nil {
			return err
		}
	}
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	if err := f.resolve(ctx, gateway); err != nil {
		return err
	}
	entries, err := gateway.Journal(ctx, f.JournalFilter)
	if err != nil {
		return err
	}
	if a.json && !f.follow {
		a.printJSON(orEmpty(entries))
		return nil
	}
	a.printEntries(entries, true)
	if f.follow {
		return a.followActivity(ctx, gateway, f, entries)
	}
	if len(entries) == 0 {
		a.talk.note("no entries")
		return nil
	}
	a.morePages(f, entries)
	return nil
}

// resolve makes whole what was shortened, and refuses a host that is not.
func (f *activityFlags) resolve(ctx context.Context, gateway *client.Client) error {
	if f.Session != "" {
		if s, err := gateway.Session(ctx, f.Session); err == nil {
			f.Session = string(s.ID)
		} else if longstop.CodeOf(err) != longstop.CodeNotFound {
			return err
		}
	}
	return nil
}

// printEntries prints a page, or as lines of JSON.
func (a *app) printEntries(entries []longstop.JournalEntry, first bool) {
	if a.json {
		for i := range entries {
			line, _ := json.Marshal(&entries[i])
			a.out.Write(append(line, '\n'))
		}
		return
	}
	if len(entries) == 0 {
		return
	}
	t := entryTable(entries, a.now())
	if !first {
		t.rows, t.remarks = t.rows[1:], t.remarks[1:]
	}
	a.printTable(t)
}

func entryTable(entries []longstop.JournalEntry, now time.Time) *table {
	t := new(table)
	t.row("", "N", "AT", "WHAT", "ACTION", "HOST", "BY", "BODY")
	for _, e := range entries {
		about := string(e.ActionID)
		if about == "" {
			about = string(e.SessionID)
		}
		t.row("", strconv.FormatInt(e.Index, 10), clock(e.At, now), words(e.Kind), dash(about), dash(e.Host), dash(e.By), bodyText(e.Body))
	}
	return t
}

// followActivity goes on until Ctrl-C, which is no failure.
func (a *app) followActivity(ctx context.Context, gateway *client.Client, f *activityFlags, seen []longstop.JournalEntry) error {
	next := f.JournalFilter
	next.Newest, next.Before, next.Limit = false, 0, 1000
	if len(seen) == 0 { // of what it chooses: then from here on
		newest, err := gateway.Journal(ctx, client.JournalFilter{After: -1, Newest: true, Limit: 1})
		if err != nil {
			return err
		}
		seen = newest
	}
	for tick := time.NewTicker(followEvery); ; <-tick.C {
		if len(seen) > 0 {
			next.After = seen[len(seen)-1].Index
		}
		more, err := gateway.Journal(ctx, next)
		if err != nil {
			return err
		}
		a.printEntries(more, false)
		if len(more) > 0 {
			seen = more
		}
	}
}

// morePages says how to go on.
func (a *app) morePages(f *activityFlags, entries []longstop.JournalEntry) {
	if len(entries) < f.Limit {
		return
	}
	same := ""
	for _, option := range [][2]string{{"", f.Action}, {"--session ", f.Session}, {"--host ", f.Host}, {"--kind ", f.Kind}, {"--since ", f.since}} {
		if option[1] != "" {
			same += " " + option[0] + word(option[1])
		}
	}
	if f.Limit != 100 {
		same += fmt.Sprintf(" -n %d", f.Limit)
	}
	switch first, last := entries[0].Index, entries[len(entries)-1].Index; {
	case f.Newest && f.Action == "" && first == 0:
	case f.Newest && f.Action == "":
		a.talk.note("older ones: longstop activity%s --before %d", same, first)
	default:
		a.talk.note("newer ones: longstop activity%s --after %d", same, last)
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}

// bodyText is a JSON body on one harmless line. What an entry changed in the action is left out, but for what
// was asked for: the rest says it in words, and longstop journal show prints all of it.
func bodyText(body any) string {
	if body == nil {
		return ""
	}
	text, err := json.Marshal(body)
	if err != nil {
		return ""
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members["patch"] == nil {
		return plain(string(text))
	}
	var changed struct {
		Action struct {
			Request json.RawMessage `json:"request"`
			Key     json.RawMessage `json:"idempotency_key"`
		} `json:"action"`
	}
	if json.Unmarshal(members["patch"], &changed) == nil && changed.Action.Key != nil {
		members["request"], members["idempotency_key"] = changed.Action.Request, changed.Action.Key
	}
	if delete(members, "patch"); len(members) == 0 {
		return ""
	}
	text, _ = json.Marshal(members) // of what was JSON
	return plain(string(text))
}
