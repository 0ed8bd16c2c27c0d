package runner

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
)

// The work can stop whatever is its user's. A keeper that is stopped holds its lock and socket: were
// it left so, nothing could be started any more, and nobody would say why.
func TestAStoppedKeeperIsWoken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := EnsureKeeper(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	keeper := l.mustKeeper()
	stopIt := func() {
		t.Helper()
		if err := boundary.Signal(keeper, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a stopped keeper", func() bool { return stateOf(keeper) == 'T' })
	}
	stopIt()
	began := time.Now()
	sub := l.script("exit 4")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 4) {
		t.Errorf("ended as %s", show(rec))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if now := l.mustKeeper(); now != keeper {
		t.Errorf("another keeper: %v, not %v", now, keeper)
	}
	stopIt()
	if err := EnsureKeeper(context.Background(), l.f); err != nil { // as serve does with each beat
		t.Fatal(err)
	}
	eventually(t, "a keeper that goes on", func() bool { return stateOf(keeper) != 'T' })
}

// So is one that an earlier keeper started.
func TestAStoppedOwnerOfADeadKeeperIsWoken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(waitForGo + "exit 9")
	l.submit(sub)
	l.has("up", 1)
	l.kill(l.mustKeeper())
	if err := EnsureKeeper(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	if err := boundary.Signal(l.mustOwner(sub.RunID), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.touch("go")
	if rec := l.final(sub.RunID); !exited(rec, 9) || rec.Writer.Kind != longstop.WriterOwner {
		t.Errorf("ended as %s", show(rec))
	}
}

func stateOf(id boundary.Identity) byte {
	s, err := boundary.Look(id.PID)
	if err != nil || s.Identity != id {
		return 0
	}
	return s.State
}

// An owner that is stopped would leave a record that says running of work that has long ended, and
// its lease to nobody.
func TestAStoppedOwnerIsWoken(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"at once, before it has answered": "kill -STOP $PPID; exit 9",
		"later":                           "sleep 0.3; kill -STOP $PPID; sleep 0.1; kill -STOP $PPID; exit 9",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			sub := l.script(script)
			l.submit(sub)
			rec := l.final(sub.RunID)
			if !exited(rec, 9) || rec.Writer.Kind != longstop.WriterOwner {
				t.Errorf("ended as %s", show(rec))
			}
		})
	}
}
