package gateway

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// alone is a gateway without hosts, with a clock that stands where it is put.
func alone(t *testing.T) (*Gateway, *stoodClock) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(filepath.Join(home, "longstop.db"))
	if err != nil {
		t.Fatal(err)
	}
	now := &stoodClock{}
	now.put(time.Now())
	g, err := New(Config{Store: store, Home: home, Name: "test", Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
		store.Close()
	})
	return g, now
}

// A session that is used after it was found idle, and before it is ended, stays open.
func TestPointASessionIsJudgedIdleAsItEnds(t *testing.T) {
	t.Parallel()
	g, now := alone(t)
	anna := longstop.Requester{Kind: longstop.RequesterOperator, Name: "anna"}
	end := func(s longstop.SessionView) longstop.SessionView {
		t.Helper()
		if err := g.endSession(t.Context(), s.ID, &ending{by: g.by, because: longstop.SessionIdle, cancels: longstop.CancelsLeased}); err != nil {
			t.Fatal(err)
		}
		s, err := g.Session(t.Context(), string(s.ID), anna)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, err := g.StartSession(t.Context(), longstop.SessionRequest{Purpose: "upgrade"}, anna)
	if err != nil {
		t.Fatal(err)
	}
	if s := end(s); s.Ended() {
		t.Errorf("a session in use was ended as idle: %+v", s)
	}
	now.put(now.Now().Add(defaultSessionIdle))
	if s := end(s); s.EndedBecause != longstop.SessionIdle {
		t.Errorf("an idle session was not ended: %+v", s)
	}
	if !g.authorised(&longstop.Action{SessionID: "ses_other"}) || g.authorised(&longstop.Action{SessionID: s.ID}) {
		t.Error("the ended session is not withdrawn, or another one is")
	}
	if g.forgetWithdrawn(); len(g.sessions.withdrawn) != 0 {
		t.Errorf("sessions without runs are remembered: %v", g.sessions.withdrawn)
	}
}
