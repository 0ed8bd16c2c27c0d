package gateway_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// whole checks that what is stored is what the journal gives.
func (b *bench) whole() {
	b.t.Helper()
	if _, err := b.store.CheckProjections(b.t.Context()); err != nil {
		b.t.Errorf("what is stored is not what the journal gives: %v", err)
	}
}

// TestPointChangedBehindTheJournal: what somebody writes into the database of a host, a token, an approver or the
// policy is named, also after a gateway has started on it, until it is rebuilt; and an approver or a policy that the
// journal does not account for is not believed meanwhile.
func TestPointChangedBehindTheJournal(t *testing.T) {
	t.Parallel()
	const text = "default: ask\n"
	b := newRuled(t, text)
	b.addBob()
	_, err := b.CreateToken(t.Context(), longstop.TokenRequest{Name: "scout"}, operator)
	b.must(err)
	_, err = b.CreateToken(t.Context(), longstop.TokenRequest{Name: "crawler"}, operator)
	b.must(err)
	b.must(b.RevokeToken(t.Context(), "crawler", operator))
	b.whole()
	for _, c := range []struct{ names, query string }{
		{"host loop: machine_id", `UPDATE hosts SET json = json_set(json, '$.machine_id', 'another')`},
		{"host loop: direct", `UPDATE hosts SET json = json_set(json, '$.direct', json('true'))`},
		{"token crawler", `UPDATE tokens SET revoked_at = NULL WHERE name = 'crawler'`},
		{"token scout", `UPDATE tokens SET hash = x'00' WHERE name = 'scout'`},
		{"approver anna: public_key", `UPDATE approvers SET json = json_set(json, '$.public_key', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=') WHERE name = 'anna'`},
		{"approver mallory", `INSERT INTO approvers SELECT 'mallory', entry, json_set(json, '$.name', 'mallory') FROM approvers WHERE name = 'anna'`},
		{"the policy: text", `UPDATE policy SET text = CAST('default: allow' AS BLOB)`},
	} {
		b.stop()
		b.edit(c.query)
		b.start()
		var d *sqlite.Difference
		if _, err := b.store.CheckProjections(t.Context()); !errors.As(err, &d) || !strings.HasPrefix(d.Error(), c.names) {
			t.Errorf("%v, want it to name %s", err, c.names)
		}
		if p := b.Policy(); p.Text != text {
			t.Errorf("%s: the policy is %q", c.names, p.Text)
		}
		for _, who := range []string{"anna", "mallory"} {
			_, err := b.Challenge(t.Context(), longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Content: setOf(people["bob"]().Approver).Content, Approver: who}, operator)
			if changed := strings.HasPrefix(c.names, "approver"); who == "mallory" && err == nil || who == "anna" && (err != nil) != (changed && strings.Contains(c.names, who)) {
				t.Errorf("%s: %s: %v", c.names, who, err)
			}
		}
		b.edited()
		b.whole()
	}
}
