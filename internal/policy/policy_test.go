package policy

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
)

const example = `
default: deny
groups:
  prod: [web-*, db-1]
rules:
- name: no migrations by agents
  groups: prod
  requester: {kind: agent}
  commands: ["*migrate*", rm]
  decision: deny
  reason: agents do not migrate
- name: reading
  effect: read
  commands: [ls, cat, grep]
  decision: allow
- groups: [prod]
  hosts: gateway
  requester: {kind: agent, names: [claude-*], via: [mcp, cli]}
  decision: ask
  approval_ttl: 10m
  limits: {deadline: 1h, per_host: 2, per_requester: 3, output: 1M}
- name: released
  leftover: release
  decision: ask
- name: cannot be read
  requester: {kind: agent}
  unreadable: true
  decision: deny
- name: readable
  requester: {kind: agent}
  lifetime: leased
  unreadable: false
  decision: allow
- name: owner
  requester: {kind: operator}
  owner: [auto, systemd]
  decision: allow
`

func mustParse(t *testing.T, file string) *Policy {
	t.Helper()
	p, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// An allow rule is for what its programs' names tell, and for that alone.
func TestAllowedIsWhatNamesTell(t *testing.T) {
	t.Parallel()
	p := mustParse(t, "default: deny\nrules:\n- {name: reading, commands: [ls, cat], decision: allow}\n")
	for script, allowed := range map[string]bool{
		"ls | cat": true, "ls 2>&1": true, "ls >/dev/null 2>&1": true, "/usr/bin/ls": true, "ls >&2": true, "cat <a": true,
		"cat x >y": false, "cat x >>y": false, "ls 2>log": false, "ls >|y": false, "cat <>y": false, "ls >&y": false, "(ls; cat x) >y": false,
		"./ls": false, "/tmp/x/ls": false, "/usr/local/bin/ls": false, "fish -c ls": false, "echo ls | fish": false, "tcsh": false,
	} {
		v := p.Decide(Question{Host: "h", Request: longstop.Request{Script: script, Owner: longstop.OwnerAuto}})
		if (v.Decision == Allow) != allowed {
			t.Errorf("%q: %s", script, v.Decision)
		}
	}
	// A host without a runner: its login shell reads the script, and that may be any.
	if v := p.Decide(Question{Host: "h", Request: longstop.Request{Script: "ls", Owner: longstop.OwnerNone}}); v.Decision == Allow {
		t.Error("a script for an unknown shell is allowed")
	}
	// What nobody can read counts as any command to a rule that denies.
	p = mustParse(t, "rules:\n- {commands: [rm], decision: deny}\n")
	for _, script := range []string{"fish -c 'ls'", "ls | tcsh", "pwsh -c x"} {
		if v := p.Decide(Question{Host: "h", Request: longstop.Request{Script: script}}); v.Decision != Deny {
			t.Errorf("%q: %s", script, v.Decision)
		}
	}
}

// The first matching rule decides, and says which it was.
func TestDecisions(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	agent, operator := longstop.Requester{Kind: "agent", Name: "claude-1", Via: "mcp"}, longstop.Requester{Kind: "operator", Name: "anna", Via: "cli"}
	other := longstop.Requester{Kind: "agent", Name: "bot", Via: "http"}
	script := func(text string, with ...func(*longstop.Request)) longstop.Request {
		r := longstop.Request{Script: text, Effect: longstop.EffectOnce, Lifetime: longstop.Leased, Owner: longstop.OwnerAuto, Leftover: longstop.LeftoverWait}
		for _, set := range with {
			set(&r)
		}
		return r
	}
	read := func(r *longstop.Request) { r.Effect = longstop.EffectRead }
	for name, c := range map[string]struct {
		host    string
		by      longstop.Requester
		request longstop.Request
		want    Verdict
	}{
		"a denied command": {"web-1", agent, script("cd /srv && sudo ./migrate.sh"), Verdict{Decision: Deny, Rule: "no migrations by agents", Line: 6, Reason: "agents do not migrate", Because: "it runs `migrate.sh` (1:12)"}},
		"a denied argument": {"db-1", agent, longstop.Request{Argv: []string{"/usr/bin/rm"}},
			Verdict{Decision: Deny, Rule: "no migrations by agents", Line: 6, Reason: "agents do not migrate", Because: "it runs `rm`"}},
		"in a check":       {"db-1", agent, longstop.Request{Argv: []string{"ls"}, Verify: "rm x"}, Verdict{Decision: Deny, Rule: "no migrations by agents", Line: 6, Reason: "agents do not migrate", Because: "it runs `rm` (verify 1:1)"}},
		"unreadable":       {"web-1", agent, script("if"), Verdict{Decision: Deny, Rule: "no migrations by agents", Line: 6, Reason: "agents do not migrate", Because: "it could not be read as a shell script (1:1), so it counts as any command"}},
		"dynamic":          {"web-1", agent, script("a\n $x"), Verdict{Decision: Deny, Rule: "no migrations by agents", Line: 6, Reason: "agents do not migrate", Because: "which program runs is known only when it runs (2:2), so it counts as any command"}},
		"by operators":     {"web-1", operator, script("rm x"), Verdict{Decision: Allow, Rule: "owner", Line: 34}},
		"all allowed":      {"web-1", agent, script("ls | grep x", read), Verdict{Decision: Allow, Rule: "reading", Line: 12}},
		"one is not":       {"dev-1", operator, script("ls | xargs make", read), Verdict{Decision: Allow, Rule: "owner", Line: 34}},
		"one is not known": {"dev-1", other, script("ls; $x", read), Verdict{Decision: Deny, Rule: "cannot be read", Line: 25}},
		"asked": {"web-2", agent, script("make"), Verdict{Decision: Ask, Rule: "rule 3", Line: 16, ApprovalTTL: 10 * time.Minute,
			Limits: Limits{Deadline: time.Hour, PerHost: 2, PerRequester: 3, Output: 1 << 20}}},
		"a host beside its group": {"gateway", agent, script("make"), Verdict{Decision: Ask, Rule: "rule 3", Line: 16, ApprovalTTL: 10 * time.Minute,
			Limits: Limits{Deadline: time.Hour, PerHost: 2, PerRequester: 3, Output: 1 << 20}}},
		"another agent": {"web-2", other, script("make"), Verdict{Decision: Allow, Rule: "readable", Line: 29}},
		"released":      {"dev-1", operator, script("make", func(r *longstop.Request) { r.Leftover = longstop.LeftoverRelease }), Verdict{Decision: Ask, Rule: "released", Line: 22, ApprovalTTL: DefaultApprovalTTL}},
		"by nothing":    {"dev-1", other, script("make", func(r *longstop.Request) { r.Lifetime = longstop.Detached }), Verdict{Decision: Deny, Rule: "default"}},
		"an owner":      {"dev-1", operator, script("make", func(r *longstop.Request) { r.Owner = longstop.OwnerRunner }), Verdict{Decision: Deny, Rule: "default"}},
	} {
		got := p.Decide(Question{Host: c.host, By: c.by, Request: c.request})
		got.Findings = nil
		if got.Decision != c.want.Decision || got.Rule != c.want.Rule || got.Line != c.want.Line || got.Reason != c.want.Reason ||
			got.Because != c.want.Because || got.Limits != c.want.Limits || got.ApprovalTTL != c.want.ApprovalTTL {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestNoPolicyAllows(t *testing.T) {
	t.Parallel()
	v := (*Policy)(nil).Decide(Question{Request: longstop.Request{Script: "$x; sh f; a &"}})
	if v.Decision != Allow || v.Rule != "" || len(v.Findings) != 1 || v.Findings[0].Kind != longstop.FindingBackground {
		t.Errorf("%+v", v)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := Limits{Deadline: time.Hour, Output: 1 << 20}
	bytes := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		request longstop.Request
		want    string
	}{
		"nothing":         {longstop.Request{}, ""},
		"the most":        {longstop.Request{DeadlineS: 3600, OutputMax: bytes(1 << 20)}, ""},
		"a longer time":   {longstop.Request{DeadlineS: 3600.5}, "a deadline of 1h0m0.5s was asked for and 1h0m0s is the most"},
		"all output":      {longstop.Request{OutputMax: bytes(0)}, "to keep all of each output stream was asked for and 1048576 bytes is the most"},
		"more output":     {longstop.Request{OutputMax: bytes(2 << 20)}, "to keep 2097152 bytes of each output stream was asked for and 1048576 bytes is the most"},
		"what is unbound": {longstop.Request{Leftover: longstop.LeftoverRelease}, "what is released writes into its files itself, which cannot be bounded as the rule asks"},
	} {
		if got := l.exceeds(&c.request); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := (Limits{}).exceeds(&c.request); got != "" {
			t.Errorf("%s, without limits: %q", name, got)
		}
	}
	r := longstop.Request{}
	if given := l.complete(&r); len(given) != 2 || r.DeadlineS != 3600 || *r.OutputMax != 1<<20 {
		t.Errorf("completed: %v, %+v", given, r)
	}
	if given := l.complete(&r); given != nil {
		t.Errorf("completed again: %v", given)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"web-1", "web-1", true}, {"web-1", "web-10", false}, {"web-*", "web-", true}, {"*", "", true}, {"?", "", false}, {"?", "ü", true},
		{"*migrate*", "do-migrate.sh", true}, {"*a*b", "xaxbxab", true}, {"*a*b", "xaxbxa", false}, {"a*a", "a", false}, {"**", "x", true},
		{"?ß*", "üßen", true}, {"*?", "ü", true}, {"??", "ü", false}, {"*ß?", "üßßö", true},
	} {
		if got := pattern(c.pattern).matches(c.text); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.text, got)
		}
	}
}
