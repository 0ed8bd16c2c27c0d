package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// traits are what reviewers ask about an action and what follows from it alone: bit n of its row is trait n.
// An index of those that have it has the same number, in a migration.
var traits = []func(*longstop.Action) bool{
	0: func(a *longstop.Action) bool { return ran(a) && a.Approval.State != longstop.ApprovalConsumed },
	1: func(a *longstop.Action) bool {
		return ran(a) && a.Approval.State != longstop.ApprovalConsumed && a.Approval.State != longstop.ApprovalNotRequired
	},
	2: func(a *longstop.Action) bool {
		asked := []longstop.CancelState{longstop.CancelRequested, longstop.CancelDelivered, longstop.CancelUnconfirmed}
		return slices.Contains(asked, a.Cancel.State) && a.Launch.State != longstop.LaunchRejected
	},
	3: func(a *longstop.Action) bool {
		return len(a.Workload.Left)+len(a.Workload.Released)+len(a.Workload.Survivors) > 0
	},
	4: func(a *longstop.Action) bool {
		return a.Workload.Unsigned || a.UnknownBecause == longstop.UnreadableRecord ||
			a.Observation != nil && a.Observation.Because == longstop.UnreadableRecord
	},
	5: func(a *longstop.Action) bool { return a.Resolution != nil },
	6: func(a *longstop.Action) bool { return !a.Unresolved() && a.Outcome == longstop.OutcomeUnknown },
}

// ran reports whether the work began and is over, as far as anybody will ever know.
func ran(a *longstop.Action) bool {
	return !a.Unresolved() && a.Launch.State == longstop.LaunchAccepted && a.Workload.State != longstop.WorkloadLaunchFailed
}

func traitsOf(a *longstop.Action) (bits int64) {
	for n, has := range traits {
		if has(a) {
			bits |= 1 << n
		}
	}
	return bits
}

// Query is a question that reviewers ask: of actions, or with Kinds of the entries of these kinds.
type Query struct {
	Name  string
	Words string // what its rows are
	Where string // the condition on a row of actions
	Index string // of such rows alone, by seq
	Kinds []journal.Kind
	// Now, where given, is what must be so besides of an action as it is seen now.
	Now    func(a *longstop.Action, now time.Time) bool
	Oldest bool // oldest first
	Given  bool // of the session that is given
}

// openRows are the actions of which something may be amiss that no row says: it depends on what is seen now.
const openRows = `(unresolved = 1 OR traits & 64)`

// Queries are all of them.
var Queries = []Query{
	{Name: "missing", Words: "launch accepted, or SSH exited 0, and the work is missing, overdue or not known",
		Where: openRows, Now: missing},
	{Name: "unknown", Words: "the outcome is not known, and nobody has said what it is; the oldest first",
		Where: openRows, Now: func(a *longstop.Action, _ time.Time) bool { return a.NeedsPeople() }, Oldest: true},
	{Name: "unapproved", Words: "ran without an approval", Where: `traits & 1`, Index: "audit_unapproved"},
	{Name: "unapproved-asked", Words: "ran though the policy asked, and no approval stands: it was taken back, or never there",
		Where: `traits & 2`, Index: "audit_unasked"},
	{Name: "resubmitted", Words: "one key was submitted or asked for several times, or with another request",
		Kinds: []journal.Kind{journal.SubmittedAgain, journal.RequestedAgain, journal.KeyConflict}},
	{Name: "unconfirmed", Words: "a cancel was asked for, and nobody has confirmed that nothing is left", Where: `traits & 4`, Index: "audit_unconfirmed"},
	{Name: "left", Words: "processes were left behind, released, or outlived a cancel", Where: `traits & 8`, Index: "audit_left"},
	{Name: "unclaimed", Words: "a host holds a run that no action claims", Kinds: []journal.Kind{journal.UnclaimedRun}},
	{Name: "unsigned", Words: "the record bears no valid MAC, or cannot be read", Where: `traits & 16`, Index: "audit_unsigned"},
	{Name: "contradictions", Words: "a record that came later says other than the final state that stands", Kinds: []journal.Kind{journal.Contradiction}},
	{Name: "resolved", Words: "a reviewer has said what became of it", Where: `traits & 32`, Index: "audit_resolved"},
	{Name: "session", Words: "all actions of one session: longstop audit session ID", Where: `session_id = ?3`, Index: "actions_session", Given: true},
}

// overdueAfter is how long past the end of its lease or deadline a run is given to be stopped and told of.
const overdueAfter = time.Minute

// missing is what a green tick would hide.
func missing(a *longstop.Action, now time.Time) bool {
	said := a.SSHCommand.Status != nil && *a.SSHCommand.Status == 0
	if a.Launch.State != longstop.LaunchAccepted && !said || a.Resolution != nil {
		return false
	}
	return a.Outcome == longstop.OutcomeUnknown || a.Workload.State == longstop.WorkloadNone && a.Request.Owner != longstop.OwnerNone || overdue(a, now)
}

func overdue(a *longstop.Action, now time.Time) bool {
	if a.Workload.State.Final() {
		return false
	}
	late := now.Add(-overdueAfter - time.Duration(a.Request.GraceS*float64(time.Second)))
	ends := a.Workload.DeadlineAt
	if lease := a.Workload.Lease; lease != nil && (ends.IsZero() || lease.ExpiresAt.Before(ends.Time)) {
		ends = lease.ExpiresAt
	}
	return !ends.IsZero() && ends.Before(late)
}

// FindQuery returns the query of a name, or longstop.CodeNotFound.
func FindQuery(name string) (*Query, error) {
	for i := range Queries {
		if Queries[i].Name == name {
			return &Queries[i], nil
		}
	}
	return nil, &longstop.Error{Code: longstop.CodeNotFound, Message: fmt.Sprintf("there is no query %q", name), Hint: "longstop audit lists them"}
}

// page is the SQL of a page of actions: of the rows after ?1 in the query's order, ?2 at most.
func (q *Query) page() string {
	from, order := q.order()
	indexed := ""
	if q.Index != "" {
		indexed = ` INDEXED BY ` + q.Index
	}
	chosen := `SELECT seq FROM actions` + indexed + ` WHERE ` + q.Where + from + order
	if q.Where == openRows { // each half by its index, so that neither is looked for among a million
		half := func(index, where string) string {
			return `SELECT * FROM (SELECT seq FROM actions INDEXED BY ` + index + ` WHERE ` + where + from + order + `)`
		}
		chosen = half(`actions_unresolved`, `unresolved = 1`) + ` UNION ALL ` + half(`audit_unknown`, `traits & 64`)
	}
	return selectAction + `WHERE seq IN (` + chosen + `)` + strings.Replace(order, ` LIMIT ?2`, ``, 1) + ` LIMIT ?2`
}

func (q *Query) order() (from, order string) {
	if q.Oldest {
		return ` AND seq > ?1`, ` ORDER BY seq LIMIT ?2`
	}
	return ` AND seq < ?1`, ` ORDER BY seq DESC LIMIT ?2`
}

// AuditFilter chooses a page of a query.
type AuditFilter struct {
	SessionID longstop.SessionID // of a query that is Given one
	After     longstop.ActionID  // the last of the page before
	AfterIdx  int64              // the same, of entries; 0: the first page
	Limit     int
}

// AuditActions returns a page of actions, as the rows have them: Now is not asked.
func (s *Store) AuditActions(ctx context.Context, q *Query, f AuditFilter) ([]longstop.Action, error) {
	after := int64(math.MaxInt64)
	if q.Oldest {
		after = 0
	}
	if f.After != "" {
		var err error
		if after, err = s.sequence(ctx, f.After); err != nil {
			return nil, err
		}
	}
	var page []longstop.Action
	err := s.each(ctx, q.page(), q.args(after, f), func(r row) error {
		a, err := scanAction(r)
		if err == nil {
			page = append(page, *a)
		}
		return err
	})
	return page, err
}

func (q *Query) args(after int64, f AuditFilter) []any {
	args := []any{after, limit(f.Limit)}
	if q.Given {
		args = append(args, string(f.SessionID))
	}
	return args
}

// ofKinds is the SQL of a page of entries of rare kinds, newest first.
func ofKinds(kinds []journal.Kind) string {
	parts := make([]string, len(kinds))
	for i, kind := range kinds {
		parts[i] = `SELECT * FROM (SELECT idx FROM entries INDEXED BY entries_kind WHERE kind = '` + string(kind) + `' AND kind NOT IN (` + commonKinds +
			`) AND idx < ?1 ORDER BY idx DESC LIMIT ?2)`
	}
	return `SELECT bytes FROM entries WHERE idx IN (` + strings.Join(parts, ` UNION ALL `) + `) ORDER BY idx DESC LIMIT ?2`
}

// AuditEntries returns a page of entries, newest first.
func (s *Store) AuditEntries(ctx context.Context, q *Query, f AuditFilter) ([]journal.Entry, error) {
	before := int64(math.MaxInt64)
	if f.AfterIdx > 0 {
		before = f.AfterIdx
	}
	return s.entries(ctx, ofKinds(q.Kinds), []any{before, limit(f.Limit)})
}

// Hits counts the rows of a query up to most; those of one that asks Now are not all hits.
func (s *Store) Hits(ctx context.Context, q *Query, most int) (n int, err error) {
	query := q.page()
	if len(q.Kinds) > 0 {
		query = ofKinds(q.Kinds)
	}
	first := int64(math.MaxInt64)
	if q.Oldest {
		first = 0
	}
	query = `SELECT count(*) FROM (` + strings.Replace(strings.Replace(query, selectAction, `SELECT 1 FROM actions `, 1), `SELECT bytes FROM`, `SELECT 1 FROM`, 1) + `)`
	err = s.reads.QueryRowContext(ctx, query, q.args(first, AuditFilter{Limit: most})...).Scan(&n)
	return n, err
}
