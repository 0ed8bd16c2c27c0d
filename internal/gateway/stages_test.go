package gateway

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

func TestStagesAreLookedThrough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    longstop.Request
		want string // a piece of the refusal; empty: none
	}{
		{longstop.Request{}, ""},
		{longstop.Request{Preflight: "true", Verify: "true", CheckS: 5, Exclusive: "db-1", ExclusiveWaitS: 0.5}, ""},
		{longstop.Request{Preflight: strings.Repeat("x", longstop.MaxCheckScript+1)}, "the preflight has 65537 bytes"},
		{longstop.Request{Verify: "a\x00b"}, "not UTF-8 text"},
		{longstop.Request{Verify: "\xff"}, "not UTF-8 text"},
		{longstop.Request{Preflight: " \n"}, "is empty"},
		{longstop.Request{Verify: "true", CheckS: -1}, "want a time"},
		{longstop.Request{Verify: "true", CheckS: math.NaN()}, "want a time"},
		{longstop.Request{CheckS: 1}, "neither of them"},
		{longstop.Request{ExclusiveWaitS: 1}, "no name"},
		{longstop.Request{Exclusive: "a b"}, "no spaces"},
		{longstop.Request{Exclusive: strings.Repeat("x", longstop.MaxExclusiveName+1)}, "at most 100"},
	} {
		switch err := checkStages(&c.r); {
		case c.want == "" && err != nil, c.want != "" && (longstop.CodeOf(err) != longstop.CodeUsage || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%.60v: %v, want %q", c.r, err, c.want)
		}
	}
	r := longstop.Request{Verify: "true"}
	if checkStages(&r); r.CheckS != longstop.DefaultCheckS {
		t.Errorf("a verify may take %g s", r.CheckS)
	}
}

// C130: a key that is used for something else is told what differs.
func TestC130StagesDiffer(t *testing.T) {
	t.Parallel()
	old := &longstop.Action{Host: "h"}
	now := &asked{kept: longstop.Request{Preflight: "a", Verify: "b", CheckS: 1, Exclusive: "c", ExclusiveWaitS: 2}}
	if got, want := differences(old, nil, "h", now), []string{"preflight", "verify", "check_s", "exclusive", "exclusive_wait"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
