package gateway

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// leftOuts are the counts in the journal's entries of a kind, one for each entry.
func leftOuts(t *testing.T, g *Gateway, kind journal.Kind) (counts []int) {
	t.Helper()
	entries, err := g.Journal(t.Context(), JournalFilter{After: -1, Limit: 10_000, Kind: string(kind)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var says struct {
			LeftOut int `json:"left_out"`
		}
		if err := json.Unmarshal(body(e.Body), &says); err != nil && e.Body != nil {
			t.Fatal(err)
		}
		counts = append(counts, says.LeftOut)
	}
	return counts
}

// An agent in a loop gets an entry a minute, and each refusal is one or is counted in one.
func TestPointRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	g, now := alone(t)
	scout := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
	refuse := func(times int, who longstop.Requester) {
		t.Helper()
		for range times {
			if err := g.RefuseAgent(t.Context(), who, "POST /x", ""); longstop.CodeOf(err) != longstop.CodeNotAllowed {
				t.Fatal(err)
			}
		}
	}
	want := func(counts ...int) {
		t.Helper()
		if got := leftOuts(t, g, journal.AgentRefused); fmt.Sprint(got) != fmt.Sprint(counts) {
			t.Errorf("the entries leave out %v, want %v", got, counts)
		}
	}
	refuse(500, scout)
	want(0)
	refuse(1, longstop.Requester{Kind: longstop.RequesterAgent, Name: "other"})
	want(0, 0)
	now.put(now.Now().Add(time.Minute))
	refuse(21, scout)
	want(0, 0, 499)
	now.put(now.Now().Add(time.Minute))
	g.journalLeftOut() // nobody else came
	want(0, 0, 499, 19)
	now.put(now.Now().Add(time.Minute))
	if g.journalLeftOut(); len(g.refusals.of) != 0 {
		t.Errorf("what is over is kept: %v", g.refusals.of)
	}
}

// Who is refused about ever other things is remembered no further, and counted all the same.
func TestPointRefusalsOfOneCallerAreBounded(t *testing.T) {
	t.Parallel()
	g, _ := alone(t)
	const tries = 3000
	for i := range tries {
		err := g.journalRefusal(t.Context(), "agent scout", "retry", journal.Entry{Kind: journal.RetryRefused, Host: fmt.Sprint("h", i)}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	entries, counted := leftOuts(t, g, journal.RetryRefused), 0
	if len(entries) > refusalsKept+1 || len(g.refusals.of) > refusalsKept+1 {
		t.Errorf("%d entries, %d remembered", len(entries), len(g.refusals.of))
	}
	for _, left := range g.refusals.takeOld(g.now(), true) {
		counted += left.leftOut
	}
	if counted+len(entries) != tries {
		t.Errorf("%d entries and %d left out, of %d", len(entries), counted, tries)
	}
}
