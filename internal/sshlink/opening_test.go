package sshlink

import (
	"context"
	"sync"
	"sync/atomic"
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

// taken takes a place of a session that the server has.
func taken(t *testing.T, p *places, kept bool) *place {
	t.Helper()
	place := p.take(t.Context(), kept)
	if place == nil {
		t.Fatalf("no place beside %d", p.count())
	}
	place.ask()
	place.confirm()
	return place
}

// asked takes a place of a session that is asked for.
func asked(p *places) *place {
	one := p.take(context.Background(), true)
	one.ask()
	return one
}

// TestPlaces: the limit, the place that is kept, places that settle, and what a refusal teaches.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		limit := NewLimit(0)
		p := newPlaces(0, limit)
		var open []*place
		for range 7 {
			open = append(open, taken(t, p, false))
		}
		start := time.Now()
		if p.take(ctx, false) != nil || time.Since(start) > 0 {
			t.Error("the place that is kept, or a wait for it")
		}
		open = append(open, taken(t, p, true))
		if p.take(ctx, true) != nil || time.Since(start) > 0 {
			t.Error("a ninth place, or a wait for it")
		}
		end := func() *place {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			last.end()
			return last
		}
		ending := end()
		if p.take(ctx, true) != nil || time.Since(start) != placePatience {
			t.Errorf("a place of a session that does not end, after %v", time.Since(start))
		}
		ending.leave()
		open = append(open, taken(t, p, true)) // beside one that settles, of ten
		for range 2 {
			end().leave()
		}
		start = time.Now()
		if open = append(open, taken(t, p, true)); time.Since(start) > settleTime {
			t.Errorf("no place once one has settled, after %v", time.Since(start))
		}
		time.Sleep(time.Second)
		if p.count() != 7 || limit.Known() != 0 {
			t.Errorf("%d counted, want 7; %d known", p.count(), limit.Known())
		}
		if asked(p).refused() || limit.Known() != 7 {
			t.Errorf("a refusal beside seven taught a limit of %d", limit.Known())
		}
		if other := newPlaces(0, limit); other.mostFor(true) != 7 || other.mostFor(false) != 6 {
			t.Errorf("another connection may have %d sessions", other.mostFor(true))
		}
		end().leave()
		time.Sleep(settleTime)
		if one := asked(p); !one.refused() || p.count() != 7 || limit.Known() != 7 {
			t.Errorf("a refusal just after an end is final, and taught a limit of %d", limit.Known())
		} else if one.ask(); !one.refused() {
			t.Error("an answer after the end, and a refusal just after it, is believed at once")
		} else if one.ask(); one.refused() || limit.Known() != 6 {
			t.Errorf("refused again and again: a limit of %d", limit.Known())
		}
	})
}

// TestOneAtATime: what the server has not shown to allow is asked for one session at a time, so that its
// limit is met by one. Whoever waits for the server's word does so for as long as his context lets him.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const allows = 3
		limit := NewLimit(0)
		p := newPlaces(0, limit)
		var refusals, got atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				place := p.take(t.Context(), true)
				switch {
				case place == nil:
				case p.count() > allows:
					time.Sleep(time.Minute) // the server takes its time
					if place.refused() {
						t.Error("a first refusal is said to be over in a moment")
					}
					refusals.Add(1)
				default:
					time.Sleep(time.Minute)
					place.confirm()
					got.Add(1)
				}
			})
		}
		all.Wait()
		if got.Load() != allows || refusals.Load() != 1 || limit.Known() != allows {
			t.Errorf("%d opened, %d refused, %d known", got.Load(), refusals.Load(), limit.Known())
		}
		if place := newPlaces(0, limit).take(t.Context(), true); place.trial {
			t.Error("another connection tries what is known")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		q := newPlaces(0, nil)
		q.take(ctx, true)
		if start := time.Now(); q.take(ctx, true) != nil || time.Since(start) != time.Hour {
			t.Errorf("a second one, after %v without a word on the first", time.Since(start))
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
