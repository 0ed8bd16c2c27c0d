package approver_test

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
)

var salt = []byte("0123456789abcdef")

func TestApproverProves(t *testing.T) {
	t.Parallel()
	anna, err := approver.New("anna", []byte("correct horse battery"), salt)
	if err != nil {
		t.Fatal(err)
	}
	c := longstop.Challenge{ID: "chl_1", Statement: approver.Statement{{Name: "kind", Value: "approve"}}.String()}
	prove := func(passphrase string) longstop.Proof {
		key, err := approver.Unlock(anna, []byte(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		return key.Prove(c)
	}
	right, wrong := prove("correct horse battery"), prove("correct horse batterx")
	other := right
	other.Kind = "passkey"
	for _, try := range []struct {
		what      string
		statement string
		proof     longstop.Proof
		holds     bool
	}{
		{"the right passphrase", c.Statement, right, true},
		{"a wrong passphrase", c.Statement, wrong, false},
		{"another statement", strings.Replace(c.Statement, "approve", "deny", 1), right, false},
		{"another kind of proof", c.Statement, other, false},
	} {
		if got := approver.Verify(anna, try.statement, try.proof.Kind, try.proof.Signature); got != try.holds {
			t.Errorf("%s: %v, want %v", try.what, got, try.holds)
		}
	}
}

func TestApproverWeakPassphrase(t *testing.T) {
	t.Parallel()
	for passphrase, ok := range map[string]bool{"": false, "short": false, "elevenchars": false, "aaaaaaaaaaaaaaaaaaaa": false, "abcabcabcabcabc": false, "twelve chars": true} {
		if err := approver.Passphrase([]byte(passphrase)); (err == nil) != ok {
			t.Errorf("%q: %v", passphrase, err)
		}
	}
}

// What comes from outside is bounded: weaker parameters would have a person sign with a key whose passphrase
// is quickly found, larger ones stop the machine.
func TestApproverBounds(t *testing.T) {
	t.Parallel()
	good := func() longstop.Approver {
		p := approver.Parameters
		return longstop.Approver{Name: "anna", Kind: longstop.ProofPassphrase, PublicKey: make([]byte, 32), Salt: salt, Argon2: &p}
	}
	if err := approver.Check(good()); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*longstop.Approver){
		"an empty name":       func(a *longstop.Approver) { a.Name = "" },
		"a name of two lines": func(a *longstop.Approver) { a.Name = "anna\nkind: approve" },
		"a long name":         func(a *longstop.Approver) { a.Name = strings.Repeat("a", 65) },
		"another kind":        func(a *longstop.Approver) { a.Kind = "passkey" },
		"a short key":         func(a *longstop.Approver) { a.PublicKey = a.PublicKey[:31] },
		"no salt":             func(a *longstop.Approver) { a.Salt = nil },
		"no parameters":       func(a *longstop.Approver) { a.Argon2 = nil },
		"weak time":           func(a *longstop.Approver) { a.Argon2.Time = 1 },
		"weak memory":         func(a *longstop.Approver) { a.Argon2.MemoryKiB = 8 },
		"no thread":           func(a *longstop.Approver) { a.Argon2.Threads = 0 },
		"endless time":        func(a *longstop.Approver) { a.Argon2.Time = 1 << 30 },
		"all memory":          func(a *longstop.Approver) { a.Argon2.MemoryKiB = 1 << 31 },
	} {
		a := good()
		change(&a)
		if approver.Check(a) == nil {
			t.Errorf("%s is taken", what)
		}
		if _, err := approver.Unlock(a, []byte("correct horse battery")); err == nil {
			t.Errorf("a key is made with %s", what)
		}
	}
}

// No value can pretend to be a line of its own.
func TestApproverStatement(t *testing.T) {
	t.Parallel()
	s := approver.Statement{{Name: "kind", Value: "deny"}}
	s.Add("reason", "no\nkind: approve")
	s.Add("left out", "")
	s.Add("script", "a\u202eb")
	const want = "longstop statement 1\nkind: deny\nreason: \"no\\nkind: approve\"\nscript: \"a\\u202eb\"\n"
	if got := s.String(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if (approver.Fact{Name: "kind", Value: "approve"}).In(s.String()) {
		t.Error("a value is taken for a line")
	}
	for _, f := range s {
		if !f.In(s.String()) {
			t.Errorf("%v is not found", f)
		}
	}
}

func FuzzApproverStatement(f *testing.F) {
	f.Add("a", "b\n", "\"c\"", "a: b")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one := approver.Statement{{Name: "x", Value: a}, {Name: "x", Value: b}}
		two := approver.Statement{{Name: "x", Value: c}, {Name: "x", Value: d}}
		if (a != c || b != d) && one.String() == two.String() {
			t.Errorf("%q and %q have one text", one, two)
		}
	})
}
