package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) approvalsVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "approvals",
		Short: "What waits for a person's yes or no",
		Args:  exactly(),
		RunE: listing(a, (*client.Client).Approvals, approvalsTable, "nothing waits for approval",
			"longstop approve ID shows all of it and asks for your passphrase; longstop deny ID --reason WHY"),
	}
	a.jsonFlag(c, "the actions as one array")
	return c
}

func approvalsTable(list []longstop.Action, now time.Time) *table {
	t := new(table)
	t.row("", "ACTION", "HOST", "ASKED BY", "UNTIL", "RULE", "WHAT")
	for i := range list {
		one := &list[i]
		t.row("", string(one.ID), plain(one.Host), of(one.RequestedBy), clock(one.Approval.ExpiresAt, now), plain(one.Approval.Rule), command(&one.Request))
	}
	return t
}

// decision is one of the three verbs that take a person's proof.
type decision struct {
	kind        longstop.ChallengeKind
	short, long string
	needsReason bool
}

func (a *app) approveVerb() *cobra.Command {
	return a.decisionVerb(decision{kind: longstop.ChallengeApprove, short: "Let an action that waits for approval be launched (in a terminal)",
		long: `Show all that an action would run, where and for how long, ask for your passphrase, and let it be launched: once,
exactly as shown, and at once. Whoever asked may have gone; the launch goes on for you.`})
}

func (a *app) denyVerb() *cobra.Command {
	return a.decisionVerb(decision{kind: longstop.ChallengeDeny, needsReason: true, short: "Refuse an action that waits for approval (in a terminal)",
		long: `Refuse an action that waits for approval. It is never sent; whoever asked is told the reason.`})
}

func (a *app) revokeVerb() *cobra.Command {
	return a.decisionVerb(decision{kind: longstop.ChallengeRevoke, needsReason: true, short: "Take an approval back (in a terminal)",
		long: `Take an approval back. What was not launched never is. A leased run that goes on loses its lease and is stopped; a
detached one needs no word from the gateway and goes on: longstop cancel stops it, and needs no passphrase.`})
}

func (a *app) decisionVerb(d decision) *cobra.Command {
	var as, reason string
	use := string(d.kind) + " ID"
	if d.needsReason {
		use += " --reason WHY"
	}
	c := &cobra.Command{
		Use:   use,
		Short: d.short,
		Long:  d.long + "\n\nThe passphrase is read from the terminal alone: not from a pipe, a flag or the environment.",
		Args:  exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case d.needsReason && strings.TrimSpace(reason) == "":
				return usage("longstop "+string(d.kind)+" "+plain(args[0])+" --reason WHY", "%s needs a reason: whoever asked is told it", d.kind)
			case plain(reason) != reason || len(reason) > 4096:
				return usage("", "--reason is one line of at most 4096 bytes that can be printed")
			}
			return a.decide(c.Context(), longstop.ChallengeRequest{Kind: d.kind, Approver: as, ActionID: longstop.ActionID(args[0]), Reason: reason})
		},
		ValidArgsFunction: a.completeActions,
	}
	asFlag(c, &as)
	if d.needsReason {
		c.Flags().StringVar(&reason, "reason", "", "why; it is signed and kept")
	}
	a.jsonFlag(c, "the action")
	return c
}

// decide shows an action, has a person sign what they want of it, and brings that to the gateway.
func (a *app) decide(ctx context.Context, about longstop.ChallengeRequest) error {
	return a.dialogue(func(person *terminal, gateway *client.Client) error {
		action, err := gateway.Action(ctx, string(about.ActionID))
		if err != nil {
			return err
		}
		about.ActionID = action.ID
		person.show("\n" + approvalPage(&action, hostOf(ctx, gateway, action.Host), a.now()) + "\n")
		proof, err := person.prove(ctx, gateway, about, shownFacts(&action)...)
		if err != nil {
			return err
		}
		after, err := gateway.Decide(ctx, about.Kind, action.ID, longstop.ApprovalDecision{Reason: about.Reason, Proof: proof})
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(after)
		}
		a.talk.note("%s", decided(about.Kind, &after))
		return nil
	})
}

// shownFacts are what a statement has to say of an action for it to be the one that the person saw.
func shownFacts(a *longstop.Action) []approver.Fact {
	return []approver.Fact{{Name: "host", Value: a.Host}, {Name: "request", Value: a.Request.Digest},
		{Name: "lifetime", Value: string(a.Request.Lifetime)}, {Name: "leftover", Value: string(a.Request.Leftover)}}
}

// hostOf is the host as enrolled; nil where that cannot be had.
func hostOf(ctx context.Context, gateway *client.Client, name string) *longstop.Host {
	hosts, err := gateway.Hosts(ctx)
	if err != nil {
		return nil
	}
	for i := range hosts {
		if hosts[i].Name == name {
			return &hosts[i]
		}
	}
	return nil
}

// decided says what came of a person's word.
func decided(kind longstop.ChallengeKind, a *longstop.Action) string {
	switch kind {
	case longstop.ChallengeApprove:
		return fmt.Sprintf("approved%s%s goes to %s now%slongstop wait %s", between, a.ID, plain(a.Host), between, a.ID)
	case longstop.ChallengeDeny:
		return fmt.Sprintf("denied%s%s is never sent", between, a.ID)
	}
	switch {
	case a.Launch.State == longstop.LaunchNotAttempted:
		return fmt.Sprintf("taken back%s%s is never sent", between, a.ID)
	case a.Request.Lifetime == longstop.Leased:
		return fmt.Sprintf("taken back%s%s loses its lease and is being stopped%slongstop wait %s", between, a.ID, between, a.ID)
	}
	return fmt.Sprintf("taken back%s%s is detached and goes on: longstop cancel %s stops it", between, a.ID, a.ID)
}
