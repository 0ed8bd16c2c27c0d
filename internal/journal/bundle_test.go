package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testKey makes the same key for the same name.
func testKey(t testing.TB, name string) (note.Signer, string) {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	private, public, err := note.GenerateKey(bytes.NewReader(seed[:]), name)
	if err != nil {
		t.Fatal(err)
	}
	if derived, err := VerifierKey(private); err != nil || derived != public {
		t.Fatalf("the public key is %s, %v; want %s", derived, err, public)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, public
}

func headOf(t testing.TB, log []Stored) Head {
	t.Helper()
	head, err := Verify(inOrder(log))
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func sign(t testing.TB, h Head, key note.Signer) []byte {
	t.Helper()
	signed, err := Sign(h, key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	log := makeLog(37)
	ours, key := testKey(t, "longstop/web")
	theirs, witness := testKey(t, "witness.example")
	_, stranger := testKey(t, "stranger")
	head := headOf(t, log)
	signed := sign(t, head, ours)
	c, err := OpenCheckpoint(signed, key, witness)
	if err != nil || c.Head != head || len(c.By) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	both, err := note.Sign(&note.Note{Text: string(tlog.FormatTree(tlog.Tree{N: head.Size, Hash: head.Hash}))}, ours, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = OpenCheckpoint(both, key, stranger, witness); err != nil || c.Head != head || len(c.By) != 2 || c.By[1] != witness {
		t.Errorf("cosigned: %+v, %v", c, err)
	}
	for what, bad := range map[string][]byte{
		"nothing":              nil,
		"another size":         bytes.Replace(signed, []byte("\n37\n"), []byte("\n36\n"), 1),
		"no signature":         []byte(strings.SplitAfter(string(signed), "\n\n")[0]),
		"another's":            sign(t, head, theirs),
		"too long":             append(bytes.Clone(signed), make([]byte, MaxCheckpoint)...),
		"another text, signed": mustSign(t, "hello\n", ours),
		"a cosignature broken": breakLast(both),
	} {
		if c, err := OpenCheckpoint(bad, key, witness); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if Fingerprint(key) == Fingerprint(witness) || !strings.HasPrefix(Fingerprint(key), "SHA256:") {
		t.Error(Fingerprint(key))
	}
	for _, bad := range []string{"", key, "PRIVATE+KEY+a+b", "PRIVATE+KEY+a+00000000+AAAA"} {
		if public, err := VerifierKey(bad); err == nil {
			t.Errorf("%q gave %q", bad, public)
		}
	}
}

func mustSign(t testing.TB, text string, key note.Signer) []byte {
	signed, err := note.Sign(&note.Note{Text: text}, key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// breakLast changes a character in the middle of the last signature.
func breakLast(signed []byte) []byte {
	b := bytes.Clone(signed)
	at := len(b) - 30
	if b[at]++; b[at] > 'z' || b[at] == '[' || b[at] == ':' {
		b[at] = 'A'
	}
	return b
}

// makeBundle has entries 3, 5 (withheld) and 36 of a log of 37, and goes on from the log of 10.
func makeBundle(t testing.TB) (*Bundle, string) {
	t.Helper()
	log := makeLog(37)
	signer, key := testKey(t, "longstop/web")
	head := headOf(t, log)
	b := &Bundle{Format: BundleFormat, Key: key, Fingerprint: Fingerprint(key), Checkpoint: string(sign(t, head, signer))}
	for _, n := range []int64{3, 5, 36} {
		proof, err := tlog.ProveRecord(head.Size, n, stored(log))
		if err != nil {
			t.Fatal(err)
		}
		p := Proven{Index: n, Bytes: log[n].Bytes, Proof: proof}
		if n == 5 {
			hash := tlog.RecordHash(p.Bytes)
			p.Bytes, p.Withheld, p.Hash = nil, "a secret", &hash
		}
		b.Entries = append(b.Entries, p)
	}
	proof, err := tlog.ProveTree(head.Size, 10, stored(log))
	if err != nil {
		t.Fatal(err)
	}
	b.Consistency = []Consistency{{headOf(t, log[:10]), proof}}
	return b, key
}

var update = flag.Bool("update", false, "write the golden bundle anew")

// TestGoldenBundle holds the form of a bundle: those that were exported once stay readable.
func TestGoldenBundle(t *testing.T) {
	const name = "testdata/bundle.json"
	b, key := makeBundle(t)
	var text bytes.Buffer
	if err := b.Write(&text); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(golden, text.Bytes()) {
		t.Errorf("%v: written is\n%s", err, text.Bytes())
	}
	read, err := ReadBundle(bytes.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{key, Fingerprint(key)} {
		entries, c, err := read.Verify(known, nil, b.Consistency[0].Head, headOf(t, makeLog(37)))
		if err != nil || len(entries) != 2 || entries[1].ActionID != "act_36" || c.Size != 37 {
			t.Errorf("with %s: %+v, %+v, %v", known, entries, c, err)
		}
	}
}

// TestPointBundleThatWasChanged: nothing in a bundle can be another without being found out by whoever has
// the key.
func TestPointBundleThatWasChanged(t *testing.T) {
	t.Parallel()
	_, other := testKey(t, "stranger")
	stranger, _ := testKey(t, "stranger")
	forged := makeLog(37)
	for name, c := range map[string]struct {
		spoil func(*Bundle)
		why   string
		bad   int64 // index of the bad entry; -1: another error
	}{
		"a byte of an entry": {func(b *Bundle) {
			b.Entries[0].Bytes = bytes.Replace(b.Entries[0].Bytes, []byte("act_3"), []byte("act_4"), 1)
		}, "its bytes or its place", 3},
		"another place":        {func(b *Bundle) { b.Entries[0].Index = 4 }, "its bytes or its place", 4},
		"order":                {func(b *Bundle) { b.Entries[0], b.Entries[1] = b.Entries[1], b.Entries[0] }, "not behind", 3},
		"twice":                {func(b *Bundle) { b.Entries[1] = b.Entries[0] }, "not behind", 3},
		"a hash of a proof":    {func(b *Bundle) { b.Entries[2].Proof[1][7] ^= 1 }, "its bytes or its place", 36},
		"a proof cut":          {func(b *Bundle) { b.Entries[2].Proof = b.Entries[2].Proof[1:] }, "its bytes or its place", 36},
		"a withheld hash":      {func(b *Bundle) { b.Entries[1].Hash[0] ^= 1 }, "its bytes or its place", 5},
		"withheld, with bytes": {func(b *Bundle) { b.Entries[1].Bytes = b.Entries[0].Bytes }, "neither", 5},
		"behind the end":       {func(b *Bundle) { b.Entries[2].Index = 37 }, "not in the log", 37},
		"a negative place":     {func(b *Bundle) { b.Entries[0].Index = -5 }, "not behind", -5},
		"the key":              {func(b *Bundle) { b.Key = other }, "is of the journal with key", -1},
		"another checkpoint": {func(b *Bundle) {
			forged[3].Bytes = []byte("forged")
			var tree Tree
			for _, e := range forged {
				tree.Append(e.Bytes)
			}
			b.Checkpoint = string(sign(t, tree.Head(), stranger))
		}, "no checkpoint signed by", -1},
		"a consistency proof": {func(b *Bundle) { b.Consistency[0].Proof[0][0] ^= 1 }, "what an earlier look saw", 9},
		"no consistency":      {func(b *Bundle) { b.Consistency = nil }, "export it with that checkpoint", -1},
	} {
		t.Run(name, func(t *testing.T) {
			b, key := makeBundle(t)
			kept := b.Consistency[0].Head
			c.spoil(b)
			_, _, err := b.Verify(key, nil, kept)
			var bad *BadEntry
			if err == nil || !strings.Contains(err.Error(), c.why) || errors.As(err, &bad) != (c.bad != -1) || bad != nil && bad.Index != c.bad {
				t.Errorf("%v, want entry %d and %q", err, c.bad, c.why)
			}
		})
	}
	b, key := makeBundle(t)
	if _, _, err := b.Verify(key, nil, Head{Size: 40}); err == nil || !strings.Contains(err.Error(), "saw 40 entries") {
		t.Errorf("an older look at more: %v", err)
	}
	if _, _, err := b.Verify(key, nil, Head{}); err == nil {
		t.Error("a look at nothing needs no proof")
	}
}

func TestReadBundleRefuses(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		``:                                     "EOF",
		`{}`:                                   "format",
		`{"format":"longstop-bundle 2"}`:       "format",
		`{"format":"longstop-bundle 1"} {}`:    "something follows",
		`{"format":"longstop-bundle 1","x":1}`: "unknown field",
		`{"format":"longstop-bundle 1","entries":[{"index":1,"proof":["AA=="]}]}`: "hash",
	} {
		if _, err := ReadBundle(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}

// FuzzBundle: whatever is read as a bundle, only one that is true to the key verifies.
func FuzzBundle(f *testing.F) {
	b, key := makeBundle(f)
	var text bytes.Buffer
	b.Write(&text)
	f.Add(text.Bytes())
	f.Add([]byte(`{"format":"longstop-bundle 1","entries":[{"index":1}]}`))
	log := makeLog(37)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ReadBundle(bytes.NewReader(data))
		if err != nil {
			return
		}
		entries, _, err := b.Verify(key, nil)
		if err != nil {
			return
		}
		for _, e := range entries {
			if encoded, err := Encode(e); err != nil || !bytes.Equal(encoded, log[e.Index].Bytes) {
				t.Fatalf("entry %d was proven as %s", e.Index, encoded)
			}
		}
	})
}

// FuzzCheckpoint: only what was signed is a checkpoint.
func FuzzCheckpoint(f *testing.F) {
	signer, key := testKey(f, "longstop/web")
	_, witness := testKey(f, "witness.example")
	head := headOf(f, makeLog(37))
	signed := sign(f, head, signer)
	f.Add(signed)
	f.Add(mustSign(f, "go.sum database tree\n-1\nAAAA\n", signer))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := OpenCheckpoint(data, key, witness); err == nil && c.Head != head {
			t.Fatalf("%q is a checkpoint of %v", data, c.Head)
		}
	})
}
