package api

import (
	"testing"

	"github.com/longstop/longstop"
)

func TestPolicyRoutes(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	ctx := t.Context()
	if p, err := c.Policy(ctx); err != nil || p.Digest != "sha256:p" || p.Text != "default: deny\n" {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := c.SetPolicy(ctx, longstop.PolicyChange{Text: "default: ask\n", Proof: longstop.Proof{Challenge: "chl_1"}}); err != nil ||
		p.Digest != "operator chl_1" || p.Text != "default: ask\n" {
		t.Errorf("set: %+v %v", p, err)
	}
	c.Token = "lst_scout"
	text := "default: ask"
	if got, err := c.CheckPolicy(ctx, text); err != nil || len(got.Problems) != 1 || got.Problems[0] != (longstop.PolicyProblem{Line: 2, Column: 3, Message: "of " + text}) {
		t.Errorf("check: %+v %v", got, err)
	}
	question := longstop.PolicyQuestion{Run: longstop.RunRequest{Host: "h1"}, Text: &text, As: &longstop.Requester{Kind: longstop.RequesterAgent, Name: "ci"}}
	if v, err := c.ExplainPolicy(ctx, question); err != nil || v.Decision != "deny" || v.Rule != "agent on h1" || v.Reason != text+" for ci" {
		t.Errorf("explain: %+v %v", v, err)
	}
	if _, err := c.SetPolicy(ctx, longstop.PolicyChange{}); longstop.CodeOf(err) != longstop.CodeNotAllowed {
		t.Errorf("set by an agent: %v", err)
	}
}
