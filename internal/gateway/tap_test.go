package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// fate is what becomes of a request on its way.
type fate int

const (
	pass    fate = iota
	loseIt       // the connection goes before the request has left: it was written, and is lost
	loseAns      // the request arrives, the connection goes before its answer does
	garble       // the request arrives, and instead of its answer comes something else
	halve        // the request arrives, and the runner dies in the middle of its answer
)

// tap sits between a gateway and its transport and decides the fate of each request: what a network
// does at its own moments happens here at a chosen one. It dials through the real transport.
type tap struct {
	sshlink.Dialer

	mu     sync.Mutex
	decide func(verb wire.Verb) fate
	asked  map[wire.Verb]int
	dials  int
	refuse error  // of every dial, where set
	dialed func() // called once a dial has succeeded, where set
	starts func() // called before a command that takes a session of its own is started, where set
	links  int    // that live
	most   int    // that lived at once

	begun atomic.Int64 // frames that were written but for their last line, at first
	pace  atomic.Int64 // where above 0, channels give a KiB at a time, each after so many nanoseconds
}

func (t *tap) set(decide func(verb wire.Verb) fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decide = decide
}

// once gives the first request of a verb a fate, and lets everything else pass.
func (t *tap) once(verb wire.Verb, f fate) {
	var done atomic.Bool
	t.set(func(v wire.Verb) fate {
		if v == verb && done.CompareAndSwap(false, true) {
			return f
		}
		return pass
	})
}

func (t *tap) always(verb wire.Verb, f fate) {
	t.set(func(v wire.Verb) fate {
		if v == verb {
			return f
		}
		return pass
	})
}

func (t *tap) passesAll() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.decide == nil
}

func (t *tap) refuseDials(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = err
}

func (t *tap) count(verb wire.Verb) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked[verb]
}

func (t *tap) fateOf(verb wire.Verb) fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked == nil {
		t.asked = map[wire.Verb]int{}
	}
	t.asked[verb]++
	if t.decide == nil {
		return pass
	}
	return t.decide(verb)
}

func (t *tap) Dial(ctx context.Context, to sshlink.Target) (sshlink.Link, error) {
	t.mu.Lock()
	refuse := t.refuse
	t.dials++
	t.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	link, err := t.Dialer.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dialed != nil {
		t.dialed()
	}
	t.links++
	t.most = max(t.most, t.links)
	go func() {
		<-link.Done()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.links--
	}()
	return &tappedLink{link, t}, nil
}

type tappedLink struct {
	sshlink.Link
	tap *tap
}

func (l *tappedLink) Exec(ctx context.Context, command string) (sshlink.Channel, error) {
	l.tap.mu.Lock()
	starts := l.tap.starts
	l.tap.mu.Unlock()
	if starts != nil {
		starts()
	}
	return l.tapped(l.Link.Exec(ctx, command))
}

func (l *tappedLink) ExecKept(ctx context.Context, command string) (sshlink.Channel, error) {
	return l.tapped(l.Link.ExecKept(ctx, command))
}

func (l *tappedLink) tapped(ch sshlink.Channel, err error) (sshlink.Channel, error) {
	if err != nil {
		return nil, err
	}
	c := &tappedChannel{Channel: ch, link: l}
	c.out = &tappedOut{Reader: ch.Stdout(), c: c}
	return c, nil
}

type tappedChannel struct {
	sshlink.Channel
	link *tappedLink
	out  *tappedOut
	deaf atomic.Bool  // what comes is lost
	lose atomic.Value // nonce of the request whose answer is lost, with the connection
	lie  atomic.Bool  // what comes is replaced
	half atomic.Bool  // of what comes next only the first word does
	over atomic.Bool  // nothing comes any more

	begun []byte // of a request, by the one who writes
	ahead bool   // what was begun went on at once
}

func (c *tappedChannel) Stdin() sshlink.Stdin { return &tappedIn{c.Channel.Stdin(), c} }
func (c *tappedChannel) Stdout() io.Reader    { return c.out }

type tappedIn struct {
	sshlink.Stdin
	c *tappedChannel
}

// Write decides about whole requests: a frame, or a verb's own JSON. A frame that was begun, which is a
// submit, is kept until it has its last line, where there is anything to decide.
func (in *tappedIn) Write(b []byte) (int, error) {
	n := len(b)
	if bytes.HasPrefix(b, []byte("LONGSTOP/1 ")) && !bytes.Contains(b, []byte("\nEND ")) {
		in.c.link.tap.begun.Add(1)
		if in.c.ahead = in.c.link.tap.passesAll(); in.c.ahead {
			return in.Stdin.Write(b)
		}
		in.c.begun = bytes.Clone(b)
		return n, nil
	}
	if in.c.ahead {
		if in.c.ahead = false; bytes.HasPrefix(b, []byte("\nEND ")) {
			in.c.link.tap.fateOf(wire.VerbSubmit)
		}
		return in.Stdin.Write(b)
	}
	if in.c.begun != nil {
		b, in.c.begun = append(in.c.begun, b...), nil
		if bytes.Contains(b, []byte("\nNOT ")) {
			_, err := in.Stdin.Write(b)
			return n, err
		}
	}
	_, err := in.decide(b)
	return n, err
}

func (in *tappedIn) decide(b []byte) (int, error) {
	from, to := bytes.IndexByte(b, '{'), bytes.LastIndexByte(b, '}')
	var req wire.Request
	if from < 0 || json.Unmarshal(b[from:to+1], &req) != nil || req.Verb == "" {
		return in.Stdin.Write(b)
	}
	switch in.c.link.tap.fateOf(req.Verb) {
	case loseIt:
		in.c.deaf.Store(true)
		go in.c.link.Link.Close()
		return len(b), nil
	case loseAns:
		in.c.lose.Store(req.Nonce)
		n, err := in.Stdin.Write(b)
		return n, err
	case garble:
		in.c.lie.Store(true)
	case halve:
		in.c.half.Store(true)
		n, err := in.Stdin.Write(b)
		in.Stdin.Close() // with it the runner goes
		return n, err
	}
	return in.Stdin.Write(b)
}

type tappedOut struct {
	io.Reader
	c    *tappedChannel
	tail []byte // of what came before: a nonce may come in two pieces
}

// answers reports whether bytes hold the beginning of the answer that is to be lost: not a heartbeat,
// nor what is pushed about another run.
func (o *tappedOut) answers(b []byte) bool {
	nonce, _ := o.c.lose.Load().(string)
	if nonce == "" {
		return false
	}
	seen := append(o.tail, b...)
	o.tail = bytes.Clone(seen[max(0, len(seen)-len(nonce)):])
	return bytes.Contains(seen, []byte(nonce))
}

var errCut = errors.New("the connection was cut")

func (o *tappedOut) Read(b []byte) (int, error) {
	if pace := time.Duration(o.c.link.tap.pace.Load()); pace > 0 {
		time.Sleep(pace) // a slow link is what is tested
		b = b[:min(len(b), 1<<10)]
	}
	n, err := o.Reader.Read(b)
	if o.c.over.Load() {
		return 0, io.EOF
	}
	if n > 0 && o.c.half.CompareAndSwap(true, false) {
		o.c.over.Store(true)
		return min(n, len("LONGSTOP/1 ")), nil // of whichever frame is first
	}
	if o.c.deaf.Load() {
		return 0, errCut
	}
	if o.answers(b[:n]) {
		go o.c.link.Link.Close() // the answer is here: the host has done what it was asked
		return 0, errCut
	}
	if o.c.lie.Load() {
		return copy(b, "LONGSTOP/1 what is this\n"), nil
	}
	return n, err
}
