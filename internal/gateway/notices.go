package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Way is one way to tell people: it tells a notice once, within a bounded time, and says whether the other
// side took it. Its error names no secret.
type Way interface {
	Name() string // "webhook", "command"
	Tell(ctx context.Context, id string, at time.Time, body []byte) error
}

// longestNotice is how long the next try of a notice waits at most.
const longestNotice = time.Hour

// beginTelling takes up the notices that an earlier gateway left. Those of a way that is configured no more
// are dropped, on the record.
func (g *Gateway) beginTelling() error {
	var names []string
	for _, w := range g.cfg.Ways {
		names = append(names, w.Name())
	}
	g.store.Tell(toldToPeople, names)
	return g.store.Update(g.ctx, func(tx *sqlite.Tx) error {
		dropped, err := tx.DropNotices()
		if err != nil || len(dropped) == 0 {
			return err
		}
		_, err = tx.Append(journal.Entry{At: g.now(), Kind: journal.NoticesDropped, By: g.by, Body: body(map[string]any{"dropped": dropped})})
		return err
	})
}

// tellOn tells one way's notices, the one that is due next first, each until the other side has taken it.
func (g *Gateway) tellOn(w Way) {
	look := time.NewTicker(2 * g.cfg.Heartbeat)
	defer look.Stop()
	for g.ctx.Err() == nil {
		n, err := g.store.NextNotice(g.ctx, w.Name())
		if err == nil && n != nil && !n.DueAt.After(g.now().Time) {
			g.tell(w, n)
			continue
		}
		select {
		case <-look.C:
		case <-g.ctx.Done():
		}
	}
}

// tell tries one notice and keeps what came of it. What a closing gateway leaves open is tried again by the
// next one, under the same id.
func (g *Gateway) tell(w Way, n *sqlite.Notice) {
	err := w.Tell(g.ctx, n.ID, g.cfg.Clock.Now(), g.noticeBody(n))
	if g.ctx.Err() != nil && err != nil {
		return
	}
	entry := journal.Entry{At: g.now(), ActionID: n.Entry.ActionID, SessionID: n.Entry.SessionID, RunID: n.Entry.RunID, Host: n.Entry.Host, By: g.by}
	say := map[string]any{"notice_id": n.ID, "way": w.Name(), "entry": n.Entry.Index, "kind": n.Entry.Kind}
	tried := *n
	lost := g.store.Update(context.WithoutCancel(g.ctx), func(tx *sqlite.Tx) error {
		if err == nil {
			entry.Kind, say["tries"] = journal.NoticeDelivered, n.Tries+1
			entry.Body = body(say)
			if _, err := tx.Append(entry); err != nil {
				return err
			}
			return tx.DeleteNotice(n)
		}
		tried.Tries, tried.Failure = n.Tries+1, g.cfg.Redact.Text(err.Error())
		tried.DueAt = longstop.At(g.now().Add(noticeBackoff(n)))
		if n.Failure != tried.Failure { // the same words again are no news
			entry.Kind, say["message"], say["tries"] = journal.NoticeFailed, tried.Failure, tried.Tries
			entry.Body = body(say)
			if _, err := tx.Append(entry); err != nil {
				return err
			}
		}
		return tx.PutNotice(&tried)
	})
	if lost != nil { // it is told again; not at once
		select {
		case <-time.After(time.Minute):
		case <-g.ctx.Done():
		}
	}
}

// noticeBackoff doubles from a second to an hour, less by chance.
func noticeBackoff(n *sqlite.Notice) time.Duration {
	const doublings = 7 // after which reconcile.Backoff has come to its most
	after := reconcile.Backoff(n.Tries, uint64(n.Entry.Index))
	if more := n.Tries - doublings; more > 0 {
		after <<= min(more, 6)
	}
	return min(after, longestNotice)
}

// noticeBody is what people are told: the entry as the journal shows it, without what it changed here.
func (g *Gateway) noticeBody(n *sqlite.Notice) []byte {
	entry := g.shownEntry(n.Entry)
	var says map[string]json.RawMessage
	if err := json.Unmarshal(g.cfg.Redact.JSON(n.Entry.Body), &says); err == nil {
		delete(says, "patch")
		entry.Body = says
	}
	told, err := json.Marshal(longstop.Notice{ID: n.ID, Gateway: g.cfg.Name, JournalEntry: entry})
	if err != nil {
		panic("gateway: a notice always has a JSON form: " + err.Error())
	}
	return told
}
