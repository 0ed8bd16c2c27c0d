package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// standing is what the log gives of all that stands until somebody changes it: hosts, tokens, approvers, the
// policy, and what people are still to be told. Entries of earlier versions tell less of hosts and tokens, and
// nothing of notices; rows are held against as much as there is.
type standing struct {
	hosts     map[string]*toldHost
	tokens    []*toldToken // in the order in which they were made
	approvers map[string]Approver
	policy    toldPolicy
	notices   toldNotices
	partly    []string // rows that were compared, or written, only in part
}

// standingKinds are those of the entries that standing is made of, beside those that people are told of.
var standingKinds = append([]journal.Kind{journal.HostRemoved, journal.TokenCreated, journal.TokenRevoked, journal.ApproverSet,
	journal.ApproverRemoved, journal.PolicyChanged, journal.GatewayStarted, journal.NoticeDelivered, journal.NoticeFailed,
	journal.NoticesDropped}, hostKinds...)

func replayStanding(ctx context.Context, db querier) (*standing, error) {
	w := &standing{hosts: map[string]*toldHost{}, approvers: map[string]Approver{}}
	kinds := standingKinds
	err := eachOfKinds(ctx, db, []journal.Kind{journal.GatewayStarted}, func(e *journal.Entry) error {
		tells, err := tellsOf(e)
		if tells != nil {
			kinds = append(kinds[:len(kinds):len(kinds)], tells.Kinds...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, eachOfKinds(ctx, db, kinds, w.apply)
}

// eachOfKinds calls fn with the entries of rare kinds, in order.
func eachOfKinds(ctx context.Context, db querier, kinds []journal.Kind, fn func(*journal.Entry) error) error {
	args := make([]any, len(kinds))
	for i, kind := range kinds {
		args[i] = string(kind)
	}
	rows, err := db.QueryContext(ctx, `SELECT idx, bytes FROM entries INDEXED BY entries_kind WHERE kind IN (?`+strings.Repeat(", ?", len(kinds)-1)+`)
		AND kind NOT IN (`+commonKinds+`) ORDER BY idx`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var index int64
		var text sql.RawBytes
		if err := rows.Scan(&index, &text); err != nil {
			return err
		}
		e, err := journal.Decode(text)
		if err == nil {
			err = fn(&e)
		}
		if err != nil {
			return &journal.BadEntry{Index: index, Why: err.Error()}
		}
	}
	return rows.Err()
}

// apply goes one entry on.
func (w *standing) apply(e *journal.Entry) error {
	w.notices.apply(e)
	switch e.Kind {
	case journal.HostRemoved:
		delete(w.hosts, e.Host)
	case journal.TokenCreated, journal.TokenRevoked:
		return w.applyToken(e)
	case journal.ApproverSet, journal.ApproverRemoved:
		return w.applyApprover(e)
	case journal.PolicyChanged:
		return w.applyPolicy(e)
	case journal.GatewayStarted:
		return w.notices.begin(e)
	default:
		return w.applyHost(e)
	}
	return nil
}

// check holds every row against what the log gives; the first that differs is a *Difference.
func (w *standing) check(ctx context.Context, db querier) error {
	for _, check := range []func(context.Context, querier) error{w.checkHosts, w.checkTokens, w.checkApprovers, w.checkPolicy, w.checkNotices} {
		if err := check(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// rebuildStanding writes every row anew that the log gives, and removes what it does not know.
func (s *Store) rebuildStanding(ctx context.Context, tx *sql.Tx) (*standing, error) {
	w, err := replayStanding(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, rebuild := range []func(context.Context, *statements, *sql.Tx) error{w.rebuildHosts, w.rebuildTokens, w.rebuildApprovers, w.rebuildNotices} {
		if err := rebuild(ctx, &s.stmt, tx); err != nil {
			return nil, fmt.Errorf("rebuild: %w", err)
		}
	}
	return w, nil
}

func (w *standing) inPart(row string) { w.partly = append(w.partly, row) }

// toldPolicy is the policy that an entry says was set; entry is -1 after none.
type toldPolicy struct {
	there        bool
	entry        int64
	Digest, Text string
}

func (w *standing) applyPolicy(e *journal.Entry) error {
	w.policy = toldPolicy{there: true, entry: e.Index}
	return json.Unmarshal(e.Body, &w.policy)
}

func (w *standing) applyApprover(e *journal.Entry) error {
	var says struct{ Approver longstop.Approver }
	if err := json.Unmarshal(e.Body, &says); err != nil {
		return err
	}
	if e.Kind == journal.ApproverRemoved {
		delete(w.approvers, says.Approver.Name)
	} else {
		w.approvers[says.Approver.Name] = Approver{says.Approver, e.Index}
	}
	return nil
}

func (w *standing) checkApprovers(ctx context.Context, db querier) error {
	seen := map[string]bool{}
	err := eachRow(ctx, db, `SELECT name, entry, json FROM approvers ORDER BY name`, func(r row) error {
		var name, data string
		var entry int64
		if err := r.Scan(&name, &entry, &data); err != nil {
			return err
		}
		seen[name] = true
		id := "approver " + name
		want, told := w.approvers[name]
		if !told {
			return &Difference{Row: id, Why: "no entry is about it"}
		}
		is, err := json.Marshal(want.Approver)
		if err != nil {
			return err
		}
		field, err := journal.FirstDifference([]byte(data), is)
		switch {
		case err != nil:
			return &Difference{id, "json", err.Error()}
		case field != "":
			return &Difference{id, field, "it is not what the journal says"}
		case entry != want.Entry:
			return &Difference{id, "entry", fmt.Sprintf("it is %d, and the journal says %d", entry, want.Entry)}
		}
		return nil
	})
	return notStored(err, "approver ", w.approvers, seen)
}

func (w *standing) checkPolicy(ctx context.Context, db querier) error {
	var is toldPolicy
	err := db.QueryRowContext(ctx, `SELECT entry, digest, text FROM policy`).Scan(&is.entry, &is.Digest, &is.Text)
	if is.there = err == nil; err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	differs := func(field, why string) error { return &Difference{"the policy", field, why} }
	switch {
	case is.there && !w.policy.there:
		return differs("", "no entry is about it")
	case !is.there && w.policy.there:
		return differs("", "it is not there")
	case is.Text != w.policy.Text:
		return differs("text", "it is not what the journal says")
	case is.Digest != w.policy.Digest:
		return differs("digest", "it is not what the journal says")
	case is.entry != w.policy.entry:
		return differs("entry", fmt.Sprintf("it is %d, and the journal says %d", is.entry, w.policy.entry))
	}
	return nil
}

// rebuildApprovers writes approvers and the policy.
func (w *standing) rebuildApprovers(ctx context.Context, stmt *statements, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM approvers; DELETE FROM policy`); err != nil {
		return err
	}
	for name, a := range w.approvers {
		data, err := json.Marshal(a.Approver)
		if err == nil {
			_, err = tx.StmtContext(ctx, stmt.putApprover).ExecContext(ctx, name, a.Entry, string(data))
		}
		if err != nil {
			return err
		}
	}
	if !w.policy.there {
		return nil
	}
	_, err := tx.StmtContext(ctx, stmt.putPolicy).ExecContext(ctx, w.policy.entry, w.policy.Digest, []byte(w.policy.Text))
	return err
}

// eachRow calls fn with every row of a query.
func eachRow(ctx context.Context, db querier, query string, fn func(row) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
