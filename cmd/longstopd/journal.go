package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// `longstop journal` looks at the journal by itself, and not through a gateway: whoever doubts the journal need not
// believe whoever keeps it, and it can be read when no gateway can run. longstop links no database, so it starts this
// program for it: `longstopd journal` reads one client.JournalTask from standard input and answers with one
// client.JournalAnswer on standard output. Beside a running gateway it only reads.

func journalMain() int {
	answer := client.JournalAnswer{}
	err := func() error {
		var task client.JournalTask
		d := json.NewDecoder(io.LimitReader(os.Stdin, 64<<20))
		d.DisallowUnknownFields()
		if err := d.Decode(&task); err != nil {
			return fmt.Errorf("read the task: %w", err)
		}
		home, err := client.FindHome(os.Getenv)
		if err != nil {
			return err
		}
		return (&journalTool{home: home, task: task, answer: &answer}).do(context.Background())
	}()
	if err != nil {
		answer.Error = shownError(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fmt.Fprintln(os.Stderr, "longstopd:", err)
		return longstop.ExitOurs
	}
	return 0
}

// shownError is an error as people see it.
func shownError(err error) *longstop.Error {
	var known *longstop.Error
	var bad *journal.BadEntry
	var differs *sqlite.Difference
	const hint = "keep the file as evidence, and put a backup in its place (docs/backup.md)"
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &bad):
		return &longstop.Error{Code: longstop.CodeJournalChanged, Message: bad.Error(), Hint: hint}
	case errors.As(err, &differs):
		return &longstop.Error{Code: longstop.CodeJournalChanged, Message: "what is stored is not what the journal says: " + differs.Error(),
			Hint: "longstop journal verify says whether the journal is whole; then longstop daemon stop, longstop journal rebuild"}
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: err.Error()}
}

// journalTool does one task.
type journalTool struct {
	home   client.Home
	task   client.JournalTask
	answer *client.JournalAnswer
}

func (t *journalTool) do(ctx context.Context) error {
	if t.task.Verb == client.JournalRebuild {
		return t.rebuild(ctx)
	}
	store, err := sqlite.OpenToRead(t.home.Database())
	if err != nil {
		return err
	}
	defer store.Close()
	switch t.task.Verb {
	case client.JournalVerify:
		return t.verify(ctx, store)
	case client.JournalCheck:
		t.answer.Replayed, err = replayed(store.CheckProjections(ctx))
		return err
	case client.JournalExport:
		return t.export(ctx, store)
	case client.JournalBackup:
		return t.backup(ctx, store)
	case client.JournalShow:
		return t.show(ctx, store)
	}
	return fmt.Errorf("no task %q", t.task.Verb)
}

func replayed(r sqlite.Replayed, err error) (*client.Replayed, error) {
	return &client.Replayed{Actions: r.Rows, Earlier: r.Earlier, From: r.From,
		Hosts: r.Hosts, Tokens: r.Tokens, Approvers: r.Approvers, Notices: r.Notices, Partly: r.Partly}, err
}

// key is the journal's public key: the one that was given, else the home's own.
func (t *journalTool) key() (string, error) {
	_, own, err := gateway.JournalKey(t.home.Dir)
	switch given := t.task.Key; {
	case given == "" || err == nil && given == journal.Fingerprint(own):
		return own, err
	case err != nil || given == own:
		return given, nil
	default:
		t.answer.OtherKey = true // the checkpoints here are another's
		return given, nil
	}
}

// heads are the heads of checkpoints that somebody kept elsewhere, signed by the journal's key.
func (t *journalTool) heads(key string) (heads []journal.Head, err error) {
	for i, text := range t.task.Checkpoints {
		c, err := journal.OpenCheckpoint([]byte(text), key)
		if err != nil {
			return nil, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("checkpoint %d of those given: %v", i+1, err),
				Hint: "it must be a file that longstop journal checkpoint wrote, of this very gateway; --key gives the key of another"}
		}
		heads = append(heads, c.Head)
	}
	return heads, nil
}

// verify reads the whole journal, with the checkpoints that are kept in the store and those that were given.
func (t *journalTool) verify(ctx context.Context, store *sqlite.Store) error {
	key, err := t.key()
	if err != nil {
		return err
	}
	heads, err := t.heads(key)
	if err != nil {
		return err
	}
	own, err := store.Checkpoints(ctx)
	if err != nil {
		return err
	}
	for _, kept := range own {
		c, err := journal.OpenCheckpoint(kept.Note, key)
		if err == nil && c.Size != kept.Size {
			err = errors.New("it is filed under another size")
		}
		if err != nil {
			return &longstop.Error{Code: longstop.CodeJournalChanged, Message: fmt.Sprintf("the checkpoint of %d entries that is kept in the store: %v", kept.Size, err),
				Hint: "it was changed, or the key was"}
		}
		heads = append(heads, c.Head)
	}
	head, err := store.Verify(ctx, heads...)
	t.answer.Verified = &client.Verified{Size: head.Size, Hash: head.Hash.String(), Given: len(t.task.Checkpoints), Kept: len(own),
		Fingerprint: journal.Fingerprint(key)}
	return err
}

// rebuild writes the projections anew. No gateway may run, and none may start meanwhile.
func (t *journalTool) rebuild(ctx context.Context) error {
	lock, err := takeLock(t.home)
	if err != nil {
		return err
	}
	if lock == nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the gateway runs, and has read what would be written anew",
			Hint: "longstop daemon stop (runs go on), then the same command again"}
	}
	defer lock.release()
	store, err := sqlite.Open(t.home.Database())
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Verify(ctx); err != nil {
		var bad *journal.BadEntry
		if errors.As(err, &bad) {
			return err // nothing is to be made from a journal that is not whole
		}
		return fmt.Errorf("verify the journal: %w", err)
	}
	t.answer.Replayed, err = replayed(store.Rebuild(ctx))
	return err
}

// export makes a bundle under a checkpoint of the journal as it is now.
func (t *journalTool) export(ctx context.Context, store *sqlite.Store) error {
	private, key, err := gateway.JournalKey(t.home.Dir)
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return err
	}
	earlier, err := t.heads(key)
	if err != nil {
		return err
	}
	which := sqlite.Chosen{Session: t.task.Session, From: t.task.From, To: t.task.To}
	if t.task.Action != "" {
		a, err := store.Action(ctx, t.task.Action)
		if err != nil {
			return err
		}
		which.Action = a.ID
	}
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	config, err := readConfig(t.home)
	if err != nil {
		return err
	}
	b, err := store.Prove(ctx, head, which, earlier, func(entry []byte) string {
		if config.redact.Has(string(entry)) { // written before that was configured
			return "it has something in it that is configured as secret"
		}
		return ""
	})
	if err != nil {
		return err
	}
	signed, err := journal.Sign(head, signer)
	if err != nil {
		return err
	}
	b.Key, b.Fingerprint, b.Checkpoint = key, journal.Fingerprint(key), string(signed)
	t.answer.Bundle = b
	return nil
}

// show gives the bytes of entries, as they are hashed.
func (t *journalTool) show(ctx context.Context, store *sqlite.Store) error {
	entries, err := store.Entries(ctx, sqlite.EntryFilter{From: t.task.From, Limit: 1})
	if err != nil {
		return err
	}
	if len(entries) == 0 || entries[0].Index != t.task.From {
		return &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("the journal has no entry %d", t.task.From), Hint: "longstop activity"}
	}
	config, err := readConfig(t.home)
	if err != nil {
		return err
	}
	bytes, err := journal.Encode(entries[0])
	t.answer.Entry = config.redact.Bytes(bytes)
	return err
}
