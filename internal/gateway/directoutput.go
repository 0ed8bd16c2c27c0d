package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// What a direct action's command writes is kept here: its host has nobody to keep it. The beginning of each
// stream is, up to a bound.

// directOutputMax is what is kept of each stream where a request does not say.
const directOutputMax = 64 << 20

var streamNames = [2]string{"stdout", "stderr"}

// directStream is one stream on its way into its file.
type directStream struct {
	file *os.File
	max  int64 // 0: all

	mu     sync.Mutex
	kept   int64
	total  int64
	reason string // why not all is kept
	over   bool
	more   chan struct{} // closed with what comes next
}

func (g *Gateway) directFolder(id longstop.ActionID) string {
	return filepath.Join(g.cfg.Home, "direct", string(id))
}

// directStreams makes the files of an action's streams.
func (g *Gateway) directStreams(id longstop.ActionID, r *longstop.Request) (streams [2]*directStream, err error) {
	folder := g.directFolder(id)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return streams, fmt.Errorf("make the folder for its output: %w", err)
	}
	most := int64(directOutputMax)
	if r.OutputMax != nil {
		most = *r.OutputMax
	}
	for i, name := range streamNames {
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			closeStreams(streams)
			return streams, fmt.Errorf("make the file for its %s: %w", name, err)
		}
		streams[i] = &directStream{file: file, max: most, more: make(chan struct{})}
	}
	return streams, nil
}

func closeStreams(streams [2]*directStream) {
	for _, s := range streams {
		if s != nil {
			s.end()
		}
	}
}

// take reads a stream to its end. It goes on reading what it cannot keep: a command is not held up for it.
func (s *directStream) take(from io.Reader) {
	part := make([]byte, 64<<10)
	for {
		n, err := from.Read(part)
		if n > 0 {
			s.add(part[:n])
		}
		if err != nil {
			s.end()
			return
		}
	}
}

func (s *directStream) add(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(len(p))
	if s.reason == "" {
		if s.max > 0 && s.kept+int64(len(p)) > s.max {
			p, s.reason = p[:s.max-s.kept], longstop.DroppedOverMax
		}
		n, err := s.file.Write(p)
		s.kept += int64(n)
		if err != nil {
			s.reason = errnoOf(err)
		}
	}
	s.tell()
}

// errnoOf is why a write failed, in the kernel's word where there is one.
func errnoOf(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) && unix.ErrnoName(errno) != "" {
		return unix.ErrnoName(errno)
	}
	return "failed"
}

// tell wakes who waits for more. s.mu is held.
func (s *directStream) tell() {
	close(s.more)
	s.more = make(chan struct{})
}

func (s *directStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		s.file.Close()
		s.tell()
	}
}

// measure notes how much there was of each stream.
func (d *direct) measure(a *longstop.Action) {
	o := longstop.Output{MaxBytes: d.streams[0].max}
	for i, total := range []*int64{&o.StdoutBytes, &o.StderrBytes} {
		s := d.streams[i]
		s.mu.Lock()
		*total = s.total
		if s.total > s.kept {
			gone := []longstop.Dropped{{From: s.kept, To: s.total, Reason: s.reason}}
			o.DroppedBytes, o.DropReason = o.DroppedBytes+s.total-s.kept, s.reason
			if i == 0 {
				o.StdoutDropped = gone
			} else {
				o.StderrDropped = gone
			}
		}
		s.mu.Unlock()
	}
	a.Output = o
}

// measureKept notes how much was kept of the streams of an action whose gateway is gone.
func (g *Gateway) measureKept(a *longstop.Action) {
	for i, total := range []*int64{&a.Output.StdoutBytes, &a.Output.StderrBytes} {
		if info, err := os.Stat(filepath.Join(g.directFolder(a.ID), streamNames[i])); err == nil {
			*total = info.Size()
		}
	}
}

// directOutput is Output of a direct action: from its file, waiting at most wait for more.
func (g *Gateway) directOutput(ctx context.Context, a *longstop.Action, stream string, offset int64, max int, wait time.Duration) (wire.OutputAnswer, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		kept, total, over, reason, more := g.directProgress(a, stream)
		answer, err := g.readDirect(a, stream, offset, min(int64(max), kept-offset))
		if err != nil {
			return answer, err
		}
		answer.Total = total
		if over && answer.Next() >= kept {
			answer.End = true
			if total > kept && len(answer.Data) == 0 && offset < total {
				answer.Dropped, answer.Offset = []longstop.Dropped{{From: offset, To: total, Reason: reason}}, total
			}
			answer.End = answer.Next() >= total
		}
		if answer.End {
			g.directWasRead(a.ID, stream)
		}
		if len(answer.Data) > 0 || len(answer.Dropped) > 0 || answer.End || more == nil {
			return answer, nil
		}
		select {
		case <-more:
		case <-deadline.C:
			return answer, nil
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
}

// directProgress is how far a stream is. More is nil where nothing more can come.
func (g *Gateway) directProgress(a *longstop.Action, stream string) (kept, total int64, over bool, reason string, more chan struct{}) {
	i := 0
	if stream == streamNames[1] {
		i = 1
	}
	if d, ok := g.directs.Load(a.ID); ok {
		s := d.(*direct).streams[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.kept, s.total, s.over, s.reason, s.more
	}
	total = a.Output.StdoutBytes
	if i == 1 {
		total = a.Output.StderrBytes
	}
	kept = total
	for _, gone := range a.Output.DroppedOf(stream) {
		kept, reason = gone.From, gone.Reason
	}
	return kept, total, !a.Unresolved(), reason, nil
}

// readDirect reads kept bytes of a stream.
func (g *Gateway) readDirect(a *longstop.Action, stream string, offset, most int64) (wire.OutputAnswer, error) {
	answer := wire.OutputAnswer{Offset: offset}
	if most <= 0 {
		return answer, nil
	}
	file, err := os.Open(filepath.Join(g.directFolder(a.ID), stream))
	if errors.Is(err, fs.ErrNotExist) {
		return answer, &longstop.Error{Code: longstop.CodeExpired, ActionID: a.ID, Message: "its output was kept here for as long as was promised, and is gone",
			Hint: "longstop show " + string(a.ID) + " has what else is known"}
	}
	if err != nil {
		return answer, fmt.Errorf("read %s: %w", stream, err)
	}
	defer file.Close()
	answer.Data = make([]byte, most)
	n, err := file.ReadAt(answer.Data, offset)
	answer.Data = answer.Data[:n]
	if err != nil && err != io.EOF {
		return answer, fmt.Errorf("read %s: %w", stream, err)
	}
	return answer, nil
}
