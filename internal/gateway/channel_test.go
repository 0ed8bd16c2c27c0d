package gateway

import (
	"errors"
	"io"
	"testing"
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
