package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// The first approver is trusted on first use, on the record; whoever comes later needs one who is there.
func TestApproverFirstAndLater(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	anna, bob := people["anna"]().Approver, people["bob"]().Approver
	list, err := b.Approvers(t.Context())
	b.must(err)
	if len(list) != 1 || list[0].Name != "anna" || !list[0].First || list[0].SetBy != "operator anna" {
		t.Errorf("%s", pretty(list))
	}
	_, err = b.SetApprover(t.Context(), bob, nil, operator)
	b.refused("", err, longstop.CodeNotProven, "a change needs the proof of one who is there")

	proof := b.sign("anna", setOf(anna))
	_, err = b.SetApprover(t.Context(), bob, &proof, operator)
	b.refused("", err, longstop.CodeNotProven, "what was signed is not what is to be done now")

	b.addBob()
	b.stop()
	b.start()
	list, err = b.Approvers(t.Context())
	b.must(err)
	if len(list) != 2 || list[1].Name != "bob" || list[1].First || list[1].SetBy != "approver anna" {
		t.Errorf("%s", pretty(list))
	}
	remove := longstop.ChallengeRequest{Kind: longstop.ChallengeApprover, Reason: longstop.ApproverRemove + "anna", Content: setOf(anna).Content}
	_, err = b.RemoveApprover(t.Context(), "anna", b.sign("bob", remove), operator)
	b.must(err)
	_, err = b.RemoveApprover(t.Context(), "bob", longstop.Proof{}, operator)
	if longstop.CodeOf(err) != longstop.CodeUsage || !strings.Contains(err.Error(), "the only approver") {
		t.Errorf("%v", err)
	}
	if _, err := b.trySign("anna", setOf(bob)); longstop.CodeOf(err) != longstop.CodeNotProven {
		t.Errorf("anna was removed: %v", err)
	}
}

// A key in the store that the journal does not have is refused, and so is the place of one that was taken
// out of the store: nobody is the first again.
func TestApproverChangedOutside(t *testing.T) {
	t.Parallel()
	for what, query := range map[string]string{
		"another key":              `UPDATE approvers SET json = json_set(json, '$.public_key', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=')`,
		"weaker":                   `UPDATE approvers SET json = json_set(json, '$.argon2.memory_kib', 65537)`,
		"another":                  `UPDATE approvers SET name = 'mallory', json = json_set(json, '$.name', 'mallory')`,
		"none":                     `DELETE FROM approvers`,
		"filed under another kind": `UPDATE entries SET kind = 'observed' WHERE kind IN ('approver_set', 'policy_changed'); DELETE FROM approvers`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sshtest.Options{}, func(b *bench) { b.policy = asksAbout })
			_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
			b.must(err)
			_, text := b.marker()
			a := b.ask(script(text))
			b.stop()
			b.edit(query)
			b.start()
			for _, name := range []string{"anna", "mallory"} {
				_, err = b.Challenge(t.Context(), longstop.ChallengeRequest{Kind: longstop.ChallengeApprove, ActionID: a.ID, Approver: name}, operator)
				if longstop.CodeOf(err) != longstop.CodeNotProven {
					t.Errorf("%s: %v", name, err)
				}
			}
			_, err = b.SetApprover(t.Context(), people["bob"]().Approver, nil, operator)
			b.refused("", err, longstop.CodeNotProven, "a change needs the proof of one who is there")
			list, err := b.Approvers(t.Context())
			b.must(err)
			if list[0].Changed == "" {
				t.Errorf("%s", pretty(list))
			}
			if what != "filed under another kind" { // which longstop journal verify names
				b.edited()
			}
		})
	}
}

// Who writes another key over one in the store and in the journal, but not all the journal's hashes, is not
// believed.
func TestApproverOverwritten(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	b.stop()
	key := func(name string) string { return base64.StdEncoding.EncodeToString(people[name]().PublicKey) }
	b.edit(`UPDATE approvers SET json = replace(json, ?, ?)`, key("anna"), key("bob"))
	b.edit(`UPDATE entries SET bytes = CAST(replace(CAST(bytes AS TEXT), ?, ?) AS BLOB) WHERE kind = 'approver_set'`, key("anna"), key("bob"))
	b.start()
	if _, err := b.Approvers(t.Context()); err == nil || !strings.Contains(err.Error(), "do not have its hash") {
		t.Errorf("it is believed: %v", err)
	}
	if p := b.Gateway.Policy(); p.Text != "default: deny\n" {
		t.Errorf("what is let through of a journal that was changed: %+v", p)
	}
}

// Who writes an approver into the store and, with all its hashes, into the journal, still lacks the
// signature of one who was there.
func TestApproverForgedInTheJournal(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	bob := people["bob"]().Approver
	b.stop()
	store, err := sqlite.Open(filepath.Join(b.home, "longstop.db"))
	b.must(err)
	b.must(store.Update(t.Context(), func(tx *sqlite.Tx) error {
		says, err := json.Marshal(map[string]any{"approver": bob, "first": true})
		if err != nil {
			return err
		}
		entry, err := tx.Append(journal.Entry{At: longstop.At(time.Now()), Kind: journal.ApproverSet, By: "approver anna", Body: says})
		if err != nil {
			return err
		}
		return tx.PutApprover(sqlite.Approver{Approver: bob, Entry: entry})
	}))
	b.must(store.Close())
	b.start()
	if _, err := b.trySign("bob", setOf(bob)); longstop.CodeOf(err) != longstop.CodeNotProven {
		t.Errorf("bob is believed: %v", err)
	}
	if _, err := b.trySign("anna", setOf(bob)); err != nil {
		t.Errorf("anna is not: %v", err)
	}
}
