package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/longstop/longstop/internal/journal"
)

// toldNotices are the notices that the log gives: those of each entry of which people are told, from the
// gateway_started entry on that says in which ways, until they were delivered or dropped. When one is tried next, and
// how often it was, is not told each time.
type toldNotices struct {
	starts  []started
	pending map[noticeKey]*toldNotice
	over    map[noticeKey]bool // delivered
}

// started is the start of a gateway; tells is nil where an earlier version did not say.
type started struct {
	entry int64
	tells *Tells
}

type noticeKey struct {
	way   string
	entry int64
}

func (k noticeKey) id() string { return fmt.Sprintf("the notice of entry %d by %s", k.entry, k.way) }

type toldNotice struct {
	id, failure string
	tries       int // at least
	at          int64
}

func tellsOf(e *journal.Entry) (*Tells, error) {
	var says struct{ Tells *Tells }
	err := json.Unmarshal(orEmpty(e.Body), &says)
	return says.Tells, err
}

func (t *toldNotices) begin(e *journal.Entry) error {
	tells, err := tellsOf(e)
	t.starts = append(t.starts, started{e.Index, tells})
	return err
}

func (t *toldNotices) apply(e *journal.Entry) {
	if t.pending == nil {
		t.pending, t.over = map[noticeKey]*toldNotice{}, map[noticeKey]bool{}
	}
	if n := len(t.starts); n > 0 && t.starts[n-1].tells != nil && slices.Contains(t.starts[n-1].tells.Kinds, e.Kind) {
		for _, way := range t.starts[n-1].tells.Ways {
			if id, err := noticeID(e, way); err == nil {
				t.pending[noticeKey{way, e.Index}] = &toldNotice{id: id, at: e.At.UnixMicro()}
			}
		}
	}
	var says struct {
		Way, Message string
		Entry        int64
		Tries        int
		Dropped      map[string]int
	}
	if !slices.Contains([]journal.Kind{journal.NoticeDelivered, journal.NoticeFailed, journal.NoticesDropped}, e.Kind) ||
		json.Unmarshal(e.Body, &says) != nil {
		return
	}
	key := noticeKey{says.Way, says.Entry}
	switch n := t.pending[key]; {
	case e.Kind == journal.NoticeDelivered:
		delete(t.pending, key)
		t.over[key] = true
	case e.Kind == journal.NoticeFailed && n != nil:
		n.failure, n.tries = says.Message, says.Tries
	case e.Kind == journal.NoticesDropped:
		for key := range t.pending {
			if _, dropped := says.Dropped[key.way]; dropped {
				delete(t.pending, key)
			}
		}
	}
}

// tells reports whether the log says which notices an entry had.
func (t *toldNotices) tells(entry int64) bool {
	at, _ := slices.BinarySearchFunc(t.starts, entry, func(s started, entry int64) int { return int(s.entry - entry) })
	return at > 0 && t.starts[at-1].tells != nil
}

func (w *standing) checkNotices(ctx context.Context, db querier) error {
	t := &w.notices
	seen := map[noticeKey]bool{}
	err := eachRow(ctx, db, `SELECT way, entry, id, tries, failure FROM notices ORDER BY entry, way`, func(r row) error {
		var key noticeKey
		var is toldNotice
		if err := r.Scan(&key.way, &key.entry, &is.id, &is.tries, &is.failure); err != nil {
			return err
		}
		seen[key] = true
		differs := func(field string) error { return &Difference{key.id(), field, "it is not what the journal says"} }
		switch want := t.pending[key]; {
		case want == nil && !t.over[key] && !t.tells(key.entry):
			w.inPart(key.id())
		case want == nil:
			return &Difference{Row: key.id(), Why: "the journal says of none that is still to be told"}
		case is.id != want.id:
			return differs("id")
		case is.failure != want.failure:
			return differs("failure")
		case is.tries < want.tries:
			return differs("tries")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range t.sorted() {
		if !seen[key] {
			return &Difference{Row: key.id(), Why: "it is not there, and nobody was told"}
		}
	}
	return nil
}

func (t *toldNotices) sorted() (keys []noticeKey) {
	for key := range t.pending {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b noticeKey) int { return int(a.entry - b.entry) })
	return keys
}

// rebuildNotices leaves what the log does not tell of: when one is due, and notices of earlier versions.
func (w *standing) rebuildNotices(ctx context.Context, stmt *statements, tx *sql.Tx) error {
	t := &w.notices
	type schedule struct {
		tries int
		due   int64
	}
	stored := map[noticeKey]schedule{}
	err := eachRow(ctx, tx, `SELECT way, entry, tries, due_at FROM notices`, func(r row) error {
		var key noticeKey
		var s schedule
		err := r.Scan(&key.way, &key.entry, &s.tries, &s.due)
		stored[key] = s
		return err
	})
	if err != nil {
		return err
	}
	for key := range stored {
		if t.pending[key] == nil && !t.over[key] && !t.tells(key.entry) {
			w.inPart(key.id())
			continue
		}
		if _, err := tx.StmtContext(ctx, stmt.deleteNotice).ExecContext(ctx, key.way, key.entry); err != nil {
			return err
		}
	}
	for _, key := range t.sorted() {
		n, due := t.pending[key], t.pending[key].at
		if s, was := stored[key]; was {
			n.tries, due = max(n.tries, s.tries), s.due
		}
		if _, err := tx.StmtContext(ctx, stmt.addNotice).ExecContext(ctx, key.way, key.entry, n.id, n.tries, due, n.failure); err != nil {
			return err
		}
	}
	return nil
}
