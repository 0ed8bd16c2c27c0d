package gateway_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

func (b *bench) inquire(id longstop.ActionID, kind longstop.InquiryKind, script string) (longstop.Action, error) {
	b.t.Helper()
	return b.Inquire(b.t.Context(), string(id), longstop.InquireRequest{Kind: kind, Script: script}, operator, gateway.Told{})
}

// TestPointInquiry: the application is asked about work by an action that only reads, whose outcome is kept with the
// earlier one; a retry goes by it.
func TestPointInquiry(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	done := filepath.Join(t.TempDir(), "done")
	own := longstop.Request{Script: "exit 1", Preflight: "[ ! -e " + done + " ] || exit 204"}
	first := b.wait(b.run(longstop.RunRequest{Host: "loop", Request: own}).ID)
	b.refusedRetry(first.ID, longstop.RetryRequest{}, "effect once")
	for _, c := range []struct {
		kind   longstop.InquiryKind
		script string
		state  longstop.CheckState
	}{
		{longstop.InquiryPreflight, "exit 204", longstop.CheckNothingToDo},
		{longstop.InquiryPreflight, "exit 3", longstop.CheckFailed},
		{longstop.InquiryVerify, "exit 204", longstop.CheckFailed},
		{longstop.InquiryVerify, "true", longstop.CheckPassed},
		{longstop.InquiryPreflight, "kill -KILL $$", longstop.CheckUnknown},
		{longstop.InquiryPreflight, "", longstop.CheckPassed},
	} {
		asked, err := b.inquire(first.ID, c.kind, c.script)
		b.must(err)
		asked = b.wait(asked.ID)
		seen, err := b.Action(t.Context(), string(first.ID))
		b.must(err)
		last := seen.Checks[len(seen.Checks)-1]
		if last.ActionID != asked.ID || last.Kind != c.kind || last.State != c.state || asked.InquiresOf != first.ID || asked.Request.Effect != longstop.EffectRead || asked.Attempt != 1 {
			t.Errorf("%s %q: %s", c.kind, c.script, pretty(last))
		}
	}
	if kinds := b.kinds(first.ID); !slices.Contains(kinds, "inquired") {
		t.Errorf("%v", kinds)
	}
	next, err := b.retry(first.ID, longstop.RetryRequest{})
	if err != nil || next.RetryOf != first.ID {
		t.Errorf("a retry after its preflight said that it is to be done: %v", err)
	}
	b.wait(next.ID)
}

// What an agent makes up to ask says nothing for a retry, and another's work it does not ask about or ask again.
func TestPointAgentsAnswersAllowNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	scout := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "http"}
	other := longstop.Requester{Kind: longstop.RequesterAgent, Name: "other", Via: "http"}
	work := longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "exit 1"}}
	a, err := b.Run(t.Context(), work, scout, gateway.Told{})
	b.must(err)
	first := b.wait(a.ID)
	asks := longstop.InquireRequest{Kind: longstop.InquiryPreflight, Script: "exit 0"}
	for _, by := range []longstop.Requester{scout, other} {
		want := longstop.CodeNotRetriable
		asked, err := b.Inquire(t.Context(), string(first.ID), asks, by, gateway.Told{})
		if by == other {
			if want = longstop.CodeNotAllowed; longstop.CodeOf(err) != want {
				t.Errorf("%s asks about another's work: %v", by.Name, err)
			}
		} else {
			b.must(err)
			b.wait(asked.ID)
		}
		for _, preflight := range []string{"", "exit 0"} {
			_, err := b.Retry(t.Context(), string(first.ID), longstop.RetryRequest{Preflight: preflight}, by, gateway.Told{})
			if longstop.CodeOf(err) != want {
				t.Errorf("%s asks again (%q): %v", by.Name, preflight, err)
			}
		}
	}
	seen, err := b.Action(t.Context(), string(first.ID))
	b.must(err)
	if len(seen.Checks) != 1 || seen.Checks[0].State != longstop.CheckPassed || !seen.Checks[0].Given {
		t.Errorf("%s", pretty(seen.Checks))
	}
	next, err := b.retry(first.ID, longstop.RetryRequest{Preflight: "exit 0"}) // a person's word is another matter
	b.must(err)
	b.wait(next.ID)
}

// What goes on, has no script or is not asked in these words is not asked about; nothing is started then.
func TestPointInquiryRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	running := b.run(script("sleep 600"))
	over := b.wait(b.run(script("true")).ID)
	for want, ask := range map[string]func() (longstop.Action, error){
		"has not ended":        func() (longstop.Action, error) { return b.inquire(running.ID, longstop.InquiryVerify, "true") },
		"has no verify":        func() (longstop.Action, error) { return b.inquire(over.ID, longstop.InquiryVerify, "") },
		"preflight and verify": func() (longstop.Action, error) { return b.inquire(over.ID, "both", "true") },
		"no action": func() (longstop.Action, error) {
			return b.inquire("act_0000000000000000", longstop.InquiryVerify, "true")
		},
	} {
		if a, err := ask(); err == nil || !strings.Contains(err.Error(), want) || a.ID != "" {
			t.Errorf("%v, want %q", err, want)
		}
	}
	b.cancel(running.ID, nil)
}
