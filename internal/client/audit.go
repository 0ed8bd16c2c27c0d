package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/longstop/longstop"
)

// AuditFilter chooses a page of a reviewers' query.
type AuditFilter struct {
	Query   string
	Session string // of the query "session"
	After   string // the Next of the page before
	Limit   int
}

// AuditQueries lists the reviewers' queries, with their hits.
func (c *Client) AuditQueries(ctx context.Context) (list []longstop.AuditQuery, err error) {
	err = c.call(ctx, "GET", v1+"/audit", nil, nil, &list)
	return list, err
}

// Audit asks for a page of a query.
func (c *Client) Audit(ctx context.Context, f AuditFilter) (page longstop.AuditPage, err error) {
	query := url.Values{"limit": {strconv.Itoa(f.Limit)}}
	for name, value := range map[string]string{"session": f.Session, "after": f.After} {
		if value != "" {
			query.Set(name, value)
		}
	}
	err = c.call(ctx, "GET", v1+"/audit/"+url.PathEscape(f.Query), query, nil, &page)
	return page, err
}
