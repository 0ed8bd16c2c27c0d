package wire_test

import (
	"strings"
	"testing"

	"github.com/longstop/longstop/internal/wire"
)

func TestLaw8TheLedgerRefusesWhatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	final := func(nonce string, number uint64) wire.Answer {
		return wire.Answer{Nonce: nonce, Final: true, Number: number}
	}
	push := func(nonce string, number uint64) wire.Answer { return wire.Answer{Nonce: nonce, Number: number} }
	for _, c := range []struct {
		name    string
		watch   bool
		answers []wire.Answer
		fails   string // at the last answer; empty: all are accepted
	}{
		{"an answer", false, []wire.Answer{final(ours, 0)}, ""},
		{"an answer nobody asked for", false, []wire.Answer{final(theirs, 0)}, "nobody asked"},
		{"no nonce", false, []wire.Answer{final("", 0)}, "nobody asked"},
		{"a second answer", false, []wire.Answer{final(ours, 0), final(ours, 0)}, "has its answer"},
		{"a push to no watch", false, []wire.Answer{push(ours, 1)}, "no watch"},
		{"a numbered answer to no watch", false, []wire.Answer{final(ours, 1)}, "number 1 after 0"},
		{"pushes", true, []wire.Answer{push(ours, 1), push(ours, 2), push(ours, 3), final(ours, 0)}, ""},
		{"pushes and a numbered end", true, []wire.Answer{push(ours, 1), push(ours, 2), final(ours, 3)}, ""},
		{"a push without a number", true, []wire.Answer{push(ours, 0)}, "number 0 after 0"},
		{"a push that repeats", true, []wire.Answer{push(ours, 1), push(ours, 1)}, "repeated"},
		{"a missing push", true, []wire.Answer{push(ours, 1), push(ours, 3)}, "missing"},
		{"a missing push before the end", true, []wire.Answer{push(ours, 1), final(ours, 3)}, "number 3 after 1"},
		{"a push after the end", true, []wire.Answer{push(ours, 1), final(ours, 0), push(ours, 2)}, "has its answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := wire.NewLedger()
			if err := l.Expect(ours, c.watch); err != nil {
				t.Fatal(err)
			}
			for i, answer := range c.answers {
				err := l.Accept(answer)
				if last := i == len(c.answers)-1; !last || c.fails == "" {
					if err != nil {
						t.Fatalf("answer %d: %v", i, err)
					}
				} else if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("answer %d: %v, want %q", i, err, c.fails)
				}
			}
		})
	}
}

func TestLedgerExpectsANonceOnce(t *testing.T) {
	t.Parallel()
	l := wire.NewLedger()
	if err := l.Expect(ours, false); err != nil || l.Expect(ours, true) == nil || l.Expect("short", false) == nil || l.Open() != 1 {
		t.Errorf("%v, %d open", err, l.Open())
	}
}

func TestNewNonce(t *testing.T) {
	t.Parallel()
	a, b := wire.NewNonce(), wire.NewNonce()
	if a == b || !wire.ValidNonce(a) || wire.ValidNonce(strings.ToUpper(ours)) || wire.ValidNonce(ours[1:]) || wire.ValidNonce(ours[1:]+"g") {
		t.Errorf("%s %s", a, b)
	}
}
