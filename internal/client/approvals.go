package client

import (
	"context"
	"net/url"

	"github.com/longstop/longstop"
)

// Approvals lists the actions that wait for a person's yes or no, oldest first.
func (c *Client) Approvals(ctx context.Context) (list []longstop.Action, err error) {
	err = c.call(ctx, "GET", v1+"/approvals", nil, nil, &list)
	return list, err
}

// Decide grants, denies or takes back an approval: what says "approve", "deny" or "revoke".
func (c *Client) Decide(ctx context.Context, what longstop.ChallengeKind, id longstop.ActionID, d longstop.ApprovalDecision) (a longstop.Action, err error) {
	err = c.call(ctx, "POST", action(string(id), "/"+string(what)), nil, d, &a)
	return a, err
}

// Resolve puts a person's word beside an outcome that is unknown.
func (c *Client) Resolve(ctx context.Context, id longstop.ActionID, req longstop.ResolveRequest) (a longstop.Action, err error) {
	err = c.call(ctx, "POST", action(string(id), "/resolve"), nil, req, &a)
	return a, err
}

// Challenge asks for what a person is to sign.
func (c *Client) Challenge(ctx context.Context, about longstop.ChallengeRequest) (made longstop.Challenge, err error) {
	err = c.call(ctx, "POST", v1+"/challenges", nil, about, &made)
	return made, err
}

// Approvers lists who can prove who they are, by name.
func (c *Client) Approvers(ctx context.Context) (list []longstop.KnownApprover, err error) {
	err = c.call(ctx, "GET", v1+"/approvers", nil, nil, &list)
	return list, err
}

// SetApprover makes or replaces an approver.
func (c *Client) SetApprover(ctx context.Context, change longstop.ApproverChange) (known longstop.KnownApprover, err error) {
	err = c.call(ctx, "PUT", v1+"/approvers/"+url.PathEscape(change.Approver.Name), nil, change, &known)
	return known, err
}

// RemoveApprover takes an approver out.
func (c *Client) RemoveApprover(ctx context.Context, name string, proof longstop.Proof) (known longstop.KnownApprover, err error) {
	err = c.call(ctx, "DELETE", v1+"/approvers/"+url.PathEscape(name), nil, longstop.ApproverChange{Proof: &proof}, &known)
	return known, err
}
