package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// The answer that a run has begun waits a moment for its end, so that a short run costs one flush.
func TestTheAnswerWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(&Gateway{ctx: t.Context()}, sqlite.Host{Host: longstop.Host{Name: "web-1"}})
		defer h.stop()
		l := &launching{h: h, id: "act_1", last: make(chan struct{}, 1)}
		h.hold(longstop.Action{ID: "act_1", RunID: "run_1", Launch: longstop.Launch{State: longstop.LaunchSent}}, nil, l.last)
		waited := func(pushed string) time.Duration {
			began := time.Now()
			go h.lookAt(wire.RunStatus{RunID: "run_1", Record: []byte(pushed)}, 1, "serve")
			l.gather()
			return time.Since(began)
		}
		if d := waited(`{"version":1,"state":"running"}`); d != gatherFor {
			t.Errorf("%v when it runs on", d)
		}
		if d := waited(`{"version":1,"state":"finished"}`); d != 0 {
			t.Errorf("%v when it has ended", d)
		}
		if h.takeEarly("act_1") == nil {
			t.Error("the end is not there to be applied")
		}
	})
}
