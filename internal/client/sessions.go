package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/longstop/longstop"
)

// SessionFilter chooses sessions.
type SessionFilter struct {
	All    bool   // those that ended with nothing unresolved, too
	Before string // a session id: older ones than it
	Limit  int
}

// Sessions lists sessions, newest first.
func (c *Client) Sessions(ctx context.Context, f SessionFilter) (list []longstop.SessionView, err error) {
	query := url.Values{}
	if f.All {
		query.Set("all", "1")
	}
	if f.Before != "" {
		query.Set("before", f.Before)
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	err = c.call(ctx, "GET", v1+"/sessions", query, nil, &list)
	return list, err
}

// Session looks one session up, by its id or an end of it that fits no other.
func (c *Client) Session(ctx context.Context, id string) (s longstop.SessionView, err error) {
	err = c.call(ctx, "GET", v1+"/sessions/"+url.PathEscape(id), nil, nil, &s)
	return s, err
}

// StartSession begins a session.
func (c *Client) StartSession(ctx context.Context, req longstop.SessionRequest) (s longstop.SessionView, err error) {
	err = c.call(ctx, "POST", v1+"/sessions", nil, req, &s)
	return s, err
}

// EndSession ends a session and asks the runs to stop that its end is to cancel.
func (c *Client) EndSession(ctx context.Context, id string, cancels longstop.SessionCancel) (e longstop.SessionEnded, err error) {
	err = c.call(ctx, "POST", v1+"/sessions/"+url.PathEscape(id)+"/end", nil, longstop.EndRequest{Cancels: cancels}, &e)
	return e, err
}
