package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
)

const (
	// sparesMost bounds a host's connections beside the one of its serve channel. One more may be made to
	// stop something.
	sparesMost = 3
	// spareIdle is how long one is kept after its last use: at MaxSessions 1 every channel of its own needs one.
	spareIdle = 30 * time.Second
	// turnWithin is how long a channel of its own waits for its turn where all sessions are in use.
	turnWithin = 30 * time.Second
)

// spares are connections to a host beside the one of its serve channel, for channels of their own where
// that one has no session left: a server counts sessions per connection. They are few, made one at a
// time, shared, and closed once nothing has used them for a while.
type spares struct {
	mu     sync.Mutex
	links  []*spare
	making [2]*making    // for anything, and to stop something
	moved  chan struct{} // closed and made anew when a session may have become free, or a connection came
}

type spare struct {
	link  sshlink.Link
	users int
	idle  *time.Timer // closes it; while it has no user
}

// making is one try to have another connection, for whoever waits for one.
type making struct {
	done chan struct{}
	err  error
}

func (s *spares) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	return s.moved
}

// tell has those who wait for their turn look again.
func (s *spares) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked()
}

func (s *spares) tellLocked() {
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// take returns the connections that live, each with one user more until it is released.
func (s *spares) take() []*spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = alive(s.links)
	for _, one := range s.links {
		one.users++
		one.idle.Stop()
	}
	return append([]*spare(nil), s.links...)
}

func alive(links []*spare) (live []*spare) {
	for _, one := range links {
		select {
		case <-one.link.Done():
		default:
			live = append(live, one)
		}
	}
	return live
}

// release takes one user off a connection. The last one's leaving begins its rest.
func (s *spares) release(one *spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.users--; one.users == 0 {
		one.idle.Reset(spareIdle)
	}
	s.tellLocked()
}

// retire closes a connection that nothing has used.
func (s *spares) retire(one *spare) {
	s.mu.Lock()
	unused := one.users == 0
	for i, other := range s.links {
		if unused && other == one {
			s.links = append(s.links[:i:i], s.links[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if unused {
		one.link.Close()
	}
}

func (s *spares) closeAll() {
	s.mu.Lock()
	links := s.links
	s.links = nil
	s.mu.Unlock()
	for _, one := range links {
		one.idle.Stop()
		one.link.Close()
	}
}

// another returns the try to have one more connection, begun now or under way; nil: there are as many as
// there may be.
func (h *host) another(kept bool) *making {
	s, which, most := &h.spares, 0, sparesMost
	if kept {
		which, most = 1, sparesMost+1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.making[which]; m != nil {
		return m
	}
	if len(alive(s.links)) >= most {
		return nil
	}
	m := &making{done: make(chan struct{})}
	s.making[which] = m
	h.g.goes(func() {
		link, err := h.dialSpare(kept)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && h.ctx.Err() != nil { // under the lock: closeAll follows the context's end
			h.g.goes(func() { link.Close() })
			err = errClosing
		}
		if m.err = err; err == nil {
			one := &spare{link: link}
			one.idle = time.AfterFunc(spareIdle, func() { s.retire(one) })
			s.links = append(s.links, one)
		}
		s.making[which] = nil
		close(m.done)
		s.tellLocked()
	})
	return m
}

// dialSpare takes its turn with other hosts' connections, but for stopping.
func (h *host) dialSpare(kept bool) (sshlink.Link, error) {
	ctx, cancel := context.WithTimeout(h.ctx, dialWithin)
	defer cancel()
	if !kept {
		leave, err := h.dialTurn(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	return h.dial(ctx, nil)
}

// openSession starts the aside's verb in a session: on the present connection, a spare one, or one made for it.
// Where there may be no more of them it waits for its turn. What stops something takes the sessions
// that are kept for that, and waits behind nobody.
func (a *aside) openSession(ctx context.Context, command string, kept bool) error {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	h := a.host
	for {
		moved := h.spares.watch()
		err := a.tryLinks(ctx, command, kept)
		if a.session != nil {
			return nil
		}
		if err == nil { // there was no connection to try
			err = &longstop.Error{Code: longstop.CodeUnreachable, Message: "no connection to " + h.name + " has room for another session"}
		}
		if ctx.Err() != nil {
			return err
		}
		m := h.another(kept)
		var made <-chan struct{}
		switch {
		case m != nil:
			made = m.done
		case kept:
			return err
		}
		select {
		case <-moved:
		case <-made:
			if m.err != nil {
				return m.err
			}
		case <-ctx.Done():
			return err
		}
	}
}

// tryLinks tries the connections that there are. A session that is refused is neither the work's failure nor the
// connection's.
func (a *aside) tryLinks(ctx context.Context, command string, kept bool) (err error) {
	h := a.host
	if link := h.present(); link != nil {
		if err = a.start(ctx, link, command, kept); err == nil {
			a.release = h.spares.tell
			return nil
		}
	}
	links := h.spares.take()
	for i, one := range links {
		if err = a.start(ctx, one.link, command, kept); err == nil {
			a.release = func() { h.spares.release(one) }
			for _, other := range links[i+1:] {
				h.spares.release(other)
			}
			return nil
		}
		h.spares.release(one)
	}
	return err
}

func (a *aside) start(ctx context.Context, link sshlink.Link, command string, kept bool) (err error) {
	opening, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	exec := link.Exec
	if kept {
		exec = link.ExecKept
	}
	if a.session, err = exec(opening, command); err != nil {
		a.session = nil
		a.host.learnSessions(err)
		return err
	}
	a.facts = link.Facts()
	return nil
}

// present returns the connection of the serve channel, if it lives.
func (h *host) present() sshlink.Link {
	h.mu.Lock()
	link := h.link
	h.mu.Unlock()
	if link == nil {
		return nil
	}
	select {
	case <-link.Done():
		return nil
	default:
		return link
	}
}

// learnSessions keeps what a refused session taught of the server's limit, for later gateways.
func (h *host) learnSessions(err error) {
	if longstop.CodeOf(err) != longstop.CodeSessionRefused {
		return
	}
	h.mu.Lock()
	known := h.limit.Known()
	learnt := known > 0 && h.row.MaxSessions != known
	if learnt {
		h.row.MaxSessions = known
	}
	h.mu.Unlock()
	if learnt {
		h.store(nil)
	}
}
