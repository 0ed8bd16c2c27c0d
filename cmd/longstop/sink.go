package main

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// sink is where one stream of the run's output goes, and its next byte to come.
type sink struct {
	file    *os.File
	stamper *stamper // nil: bytes as they are
	next    atomic.Int64
	end     atomic.Int64 // where the run's end was, if others wrote on after it and that is still to be said; else -1
}

func newSink(file *os.File, from int64) *sink {
	s := &sink{file: file}
	s.next.Store(from)
	s.end.Store(-1)
	return s
}

// offset is the next byte to ask for; of no sink, -1: without that stream.
func (s *sink) offset() int64 {
	if s == nil {
		return -1
	}
	return s.next.Load()
}

// skip goes on behind bytes that the host did not keep, and says so.
func (f *follower) skip(ctx context.Context, gap longstop.DroppedOutput) {
	to := map[string]*sink{"stdout": f.stdout, "stderr": f.stderr}[gap.Stream]
	if to == nil || to.next.Load() >= gap.To {
		return
	}
	to.next.Store(gap.To)
	f.report(ctx, happening{note: notKept(gap.Stream, gap.Dropped)})
}

// put writes output where it belongs. Offsets say what was written already and what never came.
func (f *follower) put(to *sink, e client.Event) error {
	if to == nil {
		return nil
	}
	next, data, offset := to.next.Load(), e.Data, e.Offset
	if had := next - offset; had > 0 {
		data, offset = data[min(had, int64(len(data))):], next
	}
	if offset > next {
		f.app.talk.note("%s bytes of %s are missing", number(offset-next), e.Kind)
	}
	if len(data) == 0 {
		return nil
	}
	if cut := to.end.Load() - offset; cut >= 0 && cut < int64(len(data)) {
		to.end.Store(-1)
		if err := f.write(to, data[:cut], offset); err != nil {
			return err
		}
		f.app.talk.note("%s", writtenAfter(string(e.Kind), offset+cut))
		data, offset = data[cut:], offset+cut
	}
	return f.write(to, data, offset)
}

func (f *follower) write(to *sink, data []byte, offset int64) error {
	n, err := len(data), error(nil)
	if to.stamper != nil {
		err = to.stamper.put(data, offset)
	} else {
		n, err = to.file.Write(data)
	}
	to.next.Store(offset + int64(n))
	if err == nil && f.app.talk.tty {
		f.app.talk.wrote(data)
	}
	return err
}

// sawEnd takes note of where the run's end is in what released processes wrote on.
func (f *follower) sawEnd(a *longstop.Action) {
	for i, to := range []*sink{f.stdout, f.stderr} {
		at := []int64{a.Output.StdoutAtEnd, a.Output.StderrAtEnd}[i]
		switch {
		case to == nil || !f.rest:
		case to.next.Load() > at:
			f.note("%s", writtenAfter([]string{"stdout", "stderr"}[i], at))
		default:
			to.end.Store(at)
		}
	}
}
