package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// resolveFlags are what `longstop resolve` was told beside the action.
type resolveFlags struct{ outcome, reason, attach, as string }

func (a *app) resolveVerb() *cobra.Command {
	var f resolveFlags
	c := &cobra.Command{
		Use:   "resolve ID --outcome OUTCOME --reason WHY",
		Short: "Say what became of work whose outcome is unknown (in a terminal)",
		Long: `Put your word beside an outcome that is unknown, and that the host will not tell, or has not told for long: after
you have looked yourself. The facts stay as they are, and show and the journal say that it was resolved by hand.
Should a record come later that says otherwise, both are shown.

The outcome is succeeded, failed, not_started or cancelled. A retry goes by it: not_started lets work be retried that
may happen once.

The passphrase is read from the terminal alone: not from a pipe, a flag or the environment.`,
		Example: `  longstop resolve act_01K… --outcome not_started --reason 'the table has no row of that day' --attach query.txt`,
		Args:    exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			outcome, err := oneOf("--outcome", f.outcome, longstop.OutcomeSucceeded, longstop.OutcomeFailed, longstop.OutcomeNotStarted, longstop.OutcomeCancelled)
			switch {
			case err != nil:
				return err
			case outcome == "":
				return usage("one of succeeded, failed, not_started, cancelled", "resolve needs an --outcome")
			case strings.TrimSpace(f.reason) == "":
				return usage("longstop resolve "+plain(args[0])+" --outcome "+f.outcome+" --reason WHY", "resolve needs a --reason: how you know")
			case plain(f.reason) != f.reason || len(f.reason) > 4096:
				return usage("", "--reason is one line of at most 4096 bytes that can be printed")
			}
			return a.resolve(c.Context(), args[0], outcome, &f)
		},
		ValidArgsFunction: a.completeActions,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.outcome, "outcome", "", "what became of it: succeeded, failed, not_started or cancelled")
	flags.StringVar(&f.reason, "reason", "", "how you know; it is signed and kept")
	flags.StringVar(&f.attach, "attach", "", "a file of up to 1 MiB that shows it; its digest is signed, it is kept")
	asFlag(c, &f.as)
	a.jsonFlag(c, "the action")
	return c
}

func (a *app) resolve(ctx context.Context, id string, outcome longstop.Outcome, f *resolveFlags) error {
	req := longstop.ResolveRequest{Outcome: outcome, Reason: f.reason}
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeResolve, Approver: f.as, Outcome: outcome, Reason: f.reason}
	if f.attach != "" {
		data, err := attachment(f.attach)
		if err != nil {
			return err
		}
		req.Attachment = &longstop.AttachedFile{Name: filepath.Base(f.attach), Data: data}
		sum := sha256.Sum256(data)
		about.Content = "sha256:" + hex.EncodeToString(sum[:])
	}
	return a.dialogue(func(person *terminal, gateway *client.Client) error {
		action, err := gateway.Action(ctx, id)
		if err != nil {
			return err
		}
		about.ActionID = action.ID
		person.show("\n" + lanes(&action, a.now(), 0) + "\n")
		if req.Proof, err = person.prove(ctx, gateway, about, shownFacts(&action)...); err != nil {
			return err
		}
		after, err := gateway.Resolve(ctx, action.ID, req)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(after)
		}
		a.talk.note("%s is resolved by hand: %s%sthe facts stay as they are%slongstop show %s", after.ID, words(string(outcome)), between, between, after.ID)
		return nil
	})
}

func attachment(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usage("", "--attach: %v", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, longstop.MaxAttachment+1))
	switch {
	case err != nil:
		return nil, usage("", "--attach: %v", err)
	case len(data) == 0:
		return nil, usage("", "--attach %s is empty", plain(path))
	case len(data) > longstop.MaxAttachment:
		return nil, usage("attach the part of it that shows it", "--attach %s has more than %d MiB", plain(path), longstop.MaxAttachment>>20)
	}
	return data, nil
}
