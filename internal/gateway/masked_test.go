package gateway_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/notify"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// withSecrets configures what is secret.
func withSecrets(t *testing.T, literals, patterns []string) func(*bench) {
	r, err := redact.New(literals, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return func(b *bench) { b.redact = r }
}

// holding names the files of a folder that hold a text, in themselves or in their names.
func holding(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var data []byte
		if entry.Type().IsRegular() {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		if strings.Contains(string(data), text) || strings.Contains(entry.Name(), text) {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPointSecretsAreNowhere: the value of an environment's variable, a literal that the work prints, in one go
// and in pieces, and what a pattern finds in its arguments, its reason and its output: none of them is in any
// answer, nor in any file of the gateway's home. The value of the variable is in no file of the host's either;
// there, of all files, those of the output alone hold what the work wrote, and the request its arguments.
func TestPointSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	const value, literal, token = "value-of-a-variable-7341", "pa55word-of-the-database", "tok_0123456789abcdef"
	b := newBench(t, sshtest.Options{}, withSecrets(t, []string{literal}, []string{`tok_[0-9a-f]+`}))
	go1 := filepath.Join(t.TempDir(), "go")
	work := `echo "${#SECRET}"; echo "first ` + literal + ` then ` + token + ` end"; printf %s ` + literal[:9] + `
		while [ ! -e ` + go1 + ` ]; do sleep 0.02; done; printf '%s\n' ` + literal[9:] + `; echo ` + token + ` >&2; printf 'last ` + literal[:5] + `'`
	a := b.run(longstop.RunRequest{Host: "loop", EnvValues: map[string][]byte{"SECRET": []byte(value)},
		Request: longstop.Request{Argv: []string{"sh", "-c", work, "work", "--token=" + token, literal}, Reason: "because " + literal}})
	var shown strings.Builder
	see := func(what any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(text)
	}
	// What has come is given but for its end, which may be the beginning of the literal.
	first := fmt.Sprintf("%d\nfirst %s then %s end\n", len(value), strings.Repeat("*", len(literal)), strings.Repeat("*", len(token)))
	var got string
	for len(got) < len(first) {
		answer, err := b.Output(t.Context(), string(a.ID), "stdout", int64(len(got)), 0, time.Minute)
		b.must(err)
		got += string(answer.Data)
	}
	snapshot, err := b.Output(t.Context(), string(a.ID), "stdout", int64(len(got)), 0, 0)
	if b.must(err); got != first || len(snapshot.Data) > 0 || snapshot.More() {
		t.Errorf("got %q and %+v, want %q", got, snapshot, first)
	}
	processes, err := b.Inspect(t.Context(), string(a.ID))
	see(processes, err)
	b.must(os.WriteFile(go1, nil, 0o600))
	a = b.wait(a.ID)
	see(a, nil)
	want := first + strings.Repeat("*", len(literal)) + "\nlast " + literal[:5]
	if out := b.output(a.ID, "stdout"); out != want {
		t.Errorf("stdout\n%q, want\n%q", out, want)
	}
	for offset := 0; offset < len(want); offset += 5 {
		answer, err := b.Output(t.Context(), string(a.ID), "stdout", int64(offset), 3, 0)
		if b.must(err); len(answer.Data) == 0 || !strings.HasPrefix(want[offset:], string(answer.Data)) || answer.Offset != int64(offset) {
			t.Fatalf("from %d: %+v %q", offset, answer, answer.Data)
		}
	}
	shown.WriteString(b.output(a.ID, "stderr"))
	entries, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000})
	see(entries, err)
	raws, err := b.Raw(t.Context(), string(a.ID))
	b.must(err)
	for _, raw := range raws {
		shown.Write(raw.Bytes)
	}
	if _, err := b.Retry(t.Context(), string(a.ID), longstop.RetryRequest{}, operator, gateway.Told{}); err == nil || strings.Contains(err.Error(), literal) {
		t.Errorf("retried: %v", err)
	}
	head, err := b.store.Head(t.Context())
	b.must(err)
	bundle, err := b.store.Prove(t.Context(), head, sqlite.Chosen{}, nil, func([]byte) string { return "" })
	b.must(err)
	for _, e := range bundle.Entries {
		shown.Write(e.Bytes)
	}
	state := b.state().StateDir
	if session, err := b.StartSession(t.Context(), longstop.SessionRequest{Purpose: "with " + literal}, operator); err != nil || session.Purpose != "with "+redact.Mark {
		t.Errorf("a session: %+v, %v", session, err)
	}
	if _, err := b.CreateToken(t.Context(), longstop.TokenRequest{Name: token}, operator); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("a token's name: %v", err)
	}
	b.stop()
	for what, text := range map[string]string{"the variable's value": value, "the literal": literal, "the token": token} {
		if at := strings.Index(shown.String(), text); at >= 0 {
			t.Errorf("%s is shown: …%s…", what, shown.String()[max(0, at-100):at])
		}
		if names := holding(t, b.home, text); len(names) > 0 {
			t.Errorf("%s is in files of the gateway: %v", what, names)
		}
		names := holding(t, state, text)
		for _, name := range names {
			if base := filepath.Base(name); text == value || !slices.Contains([]string{"stdout", "stderr", "request"}, base) {
				t.Errorf("%s is in a file of the host: %s", what, name)
			}
		}
		if text == literal && len(names) == 0 {
			t.Error("the work's output is not on the host: this test sees nothing")
		}
	}
	if !a.Request.Redacted || a.Request.Argv[4] != "--token="+redact.Mark || a.Request.Reason != "because "+redact.Mark {
		t.Errorf("the request is kept as %s", pretty(a.Request))
	}
}

// What a person signs is kept as it is signed: with something secret in it, nothing is to be signed, and the policy
// that holds stays.
func TestNothingSecretIsSigned(t *testing.T) {
	t.Parallel()
	const secret = "pa55word-of-the-database"
	b := newApprovals(t, withSecrets(t, []string{secret}, nil))
	a := b.ask(script("true"))
	why := about(longstop.ChallengeDeny, a.ID)
	why.Reason = "it shows " + secret
	if _, err := b.Challenge(t.Context(), why, operator); longstop.CodeOf(err) != longstop.CodeUsage || strings.Contains(err.Error(), secret) {
		t.Errorf("a reason: %v", err)
	}
	text := "rules: [{name: all, decision: deny, reason: " + secret + "}]\n"
	if _, err := b.SetPolicy(t.Context(), []byte(text), operator, b.sign("anna", aboutPolicy(text))); longstop.CodeOf(err) != longstop.CodeUsage || strings.Contains(err.Error(), secret) {
		t.Errorf("a policy: %v", err)
	}
	if p := b.Policy(); p.Text != "" {
		t.Errorf("%+v", p)
	}
	if names := holding(t, b.home, secret); len(names) > 0 {
		t.Errorf("in %v", names)
	}
}

// What a command that is to tell people says when it fails may be secret, too.
func TestFailedNoticeIsMasked(t *testing.T) {
	t.Parallel()
	const secret = "pa55word-of-the-database"
	b := newBench(t, sshtest.Options{}, withSecrets(t, []string{secret}, nil), func(b *bench) {
		b.ways = []gateway.Way{&notify.Command{Argv: []string{"/bin/sh", "-c", "echo " + secret + "; exit 1"}, Timeout: 10 * time.Second}}
	})
	a := b.wait(b.run(script("true")).ID)
	b.must(b.store.Update(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Append(journal.Entry{Kind: journal.UnclaimedRun, ActionID: a.ID, By: "test"})
		return err
	}))
	b.says(a.ID, "notice_failed")
	if names := holding(t, b.home, secret); len(names) > 0 {
		t.Errorf("in %v", names)
	}
}
