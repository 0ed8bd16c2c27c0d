package redact

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func made(t testing.TB, literals, patterns []string) *Redactor {
	t.Helper()
	r, err := New(literals, patterns)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestText(t *testing.T) {
	t.Parallel()
	r := made(t, []string{"hunter2!", `say "x"<&`}, []string{`token=(\w+)`, `AKIA[0-9A-Z]{4}`, `(?s)BEGIN.*?END`})
	for in, want := range map[string]string{
		"":                              "",
		"nothing":                       "nothing",
		"a hunter2! b hunter2!hunter2!": "a [redacted] b [redacted]",
		"token=abc token= token=d":      "token=[redacted] token= token=[redacted]",
		"xAKIA0000y":                    "x[redacted]y",
		"BEGIN\nkey\nEND.":              "[redacted].",
		`{"k":"say \"x\"\u003c\u0026"}`: `{"k":"[redacted]"}`,
		`{"k":"say \"x\"<&"}`:           `{"k":"[redacted]"}`,
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if masked := r.Bytes([]byte(in)); len(masked) != len(in) || (string(masked) == in) != (in == want) {
			t.Errorf("%q: masked %q", in, masked)
		}
	}
	var none *Redactor
	if none.Text("hunter2!") != "hunter2!" || string(none.Bytes([]byte("x"))) != "x" || none.Has("x") {
		t.Error("none changes something")
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	r := made(t, []string{"hunter2!"}, nil)
	in := `{"a":["hunter2!",{"b":"x hunter2!"}],"n":12345678901234567890,"proof":{"s":"hunter2!"}}`
	want := `{"a":["[redacted]",{"b":"x [redacted]"}],"n":12345678901234567890,"proof":{"s":"hunter2!"}}`
	if got := r.JSON([]byte(in)); string(got) != want {
		t.Errorf("%s", got)
	}
	for _, same := range []string{``, `{"a": 1}`, `not JSON hunter2!`} {
		if got := r.JSON([]byte(same)); string(got) != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for why, c := range map[string]struct{ literals, patterns []string }{
		"3 bytes":                {literals: []string{"abc"}},
		"missing closing":        {patterns: []string{"("}},
		"matches nothing":        {patterns: []string{"a*"}},
		"101 patterns":           {patterns: make([]string, 101)},
		"9000 bytes":             {literals: []string{strings.Repeat("x", 9000)}},
		"invalid escape":         {patterns: []string{`\8`}},
		"invalid or unsupported": {patterns: []string{`(?=x)`}},
	} {
		if _, err := New(c.literals, c.patterns); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
	if r, err := New(nil, nil); r != nil || err != nil {
		t.Errorf("nothing: %v, %v", r, err)
	}
}

// TestBegun: what may be the beginning of a match is known from what is not.
func TestBegun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          int
	}{
		{`token=\w+`, "a tok", 2},
		{`token=\w+`, "a tox", 5},
		{`token=\w+`, "a token=ab", 2},
		{`token=\w+`, "a token=ab ", 11},
		{`AKIA[0-9]{4}\b`, "AKIA0000", 0},
		{`AKIA[0-9]{4}\b`, "AKIA0000 ", 9},
		{`AKIA[0-9]{4}`, "AKIA0000", 8},
		{`^key: .*$`, "key: x", 0},
		{`(?m)^key: .*$`, "x\nkey: x", 2},
		{`(?s)BEGIN.*?END`, "BEGIN abc EN", 0},
		{`(?s)BEGIN.*?END`, "BEGIN abc END", 0}, // a later END would be one too
		{`ä+x`, "aä\xc3", 1},
		{`passw(or)?t`, "no pas", 3},
	} {
		p, err := newPattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.begun([]byte(c.text)); got != c.want {
			t.Errorf("%s in %q: %d, want %d", c.pattern, c.text, got, c.want)
		}
	}
}

// reader reads a stream as the gateway does: in parts, each with what lies before it.
func read(r *Redactor, stream []byte, cut func(left int) int) []byte {
	var out []byte
	seen := 0
	for len(out) < len(stream) {
		seen = min(len(stream), seen+cut(len(stream)-seen))
		from := max(0, len(out)-MaxMatch)
		masked, sure := r.Stream(stream[from:seen], seen == len(stream))
		if from+sure > len(out) {
			out = append(out, masked[len(out)-from:sure]...)
		}
	}
	return out
}

// TestPointSecretsAcrossChunks: however a stream is cut into parts, nothing secret shows, and every byte
// that is not secret does, at its offset.
func TestPointSecretsAcrossChunks(t *testing.T) {
	t.Parallel()
	r := made(t, []string{"hunter2hunter2!", "s3cr3t", "s3cr3tier"}, []string{`token=(\w{3,40})`, `-----BEGIN KEY-----[a-z\n]+-----END KEY-----`})
	words := []string{"plain ", "hunter2hunter2!", "hunter2hunter2", "s3cr3t", "s3cr3tier", "s3cr3", "token=abcdef ", "token=", "\n", "ä",
		"-----BEGIN KEY-----\nabc\ndef\n-----END KEY-----", "-----BEGIN KEY-----", "\xff\x00"}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		var stream []byte
		for range 1 + random.IntN(30) {
			stream = append(stream, words[random.IntN(len(words))]...)
		}
		want := r.Bytes(stream)
		for _, most := range []int{1, 3, 17, 1 << 20} {
			if got := read(r, stream, func(int) int { return 1 + random.IntN(most) }); !bytes.Equal(got, want) {
				t.Fatalf("seed %d, parts of up to %d:\n%q\n%q, want\n%q", seed, most, stream, got, want)
			}
		}
	}
}

// TestHeldBackIsBounded: what might become a match for ever is not waited for.
func TestHeldBackIsBounded(t *testing.T) {
	t.Parallel()
	r := made(t, nil, []string{`(?s)BEGIN.*END`})
	for more, want := range map[int]int{MaxMatch - 5: 7, MaxMatch - 4: 12 + MaxMatch - 4} {
		stream := []byte("before BEGIN" + strings.Repeat("x", more))
		if _, sure := r.Stream(stream, false); sure != want {
			t.Errorf("with %d more: sure of %d, want %d", more, sure, want)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	r := made(b, []string{"hunter2hunter2!"}, []string{`token=\w+`, `AKIA[0-9A-Z]{16}`})
	var text bytes.Buffer
	for i := 0; text.Len() < 256<<10; i++ {
		fmt.Fprintf(&text, "%d: nothing of interest in this line\n", i)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r.Stream(text.Bytes(), false)
	}
}

// FuzzStream: a stream in two parts shows what it shows as a whole, or less.
func FuzzStream(f *testing.F) {
	f.Add([]byte("a token=abc BEGIN x END hunter2"), 7)
	f.Fuzz(func(t *testing.T, stream []byte, at int) {
		r := made(t, []string{"hunter2"}, []string{`token=\w+`, `(?s)BEGIN.{1,9}END`})
		if at < 1 {
			at = 1
		}
		got := read(r, stream, func(int) int { return at })
		if want := r.Bytes(stream); len(got) != len(want) {
			t.Fatalf("%d bytes became %d", len(want), len(got))
		}
		if bytes.Contains(got, []byte("hunter2")) {
			t.Fatalf("%q shows in %q", "hunter2", got)
		}
	})
}
