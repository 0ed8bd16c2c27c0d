package loopback

import (
	"net"
	"sync"
)

// Proxy is a TCP link that can fail. Frozen, it moves no byte and closes nothing, as a cable pulled
// out: both ends' kernels still take what their buffers hold. Cut, it ends what passes through.
type Proxy struct {
	Addr string // where it listens

	listener net.Listener
	to       string

	mu       sync.Mutex
	moved    *sync.Cond // frozen, stranded or closed changed
	frozen   bool
	closed   bool
	conns    map[net.Conn]struct{}
	stranded map[net.Conn]struct{}
	done     sync.WaitGroup
}

// NewProxy listens on loopback and passes connections on to an address.
func NewProxy(to string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: listener.Addr().String(), listener: listener, to: to, conns: map[net.Conn]struct{}{}, stranded: map[net.Conn]struct{}{}}
	p.moved = sync.NewCond(&p.mu)
	p.done.Go(p.accept)
	return p, nil
}

// Freeze stops the link, new connections' bytes included.
func (p *Proxy) Freeze() { p.set(&p.frozen, true) }

// Thaw lets it go on where it stopped.
func (p *Proxy) Thaw() { p.set(&p.frozen, false) }

func (p *Proxy) set(flag *bool, value bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = value
	p.moved.Broadcast()
}

// Cut closes all connections; new ones are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Strand leaves present connections half-open, as a router that forgot them: none moves a byte any more,
// and none is closed. New ones are served.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.stranded[c] = struct{}{}
	}
}

// Close ends the proxy.
func (p *Proxy) Close() {
	p.listener.Close()
	p.set(&p.closed, true)
	p.Cut()
	p.done.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		closed := p.closed
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		if closed {
			client.Close()
			server.Close()
		}
		p.done.Go(func() { p.pass(client, server) })
	}
}

func (p *Proxy) pass(client, server net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client) })
	both.Go(func() { p.pump(client, server) })
	both.Wait()
	client.Close()
	server.Close()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

func (p *Proxy) pump(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !p.open(from) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// open waits while the link is frozen, or for good where the connection is stranded; false: the proxy is closed.
func (p *Proxy) open(from net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed {
		if _, stranded := p.stranded[from]; !stranded && !p.frozen {
			break
		}
		p.moved.Wait()
	}
	return !p.closed
}
