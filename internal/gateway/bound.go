package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
)

// bound is what a person's signature binds of what they ask: about's own words, and the facts of its
// action as they are now. The action's id is made whole.
func (g *Gateway) bound(ctx context.Context, about *longstop.ChallengeRequest) (approver.Statement, error) {
	s := approver.Statement{{Name: "kind", Value: string(about.Kind)}}
	switch about.Kind {
	case longstop.ChallengeApprove, longstop.ChallengeDeny, longstop.ChallengeRevoke, longstop.ChallengeResolve:
		a, err := g.Action(ctx, string(about.ActionID))
		if err != nil {
			return nil, err
		}
		about.ActionID = a.ID
		if err := mayDecide(about.Kind, &a, g.now()); err != nil {
			return nil, err
		}
		s = append(s, g.boundOf(&a)...)
	case longstop.ChallengePolicy, longstop.ChallengeApprover:
		if about.ActionID != "" {
			return nil, usage("a challenge of the kind %s is about no action", about.Kind)
		}
	default:
		return nil, usage("a challenge of the kind %.40q is not known", about.Kind)
	}
	s.Add("outcome", string(about.Outcome))
	s.Add("reason", about.Reason)
	s.Add("content", about.Content)
	return s, nil
}

// boundOf are the facts of an action that a signature binds: what is to be run, where, and for how long.
func (g *Gateway) boundOf(a *longstop.Action) approver.Statement {
	var s approver.Statement
	s.Add("action", string(a.ID))
	s.Add("run", string(a.RunID))
	s.Add("host", a.Host)
	if h := g.known(a.Host); h != nil {
		shown := h.shown()
		s.Add("host key", shown.HostKey)
		s.Add("machine", shown.MachineID)
		s.Add("user", shown.User)
	}
	r := &a.Request
	s.Add("request", r.Digest)
	s.Add("lifetime", string(r.Lifetime))
	s.Add("owner", string(r.Owner))
	s.Add("leftover", string(r.Leftover))
	s.Add("lease", span(r.LeaseS))
	s.Add("deadline", span(r.DeadlineS))
	if r.Limits != nil {
		limits, _ := json.Marshal(r.Limits)
		s.Add("limits", string(limits))
	}
	s.Add("policy", a.Approval.Policy)
	s.Add("launch before", stamp(a.Approval.ExpiresAt))
	return s
}

func span(s float64) string {
	if s == 0 {
		return ""
	}
	return strconv.FormatFloat(s, 'f', -1, 64) + " s"
}

func stamp(t longstop.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// differing names the lines of one statement that are not in the other.
func differing(signed, now string) string {
	there := map[string]bool{}
	for line := range strings.Lines(signed) {
		there[line] = true
	}
	var lines []string
	for line := range strings.Lines(now) {
		if !there[line] {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		return "a line is missing"
	}
	return fmt.Sprintf("it is now %s", strings.Join(lines, ", "))
}
