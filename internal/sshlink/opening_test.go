package sshlink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/longstop/longstop"
)

// What an opening that does not end as it should says of the command: whether it may have started.
func TestOpeningThatFails(t *testing.T) {
	each(t, func(t *testing.T, d Dialer) {
		for name, c := range map[string]struct {
			open func(ssh.NewChannel)
			code longstop.Code
		}{
			"no answer to the session": {func(ssh.NewChannel) {}, longstop.CodeUnreachable},
			"no answer to the command": {func(c ssh.NewChannel) {
				_, requests, _ := c.Accept()
				go func() {
					for range requests {
					}
				}()
			}, longstop.CodeTimeout},
			"no to the command": {func(c ssh.NewChannel) {
				_, requests, _ := c.Accept()
				go ssh.DiscardRequests(requests)
			}, longstop.CodeUnsupported},
			"closed instead of an answer": {func(c ssh.NewChannel) {
				ch, requests, _ := c.Accept()
				go func() {
					for range requests {
						ch.Close()
					}
				}()
			}, longstop.CodeTimeout},
			"no to the session":  {func(c ssh.NewChannel) { c.Reject(ssh.Prohibited, "no sessions here") }, longstop.CodeSessionRefused},
			"another kind of no": {func(c ssh.NewChannel) { c.Reject(ssh.ResourceShortage, "full") }, longstop.CodeSessionRefused},
		} {
			t.Run(name, func(t *testing.T) {
				l, err := d.Dial(t.Context(), oddServer(t, c.open))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				within(t, 2*time.Second, "opening", func() {
					_, err = l.Exec(ctx, "true")
				})
				wantCode(t, err, c.code)
			})
		}
	})
}

// TestPlaces: the limit, places that settle, and what a refusal teaches.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := newPlaces(0)
		for i := range 8 {
			if !p.take(ctx) {
				t.Fatalf("place %d refused", i)
			}
		}
		start := time.Now()
		if p.take(ctx) || time.Since(start) > 0 {
			t.Error("a ninth place, or a wait for it")
		}
		p.end()
		if p.take(ctx) || time.Since(start) != placePatience {
			t.Errorf("a place of a session that does not end, after %v", time.Since(start))
		}
		p.leave()
		if !p.take(ctx) {
			t.Error("no place beside one that settles, of ten")
		}
		for range 2 {
			p.end()
			p.leave()
		}
		if start = time.Now(); !p.take(ctx) || time.Since(start) > settleTime {
			t.Errorf("no place once one has settled, after %v", time.Since(start))
		}
		time.Sleep(time.Second)
		if p.count() != 7 {
			t.Errorf("%d counted, want 7", p.count())
		}
		time.Sleep(100 * settleTime)
		p.take(ctx)
		if p.refused() || p.most() != 7 {
			t.Errorf("a refusal beside seven taught a limit of %d", p.most())
		}
		p.end()
		p.leave()
		if p.take(ctx); !p.refused() || p.most() != 7 {
			t.Error("a refusal just after an end taught something")
		}
	})
}

func TestPulse(t *testing.T) {
	for name, c := range map[string]struct {
		probe func(n int) time.Duration // how long the nth answer takes
		dies  time.Duration             // 0: never
	}{
		"answers at once":       {func(int) time.Duration { return 0 }, 0},
		"answers late":          {func(int) time.Duration { return 5 * time.Second }, 0},
		"stops after the third": {func(n int) time.Duration { return time.Duration(n/4) * time.Hour }, 4*2*time.Second + 3*2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				gone := make(chan struct{})
				p := newPulse(2*time.Second, 3, func() error {
					n++
					select {
					case <-time.After(c.probe(n)):
					case <-gone:
					}
					return nil
				})
				start := time.Now()
				var died time.Duration
				go p.watch(gone, func(error) { died = time.Since(start); close(gone) })
				time.Sleep(time.Hour / 2)
				synctest.Wait()
				if died != c.dies {
					t.Errorf("given up after %v, want %v", died, c.dies)
				}
				if died == 0 {
					close(gone)
				}
			})
		})
	}
}
