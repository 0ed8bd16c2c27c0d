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
}

// Limits bound a request that is let through. Zero bounds nothing.
type Limits struct {
	Deadline     time.Duration // the longest that may be asked for, and what a request without one gets
	PerHost      int           // unresolved actions on the host, this one among them
	PerRequester int           // unresolved actions of the requester, this one among them
	Output       int64         // bytes kept of each stream: the most that may be asked for, and what a request without gets
}

// Shown is the verdict as the API shows it.
func (v Verdict) Shown(digest string) longstop.PolicyVerdict {
	return longstop.PolicyVerdict{
		Policy: digest, Decision: string(v.Decision), Rule: v.Rule, Line: v.Line, Reason: v.Reason, Because: v.Because,
		Limits: longstop.PolicyLimits{DeadlineS: v.Limits.Deadline.Seconds(), PerHost: v.Limits.PerHost,
			PerRequester: v.Limits.PerRequester, OutputMaxBytes: v.Limits.Output},
		ApprovalTTLS: v.ApprovalTTL.Seconds(), Findings: v.Findings,
	}
}

// Named is the rule as one says it: its name and line.
func (v Verdict) Named() string {
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
