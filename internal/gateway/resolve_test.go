package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// resolving is a bench with an approver.
func resolving(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, sshtest.Options{})
	_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
	b.must(err)
	return b
}

// resolved signs a word and brings it.
func (b *bench) resolved(id longstop.ActionID, o longstop.Outcome, reason string, attached []byte) (longstop.Action, error) {
	b.t.Helper()
	req := longstop.ResolveRequest{Outcome: o, Reason: reason}
	asked := longstop.ChallengeRequest{Kind: longstop.ChallengeResolve, ActionID: id, Outcome: o, Reason: reason}
	if attached != nil {
		req.Attachment = &longstop.AttachedFile{Name: "query.txt", Data: attached}
		sum := sha256.Sum256(attached)
		asked.Content = "sha256:" + hex.EncodeToString(sum[:])
	}
	req.Proof = b.sign("anna", asked)
	return b.Resolve(b.t.Context(), string(id), req, operator)
}

// TestPointResolve: a person's word stands beside the facts, with what is attached; retries go by it, and nobody
// is asked to look any more.
func TestPointResolve(t *testing.T) {
	t.Parallel()
	b := resolving(t)
	a := b.lose(b.run(script("sleep 600")))
	b.refusedRetry(a.ID, longstop.RetryRequest{}, "may still be running")
	attached := bytes.Repeat([]byte("row\n"), longstop.MaxAttachment/4)
	a, err := b.resolved(a.ID, longstop.OutcomeNotStarted, "the table has no row", attached)
	b.must(err)
	r := a.Resolution
	if a.Outcome != longstop.OutcomeUnknown || a.UnknownBecause != longstop.OwnerLost || a.Workload.State != longstop.WorkloadLost ||
		r == nil || r.Outcome != longstop.OutcomeNotStarted || r.By != "approver anna" || r.Reason != "the table has no row" || r.Attachment.Bytes != longstop.MaxAttachment {
		t.Errorf("%s", pretty(a))
	}
	if a.Escalations[0].OverAt.IsZero() || a.NeedsPeople() {
		t.Errorf("people are still asked: %s", pretty(a.Escalations))
	}
	raws, err := b.Raw(t.Context(), string(a.ID))
	b.must(err)
	if !slices.ContainsFunc(raws, func(r gateway.RawAnswer) bool { return r.Kind == "attachment" && bytes.Equal(r.Bytes, attached) }) {
		t.Error("the attachment was not kept whole")
	}
	open, err := b.Actions(t.Context(), gateway.ActionFilter{})
	if err != nil || len(open) > 0 {
		t.Errorf("ps still lists it: %v", err)
	}
	if next, err := b.retry(a.ID, longstop.RetryRequest{}); err != nil || next.Attempt != 2 {
		t.Errorf("a retry: %v", err)
	} else {
		b.cancel(next.ID, nil)
	}
}

// TestPointResolveRefused: what is known, or has been unknown for a moment, takes nobody's word; nor is a word taken
// that was signed for something else, or is an agent's.
func TestPointResolveRefused(t *testing.T) {
	t.Parallel()
	b := resolving(t)
	over := b.wait(b.run(script("exit 3")).ID)
	if _, err := b.resolved(over.ID, longstop.OutcomeSucceeded, "so", nil); longstop.CodeOf(err) != longstop.CodeRefused || !strings.Contains(err.Error(), "is not unknown: failed") {
		t.Errorf("a known outcome: %v", err)
	}
	a := b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "sleep 600", Lifetime: longstop.Detached}})
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.proxy.Cut()
	b.until(a.ID, "it is unknown", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeUnknown })
	if _, err := b.resolved(a.ID, longstop.OutcomeFailed, "so", nil); longstop.CodeOf(err) != longstop.CodeRefused || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("unknown for a moment: %v", err)
	}
	b.tap.refuseDials(nil)
	b.cancel(a.ID, nil)

	lost := b.lose(b.run(script("sleep 600")))
	signed := func(change func(*longstop.ChallengeRequest)) longstop.Proof {
		asked := longstop.ChallengeRequest{Kind: longstop.ChallengeResolve, ActionID: lost.ID, Outcome: longstop.OutcomeFailed, Reason: "seen"}
		change(&asked)
		return b.sign("anna", asked)
	}
	same := func(*longstop.ChallengeRequest) {}
	for name, req := range map[string]longstop.ResolveRequest{
		"another outcome":     {Outcome: longstop.OutcomeFailed, Reason: "seen", Proof: signed(func(c *longstop.ChallengeRequest) { c.Outcome = longstop.OutcomeNotStarted })},
		"another reason":      {Outcome: longstop.OutcomeFailed, Reason: "seen", Proof: signed(func(c *longstop.ChallengeRequest) { c.Reason = "heard" })},
		"another action":      {Outcome: longstop.OutcomeFailed, Reason: "seen", Proof: signed(func(c *longstop.ChallengeRequest) { c.ActionID = over.ID })},
		"an attachment more":  {Outcome: longstop.OutcomeFailed, Reason: "seen", Attachment: &longstop.AttachedFile{Name: "f", Data: []byte("x")}, Proof: signed(same)},
		"another attachment":  {Outcome: longstop.OutcomeFailed, Reason: "seen", Attachment: &longstop.AttachedFile{Name: "f", Data: []byte("x")}, Proof: signed(func(c *longstop.ChallengeRequest) { c.Content = "sha256:00" })},
		"no proof at all":     {Outcome: longstop.OutcomeFailed, Reason: "seen"},
		"an agent's proof":    {Outcome: longstop.OutcomeFailed, Reason: "seen", Proof: signed(same)},
		"no outcome of these": {Outcome: longstop.OutcomeUnknown, Reason: "seen"},
		"no reason":           {Outcome: longstop.OutcomeFailed, Reason: " "},
		"too much attached":   {Outcome: longstop.OutcomeFailed, Reason: "seen", Attachment: &longstop.AttachedFile{Name: "f", Data: make([]byte, longstop.MaxAttachment+1)}},
	} {
		by := operator
		if name == "an agent's proof" {
			by = longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout"}
		}
		got, err := b.Resolve(t.Context(), string(lost.ID), req, by)
		if err == nil || got.Resolution != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if seen, err := b.Action(t.Context(), string(lost.ID)); err != nil || seen.Resolution != nil || slices.Contains(b.kinds(lost.ID), "resolved") {
		t.Errorf("%v %s", err, pretty(seen))
	}
}

// TestPointResolveIsContradicted: a record that comes later and says otherwise is shown beside the person's word,
// changes none of it, and is brought to people.
func TestPointResolveIsContradicted(t *testing.T) {
	t.Parallel()
	b := resolving(t)
	page := newPager(t, 200)
	a := b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "sleep 600", Lifetime: longstop.Detached}})
	b.stop()
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.start()
	b.until(a.ID, "it is unreachable", func(a longstop.Action) bool { return a.UnknownBecause == longstop.Unreachable })
	b.stop()
	b.shift, b.ways = 16*time.Minute, []gateway.Way{page.way(t)}
	b.start()
	b.until(a.ID, "people are told", func(a longstop.Action) bool { return len(a.Escalations) == 1 })
	a, err := b.resolved(a.ID, longstop.OutcomeFailed, "the machine is scrap", nil)
	b.must(err)
	if a.Outcome != longstop.OutcomeUnknown || a.Resolution == nil {
		t.Fatalf("%s", pretty(a))
	}
	b.tap.refuseDials(nil)
	b.cancel(a.ID, nil)
	a = b.wait(a.ID)
	if r := a.Resolution; a.Outcome != longstop.OutcomeCancelled || r.Outcome != longstop.OutcomeFailed || r.Contradicted != "cancelled" || r.By != "approver anna" {
		t.Errorf("%s", pretty(a))
	}
	if !slices.Contains(b.kinds(a.ID), "contradiction") {
		t.Errorf("%v", b.kinds(a.ID))
	}
	n := page.told(t, "contradiction")
	if text, err := json.Marshal(n.Body); err != nil || n.ActionID != a.ID || !strings.Contains(string(text), "cancelled") {
		t.Errorf("people were told %s of %s", text, n.ActionID)
	}
}
