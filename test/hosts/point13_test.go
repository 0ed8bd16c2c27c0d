//go:build hosts

package hosts

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop/test/rig"
)

func TestPoint13Stdin(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	if r := g.run(t.Context(), []byte("not for the work"), "run", "h1", "--", "cat"); r.status != 0 || r.stdout != "" {
		t.Errorf("standard input was not asked for: %s", r)
	}
	big := make([]byte, 5<<20)
	rand.Read(big)
	for name, input := range map[string][]byte{"nothing": {}, "a line": []byte("one\n"), "no newline, zeros": []byte("a\x00b"), "5 MiB": big} {
		if r := g.run(t.Context(), input, "run", "--stdin", "h1", "--", "cat"); r.status != 0 || r.stdout != string(input) {
			t.Errorf("%s: %d bytes back of %d, exit %d, %s", name, len(r.stdout), len(input), r.status, r.stderr)
		}
	}
}

func TestPoint13Arguments(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	args := []string{"", " ", "two words", "it's", `"double"`, "a\nb", "$HOME", "`id`", "$(id)", "*", "~", `\`, `\n`, "-n", "--", "--json",
		"\xff\xfe not UTF-8 \x80", "ünïcödé 🙂", "\t\r", "; exit 3", "&", strings.Repeat("x", 100_000), strings.Repeat("é\n'", 25_000)}
	for _, account := range []string{"deploy", "fish", "tcsh"} {
		name := h.Account(account)
		if account != "deploy" {
			g.enrolAs(t, h, account)
		}
		r := g.longstop(t, append([]string{"run", name, "--", "printf", `%s\0`}, args...)...)
		got := strings.Split(strings.TrimSuffix(r.stdout, "\x00"), "\x00")
		if r.status != 0 || len(got) != len(args) {
			t.Fatalf("%s: %d arguments of %d: exit %d, %s", account, len(got), len(args), r.status, r.stderr)
		}
		for i := range args {
			if got[i] != args[i] {
				t.Errorf("%s: argument %d: %.60q, want %.60q", account, i, got[i], args[i])
			}
		}
		if a := g.final(t, g.newest(t), 10*time.Second); len(a.Request.ArgvB64) == 0 || !bytes.Equal(a.Request.ArgvB64[2+16], []byte(args[16])) {
			t.Errorf("%s: the request does not keep the bytes", account)
		}
	}
}

func TestPoint13Environment(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	const secret = "s3cret-of-point-13 with 'quotes'\nand a line"
	r := g.longstop(t, "run", "--env", "TOKEN="+secret, "--cwd", "/usr/share", "h1", "-c", `pwd; printf %s "$TOKEN"`)
	if r.status != 0 || r.stdout != "/usr/share\n"+secret {
		t.Error(r)
	}
	if out := h.Sh(t, "grep -rl s3cret-of-point-13 /home/deploy/.local 2>/dev/null | grep -v /stdout || :"); out != "" {
		t.Errorf("the value is on the host's disk: %s", out)
	}
	if r := g.longstop(t, "run", "--cwd", "/no/such/folder", "h1", "--", "true"); r.status != 251 {
		t.Error(r)
	}
}
