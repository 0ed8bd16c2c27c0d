package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

var enrolled = journal.Entry{At: longstop.At(clock), Kind: journal.HostEnrolled, By: "gateway"}

func bodyOf(t testing.TB, say any) json.RawMessage {
	data, err := json.Marshal(say)
	must(t, err)
	return data
}

func append1(t testing.TB, s *Store, kind journal.Kind, say any, then func(tx *Tx, entry int64) error) {
	t.Helper()
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		entry, err := tx.Append(journal.Entry{At: longstop.At(clock), Kind: kind, By: "operator anna", Body: bodyOf(t, say)})
		if err == nil && then != nil {
			err = then(tx, entry)
		}
		return err
	}))
}

func hashFor(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// someStanding is a store of two hosts, three tokens, two approvers, a policy and two notices, as they come to be.
func someStanding(t testing.TB, path string) *Store {
	s := open(t, path)
	tells := Tells{Kinds: []journal.Kind{journal.Escalated}, Ways: []string{"webhook", "command"}}
	s.Tell(tells.Kinds, tells.Ways)
	append1(t, s, journal.GatewayStarted, map[string]any{"tells": s.Tells()}, nil)
	for _, name := range []string{"web-1", "web-2", "gone"} {
		h := Host{Host: longstop.Host{Name: name, Transport: "openssh", StateDir: "/var/ls", StateID: "st_" + name, MachineID: "m-" + name, UID: 1000,
			RunnerSHA: "aa", HostKey: "SHA256:old", EnrolledAt: longstop.At(clock), Hello: &longstop.HostHello{Kernel: "6.18"}}}
		must(t, s.Update(t.Context(), func(tx *Tx) error { return tx.PutHost(&h, enrolled) }))
		h.HostKey, h.RunnerSHA, h.MaxSessions = "SHA256:new", "bb", 4
		h.Hello.Kernel = "6.19"
		must(t, s.Update(t.Context(), func(tx *Tx) error {
			return tx.PutHost(&h, journal.Entry{At: longstop.At(clock), Kind: journal.HostChanged})
		}))
	}
	must(t, s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Append(journal.Entry{At: longstop.At(clock), Kind: journal.HostRemoved, Host: "gone"})
		return errors.Join(err, tx.DeleteHost("gone"))
	}))
	for n, name := range []string{"scout", "scout", "crawler"} {
		token := longstop.Token{Name: name, CreatedAt: longstop.At(clock.Add(time.Duration(n) * time.Hour))}
		if n == 1 {
			token.ExpiresAt = longstop.At(clock.Add(24 * time.Hour))
		}
		hash := hashFor(fmt.Sprint(name, n))
		append1(t, s, journal.TokenCreated, map[string]any{"name": name, "created_at": token.CreatedAt, "expires_at": token.ExpiresAt, "hash": hex.EncodeToString(hash)},
			func(tx *Tx, _ int64) error { return tx.AddToken(token, hash) })
		if n == 0 {
			append1(t, s, journal.TokenRevoked, map[string]any{"name": name}, func(tx *Tx, _ int64) error {
				_, err := tx.RevokeToken(name, longstop.At(clock))
				return err
			})
		}
	}
	for _, name := range []string{"anna", "bob", "carl"} {
		a := longstop.Approver{Name: name, Kind: "passphrase", PublicKey: hashFor(name)}
		append1(t, s, journal.ApproverSet, map[string]any{"approver": a}, func(tx *Tx, entry int64) error { return tx.PutApprover(Approver{a, entry}) })
	}
	append1(t, s, journal.ApproverRemoved, map[string]any{"approver": longstop.Approver{Name: "carl"}}, func(tx *Tx, _ int64) error { return tx.DeleteApprover("carl") })
	for _, text := range []string{"default: allow\n", "default: deny\n"} {
		append1(t, s, journal.PolicyChanged, map[string]any{"digest": "sha256:" + text, "text": text},
			func(tx *Tx, entry int64) error { return tx.PutPolicy(entry, "sha256:"+text, []byte(text)) })
	}
	for range 2 {
		append1(t, s, journal.Escalated, map[string]any{"because": "unreachable"}, nil)
	}
	tell(t, s)
	return s
}

// tell has the webhook take the first notice, and fail once at the second; the command fails at both.
func tell(t testing.TB, s *Store) {
	for _, way := range []string{"webhook", "webhook", "command"} {
		n, err := s.NextNotice(t.Context(), way)
		must(t, err)
		says := map[string]any{"way": way, "entry": n.Entry.Index, "message": "no answer", "tries": 1}
		if first := n.Way == "webhook" && n.Entry.Index == firstNotice(t, s); first {
			append1(t, s, journal.NoticeDelivered, says, func(tx *Tx, _ int64) error { return tx.DeleteNotice(n) })
			continue
		}
		n.Tries, n.Failure, n.DueAt = 1, "no answer", longstop.At(clock.Add(time.Hour))
		append1(t, s, journal.NoticeFailed, says, func(tx *Tx, _ int64) error { return tx.PutNotice(n) })
	}
}

func firstNotice(t testing.TB, s *Store) (entry int64) {
	must(t, s.reads.QueryRowContext(t.Context(), `SELECT min(entry) FROM notices`).Scan(&entry))
	return entry
}

// dumpStanding is every row of these tables.
func dumpStanding(t testing.TB, s *Store) (rows []string) {
	for _, table := range []string{"hosts", "tokens", "approvers", "policy", "notices"} {
		columns := map[string]string{"hosts": "name || max_sessions || json", "tokens": "hex(hash) || name || created_at || coalesce(expires_at, '-') || coalesce(revoked_at, '-')",
			"approvers": "name || entry || json", "policy": "entry || digest || text", "notices": "way || entry || id || tries || due_at || failure"}[table]
		must(t, s.each(t.Context(), `SELECT `+columns+` FROM `+table+` ORDER BY 1`, nil, func(r row) error {
			var text string
			err := r.Scan(&text)
			rows = append(rows, table+" "+text)
			return err
		}))
	}
	return rows
}

// TestPointStandingReplays: whatever is changed, removed or put in of hosts, tokens, approvers, the policy and notices
// behind the journal's back, the check names it, and a rebuild undoes it.
func TestPointStandingReplays(t *testing.T) {
	t.Parallel()
	for want, query := range map[string]string{
		"":                                      `SELECT 1`,
		"host web-1: host_key: it is not":       `UPDATE hosts SET json = json_set(json, '$.host_key', 'SHA256:mallory') WHERE name = 'web-1'`,
		"host web-1: machine_id: it is not":     `UPDATE hosts SET json = json_set(json, '$.machine_id', 'other') WHERE name = 'web-1'`,
		"host web-1: direct: it is not":         `UPDATE hosts SET json = json_set(json, '$.direct', json('true')) WHERE name = 'web-1'`,
		"host web-2: runner_sha256: it is not":  `UPDATE hosts SET json = json_set(json, '$.runner_sha256', 'cc') WHERE name = 'web-2'`,
		"host web-2: max_sessions: it is not":   `UPDATE hosts SET max_sessions = 1 WHERE name = 'web-2'`,
		"host web-2: name: it is not":           `UPDATE hosts SET json = json_set(json, '$.name', 'web-9') WHERE name = 'web-2'`,
		"host web-2: json: ":                    `UPDATE hosts SET json = '[' WHERE name = 'web-2'`,
		"host web-2: it is not there":           `DELETE FROM hosts WHERE name = 'web-2'`,
		"host gone: no entry is about it":       `INSERT INTO hosts SELECT 'gone', 0, json_set(json, '$.name', 'gone') FROM hosts WHERE name = 'web-1'`,
		"crawler of 2026":                       `UPDATE tokens SET expires_at = 7 WHERE name = 'crawler'`,
		"revoked_at: it is not":                 `DELETE FROM tokens WHERE name = 'scout' AND revoked_at IS NULL; UPDATE tokens SET revoked_at = NULL`,
		"expires_at: it is not":                 `UPDATE tokens SET expires_at = NULL WHERE name = 'scout'`,
		"hash: it is not":                       `UPDATE tokens SET hash = x'00' WHERE name = 'crawler'`,
		"token mallory of":                      `INSERT INTO tokens VALUES (x'00', 'mallory', 7, NULL, NULL)`,
		"token crawler of":                      `UPDATE tokens SET name = 'x' WHERE name = 'crawler'`,
		"approver anna: public_key: it is not":  `UPDATE approvers SET json = json_set(json, '$.public_key', 'AAAA') WHERE name = 'anna'`,
		"approver anna: argon2":                 `UPDATE approvers SET json = json_set(json, '$.argon2.time', 1) WHERE name = 'anna'`,
		"approver anna: entry: it is":           `UPDATE approvers SET entry = 0 WHERE name = 'anna'`,
		"approver bob: it is not there":         `DELETE FROM approvers WHERE name = 'bob'`,
		"approver carl: no entry is about it":   `INSERT INTO approvers SELECT 'carl', entry, json FROM approvers WHERE name = 'bob'`,
		"the policy: text: it is not":           `UPDATE policy SET text = CAST('default: allow' AS BLOB)`,
		"the policy: digest: it is not":         `UPDATE policy SET digest = 'x'`,
		"the policy: entry: it is":              `UPDATE policy SET entry = 0`,
		"the policy: it is not there":           `DELETE FROM policy`,
		"by webhook: it is not there":           `DELETE FROM notices WHERE way = 'webhook'`,
		"by command: failure: it is not":        `UPDATE notices SET failure = 'x' WHERE way = 'command' AND failure <> ''`,
		"by command: tries: it is not":          `UPDATE notices SET tries = 0 WHERE way = 'command'`,
		"by command: id: it is not":             `UPDATE notices SET id = 'ntc_X' WHERE way = 'command'`,
		"by other: the journal says of none":    `INSERT INTO notices SELECT 'other', entry, id, tries, due_at, failure FROM notices WHERE way = 'webhook'`,
		"by webhook: the journal says of none ": `INSERT INTO notices SELECT 'webhook', entry, id, tries, due_at, failure FROM notices WHERE way = 'command' ON CONFLICT DO NOTHING`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := someStanding(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
			before := fmt.Sprint(dumpStanding(t, s))
			_, err := s.conn.ExecContext(t.Context(), `PRAGMA foreign_keys = 0; `+query+`; PRAGMA foreign_keys = 1`)
			must(t, err)
			var d *Difference
			done, err := s.CheckProjections(t.Context())
			if want == "" {
				must(t, err)
				if done.Hosts != 2 || done.Tokens != 3 || done.Approvers != 2 || done.Notices != 3 || done.Partly != nil {
					t.Errorf("%+v", done)
				}
			} else if !errors.As(err, &d) || !strings.Contains(d.Error(), want) {
				t.Fatalf("%v, want %q", err, want)
			}
			if _, err := s.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CheckProjections(t.Context()); err != nil {
				t.Error(err)
			}
			after := fmt.Sprint(dumpStanding(t, s))
			if lost := strings.Contains(query, "hosts") && (strings.Contains(query, "DELETE") || strings.Contains(query, "'['")) || strings.Contains(query, "FROM notices WHERE way = 'webhook'"); !lost && after != before {
				t.Errorf("rebuilt\n%s\nfrom\n%s", after, before) // what a host said, and when a notice is due, the log has not
			}
		})
	}
}

// TestStandingOfAnEarlierVersion: of what entries of earlier versions do not tell a row is believed; what they tell is
// compared; and both are said.
func TestStandingOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	s := someStanding(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
	earlier := func(name string) {
		_, err := s.conn.ExecContext(t.Context(), `UPDATE entries SET bytes = CAST(replace(CAST(bytes AS TEXT), ?, '"other"') AS BLOB)`, `"`+name+`"`)
		must(t, err)
	}
	earlier("patch")
	earlier("hash")
	earlier("tells")
	_, err := s.conn.ExecContext(t.Context(), `UPDATE entries SET bytes = CAST(substr(CAST(bytes AS TEXT), 1, instr(CAST(bytes AS TEXT), '{"other"') - 1) ||
		'{"machine_id":"m-' || host || '","direct":false,"host_key":"SHA256:first"}' AS BLOB) WHERE kind = 'host_enrolled' AND instr(CAST(bytes AS TEXT), '{"other"')`)
	must(t, err)
	before := fmt.Sprint(dumpStanding(t, s))
	for _, check := range []func() (Replayed, error){
		func() (Replayed, error) { return s.CheckProjections(t.Context()) },
		func() (Replayed, error) { return s.Rebuild(t.Context()) },
		func() (Replayed, error) { return s.CheckProjections(t.Context()) },
	} {
		done, err := check()
		if err != nil || len(done.Partly) != 2+3+3 || done.Partly[0] != "host web-1" {
			t.Errorf("%+v, %v", done, err)
		}
	}
	if after := fmt.Sprint(dumpStanding(t, s)); after != before {
		t.Errorf("rebuilt\n%s\nfrom\n%s", after, before)
	}
	for _, c := range []struct{ want, query, back string }{
		{"host web-1: machine_id", `UPDATE hosts SET json = json_set(json, '$.machine_id', 'x') WHERE name = 'web-1'`, `UPDATE hosts SET json = json_set(json, '$.machine_id', 'm-web-1') WHERE name = 'web-1'`},
		{"host web-1: direct", `UPDATE hosts SET json = json_set(json, '$.direct', json('true')) WHERE name = 'web-1'`, `UPDATE hosts SET json = json_remove(json, '$.direct')`},
		{"expires_at", `UPDATE tokens SET expires_at = 7 WHERE name = 'crawler'`, `UPDATE tokens SET expires_at = NULL WHERE name = 'crawler'`},
		{"", `UPDATE tokens SET hash = x'00' WHERE name = 'crawler'`, `SELECT 1`}, // nobody told
		{"by webhook: the journal says of none", `INSERT INTO notices SELECT 'webhook', entry, id, tries, due_at, failure FROM notices WHERE way = 'command' ON CONFLICT DO NOTHING`, `SELECT 1`},
	} {
		_, err := s.conn.ExecContext(t.Context(), c.query)
		must(t, err)
		if _, err := s.CheckProjections(t.Context()); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		_, err = s.conn.ExecContext(t.Context(), c.back)
		must(t, err)
	}
}

// A host that is as it was known needs no entry, and one that is not has one.
func TestHostChangedIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	h := Host{Host: longstop.Host{Name: "web-1", HostKey: "SHA256:old"}}
	count := func(kind journal.Kind) int64 {
		t.Helper()
		must(t, s.Update(t.Context(), func(tx *Tx) error { return tx.PutHost(&h, journal.Entry{At: longstop.At(clock), Kind: kind}) }))
		head, err := s.Head(t.Context())
		must(t, err)
		return head.Size
	}
	sizes := []int64{count(journal.HostEnrolled)}
	h.Hello = &longstop.HostHello{Kernel: "6.19"}
	sizes = append(sizes, count(journal.HostChanged), count(journal.Reachable))
	h.HostKey = "SHA256:new"
	sizes = append(sizes, count(journal.HostChanged), count(journal.HostChanged))
	if want := []int64{1, 1, 2, 3, 3}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("entries: %v, want %v", sizes, want)
	}
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutHost(&h, journal.Entry{Kind: journal.Observed}) }); err == nil {
		t.Error("an entry that is not about a host changed one")
	}
	if _, err := s.CheckProjections(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPointAuthorityTakenOut: a log written anew without the entry that set an approver or the policy, or cut off before
// it, with their rows, is whole in itself, and its projections are what it gives. A head that was kept elsewhere tells,
// and nothing else does.
func TestPointAuthorityTakenOut(t *testing.T) {
	t.Parallel()
	s := someStanding(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
	kept := verify(t, s)
	entries, err := s.Entries(t.Context(), EntryFilter{Limit: 1000})
	must(t, err)
	var from int64 // the first entry that is another
	for _, e := range entries {
		if e.Kind == journal.ApproverSet {
			from = e.Index
			break
		}
	}
	for name, stays := range map[string]func(journal.Entry) bool{
		"taken out": func(e journal.Entry) bool {
			return e.Kind != journal.ApproverSet && e.Kind != journal.ApproverRemoved && e.Kind != journal.PolicyChanged
		},
		"cut off": func(e journal.Entry) bool { return e.Index < from },
	} {
		t.Run(name, func(t *testing.T) {
			forged := openNew(t)
			for _, e := range entries {
				if !stays(e) {
					continue
				}
				must(t, forged.Update(t.Context(), func(tx *Tx) error {
					_, err := tx.append(e, nil)
					return err
				}))
			}
			if _, err := forged.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
			verify(t, forged)
			if _, err := forged.CheckProjections(t.Context()); err != nil {
				t.Errorf("the forged log is not whole: %v", err)
			}
			if list, err := forged.Approvers(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("approvers: %v, %v", list, err)
			}
			var bad *journal.BadEntry
			if _, err := forged.Verify(t.Context(), kept); !errors.As(err, &bad) || bad.Index < from {
				t.Errorf("with the kept head: %v, want entry %d or one after it", err, from)
			}
		})
	}
}

// The end of the log cut off, and a row that names an entry of it left: no checkpoint is needed.
func TestPointCutBeforeAnApprover(t *testing.T) {
	t.Parallel()
	for want, table := range map[string]string{"approver anna": "policy", "the policy": "approvers"} {
		path := filepath.Join(t.TempDir(), "home", "longstop.db")
		s := someStanding(t, path)
		var first int64
		must(t, s.conn.QueryRowContext(t.Context(), `SELECT min(idx) FROM entries WHERE kind = 'approver_set'`).Scan(&first))
		_, err := s.conn.ExecContext(t.Context(), `PRAGMA foreign_keys = 0; DELETE FROM `+table+`; DELETE FROM notices`)
		must(t, err)
		_, err = s.conn.ExecContext(t.Context(), `DELETE FROM entries WHERE idx >= ?`, first)
		must(t, err)
		if _, err := s.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to name %s", err, want)
		}
		must(t, s.Close())
	}
}

// TestPointRolledBackToACopy: a backup that is put back is whole, with all that stands, and only a head from after it
// tells that it is older: from which entry on.
func TestPointRolledBackToACopy(t *testing.T) {
	t.Parallel()
	s := someStanding(t, filepath.Join(t.TempDir(), "home", "longstop.db"))
	size := verify(t, s).Size
	copied := filepath.Join(t.TempDir(), "copy", "longstop.db")
	must(t, os.Mkdir(filepath.Dir(copied), 0o700))
	must(t, s.Backup(t.Context(), copied))
	append1(t, s, journal.TokenRevoked, map[string]any{"name": "crawler"}, func(tx *Tx, _ int64) error {
		_, err := tx.RevokeToken("crawler", longstop.At(clock))
		return err
	})
	kept := verify(t, s)
	back := open(t, copied)
	verify(t, back)
	if _, err := back.CheckProjections(t.Context()); err != nil {
		t.Errorf("the copy is not whole: %v", err)
	}
	if is, was := len(dumpStanding(t, back)), len(dumpStanding(t, s)); is != was {
		t.Errorf("%d rows, of %d", is, was)
	}
	if token, there, err := back.Token(t.Context(), hashFor("crawler2")); err != nil || !there || !token.RevokedAt.IsZero() {
		t.Errorf("what was taken back since holds again: %+v %v %v", token, there, err)
	}
	var bad *journal.BadEntry
	if _, err := back.Verify(t.Context(), kept); !errors.As(err, &bad) || bad.Index != size {
		t.Errorf("with the kept head: %v, want entry %d", err, size)
	}
}
