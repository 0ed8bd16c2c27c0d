package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) psVerb() *cobra.Command {
	var f client.Filter
	c := &cobra.Command{
		Use:   "ps",
		Short: "What is running, and what is not known",
		Long: `List what runs, and what is not known: actions of which the host may still have something to say, and
those that were lost. -a lists those that are over, too. LIFETIME tells a detached run, which goes on until it
ends or is cancelled, from a leased one, and from a direct one, which nobody owns; ALIVE answers whether something
of it still runs, OUTCOME what came of it, SEEN how old that knowledge is; "!" says why it cannot be newer.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.ps(c.Context(), f) },
	}
	c.Flags().BoolVarP(&f.All, "all", "a", false, "actions that are over, too")
	c.Flags().StringVar(&f.Host, "host", "", "of this host alone")
	c.Flags().StringVar(&f.Session, "session", "", "of this session alone")
	c.Flags().IntVarP(&f.Limit, "limit", "n", 100, "at most so many, the newest")
	c.Flags().StringVar(&f.Before, "before", "", "older ones than this action: the next page")
	a.jsonFlag(c, "the actions as one array")
	c.RegisterFlagCompletionFunc("host", a.completeHosts)
	return c
}

func (a *app) ps(ctx context.Context, f client.Filter) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	list, err := gateway.Actions(ctx, f)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		if err := enrolled(ctx, gateway, f.Host); err != nil {
			return err // "nothing runs" would be believed of a name misspelt
		}
	}
	if a.json {
		if list == nil {
			list = []longstop.Action{}
		}
		a.printJSON(list)
		return nil
	}
	if len(list) == 0 {
		if f.Host != "" || f.Session != "" {
			a.talk.note("%s", nothingOf(f))
			return nil
		}
		a.talk.note("%s", a.howToStart(ctx, gateway, f))
		return nil
	}
	columns := width(a.out)
	fmt.Fprint(a.out, psTable(list, a.now(), columns).render(columns))
	if line := psSummary(list); line != "" {
		a.talk.note("%s", line)
	}
	if len(list) == f.Limit {
		all := ""
		if f.All {
			all = " -a"
		}
		a.talk.note("the newest %d: longstop ps%s --before %s shows older ones", f.Limit, all, list[len(list)-1].ID)
	}
	return nil
}

// enrolled refuses the name of a host that is not.
func enrolled(ctx context.Context, gateway *client.Client, name string) error {
	if name == "" {
		return nil
	}
	hosts, err := gateway.Hosts(ctx)
	if err != nil || slices.ContainsFunc(hosts, func(h longstop.Host) bool { return h.Name == name }) {
		return err
	}
	return &longstop.Error{Code: longstop.CodeHostUnknown, Message: fmt.Sprintf("no host %q is enrolled", plain(name)), Hint: "longstop host list"}
}

// nothingOf is what an empty list of one host or session says.
func nothingOf(f client.Filter) string {
	where, options := "", ""
	if f.Host != "" {
		where, options = " on "+plain(f.Host), " --host "+word(f.Host)
	}
	if f.Session != "" {
		where, options = where+" of session "+plain(f.Session), options+" --session "+word(f.Session)
	}
	if f.Before != "" {
		return "nothing older" + where
	}
	if f.All {
		return "no actions" + where
	}
	return "nothing runs, and nothing is unknown" + where + ": longstop ps -a" + options + " shows what ended"
}

// howToStart is what an empty list says.
func (a *app) howToStart(ctx context.Context, gateway *client.Client, f client.Filter) string {
	hosts, err := gateway.Hosts(ctx)
	switch {
	case f.Before != "":
		return "nothing older"
	case err == nil && len(hosts) == 0:
		return "no hosts yet: longstop host add NAME, with what you would type after ssh"
	case err == nil && !f.All:
		return fmt.Sprintf("nothing runs, and nothing is unknown: longstop ps -a shows what ended, longstop run %s -- COMMAND starts something", plain(hosts[0].Name))
	case err == nil:
		return fmt.Sprintf("nothing here: longstop run %s -- COMMAND starts something", plain(hosts[0].Name))
	}
	return "nothing here"
}

// narrow is the width under which a table shows the ends of ids: enough to name them.
const narrow = 120

// psTable lays actions out for a terminal of so many columns, or for a pipe (0).
func psTable(list []longstop.Action, now time.Time, columns int) *table {
	t := new(table)
	ids := shortIDs(list)
	if columns == 0 || columns >= narrow {
		ids = nil
	}
	t.row("", "ACTION", "HOST", "LIFETIME", "ALIVE", "OUTCOME", "STATE", "FOR", "SEEN", "WHAT")
	for i := range list {
		action := &list[i]
		remark := trouble(action)
		if remark != "" {
			remark = "! " + remark
		}
		id := string(action.ID)
		if ids != nil {
			id = ids[i]
		}
		t.row(remark, id, plain(action.Host), lifetime(&action.Request), string(action.Alive), words(string(action.Outcome)), state(action),
			lasted(action, now), seen(action, now), command(&action.Request))
	}
	return t
}

// shortIDs are ends of ids by which the gateway knows them as well, or the ids where two end alike.
func shortIDs(list []longstop.Action) []string {
	const end = 6 // 30 random bits
	ids, seen := make([]string, len(list)), map[string]bool{}
	for i := range list {
		id := string(list[i].ID)
		short := id
		if prefix := "act_"; len(id) > len(prefix)+end {
			short = prefix + id[len(id)-end:]
		}
		if seen[short] {
			return nil
		}
		ids[i], seen[short] = short, true
	}
	return ids
}

// state is how far the work has come: the workload's, or the launch's where there is none yet.
func state(a *longstop.Action) string {
	switch a.Launch.State {
	case longstop.LaunchAccepted:
		if a.Workload.State != longstop.WorkloadNone && a.Workload.State != "" {
			return words(string(a.Workload.State)) + percent(&a.Workload)
		}
		return "accepted"
	case longstop.LaunchNotAttempted:
		if a.Approval.State == longstop.ApprovalPending {
			return "awaits approval"
		}
		return "not sent"
	}
	return "launch " + words(string(a.Launch.State))
}

// lasted is how long it has gone on, or went on.
func lasted(a *longstop.Action, now time.Time) string {
	if d, over := took(&a.Workload); over && d < time.Second {
		return span(d) // it did not take "0s"
	} else if over {
		return rough(d)
	}
	if a.Settled() {
		return "-"
	}
	from := a.Workload.StartedAt // by the host's clock
	if from.Before(a.CreatedAt.Time) || from.After(now) {
		from = a.CreatedAt
	}
	return rough(now.Sub(from.Time))
}

// seen is how old the knowledge about the work is.
func seen(a *longstop.Action, now time.Time) string {
	if a.Observation == nil || a.Observation.At.IsZero() {
		return "never"
	}
	return rough(now.Sub(a.Observation.At.Time)) + " ago"
}

// trouble is why an action needs somebody's eye.
func trouble(a *longstop.Action) string {
	switch {
	case a.UnknownBecause != "" && a.Resolution != nil:
		return "resolved by hand: " + words(string(a.Resolution.Outcome))
	case a.UnknownBecause != "":
		return words(string(a.UnknownBecause))
	case a.Observation != nil && a.Observation.Because != "" && !a.Settled():
		return words(string(a.Observation.Because))
	case len(a.Workload.Survivors) > 0 && !a.Settled():
		return count(len(a.Workload.Survivors), "survivor", "survivors")
	case a.Cancel.State == longstop.CancelUnconfirmed || a.Cancel.State == longstop.CancelRefused:
		return "cancel " + words(string(a.Cancel.State))
	}
	return ""
}

func psSummary(list []longstop.Action) string {
	running, waiting, lost, unknown := 0, 0, 0, []string{}
	for i := range list {
		switch {
		case list[i].Alive == longstop.AliveYes:
			running++
		case list[i].Outcome == longstop.OutcomePending:
			waiting++
		}
		if list[i].Settled() && list[i].NeedsPeople() {
			lost++ // asking again leads nowhere
		} else if !list[i].Settled() && list[i].NeedsPeople() {
			unknown = append(unknown, string(list[i].ID))
		}
	}
	line := fmt.Sprintf("%d running", running)
	if waiting > 0 {
		line += between + fmt.Sprintf("%d not begun", waiting)
	}
	if lost > 0 {
		line += between + fmt.Sprintf("%d lost, outcome unknown: longstop show ID", lost)
	}
	switch {
	case len(unknown) == 0:
		return line
	case len(unknown) <= 3:
		return line + between + fmt.Sprintf("%d unknown: longstop reconcile %s", len(unknown), strings.Join(unknown, " "))
	}
	return line + between + fmt.Sprintf("%d unknown: longstop reconcile ID", len(unknown))
}

// auditTable lays actions out for a reviewer: who asked when, what came of it, and why it is not known.
func auditTable(list []longstop.Action, now time.Time) *table {
	t := new(table)
	t.row("", "ACTION", "ASKED", "HOST", "BY", "APPROVAL", "ALIVE", "OUTCOME", "STATE", "CANCEL", "WHAT")
	for i := range list {
		a := &list[i]
		remark := trouble(a)
		if remark != "" {
			remark = "! " + remark
		}
		t.row(remark, string(a.ID), clock(a.CreatedAt, now), plain(a.Host), of(a.RequestedBy), words(string(a.Approval.State)), string(a.Alive),
			words(string(a.Outcome)), state(a), words(string(a.Cancel.State)), command(&a.Request))
	}
	return t
}

// lifetime is what holds a run's life. What nobody owns has no lease, whatever was asked for.
func lifetime(r *longstop.Request) string {
	if r.Owner == longstop.OwnerNone {
		return "direct"
	}
	return plain(string(r.Lifetime))
}
