package hostsim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// server is one runner process that serves a channel.
type server struct {
	h   *Host
	out sync.Mutex
	to  io.Writer
}

// serve carries verbs until in ends.
func (h *Host) serve(ctx context.Context, in io.Reader, to io.Writer) int {
	s := &server{h: h, to: to}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := wire.NewReader(in, wire.Options{MaxNoise: -1, Withdrawals: true})
	for {
		nonce, body, err := frames.Next()
		if err != nil {
			if err == io.EOF {
				return 0
			}
			return 2
		}
		r, err := wire.DecodeRequest(nonce, body)
		switch {
		case err != nil:
			s.send(wire.Answer{Nonce: nonce, Final: true, Error: told(refuse(longstop.CodeUsage, "the request cannot be read"))})
		case r.Verb == wire.VerbWatch:
			go s.watch(ctx, r)
		default:
			go func() {
				// What was asked before the channel ended is done, whether anybody hears of it or not.
				if a, err := h.respond(context.WithoutCancel(ctx), r); err == nil {
					s.send(a)
				}
			}()
		}
	}
}

func (s *server) send(a wire.Answer) error {
	s.out.Lock()
	defer s.out.Unlock()
	var frame buffer
	if err := wire.WriteAnswer(&frame, a); err != nil {
		return err
	}
	_, err := s.to.Write(frame)
	return err
}

// buffer gathers what is written in parts, so that a frame is one message.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

// once is a verb on a channel of its own.
func (h *Host) once(ctx context.Context, verb wire.Verb, in io.Reader, to io.Writer) int {
	body, err := io.ReadAll(in)
	var r wire.Request
	if err != nil || wire.Strict(body, &r) != nil || r.Verb != verb {
		return 2
	}
	a, err := h.respond(ctx, r)
	if err != nil {
		return 2
	}
	s := &server{h: h, to: to}
	s.send(a)
	return 0
}

const (
	gatherFor = 3 * time.Millisecond
	maxPushed = 64
)

// watch pushes every unresolved run, then each one whose record changed, and heartbeats.
func (s *server) watch(ctx context.Context, r wire.Request) {
	var asked wire.WatchRequest
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	err := wire.Strict(r.Body, &asked)
	if err == nil {
		err = h.recognise(r)
	}
	if err != nil {
		h.mu.Unlock()
		s.send(wire.Answer{Nonce: r.Nonce, Final: true, Error: told(err)})
		h.mu.Lock()
		return
	}
	beat := min(max(time.Duration(asked.HeartbeatMS)*time.Millisecond, 100*time.Millisecond), time.Minute)
	told, boot := map[longstop.RunID]string{}, h.boot
	var number uint64
	var pushed time.Time
	for boot == h.boot && !h.down && ctx.Err() == nil {
		h.ensureKeeper()
		news := h.news(told)
		if len(news) > 0 || time.Since(pushed) >= beat {
			pushed = time.Now()
			for part := range parts(news) {
				number++
				body, _ := json.Marshal(wire.Pushed{Runs: part, BootNow: h.now(), Now: h.wall()})
				h.mu.Unlock()
				s.send(wire.Answer{Nonce: r.Nonce, Number: number, Body: body})
				h.mu.Lock()
			}
		}
		h.await(ctx, beat-time.Since(pushed), func() bool { return len(h.news(maps.Clone(told))) > 0 })
		h.mu.Unlock()
		time.Sleep(gatherFor)
		h.mu.Lock()
	}
}

func parts(news []wire.RunStatus) func(func([]wire.RunStatus) bool) {
	if len(news) == 0 {
		return func(yield func([]wire.RunStatus) bool) { yield(nil) }
	}
	return slices.Chunk(news, maxPushed)
}

// news are the runs of which something else is to be told than was, all unresolved ones at first.
func (h *Host) news(was map[longstop.RunID]string) (news []wire.RunStatus) {
	ids := map[longstop.RunID]bool{}
	for id := range was {
		ids[id] = true
	}
	for _, id := range h.unresolved() {
		ids[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		status := h.status(id)
		if status.Error != nil {
			continue
		}
		face := fmt.Sprint(string(status.Record), status.Orphaned, len(status.Released))
		if was[id] != face {
			was[id] = face
			news = append(news, status)
		}
	}
	return news
}
