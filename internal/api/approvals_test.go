package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

func TestApprovalRoutes(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	ctx := t.Context()
	for kind, state := range map[longstop.ChallengeKind]longstop.ApprovalState{
		longstop.ChallengeApprove: longstop.ApprovalGranted, longstop.ChallengeDeny: longstop.ApprovalDenied, longstop.ChallengeRevoke: longstop.ApprovalRevoked,
	} {
		d := longstop.ApprovalDecision{Proof: longstop.Proof{Challenge: "chl_1"}}
		if kind != longstop.ChallengeApprove {
			d.Reason = "not now"
		}
		a, err := c.Decide(ctx, kind, "act_1", d)
		if err != nil || a.ID != "act_1" || a.Approval.State != state || a.Approval.Because != d.Reason || a.Approval.Binds != "chl_1" || a.Approval.By != "operator" {
			t.Errorf("%s: %+v %v", kind, a.Approval, err)
		}
	}
	if made, err := c.Challenge(ctx, longstop.ChallengeRequest{Kind: longstop.ChallengeDeny, ActionID: "act_1"}); err != nil || made.Statement != "deny act_1" {
		t.Errorf("challenge: %+v %v", made, err)
	}
	anna := longstop.Approver{Name: "anna"}
	if known, err := c.SetApprover(ctx, longstop.ApproverChange{Approver: &anna}); err != nil || known.Name != "anna" || !known.First {
		t.Errorf("set: %+v %v", known, err)
	}
	if known, err := c.RemoveApprover(ctx, "anna", longstop.Proof{Challenge: "chl_2"}); err != nil || known.Name != "anna" || known.SetBy != "chl_2" {
		t.Errorf("remove: %+v %v", known, err)
	}
	for _, list := range []func() (int, error){
		func() (int, error) { l, err := c.Approvals(ctx); return len(l), err },
		func() (int, error) { l, err := c.Approvers(ctx); return len(l), err },
	} {
		if n, err := list(); err != nil || n != 0 {
			t.Errorf("%d %v", n, err)
		}
	}
	for _, bad := range [][3]string{
		{"PUT", "/api/v1/approvers/anna", `{}`},
		{"PUT", "/api/v1/approvers/anna", `{"approver": {"name": "bob", "kind": "passphrase", "public_key": ""}}`},
		{"DELETE", "/api/v1/approvers/anna", `{}`},
		{"POST", "/api/v1/actions/act_1/approve", `{"reason": "because", "proof": {"challenge_id": "chl_1", "kind": "passphrase", "signature": ""}}`},
		{"POST", "/api/v1/actions/act_1/approve", `{"proof": {"passphrase": "correct horse"}}`},
		{"POST", "/api/v1/challenges?approver=anna", `{"kind": "approve"}`},
	} {
		if resp, body := raw(t, c, bad[0], bad[1], bad[2]); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %d %s", bad, resp.StatusCode, body)
		} else if strings.Contains(body, "unknown field") && !strings.Contains(body, "longstop daemon stop") {
			t.Errorf("%v: what to do about another version's field: %s", bad, body)
		}
	}
}
