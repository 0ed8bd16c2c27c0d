package client

import (
	"context"

	"github.com/longstop/longstop"
)

// Policy is the policy that holds.
func (c *Client) Policy(ctx context.Context) (p longstop.Policy, err error) {
	err = c.call(ctx, "GET", v1+"/policy", nil, nil, &p)
	return p, err
}

// SetPolicy makes a policy the one that holds.
func (c *Client) SetPolicy(ctx context.Context, change longstop.PolicyChange) (p longstop.Policy, err error) {
	err = c.call(ctx, "PUT", v1+"/policy", nil, change, &p)
	return p, err
}

// CheckPolicy says what a text is as a policy, or what is wrong with it. It changes nothing.
func (c *Client) CheckPolicy(ctx context.Context, text string) (p longstop.PolicyCheck, err error) {
	err = c.call(ctx, "POST", v1+"/policy/check", nil, longstop.PolicyText{Text: text}, &p)
	return p, err
}

// ExplainPolicy says what a policy would say to a request. It changes nothing.
func (c *Client) ExplainPolicy(ctx context.Context, q longstop.PolicyQuestion) (v longstop.PolicyVerdict, err error) {
	err = c.call(ctx, "POST", v1+"/policy/explain", nil, q, &v)
	return v, err
}
