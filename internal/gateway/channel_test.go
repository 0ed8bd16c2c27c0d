package gateway

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// breaking is a session whose standard input breaks at the first write.
type breaking struct {
	sshlink.Channel
	writes int
}

func (b *breaking) Stdin() sshlink.Stdin { return b }
func (b *breaking) Close() error         { return nil }

func (b *breaking) SetWriteDeadline(time.Time) error { return nil }

func (b *breaking) Write([]byte) (int, error) {
	b.writes++
	return 0, io.ErrClosedPipe
}

// A request that waited to be written, while one that was begun could not be ended, was not sent: it may
// go another way.
func TestBegunBreaksOffAlone(t *testing.T) {
	t.Parallel()
	session := &breaking{}
	c := &channel{session: session, ledger: wire.NewLedger(), waiting: map[string]chan<- reply{}, done: make(chan struct{})}
	c.writing.Lock()
	ahead := &begun{c: c, nonce: wire.NewNonce()}
	other := make(chan error, 1)
	go func() {
		_, err := c.ask(t.Context(), wire.VerbStatus, wire.RunRequest{}, time.Minute)
		other <- err
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) { // at the lock, or just before it
		c.mu.Lock()
		waits = len(c.waiting) > 0
		c.mu.Unlock()
	}
	ahead.end(true)
	var u *unanswered
	if err := <-other; !errors.As(err, &u) || u.Sent || session.writes != 1 {
		t.Errorf("%v (sent: %v), %d writes", err, maySent(err), session.writes)
	}
}

// written is a session whose standard input takes everything at once.
type written struct {
	sshlink.Channel
	bytes.Buffer
}

func (w *written) Stdin() sshlink.Stdin { return w }
func (w *written) Close() error         { return nil }

func (w *written) SetWriteDeadline(time.Time) error { return nil }

// A request that is begun and not ended keeps others waiting for a moment, is withdrawn, and cannot be sent
// any more.
func TestBegunIsWithdrawnInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		session := &written{}
		c := &channel{session: session, ledger: wire.NewLedger(), waiting: map[string]chan<- reply{}, done: make(chan struct{})}
		ahead := c.begin(wire.VerbSubmit, wire.Submit{}, submitWithin)
		if another := c.begin(wire.VerbSubmit, wire.Submit{}, submitWithin); ahead == nil || another != nil {
			t.Fatalf("begun: %v, and beside it %v", ahead, another)
		}
		time.Sleep(begunAtMost) // as a slow disk does
		synctest.Wait()
		if ahead.complete() != nil || len(c.waiting) > 0 {
			t.Error("it was sent when its time was over")
		}
		ahead.withdraw()
		nonce := wire.NewNonce()
		if err := c.send(nonce, false, []byte("{}"), make(chan reply, 1)); err != nil {
			t.Error(err)
		}
		got, _, err := wire.NewReader(session, wire.Options{MaxNoise: -1, Withdrawals: true}).Next()
		if err != nil || got != nonce {
			t.Errorf("the host has %s, %v, and not %s", got, err, nonce)
		}
	})
}
