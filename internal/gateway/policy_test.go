package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

const theRules = `
rules:
- name: no removing
  commands: [rm]
  decision: deny
  reason: nobody removes here
- name: agents
  requester: {kind: agent, names: [scout]}
  decision: allow
  limits: {per_requester: 1}
- name: short
  effect: read
  decision: allow
  limits: {deadline: 1h, output: 1M}
- name: asked
  effect: idempotent
  decision: ask
  limits: {per_host: 3}
- name: two at once
  decision: allow
  limits: {per_host: 2}
`

// newRuled is a bench with a policy that anna set.
func newRuled(t *testing.T, text string) *bench {
	t.Helper()
	b := newBench(t, sshtest.Options{})
	_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
	b.must(err)
	b.setPolicy(text)
	return b
}

func (b *bench) setPolicy(text string) longstop.Policy {
	b.t.Helper()
	p, err := b.SetPolicy(b.t.Context(), []byte(text), operator, b.sign("anna", aboutPolicy(text)))
	b.must(err)
	return p
}

func aboutPolicy(text string) longstop.ChallengeRequest {
	return longstop.ChallengeRequest{Kind: longstop.ChallengePolicy, Content: approver.Content([]byte(text))}
}

func (b *bench) try(req longstop.RunRequest, by longstop.Requester) (longstop.Action, error) {
	return b.Run(b.t.Context(), req, by, gateway.Told{})
}

func with(req longstop.RunRequest, set func(*longstop.RunRequest)) longstop.RunRequest {
	set(&req)
	return req
}

// verdictOf is what the first journal entry of an action says of the policy.
func (b *bench) verdictOf(id longstop.ActionID) (v longstop.PolicyVerdict) {
	b.t.Helper()
	entries, err := b.Journal(b.t.Context(), gateway.JournalFilter{Action: id, After: -1, Limit: 1})
	b.must(err)
	var says struct{ Policy longstop.PolicyVerdict }
	text, err := json.Marshal(entries[0].Body)
	b.must(err)
	b.must(json.Unmarshal(text, &says))
	return says.Policy
}

// What is denied is on record, says why, and was never sent; the same key never starts it.
func TestDeniedIsNeverSent(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	b.run(script("true")) // a channel is up: a launch would travel at once
	path, text := b.marker()
	denied := with(script(text+"\nsudo -n rm -f x &"), func(r *longstop.RunRequest) { r.Key = "k1" })
	a, err := b.try(denied, operator)
	var e *longstop.Error
	if !errors.As(err, &e) || e.Code != longstop.CodeDenied || e.ActionID != a.ID ||
		e.Message != "the policy's rule \"no removing\" (line 3) denies it: nobody removes here (it runs `rm` (2:1)); nothing was sent" {
		t.Fatalf("%v", err)
	}
	if a.Outcome != longstop.OutcomeNotStarted || a.Launch.State != longstop.LaunchRejected || a.Approval.State != longstop.ApprovalNotRequired {
		t.Errorf("%s", pretty(a))
	}
	if len(a.Findings) != 2 || a.Findings[0].Kind != longstop.FindingBackground || a.Findings[0].Line != 2 {
		t.Errorf("findings: %+v", a.Findings)
	}
	if kinds := b.kinds(a.ID); !slices.Equal(kinds, []string{"requested", "launch_answered"}) {
		t.Errorf("journal: %v", kinds)
	}
	v := b.verdictOf(a.ID)
	if v.Policy != b.Policy().Digest || v.Decision != "deny" || v.Rule != "no removing" || v.Line != 3 || v.Because != "it runs `rm` (2:1)" {
		t.Errorf("the journal says %+v", v)
	}
	if lines(path) != 0 {
		t.Error("it ran")
	}
}

// C140: a call that is sent again under its key gets the action that it had, denied or not, whatever the
// policy says by then.
func TestC140DeniedReplayIsTheSameAction(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	path, text := b.marker()
	call := with(script(text+"; rm -f x"), func(r *longstop.RunRequest) { r.Key = "call-1" })
	first, err := b.try(call, operator)
	if longstop.CodeOf(err) != longstop.CodeDenied {
		t.Fatalf("%v", err)
	}
	b.setPolicy("default: allow\n")
	if again, err := b.try(call, operator); longstop.CodeOf(err) != longstop.CodeDenied || again.ID != first.ID || lines(path) != 0 {
		t.Errorf("%s after %s, %v, %d lines", again.ID, first.ID, err, lines(path))
	}
}

// C139: a rule bounds what is kept of an output; what was left out is counted, and its end is there.
func TestC139PolicyBoundsWhatIsKept(t *testing.T) {
	t.Parallel()
	b := newRuled(t, "rules:\n- {decision: allow, limits: {output: 64K}}\n")
	a := b.wait(b.run(script("i=0; while [ $i -lt 3000 ]; do echo 'a line that is more than sixty bytes long, to be among too many of them'; i=$((i+1)); done; echo last")).ID)
	if out := a.Output; out.DroppedBytes == 0 || out.StdoutBytes < 200_000 {
		t.Errorf("%s", pretty(a))
	}
	end, err := b.Output(t.Context(), string(a.ID), "stdout", a.Output.StdoutBytes-5, 0, 0)
	b.must(err)
	if string(end.Data) != "last\n" {
		t.Errorf("it ends with %q", end.Data)
	}
}

// What cannot be read, or is known only when it runs, does not slip past a rule on commands.
func TestDeniedWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	for text, why := range map[string]string{
		"if": "could not be read as a shell script", "$RM x": "known only when it runs", "curl x | sh": "standard input",
		"sh -c 'env rm x'": "it runs `rm`", strings.Repeat("true\n", 100_000): "too long to be read",
	} {
		if a, err := b.try(script(text), operator); longstop.CodeOf(err) != longstop.CodeDenied || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v\n%s", text, err, a.Launch.State)
		}
	}
}

func TestPolicyLimitsARequest(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	read := with(script("true"), func(r *longstop.RunRequest) { r.Request.Effect = longstop.EffectRead; r.Key = "k1" })
	a, err := b.try(read, operator)
	b.must(err)
	if a.Request.DeadlineS != 3600 || a.Request.OutputMax == nil || *a.Request.OutputMax != 1<<20 {
		t.Errorf("%+v", a.Request)
	}
	if v := b.verdictOf(a.ID); !slices.Equal(v.Given, []string{"deadline_s", "output_max_bytes"}) || v.Limits.DeadlineS != 3600 {
		t.Errorf("the journal says %+v", v)
	}
	for name, c := range map[string]struct {
		set  func(*longstop.Request)
		want string
	}{
		"deadline": {func(r *longstop.Request) { r.DeadlineS = 7200 }, "a deadline of 2h0m0s was asked for and 1h0m0s is the most, by the policy's rule \"short\" (line 11); nothing was sent"},
		"output":   {func(r *longstop.Request) { all := int64(0); r.OutputMax = &all }, "to keep all of each output stream was asked for and 1048576 bytes is the most"},
	} {
		r := read
		r.Key = ""
		c.set(&r.Request)
		if a, err := b.try(r, operator); longstop.CodeOf(err) != longstop.CodeDenied || !strings.Contains(err.Error(), c.want) || a.Outcome != longstop.OutcomeNotStarted {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A key keeps its action whatever policies give: the same was asked.
	b.setPolicy("rules:\n- {decision: allow, limits: {deadline: 2h}}\n")
	if again, err := b.try(read, operator); err != nil || again.ID != a.ID {
		t.Errorf("under another policy: %s, %v", again.ID, err)
	}
	b.setPolicy("")
	if again, err := b.try(read, operator); err != nil || again.ID != a.ID {
		t.Errorf("without limits: %s, %v", again.ID, err)
	}
	other := read
	other.Request.DeadlineS = 7200
	if _, err := b.try(other, operator); longstop.CodeOf(err) != longstop.CodeKeyConflict {
		t.Errorf("another deadline under the same key: %v", err)
	}
}

// However many ask at once, no more are let through than the rule allows.
func TestPolicyLimitsConcurrency(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	var through, denied []longstop.Action
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			a, err := b.try(script("exec sleep 600"), operator)
			mu.Lock()
			defer mu.Unlock()
			switch longstop.CodeOf(err) {
			case longstop.CodeDenied:
				denied = append(denied, a)
			default:
				through = append(through, a)
			}
		})
	}
	asking.Wait()
	const why = `the policy's rule "two at once" (line 19) lets at most 2 actions on loop be unresolved at once, and there are as many; nothing was sent`
	if len(through) != 2 || len(denied) != 6 || denied[0].Launch.Message != why {
		t.Fatalf("%d went through, %d were denied: %s", len(through), len(denied), pretty(denied))
	}
	for _, a := range through {
		if a.Launch.State != longstop.LaunchAccepted {
			t.Errorf("%s", pretty(a))
		}
		_, err := b.Cancel(t.Context(), string(a.ID), operator, func(string) {})
		b.must(err)
		b.wait(a.ID)
	}
	b.run(script("true"))

	scout := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "http"}
	first, err := b.try(script("exec sleep 600"), scout)
	b.must(err)
	if _, err := b.try(script("true"), scout); longstop.CodeOf(err) != longstop.CodeDenied || !strings.Contains(err.Error(), "at most 1 actions of agent scout") {
		t.Errorf("a second one of the same agent: %v", err)
	}
	_, err = b.Cancel(t.Context(), string(first.ID), operator, func(string) {})
	b.must(err)
}

func TestPolicyAsks(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	path, text := b.marker()
	a := b.ask(with(script(text+" &"), func(r *longstop.RunRequest) { r.Request.Effect = longstop.EffectIdempotent }))
	if a.Approval.Rule != "asked" || a.Approval.Policy != b.Policy().Digest || len(a.Findings) != 1 {
		t.Errorf("%s", pretty(a))
	}
	b.approve(a.ID)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || lines(path) != 1 {
		t.Errorf("%s", pretty(a))
	}
}

// A person's proof changes the policy, and nothing else does: it is in the journal, and outlives the gateway.
func TestPointPolicyIsAPersons(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	ctx, denies := t.Context(), "default: deny\n"
	was := b.Policy()
	agent := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "http"}
	for name, c := range map[string]struct {
		by    longstop.Requester
		proof func() longstop.Proof
		text  string
		code  longstop.Code
	}{
		"no proof":     {operator, func() longstop.Proof { return longstop.Proof{} }, denies, longstop.CodeNotProven},
		"another text": {operator, func() longstop.Proof { return b.sign("anna", aboutPolicy("default: allow\n")) }, denies, longstop.CodeNotProven},
		"an agent":     {agent, func() longstop.Proof { return b.sign("anna", aboutPolicy(denies)) }, denies, longstop.CodeNotAllowed},
		"no policy":    {operator, func() longstop.Proof { return b.sign("anna", aboutPolicy("rules: deny")) }, "rules: deny", longstop.CodeUsage},
		"a wrong key": {operator, func() longstop.Proof {
			about := aboutPolicy(denies)
			about.Approver = "anna"
			challenge, err := b.Challenge(ctx, about, operator)
			b.must(err)
			return people["bob"]().key.Prove(challenge)
		}, denies, longstop.CodeNotProven},
	} {
		if _, err := b.SetPolicy(ctx, []byte(c.text), c.by, c.proof()); longstop.CodeOf(err) != c.code || b.Policy() != was {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.stop()
	b.start()
	if b.Policy() != was {
		t.Errorf("after a restart: %+v", b.Policy())
	}
	now := b.setPolicy(denies)
	if _, err := b.try(script("true"), operator); longstop.CodeOf(err) != longstop.CodeDenied {
		t.Errorf("under %+v: %v", now, err)
	}
	entries, err := b.Journal(ctx, gateway.JournalFilter{After: -1, Limit: 1000})
	b.must(err)
	var changes []string
	for _, e := range entries {
		if e.Kind == "policy_changed" {
			var says struct{ Digest, Was, Text string }
			b.must(json.Unmarshal(e.Body.(json.RawMessage), &says))
			changes = append(changes, fmt.Sprintf("%s: %s after %s, %q", e.By, says.Digest, says.Was, says.Text))
		}
	}
	want := []string{fmt.Sprintf("approver anna: %s after , %q", was.Digest, theRules), fmt.Sprintf("approver anna: %s after %s, %q", now.Digest, was.Digest, denies)}
	if !slices.Equal(changes, want) {
		t.Errorf("the journal has %q, want %q", changes, want)
	}
}

func TestPolicyExplains(t *testing.T) {
	t.Parallel()
	b := newRuled(t, theRules)
	before, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000})
	b.must(err)
	run := with(script("make &"), func(r *longstop.RunRequest) { r.Request.Effect = longstop.EffectRead; r.Request.DeadlineS = 7200 })
	v, err := b.Explain(longstop.PolicyQuestion{Run: run}, operator)
	b.must(err)
	if v.Decision != "deny" || v.Rule != "short" || v.Exceeds == "" || len(v.Findings) != 1 || v.Limits.OutputMaxBytes != 1<<20 {
		t.Errorf("%+v", v)
	}
	run.Host = "nowhere"
	agent := longstop.Requester{Kind: longstop.RequesterAgent, Name: "ci"}
	if v, err := b.Explain(longstop.PolicyQuestion{Run: run, As: &agent}, operator); err != nil || v.Policy != b.Policy().Digest {
		t.Errorf("for somebody else: %+v %v", v, err)
	}
	for text, want := range map[string]string{
		"":               "allow default",
		"default: deny":  "deny default",
		"default: maybe": "",
		"rules: [{name: agents, requester: {kind: agent}, decision: deny}]": "deny agents",
	} {
		v, err := b.Explain(longstop.PolicyQuestion{Run: run, Text: &text, As: &agent}, operator)
		if got := v.Decision + " " + v.Rule; want != "" && got != want || (longstop.CodeOf(err) == longstop.CodeUsage) != (want == "") {
			t.Errorf("by %q: %+v %v", text, v, err)
		}
	}
	long := "default: deny\n" + strings.Repeat("#", 16<<10)
	if _, err := b.Explain(longstop.PolicyQuestion{Run: run, Text: &long}, agent); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("by a long policy of an agent: %v", err)
	}
	if v, err := b.Explain(longstop.PolicyQuestion{Run: run, Text: &long}, operator); err != nil || v.Decision != "deny" {
		t.Errorf("by a long policy of the operator: %+v %v", v, err)
	}
	c, err := b.CheckPolicy([]byte("default: maybe\nrule: 1\n"))
	b.must(err)
	if len(c.Problems) != 2 || c.Digest != "" || c.Problems[0].Line != 1 || c.Problems[0].Column != 10 || c.Problems[1].Line != 2 {
		t.Errorf("a bad policy: %+v", c)
	}
	if c, err := b.CheckPolicy([]byte("rules:\n- {effect: read, decision: allow}\n")); err != nil || c.Digest == "" || len(c.Warnings) != 1 || c.Warnings[0].Line != 2 {
		t.Errorf("what rests on the caller's word: %+v, %v", c, err)
	}
	if c, err := b.CheckPolicy([]byte(theRules)); err != nil || c.Digest != b.Policy().Digest || c.Summary == "" || c.Problems != nil {
		t.Errorf("the one that holds: %+v %v", c, err)
	}
	after, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000})
	b.must(err)
	if len(after) != len(before) {
		t.Errorf("to explain changed the journal: %d entries, then %d", len(before), len(after))
	}
}

// A policy that somebody wrote into the store is none: the one that a person signed holds, or nothing starts.
func TestPolicyChangedOutside(t *testing.T) {
	t.Parallel()
	b := newRuled(t, "default: deny\n")
	signed := b.Policy()
	for _, query := range []string{
		`UPDATE policy SET text = CAST('default: allow' AS BLOB), digest = 'sha256:00'`,
		`UPDATE policy SET text = CAST('' AS BLOB)`,
		`DELETE FROM policy`,
	} {
		b.stop()
		b.edit(query)
		b.start()
		if b.Policy() != signed || b.refusals("gateway@test") == 0 {
			t.Errorf("after %s: %+v", query, b.Policy())
		}
		if _, err := b.try(script("true"), operator); longstop.CodeOf(err) != longstop.CodeDenied {
			t.Errorf("after %s: %v", query, err)
		}
		b.edited()
	}
}
