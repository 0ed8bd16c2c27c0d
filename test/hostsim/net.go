package hostsim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// Fate is what becomes of one message between a gateway and a host.
type Fate struct {
	Delay time.Duration // it comes later, and so does what follows
	Kind  FateKind
}

// FateKind says how a message fares.
type FateKind int

// How it fares.
const (
	Arrives   FateKind = iota
	Lost               // it does not come, and nobody is told
	Twice              //
	Truncated          // the half of it comes, then the connection goes
	Garbled            // something else comes
	CutBefore          // the connection goes before it comes
	CutAfter           // the connection goes after it came
)

// Net is the way to hosts, by the names they are reached by.
type Net struct {
	mu      sync.Mutex
	hosts   map[string]*Host
	refused map[string]*longstop.Error
	silent  map[string]chan struct{} // closed when the host is heard again
}

// NewNet returns a network with these hosts.
func NewNet(hosts ...*Host) *Net {
	n := &Net{hosts: map[string]*Host{}, refused: map[string]*longstop.Error{}, silent: map[string]chan struct{}{}}
	for _, h := range hosts {
		n.hosts[h.Name] = h
	}
	return n
}

// Lead has a name lead to a host.
func (n *Net) Lead(name string, to *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = to
}

// Refuse has every login at a name refused, until nil is given.
func (n *Net) Refuse(name string, why *longstop.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[name] = why
}

// Silence holds up everything between a name's host and whoever speaks with it, until Heal.
func (n *Net) Silence(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent[name] == nil {
		n.silent[name] = make(chan struct{})
	}
}

// Heal lets a name's host be heard again.
func (n *Net) Heal(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.silent[name]; c != nil {
		close(c)
		delete(n.silent, name)
	}
}

func (n *Net) at(name string) (h *Host, refused *longstop.Error, silent chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts[name], n.refused[name], n.silent[name]
}

// Dialer is one gateway's: with Cut it is as if the gateway's process had ended.
type Dialer struct {
	net *Net

	mu    sync.Mutex
	ended bool
	links map[*link]struct{}
	wrap  func(host string, frame []byte) // sees each request as it leaves
	eager bool                            // a rule that may be broken: what was begun arrives before its end
}

// Dialer returns a way to the network's hosts. See, if not nil, is shown each whole request that leaves.
func (n *Net) Dialer(see func(host string, frame []byte)) *Dialer {
	return &Dialer{net: n, links: map[*link]struct{}{}, wrap: see}
}

// Cut ends every connection that was made through d, and lets it make no more.
func (d *Dialer) Cut() {
	d.mu.Lock()
	d.ended = true
	links := d.links
	d.links = map[*link]struct{}{}
	d.mu.Unlock()
	for l := range links {
		l.cut("the gateway is gone")
	}
}

// Dial connects to the host that the target's name leads to.
func (d *Dialer) Dial(ctx context.Context, to sshlink.Target) (sshlink.Link, error) {
	unreachable := func(why string, err error) error {
		return &longstop.Error{Code: longstop.CodeUnreachable, Message: to.Name + ": " + why, Err: err}
	}
	h, refused, silent := d.net.at(to.Name)
	if silent != nil {
		select {
		case <-silent:
		case <-ctx.Done():
			return nil, unreachable("no answer", ctx.Err())
		}
	}
	if h == nil {
		return nil, unreachable("no such host", nil)
	}
	time.Sleep(2 * h.plan.Latency)
	if refused != nil {
		return nil, refused
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.down || d.ended {
		return nil, unreachable("connection refused", nil)
	}
	l := &link{d: d, h: h, name: to.Name, gone: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(context.Background())
	d.links[l], h.links[l] = struct{}{}, struct{}{}
	return l, nil
}

// link is one connection.
type link struct {
	d    *Dialer
	h    *Host
	name string
	ctx  context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	gone     chan struct{}
	over     bool
	err      error
	sessions int
	open     []*session
}

func (l *link) cut(why string) {
	l.finish(&longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": " + why})
}

func (l *link) finish(err error) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.over, l.err = true, err
	open := l.open
	close(l.gone)
	l.mu.Unlock()
	l.end()
	for _, s := range open {
		s.settle(sshlink.Exit{State: longstop.SSHLost})
		for _, p := range []*pipe{s.in, s.out, s.errs} {
			p.fail(errLost)
		}
	}
}

var errLost = errors.New("the connection was lost")

func (l *link) Facts() sshlink.Facts {
	return sshlink.Facts{Auth: "publickey", Key: "SHA256:sim", HostKey: "SHA256:" + l.h.MachineID, Server: "hostsim"}
}

func (l *link) Sessions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions
}

func (l *link) Done() <-chan struct{} { return l.gone }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) Close() error {
	l.finish(nil)
	l.h.mu.Lock()
	delete(l.h.links, l)
	l.h.mu.Unlock()
	l.d.mu.Lock()
	delete(l.d.links, l)
	l.d.mu.Unlock()
	return nil
}

// Stream is refused: whoever wants output asks for it over the serve channel.
func (l *link) Stream(context.Context, string) (sshlink.Channel, error) {
	return nil, &longstop.Error{Code: longstop.CodeSessionRefused, Message: l.name + ": no session is free"}
}

// ExecKept is Exec: there is room for any number of sessions.
func (l *link) ExecKept(ctx context.Context, command string) (sshlink.Channel, error) {
	return l.Exec(ctx, command)
}

// Exec starts a verb of the runner.
func (l *link) Exec(ctx context.Context, command string) (sshlink.Channel, error) {
	_, verb, err := wire.ParseCommand(command)
	if err != nil {
		return nil, &longstop.Error{Code: longstop.CodeUnsupported, Message: err.Error()}
	}
	if err := l.travel(ctx, 2); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, &longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": the connection was lost"}
	}
	s := &session{l: l, in: newPipe(), out: newPipe(), errs: newPipe(), known: make(chan struct{})}
	s.up, s.back = newCarrier(l, s.in, true), newCarrier(l, s.out, false)
	l.sessions++
	l.open = append(l.open, s)
	go s.run(verb)
	return s, nil
}

// travel takes as long as so many messages do, for as long as the host is silent too.
func (l *link) travel(ctx context.Context, messages int) error {
	time.Sleep(time.Duration(messages) * l.h.plan.Latency)
	for {
		_, _, silent := l.d.net.at(l.name)
		if silent == nil {
			return nil
		}
		select {
		case <-silent:
		case <-l.gone:
			return &longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": the connection was lost"}
		case <-ctx.Done():
			return &longstop.Error{Code: longstop.CodeUnreachable, Message: l.name + ": no answer", Err: ctx.Err()}
		}
	}
}

// session is one channel and the process at its other end.
type session struct {
	l             *link
	in, out, errs *pipe
	up, back      *carrier

	once  sync.Once
	known chan struct{}
	exit  sshlink.Exit
}

func (s *session) run(verb wire.Verb) {
	status := 0
	if verb == wire.VerbServe {
		status = s.l.h.serve(s.l.ctx, s.in, s.back)
	} else {
		status = s.l.h.once(s.l.ctx, verb, s.in, s.back)
	}
	s.back.close(func() { s.settle(sshlink.Exit{State: longstop.SSHExited, Status: status}) })
	s.errs.close()
}

func (s *session) settle(e sshlink.Exit) {
	s.once.Do(func() {
		s.exit = e
		s.l.mu.Lock()
		s.l.sessions--
		s.l.mu.Unlock()
		close(s.known)
	})
}

func (s *session) Stdin() sshlink.Stdin { return &stdin{s: s} }
func (s *session) Stdout() io.Reader    { return s.out }
func (s *session) Stderr() io.Reader    { return s.errs }

func (s *session) Wait() sshlink.Exit {
	<-s.known
	return s.exit
}

func (s *session) Close() error {
	s.settle(sshlink.Exit{State: longstop.SSHNoStatus})
	s.out.fail(errClosed)
	s.errs.fail(errClosed)
	s.up.close(nil)
	return nil
}

var errClosed = errors.New("the session was closed here")

// stdin makes messages of what is written: a frame, begun and ended, is one.
type stdin struct{ s *session }

func (in *stdin) SetWriteDeadline(time.Time) error { return nil }

func (in *stdin) Write(b []byte) (int, error) {
	c := in.s.up
	c.mu.Lock()
	c.begun = append(c.begun, b...)
	whole := c.begun
	if bytes.HasPrefix(whole, []byte("LONGSTOP/1 ")) && !bytes.Contains(whole, []byte("\nEND ")) && !bytes.Contains(whole, []byte("\nNOT ")) {
		c.mu.Unlock()
		if in.s.l.d.eager {
			nonce := whole[len("LONGSTOP/1 "):][:32]
			c.to.put(slices.Concat(whole, []byte("\nEND "), nonce, []byte("\n")))
		}
		return len(b), nil
	}
	eager := in.s.l.d.eager && len(whole) > len(b)
	c.begun = nil
	c.mu.Unlock()
	if eager {
		return len(b), nil
	}
	if in.s.l.d.wrap != nil {
		in.s.l.d.wrap(in.s.l.name, whole)
	}
	if _, err := c.Write(whole); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (in *stdin) Close() error {
	in.s.up.close(nil)
	return nil
}

// carrier takes messages one way, in order, each to its fate.
type carrier struct {
	l      *link
	to     *pipe
	toHost bool

	mu     sync.Mutex
	begun  []byte
	queue  [][]byte
	closed bool
	then   func()
	busy   bool
	n      int
}

func newCarrier(l *link, to *pipe, toHost bool) *carrier {
	return &carrier{l: l, to: to, toHost: toHost}
}

func (c *carrier) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, errClosed
	}
	select {
	case <-c.l.gone:
		return 0, errLost
	default:
	}
	c.queue = append(c.queue, bytes.Clone(b))
	c.start()
	return len(b), nil
}

// close sends end-of-file after what is on its way.
func (c *carrier) close(then func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.then = true, then
		c.start()
	}
}

func (c *carrier) start() {
	if !c.busy {
		c.busy = true
		go c.carry()
	}
}

func (c *carrier) carry() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.busy = false
			closed, then := c.closed, c.then
			c.mu.Unlock()
			if closed {
				if then != nil {
					then()
				}
				c.to.close()
			}
			return
		}
		message := c.queue[0]
		c.queue = c.queue[1:]
		n := c.n
		c.n++
		c.mu.Unlock()
		c.deliver(message, n)
	}
}

func (c *carrier) deliver(message []byte, n int) {
	l := c.l
	fate := Fate{}
	if l.h.plan.Message != nil {
		fate = l.h.plan.Message(l.name, c.toHost, n, message)
	}
	time.Sleep(fate.Delay)
	if l.travel(context.Background(), 1) != nil {
		return
	}
	switch fate.Kind {
	case Lost:
	case Twice:
		c.to.put(message)
		c.to.put(message)
	case Truncated:
		c.to.put(message[:len(message)/2])
		l.cut("the connection was lost")
	case Garbled:
		bad := bytes.Clone(message)
		copy(bad[len(bad)/2:], "\xff\x00{{")
		c.to.put(bad)
	case CutBefore:
		l.cut("the connection was lost")
	case CutAfter:
		c.to.put(message)
		time.Sleep(time.Millisecond)
		l.cut("the connection was lost")
	default:
		c.to.put(message)
	}
}

// pipe is a stream of bytes with room for all of them.
type pipe struct {
	mu    sync.Mutex
	some  *sync.Cond
	bytes []byte
	err   error
}

func newPipe() *pipe {
	p := &pipe{}
	p.some = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.bytes = append(p.bytes, b...)
		p.some.Broadcast()
	}
}

func (p *pipe) close() { p.fail(io.EOF) }

// fail ends the stream. What came before is still read, unless the connection went.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || err != io.EOF {
		p.err = err
	}
	p.some.Broadcast()
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.bytes) == 0 && p.err == nil {
		p.some.Wait()
	}
	if len(p.bytes) == 0 {
		return 0, p.err
	}
	n := copy(b, p.bytes)
	p.bytes = p.bytes[n:]
	return n, nil
}
