package gateway

import (
	"io"
	"time"

	"github.com/longstop/longstop/internal/sshlink"
)

// heed notes that something came. Over a slow link a frame takes longer than a host may be silent, and so
// does what waits behind a flow on the same connection.
func (c *channel) heed() {
	c.mu.Lock()
	c.heard = time.Now()
	c.mu.Unlock()
}

// heeded is a reader that tells of each part that came.
type heeded struct {
	io.Reader
	came func()
}

func (r heeded) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.came()
	}
	return n, err
}

// heed notes on the host's channel that something came over the connection that it is on.
func (h *host) heed(link sshlink.Link) {
	h.mu.Lock()
	ch := h.channel
	h.mu.Unlock()
	if ch != nil && ch.link == link {
		ch.heed()
	}
}
