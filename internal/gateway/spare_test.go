package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// connections is how many lived at once, at most.
func (b *bench) connections() int {
	b.tap.mu.Lock()
	defer b.tap.mu.Unlock()
	return b.tap.most
}

// TestC101ManyOwnChannels: many actions with an SSH command each, and as many cancels, at once, over a server that
// allows few sessions: its limit is met once at most, by no later gateway, and is nobody's failure; connections are few.
func TestC101ManyOwnChannels(t *testing.T) {
	const many = 20 // twice what a server allows by default
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		for _, allows := range []int{1, 2, 10} {
			t.Run(fmt.Sprint(allows), func(t *testing.T) { // one after the other: each is many logins
				b := newBench(t, sshtest.Options{MaxSessions: allows}, over, func(b *bench) { b.beat = 2 * time.Second })
				ownChannels(t, b, many)
				b.stop()
				b.start()
				ownChannels(t, b, many)
				// Beside those that tell the limit: sshd may count a session for a while after its end.
				if n := strings.Count(b.server.Log(), "no more sessions"); n > 2*many {
					t.Errorf("of %d sessions the server refused one %d times", 4*many, n)
				}
				if most := b.connections(); most > 5 { // the serve channel's, three spare ones, one to stop
					t.Errorf("%d connections at once", most)
				}
			})
		}
	})
}

// TestC103ManyConnections: a server that has few logins under way at once turns nobody's work away: connections to it
// are few, made one after the other, and made again.
func TestC103ManyConnections(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		b := newBench(t, sshtest.Options{MaxSessions: 1, Extra: []string{"MaxStartups 2:100:3"}}, over, func(b *bench) { b.beat = 2 * time.Second })
		ownChannels(t, b, 8)
		b.proxy.Cut()
		ownChannels(t, b, 8)
		if most := b.connections(); most > 5 {
			t.Errorf("%d connections at once", most)
		}
	})
}

func ownChannels(t *testing.T, b *bench, many int) {
	t.Helper()
	req := script("sleep 300")
	req.Request.OwnChannel = true
	var all sync.WaitGroup
	ids := make(chan longstop.ActionID, many)
	for range cap(ids) {
		all.Go(func() {
			a, err := b.Run(t.Context(), req, operator, gateway.Told{})
			if err != nil || a.Launch.State != longstop.LaunchAccepted || a.SSHCommand.Key != b.server.KeyFP || a.SSHCommand.HostKey != b.server.HostKeyFP {
				t.Errorf("%v\n%s", err, pretty(a))
				return
			}
			ids <- a.ID
		})
	}
	all.Wait()
	close(ids)
	for id := range ids {
		all.Go(func() {
			if a := b.cancel(id, nil); a.Outcome != longstop.OutcomeCancelled {
				t.Errorf("%s", pretty(a))
			}
		})
	}
	all.Wait()
}

// TestCancelWhereSessionsAreUsedUp: every session that channels of their own may have is in use for as long as their
// readers like, and no further connection is to be had. A cancel has a session all the same, or the serve channel.
func TestCancelWhereSessionsAreUsedUp(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		for _, allows := range []int{1, 2, 10} {
			t.Run(fmt.Sprint(allows), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, sshtest.Options{MaxSessions: allows}, over, func(b *bench) { b.beat = 2 * time.Second })
				a := b.run(script("yes"))
				var all sync.WaitGroup
				defer all.Wait()
				goOn := make(chan struct{})
				defer close(goOn)
				flowing := make(chan struct{}, 20)
				for range cap(flowing) {
					all.Go(func() {
						b.Flow(t.Context(), string(a.ID), "stdout", 0, func(wire.OutputAnswer) error {
							flowing <- struct{}{}
							<-goOn
							return fmt.Errorf("enough")
						})
					})
				}
				for range min(allows, 8) - 2 { // the serve channel's, and the one that is kept
					<-flowing
				}
				b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no more connections"})
				if a = b.cancel(a.ID, nil); a.Outcome != longstop.OutcomeCancelled {
					t.Errorf("%s", pretty(a))
				}
			})
		}
	})
}
