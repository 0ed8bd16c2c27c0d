// Package policy says which requests are let through, which wait for an approver and which are denied,
// and what a script would leave behind. It owns the policy file: one strict YAML document whose first
// matching rule decides. It is pure, and knows a command by its name alone: it is a guard rail for those
// who mean well, no wall around those who do not.
//
// The rule it keeps: what cannot be read, or is known only when it runs, never slips past a rule on
// commands that denies or asks.
package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// Decision is what a policy says to a request.
type Decision string

const (
	Allow Decision = "allow"
	Ask   Decision = "ask" // an approver decides
	Deny  Decision = "deny"
)

// Question is a request, complete with its defaults, as put to a policy.
type Question struct {
	Host    string
	By      longstop.Requester
	Request longstop.Request
}

// Verdict is a policy's answer, and the rule that gave it.
type Verdict struct {
	Decision    Decision
	Rule        string // its name, or "rule 3"; "default" where no rule fits; empty without a policy
	Line        int    // of the rule in the file; 0 where there is none
	Reason      string // the rule's own words
	Because     string // of a rule on commands: which of the request's it is about, and where
	Limits      Limits
	ApprovalTTL time.Duration // with Ask: how long the approval may be waited for; always positive
	Findings    []longstop.Finding

	Exceeds string   // what the request asks beyond Limits: it is denied
	Given   []string // fields of the request that Limits gave
}

// Limits bound a request that is let through. Zero bounds nothing.
type Limits struct {
	Deadline     time.Duration // the longest that may be asked for, and what a request without one gets
	PerHost      int           // unresolved actions on the host, this one among them
	PerRequester int           // unresolved actions of the requester, this one among them
	Output       int64         // bytes kept of each stream: the most that may be asked for, and what a request without gets
}

// Shown is the verdict as the API shows it.
func (v *Verdict) Shown(digest string) longstop.PolicyVerdict {
	return longstop.PolicyVerdict{
		Policy: digest, Decision: string(v.Decision), Rule: v.Rule, Line: v.Line, Reason: v.Reason, Because: v.Because,
		Limits: longstop.PolicyLimits{DeadlineS: v.Limits.Deadline.Seconds(), PerHost: v.Limits.PerHost,
			PerRequester: v.Limits.PerRequester, OutputMaxBytes: v.Limits.Output},
		ApprovalTTLS: v.ApprovalTTL.Seconds(), Findings: v.Findings, Exceeds: v.Exceeds, Given: v.Given,
	}
}

// Bind holds a request to the verdict's limits: it is denied if it asks for more, and completed with them
// where it does not say.
func (v *Verdict) Bind(r *longstop.Request) {
	if v.Decision == Deny {
		return
	}
	if v.Exceeds = v.Limits.exceeds(r); v.Exceeds != "" {
		v.Decision = Deny
		return
	}
	v.Given = v.Limits.complete(r)
}

// Denied says why a request is denied; empty where it is not.
func (v *Verdict) Denied() string {
	switch {
	case v.Decision != Deny:
		return ""
	case v.Exceeds != "":
		return v.Exceeds + ", by " + v.Named()
	}
	why := v.Named() + " denies it"
	if v.Reason != "" {
		why += ": " + v.Reason
	}
	if v.Because != "" {
		why += " (" + v.Because + ")"
	}
	return why
}

// Named is the rule as one says it: its name and line.
func (v *Verdict) Named() string {
	if v.Line == 0 {
		return "the policy's default"
	}
	return fmt.Sprintf("the policy's %s (line %d)", ruleWords(v.Rule), v.Line)
}

func ruleWords(name string) string {
	if strings.HasPrefix(name, "rule ") {
		return name
	}
	return fmt.Sprintf("rule %q", name)
}

// Summary is a policy in a few words: "5 rules, default deny".
func (p *Policy) Summary() string {
	rules := "1 rule"
	if len(p.rules) != 1 {
		rules = fmt.Sprintf("%d rules", len(p.rules))
	}
	return rules + ", default " + string(p.fallback)
}
