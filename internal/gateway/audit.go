package gateway

import (
	"context"
	"strconv"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
)

const (
	// hitsMost is how far the hits of a query are counted.
	hitsMost = 1000
	// examinedMost is how many actions one page looks at whose rows do not say whether they are hits.
	examinedMost = 2000
)

// AuditFilter chooses a page of a reviewers' query.
type AuditFilter struct {
	Query   string
	Session string // an id or a part of it that fits no other; of the query "session" alone
	After   string // the Next of the page before
	Limit   int    // default 100
}

// AuditQueries lists the queries with their hits.
func (g *Gateway) AuditQueries(ctx context.Context) ([]longstop.AuditQuery, error) {
	list := make([]longstop.AuditQuery, len(sqlite.Queries))
	for i := range sqlite.Queries {
		q := &sqlite.Queries[i]
		list[i] = auditQuery(q)
		if q.Given {
			continue
		}
		var err error
		if q.Now != nil {
			var hits []longstop.Action
			var next longstop.ActionID
			hits, next, err = g.examine(ctx, q, sqlite.AuditFilter{Limit: hitsMost})
			list[i].Hits, list[i].More = len(hits), next != ""
		} else {
			list[i].Hits, err = g.store.Hits(ctx, q, hitsMost+1)
			list[i].More, list[i].Hits = list[i].Hits > hitsMost, min(list[i].Hits, hitsMost)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func auditQuery(q *sqlite.Query) longstop.AuditQuery {
	shown := longstop.AuditQuery{Name: q.Name, Words: q.Words, Of: longstop.AuditOfActions}
	if len(q.Kinds) > 0 {
		shown.Of = longstop.AuditOfEntries
	}
	return shown
}

// Audit returns a page of a query.
func (g *Gateway) Audit(ctx context.Context, f AuditFilter) (longstop.AuditPage, error) {
	q, err := sqlite.FindQuery(f.Query)
	if err != nil {
		return longstop.AuditPage{}, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	of := sqlite.AuditFilter{Limit: f.Limit}
	page := longstop.AuditPage{Query: auditQuery(q)}
	switch {
	case q.Given && f.Session == "":
		return page, auditUsage("longstop audit session ID; longstop sessions -a lists them", "the query session needs one")
	case !q.Given && f.Session != "":
		return page, auditUsage("longstop audit session "+f.Session, "the query "+q.Name+" takes no session")
	case q.Given:
		s, err := g.store.Session(ctx, f.Session)
		if err != nil {
			return page, err
		}
		of.SessionID = s.ID
	}
	if len(q.Kinds) > 0 {
		return g.auditEntries(ctx, q, of, f.After, page)
	}
	of.After = longstop.ActionID(f.After)
	var next longstop.ActionID
	page.Actions, next, err = g.examine(ctx, q, of)
	page.Next = string(next)
	return page, err
}

func auditUsage(hint, message string) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: message, Hint: hint}
}

// examine fills a page of actions with what is a hit as it is seen now, and says after which row to go on.
func (g *Gateway) examine(ctx context.Context, q *sqlite.Query, f sqlite.AuditFilter) (hits []longstop.Action, next longstop.ActionID, err error) {
	want := f.Limit
	for examined := 0; ; {
		rows, err := g.store.AuditActions(ctx, q, f)
		if err != nil {
			return nil, "", err
		}
		for i, a := range rows {
			a = g.shown(a)
			if q.Now == nil || q.Now(&a, g.now().Time) {
				hits = append(hits, a)
			}
			if len(hits) == want && (i < len(rows)-1 || len(rows) == f.Limit) {
				return hits, a.ID, nil
			}
		}
		if len(rows) < f.Limit {
			return hits, "", nil
		}
		f.After = rows[len(rows)-1].ID
		if examined += len(rows); examined >= examinedMost {
			return hits, f.After, nil
		}
		f.Limit = examinedMost - examined // few of them are hits: all the rest at once
	}
}

func (g *Gateway) auditEntries(ctx context.Context, q *sqlite.Query, f sqlite.AuditFilter, after string, page longstop.AuditPage) (longstop.AuditPage, error) {
	if after != "" {
		var err error
		if f.AfterIdx, err = strconv.ParseInt(after, 10, 64); err != nil || f.AfterIdx < 0 {
			return page, auditUsage("longstop audit "+q.Name, "rows of "+q.Name+" have numbers, not "+strconv.Quote(after))
		}
	}
	entries, err := g.store.AuditEntries(ctx, q, f)
	for _, e := range entries {
		page.Entries = append(page.Entries, g.shownEntry(e))
	}
	if len(entries) == f.Limit && err == nil {
		page.Next = strconv.FormatInt(entries[len(entries)-1].Index, 10)
	}
	return page, err
}
