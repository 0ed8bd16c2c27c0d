package sqlite

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

func TestActionByPartOfItsID(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	for _, id := range []longstop.ActionID{
		"act_1K4W2Y0AAAA7Q2M", "act_1K4W2Y0BBBB7Q3B", "act_1K4W2Y1CCCC7Q3B", "act_1K4W2Z0DDDD0110", "act_2ZZZZZZEEEE1K4W",
	} {
		a := newAction("web-1")
		a.ID, a.IdempotencyKey = id, "key "+string(id)
		put(t, s, a, journal.Requested)
	}
	for id, want := range map[string]struct {
		id   longstop.ActionID
		code longstop.Code
		says []string
	}{
		"act_1K4W2Y0AAAA7Q2M":  {id: "act_1K4W2Y0AAAA7Q2M"},
		"act_1k4w2y0aaaa7q2m":  {id: "act_1K4W2Y0AAAA7Q2M"},
		"1K4W2Y0AAAA7Q2M":      {id: "act_1K4W2Y0AAAA7Q2M"},
		" act_1K4W2Y0A\n":      {id: "act_1K4W2Y0AAAA7Q2M"},
		"act_2":                {id: "act_2ZZZZZZEEEE1K4W"},
		"2":                    {id: "act_2ZZZZZZEEEE1K4W"},
		"7Q2M":                 {id: "act_1K4W2Y0AAAA7Q2M"},
		"act_7q2m":             {id: "act_1K4W2Y0AAAA7Q2M"},
		"bbb7q3b":              {id: "act_1K4W2Y0BBBB7Q3B"},
		"oi1o":                 {id: "act_1K4W2Z0DDDD0110"}, // O, I and L are read as 0, 1 and 1
		"7Q3B":                 {code: longstop.CodeAmbiguous, says: []string{"act_1K4W2Y0BBBB7Q3B", "act_1K4W2Y1CCCC7Q3B"}},
		"1K4W2Y0":              {code: longstop.CodeAmbiguous, says: []string{"act_1K4W2Y0AAAA7Q2M", "act_1K4W2Y0BBBB7Q3B"}},
		"1K4W":                 {code: longstop.CodeAmbiguous, says: []string{"act_2ZZZZZZEEEE1K4W", "act_1K4W2Z0DDDD0110"}}, // an end and beginnings
		"Q2M":                  {code: longstop.CodeNotFound},                                                                // too short for an end
		"act_1K4W2Y0AAAA7Q2MX": {code: longstop.CodeNotFound},
		"run_1K4W2Y0AAAA7Q2M":  {code: longstop.CodeNotFound},
		"%":                    {code: longstop.CodeNotFound},
		"":                     {code: longstop.CodeUsage},
		"act_":                 {code: longstop.CodeUsage},
	} {
		a, err := s.Action(t.Context(), id)
		if want.code == "" {
			if err != nil || a.ID != want.id {
				t.Errorf("%q: %v, %v", id, a, err)
			}
			continue
		}
		var shown *longstop.Error
		if !errors.As(err, &shown) || shown.Code != want.code || shown.Hint == "" {
			t.Errorf("%q: %v, want %s", id, err, want.code)
			continue
		}
		if slices.ContainsFunc(want.says, func(part string) bool { return !strings.Contains(shown.Message, part) }) {
			t.Errorf("%q: %s, want %v in it", id, shown.Message, want.says)
		}
	}
}

func TestAmbiguousListIsBounded(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	for range 8 {
		put(t, s, newAction("web-1"), journal.Requested)
	}
	_, err := s.Action(t.Context(), "1")
	if longstop.CodeOf(err) != longstop.CodeAmbiguous || strings.Count(err.Error(), "act_") != maxShow || !strings.Contains(err.Error(), "and others") {
		t.Error(err)
	}
}
