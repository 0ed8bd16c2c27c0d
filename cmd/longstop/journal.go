package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/journal"
)

func (a *app) journalVerb() *cobra.Command {
	return group(&cobra.Command{
		Use:   "journal",
		Short: "Verify the journal, sign and export it, and hold what is stored against it",
		Long: `The journal is every entry that longstop activity shows, as leaves of one tree of hashes: nothing in it can be changed,
removed or put in another order without being found out by whoever kept a checkpoint from before. docs/journal.md
says what it proves and what it cannot.

  longstop journal checkpoint --out monday      sign the journal as it is now; keep the file on another machine
  longstop journal verify --checkpoint monday   it is whole, and goes on from what was signed then
  longstop journal export --action 7KQ2 --out b entries with their proofs; anybody can verify them, offline:
  longstop journal verify --bundle b --key KEY`,
	}, "longstop journal verify|checkpoint|export|show|rebuild",
		a.journalVerify(), a.journalCheckpoint(), a.journalExport(), a.journalShow(), a.journalRebuild())
}

// verifying is what longstop journal verify was given.
type verifying struct {
	checkpoints []string // files
	key, bundle string
	witnesses   []string
}

func (a *app) journalVerify() *cobra.Command {
	var v verifying
	c := &cobra.Command{
		Use:   "verify",
		Short: "Read the whole journal, or a bundle, and prove it; or name the first bad place",
		Long: `Read the whole journal of this gateway, running or not, and say whether it is what was written: every entry, its place, and
what is kept beside it. Without a checkpoint that was kept elsewhere this proves that the journal is whole in itself, and
no more: who can write the file can write another whole one.

With --bundle, verify a file that longstop journal export wrote: without a gateway, without a network, with the journal's
public key alone. KEY is that key or its fingerprint, had from somewhere else than the bundle.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if v.bundle != "" {
				return a.verifyBundle(v)
			}
			return a.verifyJournal(c.Context(), v)
		},
	}
	c.Flags().StringArrayVar(&v.checkpoints, "checkpoint", nil, "a `FILE` that longstop journal checkpoint wrote; more than once for several")
	c.Flags().StringVar(&v.key, "key", "", "the journal's public `KEY`, its fingerprint, or a file that has one of them (default: the one in the gateway's folder)")
	c.Flags().StringVar(&v.bundle, "bundle", "", "verify this `FILE`, and no journal")
	c.Flags().StringArrayVar(&v.witnesses, "witness", nil, "with --bundle: the `KEY` of a witness that must have signed its checkpoint too")
	a.jsonFlag(c, "what was found")
	return c
}

// keyOf is a key as given: itself, or the first line of the file that is called so.
func keyOf(given string) (string, error) {
	if given == "" || strings.HasPrefix(given, "SHA256:") || strings.Count(given, "+") >= 2 {
		return given, nil
	}
	text, err := os.ReadFile(given)
	if err != nil {
		return "", usage("longstop journal checkpoint prints it", "--key %s is neither a key nor a file", plain(given))
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), nil
}

func readFiles(names []string) (texts []string, err error) {
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usage("name a file that longstop journal checkpoint wrote", "%v", err)
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}

// journalTask does what needs no gateway, and so asks none who may. Who has a token is an agent here too: it verifies
// and compares, and neither takes keys and entries away nor writes anything anew.
func (a *app) journalTask(ctx context.Context, task client.JournalTask) (client.JournalAnswer, error) {
	if _, agent := os.LookupEnv("LONGSTOP_TOKEN"); agent && task.Verb != client.JournalVerify && task.Verb != client.JournalCheck {
		return client.JournalAnswer{}, &longstop.Error{Code: longstop.CodeNotAllowed, Message: "with LONGSTOP_TOKEN set you are an agent, and this is for people",
			Hint: "ask an operator, who does it without LONGSTOP_TOKEN"}
	}
	home, err := client.FindHome(os.Getenv)
	if err != nil {
		return client.JournalAnswer{}, err
	}
	return home.Journal(ctx, task)
}

func (a *app) verifyJournal(ctx context.Context, v verifying) error {
	if len(v.witnesses) > 0 {
		return usage("longstop journal verify --bundle FILE --key KEY --witness KEY", "--witness is for a bundle")
	}
	texts, err := readFiles(v.checkpoints)
	if err != nil {
		return err
	}
	key, err := keyOf(v.key)
	if err != nil {
		return err
	}
	answer, err := a.journalTask(ctx, client.JournalTask{Verb: client.JournalVerify, Checkpoints: texts, Key: key})
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(answer.Verified)
		return nil
	}
	is := answer.Verified
	fmt.Fprintf(a.out, "the journal is whole: %s, hash %s, key %s\n", count(int(is.Size), "entry", "entries"), is.Hash, is.Fingerprint)
	if is.Given > 0 {
		fmt.Fprintf(a.out, "it goes on from %s\n", count(is.Given, "checkpoint that you gave", "checkpoints that you gave"))
	} else {
		a.talk.note("held against nothing that was kept elsewhere%slongstop journal checkpoint --out FILE makes what the next look can be held against", between)
	}
	return nil
}

// verifyBundle needs nothing but the bundle and the key.
func (a *app) verifyBundle(v verifying) error {
	key, err := keyOf(v.key)
	if err != nil {
		return err
	}
	if key == "" {
		return usage("longstop journal checkpoint prints the key, on the gateway's machine", "--bundle needs --key: the one inside says nothing about who wrote it")
	}
	file, err := os.Open(v.bundle)
	if err != nil {
		return usage("name a file that longstop journal export wrote", "%v", err)
	}
	defer file.Close()
	b, err := journal.ReadBundle(file)
	if err != nil {
		return usage("it must be a file that longstop journal export wrote", "%s: %v", plain(v.bundle), err)
	}
	var kept []journal.Head
	texts, err := readFiles(v.checkpoints)
	if err != nil {
		return err
	}
	changed := func(err error) error {
		return &longstop.Error{Code: longstop.CodeJournalChanged, Message: plain(v.bundle) + ": " + err.Error(),
			Hint: "do not rely on it; ask whoever gave it for another, and for the key by another way"}
	}
	for i, text := range texts {
		c, err := journal.OpenCheckpoint([]byte(text), b.Key)
		if err != nil {
			return changed(fmt.Errorf("%s is of another journal: %w", v.checkpoints[i], err))
		}
		kept = append(kept, c.Head)
	}
	entries, c, err := b.Verify(key, v.witnesses, kept...)
	if err == nil && len(c.By) <= len(v.witnesses) {
		err = errors.New("a witness that you named has not signed its checkpoint")
	}
	if err != nil {
		return changed(err)
	}
	a.printBundle(b, entries, c)
	return nil
}

func (a *app) printBundle(b *journal.Bundle, entries []journal.Entry, c journal.Checkpoint) {
	withheld := len(b.Entries) - len(entries)
	if a.json {
		shown := []longstop.JournalEntry{}
		for _, e := range entries {
			shown = append(shown, longstop.JournalEntry{Index: e.Index, At: e.At, Kind: string(e.Kind), ActionID: e.ActionID, SessionID: e.SessionID,
				RunID: e.RunID, Host: e.Host, By: e.By, Body: e.Body})
		}
		a.printJSON(map[string]any{"size": c.Size, "hash": c.Hash, "fingerprint": journal.Fingerprint(b.Key), "entries": shown, "withheld": withheld,
			"cosignatures": len(c.By) - 1})
		return
	}
	t := new(table)
	t.row("", "N", "AT", "WHAT", "ACTION", "HOST", "BY", "BODY")
	for _, e := range entries {
		t.row("", strconv.FormatInt(e.Index, 10), clock(e.At, a.now()), words(string(e.Kind)), dash(string(e.ActionID)), dash(e.Host), dash(e.By), bodyText(e.Body))
	}
	if len(entries) > 0 {
		a.printTable(t)
	}
	line := fmt.Sprintf("proven: %s of a journal of %d, key %s", count(len(entries), "entry", "entries"), c.Size, journal.Fingerprint(b.Key))
	if withheld > 0 {
		line += fmt.Sprintf("%s%s by hash alone", between, count(withheld, "entry is there", "entries are there"))
	}
	if n := len(c.By) - 1; n > 0 {
		line += between + count(n, "witness", "witnesses")
	}
	a.talk.note("%s", line)
}

func (a *app) journalCheckpoint() *cobra.Command {
	var out, cosigned string
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Sign the journal as it is now; keep the file elsewhere",
		Long: `Sign how long the journal is and the hash of all of it, and print that: a signed note of a few lines. Kept on another
machine, it lets longstop journal verify find out later whether anything before it was changed, removed, or the whole
database put back. The gateway makes one by itself every hour and when it stops, and keeps the last ones.

A witness signs the same note with a key of its own: any program that speaks signed notes (C2SP). --cosigned keeps
one that came back so, if its key is a line of "witnesses" in longstopd.json.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.checkpoint(c.Context(), out, cosigned) },
	}
	c.Flags().StringVar(&out, "out", "", "write the note to this `FILE`, and print what it is")
	c.Flags().StringVar(&cosigned, "cosigned", "", "keep the checkpoint in this `FILE`, which a witness has signed too")
	a.jsonFlag(c, "the checkpoint")
	return c
}

func (a *app) checkpoint(ctx context.Context, out, cosigned string) error {
	gateway, err := a.gateway()
	if err != nil {
		return err
	}
	text := []byte(nil)
	if cosigned != "" {
		if text, err = os.ReadFile(cosigned); err != nil || len(text) == 0 {
			return usage("name the file that the witness gave back", "there is no checkpoint in %s", plain(cosigned))
		}
	}
	made, err := gateway.Checkpoint(ctx, string(text))
	if err != nil {
		return err
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(made.Note), 0o600); err != nil {
			return usage("--out needs a file that can be written", "%v", err)
		}
	}
	switch {
	case a.json:
		a.printJSON(made)
	case out == "" && cosigned == "":
		fmt.Fprint(a.out, made.Note)
	case cosigned != "":
		fmt.Fprintf(a.out, "kept: %s, signed by %s too\n", count(int(made.Size), "entry", "entries"), plain(strings.Join(made.Witnesses, ", ")))
	default:
		fmt.Fprintf(a.out, "%s, hash %s\nkey         %s\nfingerprint %s\n", count(int(made.Size), "entry", "entries"), made.Hash, plain(made.Key), made.Fingerprint)
	}
	return nil
}

func (a *app) journalExport() *cobra.Command {
	task := client.JournalTask{Verb: client.JournalExport}
	var out, session string
	var checkpoints []string
	to := int64(-1)
	c := &cobra.Command{
		Use:   "export --out FILE",
		Short: "Write entries with the proof that they are in the journal",
		Long: `Write a bundle: entries of an action, a session or a range, each with the proof that it is in the journal, and a checkpoint
of the journal as it is now. Whoever has it and the journal's public key can verify it without this machine:
longstop journal verify --bundle FILE --key KEY. Raw answers of hosts and output are never in it.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if out == "" {
				return usage("longstop journal export --action ID --out FILE", "--out is missing: the file to write")
			}
			task.Session, task.To = longstop.SessionID(session), to+1
			return a.export(c.Context(), task, checkpoints, out)
		},
	}
	c.Flags().StringVar(&task.Action, "action", "", "the entries of this `ID`")
	c.Flags().StringVar(&session, "session", "", "the entries of this session `ID`")
	c.Flags().Int64Var(&task.From, "from", 0, "from this entry `N` on")
	c.Flags().Int64Var(&to, "to", -1, "up to this entry `N`, and with it")
	c.Flags().StringArrayVar(&checkpoints, "checkpoint", nil, "prove too that the journal goes on from the checkpoint in this `FILE`")
	c.Flags().StringVar(&out, "out", "", "the `FILE` to write")
	return c
}

func (a *app) export(ctx context.Context, task client.JournalTask, checkpoints []string, out string) error {
	var err error
	if task.Checkpoints, err = readFiles(checkpoints); err != nil {
		return err
	}
	answer, err := a.journalTask(ctx, task)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := answer.Bundle.Write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(out, text.Bytes(), 0o600); err != nil {
		return usage("--out needs a file that can be written", "%v", err)
	}
	a.talk.note("%s%swho gets it verifies it with: longstop journal verify --bundle %s --key %s", count(len(answer.Bundle.Entries), "entry", "entries"),
		between, plain(out), answer.Bundle.Fingerprint)
	return nil
}

func (a *app) journalShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show N",
		Short: "Print an entry byte for byte, as it is hashed",
		Args:  exactly("N"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || n < 0 {
				return usage("longstop activity shows their numbers", "%q is no number of an entry", plain(args[0]))
			}
			answer, err := a.journalTask(c.Context(), client.JournalTask{Verb: client.JournalShow, From: n})
			if err != nil {
				return err
			}
			if !isTerminal(a.out) {
				_, err := a.out.Write(answer.Entry)
				return err
			}
			for line := range strings.Lines(string(answer.Entry)) {
				fmt.Fprintln(a.out, plain(strings.TrimSuffix(line, "\n")))
			}
			return nil
		},
	}
}

func (a *app) journalRebuild() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "rebuild",
		Short: "Write what is stored anew from the journal; --check only compares",
		Long: `Replay the journal's entries and write from them what the gateway stores of actions, sessions, hosts, tokens, approvers,
the policy and notices. The gateway must not run: stop it first (runs go on). With --check nothing is written: all of it
is compared with what the journal gives, beside a running gateway too, and the first that differs is named.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			verb := client.JournalRebuild
			if check {
				verb = client.JournalCheck
			}
			answer, err := a.journalTask(c.Context(), client.JournalTask{Verb: verb})
			if err != nil {
				return err
			}
			if a.json {
				a.printJSON(answer.Replayed)
				return nil
			}
			a.printReplayed(answer.Replayed, check)
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "compare, and write nothing")
	a.jsonFlag(c, "what was replayed")
	return c
}

func (a *app) printReplayed(r *client.Replayed, check bool) {
	line := "written from the journal: "
	if check {
		line = "what is stored is what the journal gives: "
	}
	fmt.Fprintln(a.out, line+strings.Join([]string{count(r.Actions, "action", "actions"), count(r.Hosts, "host", "hosts"), count(r.Tokens, "token", "tokens"),
		count(r.Approvers, "approver", "approvers"), count(r.Notices, "notice to tell", "notices to tell")}, ", ")+"; sessions and the policy too")
	if r.Earlier > 0 {
		fmt.Fprintf(a.out, "not replayable: %s, made before entry %d by a version whose entries did not say what changed; left as they are\n",
			count(r.Earlier, "action", "actions"), r.From)
	}
	for _, row := range r.Partly {
		fmt.Fprintf(a.out, "only in part: %s, of which an earlier version's entries do not tell all; the rest is as it is stored\n", plain(row))
	}
}
