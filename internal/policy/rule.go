package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// rule is one rule of a file. What it does not name it does not look at.
type rule struct {
	name string
	line int

	hosts      []pattern // groups among them, written out
	kinds      []string
	names      []pattern
	via        []string
	effect     []longstop.Effect
	lifetime   []longstop.Lifetime
	leftover   []longstop.Leftover
	owner      []longstop.OwnerKind
	commands   []pattern
	unreadable *bool

	decision    Decision
	reason      string
	limits      Limits
	approvalTTL time.Duration
}

func (rl *rule) matchesAll() bool {
	return len(rl.hosts)+len(rl.kinds)+len(rl.names)+len(rl.via)+len(rl.effect)+len(rl.lifetime)+len(rl.leftover)+
		len(rl.owner)+len(rl.commands) == 0 && rl.unreadable == nil
}

// Decide answers a question: the first rule that matches decides. A nil policy allows everything.
func (p *Policy) Decide(q Question) Verdict {
	read := Read(&q.Request)
	if p == nil {
		return Verdict{Decision: Allow, Findings: read.spoken()}
	}
	v := Verdict{Decision: p.fallback, Rule: defaultRule, Findings: read.Findings}
	if v.Decision == Ask {
		v.ApprovalTTL = DefaultApprovalTTL
	}
	for i := range p.rules {
		rl := &p.rules[i]
		if because, ok := rl.matches(&q, read); ok {
			v.Decision, v.Rule, v.Line, v.Reason = rl.decision, rl.name, rl.line, rl.reason
			v.Limits, v.ApprovalTTL, v.Because = rl.limits, rl.approvalTTL, because
			break
		}
	}
	return v
}

// matches reports whether a rule is for a request and, where its commands are why, which of them.
func (rl *rule) matches(q *Question, read *Reading) (because string, ok bool) {
	r := &q.Request
	ok = (rl.hosts == nil || anyMatches(rl.hosts, q.Host)) &&
		among(rl.kinds, q.By.Kind) && among(rl.via, q.By.Via) && (rl.names == nil || anyMatches(rl.names, q.By.Name)) &&
		among(rl.effect, r.Effect) && among(rl.lifetime, r.Lifetime) && among(rl.leftover, r.Leftover) && among(rl.owner, r.Owner) &&
		(rl.unreadable == nil || *rl.unreadable == (read.Dynamic != ""))
	if !ok || rl.commands == nil {
		return "", ok
	}
	if rl.decision == Allow {
		return "", rl.knowsAll(read)
	}
	return rl.knowsAny(read)
}

// knowsAny is for a rule that denies or asks: one command is enough, and what nobody can tell is any.
func (rl *rule) knowsAny(read *Reading) (because string, ok bool) {
	for _, c := range read.Commands {
		if anyMatches(rl.commands, c.Name) {
			return fmt.Sprintf("it runs `%s`%s", c.Name, c.place()), true
		}
	}
	if read.Dynamic != "" {
		return read.Dynamic + ", so it counts as any command", true
	}
	return "", false
}

// knowsAll is for a rule that allows: each command has to be among the rule's, all must be known, and what
// they do has to be what their names tell.
func (rl *rule) knowsAll(read *Reading) bool {
	return read.Dynamic == "" && !read.Beyond && len(read.Commands) > 0 && !slices.ContainsFunc(read.Commands, func(c Command) bool {
		return !anyMatches(rl.commands, c.Name)
	})
}

func among[T ~string](words []T, word T) bool { return words == nil || slices.Contains(words, word) }

// exceeds says what of a request is more than its limits allow; empty if nothing is.
func (l Limits) exceeds(r *longstop.Request) string {
	var says []string
	if asked := time.Duration(r.DeadlineS * float64(time.Second)); l.Deadline > 0 && (asked > l.Deadline || r.DeadlineS > l.Deadline.Seconds()) {
		says = append(says, fmt.Sprintf("a deadline of %s was asked for and %s is the most", words(r.DeadlineS), l.Deadline))
	}
	if l.Output > 0 && r.Leftover == longstop.LeftoverRelease {
		says = append(says, "what is released writes into its files itself, which cannot be bounded as the rule asks")
	} else if r.OutputMax != nil && l.Output > 0 && (*r.OutputMax == 0 || *r.OutputMax > l.Output) {
		asked := fmt.Sprintf("%d bytes", *r.OutputMax)
		if *r.OutputMax == 0 {
			asked = "all"
		}
		says = append(says, fmt.Sprintf("to keep %s of each output stream was asked for and %d bytes is the most", asked, l.Output))
	}
	return strings.Join(says, "; ")
}

// complete gives a request what its limits say where it says nothing, and names the fields it gave.
func (l Limits) complete(r *longstop.Request) (given []string) {
	if l.Deadline > 0 && r.DeadlineS == 0 {
		r.DeadlineS = l.Deadline.Seconds()
		given = append(given, "deadline_s")
	}
	if l.Output > 0 && r.OutputMax == nil && l.Output < longstop.DefaultOutputMax {
		r.OutputMax = &l.Output
		given = append(given, "output_max_bytes")
	}
	return given
}

// words is a number of seconds as people write it.
func words(s float64) string {
	if s > 1e9 {
		return fmt.Sprintf("%.0f s", s)
	}
	return time.Duration(s * float64(time.Second)).String()
}
