package gateway

import (
	"os"
	"path/filepath"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// How long the output of direct actions is kept, which is here: as long as hosts keep that of theirs.

// directWasRead notes that a stream was read to its end.
func (g *Gateway) directWasRead(id longstop.ActionID, stream string) {
	path := filepath.Join(g.directFolder(id), stream+".read")
	if file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		file.Close()
	}
}

// tidyDirects removes what was kept for as long as it is to be, now and from time to time.
func (g *Gateway) tidyDirects() {
	ticker := time.NewTicker(g.cfg.Retention.Every)
	defer ticker.Stop()
	for {
		g.tidyDirect()
		select {
		case <-ticker.C:
		case <-g.ctx.Done():
			return
		}
	}
}

func (g *Gateway) tidyDirect() {
	folder := filepath.Join(g.cfg.Home, "direct")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // there were none yet
	}
	for _, e := range entries {
		if g.ctx.Err() != nil {
			return
		}
		if info, err := e.Info(); err == nil && g.mayGo(longstop.ActionID(e.Name()), info.ModTime()) {
			os.RemoveAll(filepath.Join(folder, e.Name()))
		}
	}
}

// mayGo reports whether an action's output is to be removed. Where there is an action to say so of, that is durable
// before it is.
func (g *Gateway) mayGo(id longstop.ActionID, madeAt time.Time) bool {
	a, err := g.store.Action(g.ctx, string(id))
	switch {
	case longstop.CodeOf(err) == longstop.CodeNotFound, longstop.CodeOf(err) == longstop.CodeUsage, err == nil && a.ID != id:
		return g.now().Sub(madeAt) > g.cfg.Retention.Unread // nobody's: the store is another than it was
	case err != nil, a.Unresolved():
		return false
	case a.Removed != nil, a.SSHCommand.At.IsZero(): // a crash came between; or nothing was sent
		return true
	}
	since, unread := a.SSHCommand.At, g.isUnread(a)
	keep := g.cfg.Retention.Keep
	if unread {
		keep = g.cfg.Retention.Unread
	}
	if g.now().Sub(since.Time) <= keep {
		return false
	}
	_, err = g.change(g.ctx, id, func(d *draft) error {
		d.Removed = &longstop.Removal{At: d.at, Because: longstop.RemovedRetention}
		d.note(journal.RetentionApplied, g.by, map[string]any{"because": d.Removed.Because, "kept_since": since, "unread": unread})
		return nil
	})
	return err == nil
}

// isUnread reports whether there is output of a direct action that nobody has read to its end.
func (g *Gateway) isUnread(a *longstop.Action) bool {
	for stream, total := range map[string]int64{"stdout": a.Output.StdoutBytes, "stderr": a.Output.StderrBytes} {
		if _, err := os.Stat(filepath.Join(g.directFolder(a.ID), stream+".read")); total > 0 && err != nil {
			return true
		}
	}
	return false
}
