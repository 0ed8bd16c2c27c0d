package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) sessionVerb() *cobra.Command {
	return group(&cobra.Command{
		Use:   "session",
		Short: "Begin and end stretches of work",
		Long: `A session is one stretch of work: longstop run --session puts runs into it, and it belongs to who started it.
Runs that name none are put into a session that their owner always has: it ends when it was idle for a day, and the
next run begins another. longstop sessions shows them.`,
	}, "longstop session start|end; longstop sessions lists them",
		a.sessionStart(), a.sessionEnd())
}

func (a *app) sessionStart() *cobra.Command {
	var purpose string
	c := &cobra.Command{
		Use:     "start --purpose WHY",
		Short:   "Begin a session and print its id",
		Example: `  SESSION=$(longstop session start --purpose 'upgrade the database')` + "\n" + `  longstop run --session $SESSION db-1 -- ./upgrade.sh`,
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if strings.TrimSpace(purpose) == "" {
				return usage("as in --purpose 'upgrade the database'", "session start needs its --purpose, for those who read the journal")
			}
			gateway, err := a.gateway()
			if err != nil {
				return err
			}
			s, err := gateway.StartSession(c.Context(), longstop.SessionRequest{Purpose: purpose, By: longstop.Requester{Via: "cli"}})
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(s)
				return nil
			}
			fmt.Fprintln(a.out, s.ID)
			a.talk.note("longstop run --session %s HOST -- COMMAND%slongstop session end %s", s.ID, between, s.ID)
			return nil
		},
	}
	c.Flags().StringVar(&purpose, "purpose", "", "what it is for")
	a.jsonFlag(c, "the session")
	return c
}

func (a *app) sessionEnd() *cobra.Command {
	var keep, all bool
	c := &cobra.Command{
		Use:   "end ID",
		Short: "End a session: its leased runs are cancelled, detached ones go on",
		Long: `End a session: nothing is started in it any more. Its leased runs are cancelled, and what was not sent yet;
detached runs go on. --keep lets all that was sent go on, --all cancels detached ones too. It does not wait for the proof
that nothing is left: longstop wait and longstop sessions ID show it.`,
		Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			cancels := longstop.CancelsLeased
			switch {
			case keep && all:
				return usage("", "--keep and --all exclude each other")
			case keep:
				cancels = longstop.CancelsNobody
			case all:
				cancels = longstop.CancelsAll
			}
			return a.endSession(c.Context(), args[0], cancels)
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "let leased runs go on, too")
	c.Flags().BoolVar(&all, "all", false, "cancel detached runs, too")
	a.jsonFlag(c, "the session and what became of its runs")
	return c
}

func (a *app) endSession(ctx context.Context, id string, cancels longstop.SessionCancel) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	ended, err := gateway.EndSession(ctx, id, cancels)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(ended)
		return nil
	}
	line := fmt.Sprintf("%s ended%s%s", ended.Session.ID, between, ran(a.now().Sub(ended.Session.StartedAt.Time)))
	if n := len(ended.Cancelling); n > 0 {
		line += between + fmt.Sprintf("%s asked to stop: longstop wait %s", count(n, "run is", "runs are"), someIDs(ended.Cancelling))
	}
	if n := len(ended.GoingOn); n > 0 {
		line += between + fmt.Sprintf("%s: longstop cancel %s", count(n, "run goes on", "runs go on"), someIDs(ended.GoingOn))
	}
	a.talk.note("%s", line)
	return nil
}

func ran(d time.Duration) string { return "it was open for " + rough(d) }

// someIDs are ids for a command line, or what stands for many.
func someIDs(ids []longstop.ActionID) string {
	if len(ids) > 5 {
		return "ID"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return strings.Join(names, " ")
}

func (a *app) sessionsVerb() *cobra.Command {
	var f client.SessionFilter
	c := &cobra.Command{
		Use:   "sessions [ID]",
		Short: "Who works on what, and what came of it",
		Long: `List the sessions that are open, or have something unresolved, with what came of their actions. -a lists those that
ended, too. With an ID: that session, and its actions.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("", "sessions takes one session, or none for all")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.session(c.Context(), args[0], f.Limit)
			}
			return a.sessions(c.Context(), f)
		},
	}
	c.Flags().BoolVarP(&f.All, "all", "a", false, "sessions that ended, too")
	c.Flags().IntVarP(&f.Limit, "limit", "n", 100, "at most so many sessions, or actions of one: the newest")
	c.Flags().StringVar(&f.Before, "before", "", "older ones than this session: the next page")
	a.jsonFlag(c, "the sessions as one array; with an ID {\"session\": {…}, \"actions\": […]}")
	return c
}

func (a *app) sessions(ctx context.Context, f client.SessionFilter) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	list, err := gateway.Sessions(ctx, f)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(list)
		return nil
	}
	if len(list) == 0 {
		a.talk.note("no sessions: the first run begins one, and longstop session start --purpose WHY")
		return nil
	}
	last := list[len(list)-1].ID
	slices.SortStableFunc(list, func(x, y longstop.SessionView) int {
		return cmp.Or(cmp.Compare(rank(&x), rank(&y)), y.LastUsedAt.Compare(x.LastUsedAt.Time))
	})
	t := new(table)
	t.row("", "SESSION", "OF", "STATE", "USED", "CAME OF IT", "PURPOSE")
	for i := range list {
		s := &list[i]
		t.row("", string(s.ID), of(s.StartedBy), sessionState(s), rough(a.now().Sub(s.LastUsedAt.Time))+" ago", tally(s), purpose(s))
	}
	a.printTable(t)
	if len(list) == f.Limit {
		all := ""
		if f.All {
			all = " -a"
		}
		a.talk.note("the newest %d: longstop sessions%s --before %s shows older ones", f.Limit, all, last)
	}
	return nil
}

// rank puts sessions with something unresolved first, then those that are open.
func rank(s *longstop.SessionView) int {
	switch {
	case s.Unresolved > 0:
		return 0
	case !s.Ended():
		return 1
	}
	return 2
}

func of(r longstop.Requester) string { return plain(strings.TrimSpace(r.Kind + " " + r.Name)) }

func purpose(s *longstop.SessionView) string {
	if s.Default {
		return "(runs that name no session)"
	}
	return dash(s.Purpose)
}

func sessionState(s *longstop.SessionView) string {
	switch {
	case !s.Ended():
		return "open"
	case s.EndedBecause == longstop.SessionIdle:
		return "ended, idle"
	}
	return "ended"
}

// tally is what came of a session's actions, what is unresolved first.
func tally(s *longstop.SessionView) string {
	var parts []string
	if s.Unresolved > 0 {
		parts = append(parts, fmt.Sprintf("%d unresolved", s.Unresolved))
	}
	for _, outcome := range []longstop.Outcome{longstop.OutcomeUnknown, longstop.OutcomeFailed, longstop.OutcomeCancelled,
		longstop.OutcomeNotStarted, longstop.OutcomeSucceeded} {
		if n := s.Outcomes[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words(string(outcome))))
		}
	}
	if len(parts) == 0 {
		return "nothing was run"
	}
	return strings.Join(parts, ", ")
}

// session shows one session whole.
func (a *app) session(ctx context.Context, id string, limit int) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	s, err := gateway.Session(ctx, id)
	if err != nil {
		return err
	}
	actions, err := gateway.Actions(ctx, client.Filter{All: true, Session: string(s.ID), Limit: limit})
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(struct {
			Session longstop.SessionView `json:"session"`
			Actions []longstop.Action    `json:"actions"`
		}{s, actions})
		return nil
	}
	fmt.Fprint(a.out, sessionText(&s, a.now()))
	if len(actions) > 0 {
		slices.SortStableFunc(actions, func(x, y longstop.Action) int { return cmp.Compare(settled(&x), settled(&y)) })
		columns := width(a.out)
		fmt.Fprint(a.out, "\n", psTable(actions, a.now(), columns).render(columns))
	}
	if len(actions) == limit {
		a.talk.note("the newest %d: longstop ps -a --session %s --before ID shows older ones", limit, s.ID)
	}
	a.talk.note("longstop activity --session %s%slongstop audit session %s", s.ID, between, s.ID)
	return nil
}

// settled is 1 for what has ended.
func settled(a *longstop.Action) int {
	if a.Unresolved() {
		return 0
	}
	return 1
}

func sessionText(s *longstop.SessionView, now time.Time) string {
	var text strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "  %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&text, "%s  %s\n", s.ID, purpose(s))
	line("of", "%s, by way of %s", of(s.StartedBy), plain(s.StartedBy.Via))
	line("started", "%s", clock(s.StartedAt, now))
	line("used", "%s (%s ago)", clock(s.LastUsedAt, now), rough(now.Sub(s.LastUsedAt.Time)))
	if s.Ended() {
		runs := map[longstop.SessionCancel]string{longstop.CancelsLeased: "leased runs were cancelled", longstop.CancelsAll: "all its runs were cancelled",
			longstop.CancelsNobody: "its runs went on"}[s.EndCancels]
		line("ended", "%s by %s, %s%s%s", clock(s.EndedAt, now), plain(s.EndedBy), words(string(s.EndedBecause)), between, runs)
	}
	line("came of it", "%s", tally(s))
	return text.String()
}
