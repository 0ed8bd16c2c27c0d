package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/client"
)

func (a *app) approverVerb() *cobra.Command {
	return group(&cobra.Command{
		Use:   "approver",
		Short: "Say who may approve: people, by a passphrase",
		Long: `An approver is a person who proves who they are with a passphrase, typed in a terminal. The passphrase makes a
key in that moment; the gateway has the public half of it alone, and keeps each signature with what was signed.

The first approver is trusted because nobody was there before: set it before agents have this account. Every
later change needs the passphrase of an approver who is there. Nobody can get around a forgotten passphrase but
another approver: have two.`,
	}, "longstop approver set|show|remove",
		a.approverSet(), a.approverShow(), a.approverRemove())
}

func (a *app) approverSet() *cobra.Command {
	var as string
	c := &cobra.Command{
		Use:   "set [NAME]",
		Short: "Set who may approve, or another passphrase of theirs (in a terminal)",
		Long: fmt.Sprintf(`Set an approver, or another passphrase of one. NAME is what the journal calls them (default: the name of your
login). It is asked for in the terminal alone. A passphrase has at least %d bytes: whoever can read the gateway's
folder can try passphrases for as long as they like.`, approver.MinPassphrase),
		Example: `  longstop approver set anna
  longstop approver set bob --as anna`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly("NAME")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			} else if me, err := user.Current(); err == nil {
				name = me.Username
			}
			if err := approver.Name(name); err != nil {
				return usage("longstop approver set NAME", "%v", err)
			}
			return a.setApprover(c.Context(), name, as)
		},
	}
	asFlag(c, &as)
	a.jsonFlag(c, "the approver")
	return c
}

func (a *app) setApprover(ctx context.Context, name, as string) error {
	return a.dialogue(func(person *terminal, gateway *client.Client) error {
		present, err := gateway.Approvers(ctx)
		if err != nil {
			return err
		}
		made, err := person.newApprover(name)
		if err != nil {
			return err
		}
		change := longstop.ApproverChange{Approver: &made}
		if len(present) > 0 {
			proof, err := person.prove(ctx, gateway, approverChange(longstop.ApproverSet, made, as))
			if err != nil {
				return err
			}
			change.Proof = &proof
		}
		known, err := gateway.SetApprover(ctx, change)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(known)
		}
		a.talk.note("%s may approve%skey %s", plain(known.Name), between, keyWord(known.PublicKey))
		if known.First {
			a.talk.note("the first one here: trusted because nobody was there before")
		}
		if len(present) == 0 {
			a.talk.note("set another one too: nobody else gets around a forgotten passphrase")
		}
		return nil
	})
}

// approverChange is what is signed for an approver to be set or removed.
func approverChange(what string, k longstop.Approver, as string) longstop.ChallengeRequest {
	return longstop.ChallengeRequest{Kind: longstop.ChallengeApprover, Approver: as, Reason: what + k.Name, Content: approver.Digest(k)}
}

// newApprover asks for a new passphrase, twice.
func (t *terminal) newApprover(name string) (longstop.Approver, error) {
	first, err := t.passphrase("New passphrase of " + plain(name) + ": ")
	if err != nil {
		return longstop.Approver{}, err
	}
	if err := approver.Passphrase(first); err != nil {
		return longstop.Approver{}, usage("longstop approver set --help", "%v; nothing was set", err)
	}
	second, err := t.passphrase("The same again: ")
	if err != nil {
		return longstop.Approver{}, err
	}
	if string(first) != string(second) {
		return longstop.Approver{}, usage("the same command again", "the two are not the same; nothing was set")
	}
	salt := make([]byte, approver.SaltBytes)
	rand.Read(salt)
	made, err := approver.New(name, first, salt)
	clear(first)
	clear(second)
	return made, err
}

// keyWord is a public key as people compare it.
func keyWord(key []byte) string {
	sum := sha256.Sum256(key)
	return "sha256:" + hex.EncodeToString(sum[:8])
}

func (a *app) approverShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Who may approve, and how they came to",
		Args:  exactly(),
		RunE:  listing(a, (*client.Client).Approvers, approverTable, "nobody may approve yet: longstop approver set", ""),
	}
	a.jsonFlag(c, "the approvers as one array")
	return c
}

func approverTable(list []longstop.KnownApprover, now time.Time) *table {
	t := new(table)
	t.row("", "NAME", "KEY", "SET", "BY", "")
	for _, k := range list {
		t.row("", plain(k.Name), keyWord(k.PublicKey), clock(k.SetAt, now), plain(k.SetBy), approverWords(&k))
	}
	return t
}

// approverWords are what is worth knowing of an approver beside who they are.
func approverWords(k *longstop.KnownApprover) string {
	switch {
	case k.Changed != "":
		return "! refused: " + plain(k.Changed)
	case k.First:
		return "the first: trusted on first use"
	}
	return ""
}

func (a *app) approverRemove() *cobra.Command {
	var as string
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take an approver out (in a terminal); the last one stays",
		Args:  exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.dialogue(func(person *terminal, gateway *client.Client) error {
				return a.removeApprover(c.Context(), person, gateway, args[0], as)
			})
		},
	}
	asFlag(c, &as)
	a.jsonFlag(c, "the approver that was")
	return c
}

func (a *app) removeApprover(ctx context.Context, person *terminal, gateway *client.Client, name, as string) error {
	list, err := gateway.Approvers(ctx)
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Name != name {
			continue
		}
		proof, err := person.prove(ctx, gateway, approverChange(longstop.ApproverRemove, k.Approver, as))
		if err != nil {
			return err
		}
		gone, err := gateway.RemoveApprover(ctx, name, proof)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(gone)
		}
		a.talk.note("%s may not approve any more", plain(name))
		return nil
	}
	return &longstop.Error{Code: longstop.CodeNotFound, Message: "there is no approver " + plain(name), Hint: "longstop approver show"}
}
