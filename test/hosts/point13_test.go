//go:build hosts

package hosts

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
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
			t.Errorf("%s, a pipe: %d bytes back of %d, exit %d, %s", name, len(r.stdout), len(input), r.status, r.stderr)
		}
		file := filepath.Join(t.TempDir(), "input")
		if err := os.WriteFile(file, input, 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		c := g.command(t.Context(), "run", "--stdin", "--own-channel", "h1", "--", "cat")
		c.Stdin = from
		out, err := c.Output()
		from.Close()
		if err != nil || !bytes.Equal(out, input) {
			t.Errorf("%s, a file: %d bytes back of %d, %v", name, len(out), len(input), err)
		}
		if a := g.show(t, g.newest(t)); a.Request.StdinBytes != int64(len(input)) {
			t.Errorf("%s: the request says %d bytes, not %d", name, a.Request.StdinBytes, len(input))
		}
	}
	// What cannot be read is refused before anything begins.
	c := g.command(t.Context(), "run", "--stdin", "h1", "--", "touch", "/tmp/point13-stdin")
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	c.Stdin = folder
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != longstop.ExitOurs || !strings.Contains(string(out), "is a directory") ||
		!strings.Contains(string(out), "Nothing was started.") || h.Exists(t, "/tmp/point13-stdin") {
		t.Errorf("exit %d: %s", c.ProcessState.ExitCode(), out)
	}
}

func TestPoint13Arguments(t *testing.T) {
	t.Parallel()
	h := rig.Up(t, "h1")
	args := []string{"", " ", "two words", "it's", `"double"`, "a\nb", "$HOME", "`id`", "$(id)", "*", "~", `\`, `\n`, "-n", "--", "--json",
		"\xff\xfe not UTF-8 \x80", "ünïcödé 🙂", "\t\r", "; exit 3", "&", strings.Repeat("x", 100_000), strings.Repeat("é\n'", 25_000)}
	for _, user := range shells {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			a := enrolled(t, h, user)
			for _, flags := range [][]string{nil, {"--own-channel"}} {
				r := a.longstop(t, append(append(append([]string{"run"}, flags...), a.name, "--", "printf", `%s\0`), args...)...)
				got := strings.Split(strings.TrimSuffix(r.stdout, "\x00"), "\x00")
				if r.status != 0 || len(got) != len(args) {
					t.Fatalf("%d arguments of %d: exit %d, %s", len(got), len(args), r.status, r.stderr)
				}
				for i := range args {
					if got[i] != args[i] {
						t.Errorf("argument %d: %.60q, want %.60q", i, got[i], args[i])
					}
				}
				if last := a.final(t, a.newest(t), 10*time.Second); len(last.Request.ArgvB64) == 0 || string(last.Request.ArgvB64[2+16]) != args[16] {
					t.Error("the request does not keep the bytes")
				}
			}
		})
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
	if r := g.longstop(t, "run", "--cwd", "/no/such/folder", "h1", "--", "true"); r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "/no/such/folder") {
		t.Error(r)
	}
}
