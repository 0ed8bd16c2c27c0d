package policy

import (
	"slices"
	"strings"

	"github.com/longstop/longstop"
)

// Warnings are what a policy may say by, though it can be taken: rules that decide nothing, and those that rest on what
// callers say of themselves.
func (p *Policy) Warnings() (all Errors) {
	warn := func(rl *rule, words string) {
		all = append(all, &Error{Line: rl.line, Column: 1, Message: ruleWords(rl.name) + " " + words})
	}
	for i := range p.rules {
		rl := &p.rules[i]
		by := slices.IndexFunc(p.rules[:i], func(earlier rule) bool { return earlier.covers(rl) })
		switch {
		case rl.decision == Allow && rl.commands != nil && rl.unreadable != nil && *rl.unreadable:
			warn(rl, "never matches: what cannot be read is never among the commands that a rule allows")
		case by >= 0:
			warn(rl, "is never reached: "+p.rules[by].where()+" matches all that it does")
		case rl.decision != Allow:
		case len(rl.effect) > 0 && rl.commands == nil:
			warn(rl, "rests on the caller's word: effect is what a caller says of the work, and nothing holds the work to it; name commands too")
		case len(rl.via) > 0 && !slices.Contains(rl.via, "cli"):
			warn(rl, "rests on the caller's word: via is what a client says of itself")
		}
	}
	return all
}

func (rl *rule) where() string {
	v := Verdict{Rule: rl.name, Line: rl.line}
	return strings.TrimPrefix(v.Named(), "the policy's ")
}

// covers reports whether a rule matches all that a later one matches, as far as their fields show.
func (rl *rule) covers(later *rule) bool {
	return coversPatterns(rl.hosts, later.hosts) && coversWords(rl.kinds, later.kinds) && coversPatterns(rl.names, later.names) &&
		coversWords(rl.via, later.via) && coversWords(rl.effect, later.effect) && coversWords(rl.lifetime, later.lifetime) &&
		coversWords(rl.leftover, later.leftover) && coversWords(rl.owner, later.owner) &&
		(rl.unreadable == nil || later.unreadable != nil && *rl.unreadable == *later.unreadable) &&
		(rl.commands == nil || coversPatterns(rl.commands, later.commands) && (rl.decision != Allow || later.decision == Allow))
}

func coversWords[T longstop.Effect | longstop.Lifetime | longstop.Leftover | longstop.OwnerKind | string](all, some []T) bool {
	return all == nil || some != nil && !slices.ContainsFunc(some, func(w T) bool { return !slices.Contains(all, w) })
}

func coversPatterns(all, some []pattern) bool {
	return all == nil || some != nil && !slices.ContainsFunc(some, func(p pattern) bool {
		return !slices.ContainsFunc(all, func(q pattern) bool {
			return q == p || !strings.Contains(string(q), "?") && q.matches(string(p))
		})
	})
}
