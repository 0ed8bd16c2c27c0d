package gateway

import (
	"io"
	"sync"
	"time"
)

// drained is the bounded beginning of a stream that somebody must read.
type drained struct {
	mu   sync.Mutex
	kept []byte
	done chan struct{}
}

// drain reads r to its end so that its writer never waits, and keeps what noise is kept.
func drain(r io.Reader) *drained {
	d := &drained{done: make(chan struct{})}
	go func() {
		defer close(d.done)
		io.Copy(d, r)
	}()
	return d
}

func (d *drained) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if room := noiseKept - len(d.kept); room > 0 {
		d.kept = append(d.kept, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

// bytes waits a moment for the end: what a dying command said last is what one wants to read.
func (d *drained) bytes() []byte {
	select {
	case <-d.done:
	case <-time.After(time.Second):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept
}
