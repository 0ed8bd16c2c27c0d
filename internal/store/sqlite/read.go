package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
	"github.com/longstop/longstop/internal/journal"
)

// defaultLimit is how many rows a page has if its filter does not say.
const defaultLimit = 100

// Filter chooses actions. Empty fields choose all.
type Filter struct {
	Host      string
	SessionID longstop.SessionID
	Open      bool              // only what is unresolved, and what is over with an outcome that stays unknown
	Before    longstop.ActionID // only those made before this one: the last of the page before
	Limit     int               // 0: 100
}

// EntryFilter chooses entries. Empty fields choose all.
type EntryFilter struct {
	Action  longstop.ActionID
	Session longstop.SessionID
	Host    string
	Kind    journal.Kind
	From    int64 // the first index wanted; the next page's is one more than this page's last
	Before  int64 // the first index not wanted; 0: none
	Newest  bool  // of these the newest, oldest first still
	Limit   int   // 0: 100
}

// Host is an enrolled host and what the gateway learnt about reaching it. Unresolved is counted
// when it is read.
type Host struct {
	longstop.Host
	MaxSessions int // sessions the server allowed on one connection; 0: not known
}

// Pending is an action that new evidence from its host could still change.
type Pending struct {
	Action longstop.Action
	Secret []byte // of its run; nil if it has none yet
}

// RawAnswer is what was kept of bytes that came over the wire.
type RawAnswer struct {
	Entry int64 // the journal entry that has its digest
	Kind  string
	At    longstop.Time
	Bytes []byte
	Size  int64 // as received; more than len(Bytes) if it was cut at MaxRaw
}

const (
	selectAction = `SELECT json FROM actions `
	selectHost   = `SELECT json, max_sessions,
		(SELECT count(*) FROM actions WHERE actions.host = hosts.name AND unresolved = 1) FROM hosts `
)

type row interface{ Scan(into ...any) error }

// scanAction returns nil if there is no row.
func scanAction(r row) (*longstop.Action, error) {
	var data []byte
	switch err := r.Scan(&data); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read an action: %w", err)
	}
	return readAction(data)
}

func readAction(data []byte) (*longstop.Action, error) {
	a, err := fastjson.ReadAction(data)
	if err != nil {
		return nil, fmt.Errorf("read an action: %w", err)
	}
	return a, nil
}

func hostUnknown(name string) error {
	return &longstop.Error{Code: longstop.CodeHostUnknown, Message: fmt.Sprintf("no host %q is enrolled", name),
		Hint: "longstop host add " + name}
}

func scanHost(name string, r row) (*Host, error) {
	var h Host
	var data []byte
	var unresolved int
	if err := r.Scan(&data, &h.MaxSessions, &unresolved); errors.Is(err, sql.ErrNoRows) {
		return nil, hostUnknown(name)
	} else if err != nil {
		return nil, fmt.Errorf("read host %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &h.Host); err != nil {
		return nil, fmt.Errorf("read host %s: %w", name, err)
	}
	h.Unresolved = unresolved
	return &h, nil
}

// Actions returns a page of actions, newest first.
func (s *Store) Actions(ctx context.Context, f Filter) ([]longstop.Action, error) {
	before := int64(math.MaxInt64)
	if f.Before != "" {
		var err error
		if before, err = s.sequence(ctx, f.Before); err != nil {
			return nil, err
		}
	}
	query, args := f.query(before)
	var page []longstop.Action
	err := s.each(ctx, query, args, func(r row) error {
		a, err := scanAction(r)
		if err == nil {
			page = append(page, *a)
		}
		return err
	})
	return page, err
}

// query chooses rows by index first, so that sorting moves numbers and not whole actions.
func (f Filter) query(before int64) (string, []any) {
	where, args := ` WHERE seq < ?1`, []any{before, limit(f.Limit), f.Host, string(f.SessionID)}
	if f.Host != "" {
		where += ` AND host = ?3`
	}
	if f.SessionID != "" {
		where += ` AND session_id = ?4`
	}
	newest := func(from, more string) string {
		return `SELECT seq FROM actions` + from + where + more + ` ORDER BY seq DESC LIMIT ?2`
	}
	chosen := newest(``, ``)
	if f.Open {
		// Without the indexes the few that are open among a million would be searched for by age.
		chosen = `SELECT seq FROM (SELECT * FROM (` + newest(` INDEXED BY actions_unresolved`, ` AND unresolved = 1`) + `)
			UNION ALL SELECT * FROM (` + newest(` INDEXED BY actions_unknown`, ` AND unresolved = 0 AND outcome = 'unknown'`) + `))
			ORDER BY seq DESC LIMIT ?2`
	}
	return selectAction + `WHERE seq IN (` + chosen + `) ORDER BY seq DESC`, args
}

func limit(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return n
}

func (s *Store) sequence(ctx context.Context, id longstop.ActionID) (seq int64, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT seq FROM actions WHERE id = ?`, string(id)).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, actionNotFound(string(id))
	}
	return seq, err
}

// each calls scan for each row of a query of the reading connections.
func (s *Store) each(ctx context.Context, query string, args []any, scan func(row) error) error {
	rows, err := s.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("query the database: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Unresolved returns a host's actions that new evidence could still change, oldest first; those of
// every host if host is empty.
func (s *Store) Unresolved(ctx context.Context, host string) ([]Pending, error) {
	query := `SELECT json, secret FROM actions INDEXED BY actions_unresolved
		LEFT JOIN secrets ON secrets.run_id = actions.run_id WHERE unresolved = 1`
	var args []any
	if host != "" {
		query, args = query+` AND host = ?`, append(args, host)
	}
	var pending []Pending
	err := s.each(ctx, query+` ORDER BY seq`, args, func(r row) error {
		var p Pending
		var data sql.RawBytes
		if err := r.Scan(&data, &p.Secret); err != nil {
			return err
		}
		a, err := fastjson.ReadAction(data)
		if err != nil {
			return fmt.Errorf("read an action: %w", err)
		}
		p.Action = *a
		pending = append(pending, p)
		return nil
	})
	return pending, err
}

// ByRun returns the action of a run, nil if no action claims it.
func (s *Store) ByRun(ctx context.Context, id longstop.RunID) (*longstop.Action, error) {
	return scanAction(s.reads.QueryRowContext(ctx, selectAction+`WHERE run_id = ?`, string(id)))
}

// Secret returns the secret of a run, nil if it has none.
func (s *Store) Secret(ctx context.Context, id longstop.RunID) (secret []byte, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT secret FROM secrets WHERE run_id = ?`, string(id)).Scan(&secret)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return secret, err
}

// Hosts returns all enrolled hosts by name.
func (s *Store) Hosts(ctx context.Context) ([]Host, error) {
	var hosts []Host
	err := s.each(ctx, selectHost+`ORDER BY name`, nil, func(r row) error {
		h, err := scanHost("", r)
		if err == nil {
			hosts = append(hosts, *h)
		}
		return err
	})
	return hosts, err
}

// Host returns an enrolled host, or longstop.CodeHostUnknown.
func (s *Store) Host(ctx context.Context, name string) (*Host, error) {
	return scanHost(name, s.reads.QueryRowContext(ctx, selectHost+`WHERE name = ?`, name))
}

// Counts returns how many hosts are enrolled and how many actions are unresolved.
func (s *Store) Counts(ctx context.Context) (hosts, unresolved int, err error) {
	err = s.reads.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM hosts),
		(SELECT count(*) FROM actions WHERE unresolved = 1)`).Scan(&hosts, &unresolved)
	return hosts, unresolved, err
}

// Entries returns a page of the log, oldest first.
func (s *Store) Entries(ctx context.Context, f EntryFilter) ([]journal.Entry, error) {
	query, args := f.query()
	list, err := s.entries(ctx, query, args)
	if f.Newest {
		slices.Reverse(list)
	}
	return list, err
}

// query looks where the rarest field that is asked for leads; along the log itself where that is none, or a
// kind that is common in it.
func (f EntryFilter) query() (string, []any) {
	before := f.Before
	if before <= 0 {
		before = math.MaxInt64
	}
	args, where := []any{f.From, before, limit(f.Limit)}, ` AND entries.idx >= ?1 AND entries.idx < ?2`
	is := func(column, value string) (param string) {
		if value != "" {
			args = append(args, value)
			param = fmt.Sprintf(`?%d`, len(args))
			where += ` AND ` + column + ` = ` + param
		}
		return param
	}
	action, kind, session, host := is(`action_id`, string(f.Action)), is(`kind`, string(f.Kind)), is(`session_id`, string(f.Session)), is(`host`, f.Host)
	order := ` ORDER BY entries.idx LIMIT ?3`
	if f.Newest {
		order = ` ORDER BY entries.idx DESC LIMIT ?3`
	}
	along := func(index string) string { return `SELECT bytes FROM entries ` + index + ` WHERE true` + where + order }
	in := func(field, value string) string {
		return `SELECT bytes FROM entries WHERE idx IN (SELECT * FROM (` + filed(field, value) + where + strings.Replace(order, `entries.idx`, `filed.idx`, 1) +
			`) UNION ALL SELECT * FROM (` + unfiled(field, value) + where + order + `))` + order
	}
	switch {
	case action != "":
		return along(`INDEXED BY entries_action`), args
	case kind != "" && !strings.Contains(commonKinds, "'"+string(f.Kind)+"'"):
		where += ` AND kind NOT IN (` + commonKinds + `)`
		return along(`INDEXED BY entries_kind`), args
	case session != "":
		return in(`session_id`, session), args
	case host != "":
		return in(`host`, host), args
	}
	return along(``), args
}

// entries reads the entries that a query chooses.
func (s *Store) entries(ctx context.Context, query string, args []any) ([]journal.Entry, error) {
	var entries []journal.Entry
	err := s.each(ctx, query, args, func(r row) error {
		var data sql.RawBytes
		if err := r.Scan(&data); err != nil {
			return err
		}
		e, err := journal.Decode(data)
		if err == nil {
			entries = append(entries, e)
		}
		return err
	})
	return entries, err
}

// Since returns the index of the first entry that was made at a time or after it, by the clock that the
// gateway had: where that was set back meanwhile, of one near it.
func (s *Store) Since(ctx context.Context, at time.Time) (int64, error) {
	size, err := logSize(ctx, s.reads)
	if err != nil {
		return 0, err
	}
	n := sort.Search(int(size), func(i int) bool {
		var data []byte
		if err == nil {
			err = s.reads.QueryRowContext(ctx, `SELECT bytes FROM entries WHERE idx = ?`, i).Scan(&data)
		}
		e, bad := journal.Decode(data)
		if err == nil {
			err = bad
		}
		return err != nil || !e.At.Before(at)
	})
	return int64(n), err
}

// Raw returns the raw bytes kept for an action, oldest first.
func (s *Store) Raw(ctx context.Context, id longstop.ActionID) ([]RawAnswer, error) {
	const query = `SELECT entry, kind, at, bytes, size FROM raws WHERE action_id = ? ORDER BY seq`
	var raws []RawAnswer
	err := s.each(ctx, query, []any{string(id)}, func(r row) error {
		var raw RawAnswer
		var at int64
		err := r.Scan(&raw.Entry, &raw.Kind, &at, &raw.Bytes, &raw.Size)
		raw.At = longstop.At(time.UnixMicro(at))
		raws = append(raws, raw)
		return err
	})
	return raws, err
}
