package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
)

// capture moves what the workload writes from its pipes to the run's files: pipes, because a program
// that opens /dev/stdout again truncates a plain file. It never holds the work up: what cannot be
// kept is taken from the pipe all the same, counted, and said. Nor is the end of a stream awaited:
// whoever outlives the run with a pipe open finds nobody at its other end.
type capture struct{ streams [2]*stream }

var streamNames = [2]string{"stdout", "stderr"}

// newCapture takes over the reading ends of a run's pipes. What is in the files already is kept:
// an owner that died was moving the same bytes to the same place.
func newCapture(run *record.Run, pipes [2]int) (*capture, error) {
	c := &capture{}
	for i, name := range streamNames {
		s := &stream{name: name, pipe: os.NewFile(uintptr(pipes[i]), name), idle: make(chan struct{})}
		file, err := run.File(name, unix.O_RDWR|unix.O_CREAT)
		if err != nil {
			s.fail(err) // nowhere to keep it; the work goes on
		} else {
			s.file = file
			end, err := file.Seek(0, io.SeekEnd)
			if err != nil {
				return nil, fmt.Errorf("capture %s: %w", name, err)
			}
			s.kept = end
		}
		c.streams[i] = s
	}
	return c, nil
}

func (c *capture) start() {
	for _, s := range c.streams {
		go s.pump()
	}
}

// now is what was kept and dropped so far.
func (c *capture) now() longstop.Output {
	out := longstop.Output{Stream: longstop.StreamLive}
	for i, s := range c.streams {
		s.mu.Lock()
		*[]*int64{&out.StdoutBytes, &out.StderrBytes}[i] = s.kept
		out.DroppedBytes += s.dropped
		if s.reason != "" {
			out.DropReason = s.reason
		}
		s.mu.Unlock()
	}
	return out
}

// end takes what is in the pipes now, closes them, and returns what came of it and, in words, which
// bytes are missing.
func (c *capture) end() (longstop.Output, []string) {
	complete := true
	var gaps []string
	for _, s := range c.streams {
		ended, missing := s.end()
		complete = complete && ended && len(missing) == 0
		gaps = append(gaps, missing...)
	}
	out := c.now()
	out.Stream = longstop.StreamCut
	if complete {
		out.Stream = longstop.StreamComplete
	}
	return out, gaps
}

// stream is one of the two.
type stream struct {
	name  string
	pipe  *os.File
	file  *os.File // nil if it could not be made
	idle  chan struct{}
	plain bool // splice(2) does not work here: copy
	wide  bool // the pipe has been given more room

	mu      sync.Mutex
	kept    int64
	dropped int64
	reason  string // errno of the last that could not be kept
	gaps    []gap
	ended   bool // the last writer closed it
}

// gap is a place in the kept bytes where others were dropped.
type gap struct {
	at, bytes int64
	reason    string
}

// pump moves bytes until the stream ends or end interrupts it.
func (s *stream) pump() {
	defer close(s.idle)
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var moved int64
		err := raw.Read(func(fd uintptr) bool {
			moved, err = s.move(int(fd), 1<<20)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err != nil {
			return // interrupted, or closed
		}
		if !s.wide && s.kept >= widePipe { // much is written: few streams are, and wide pipes are few
			s.wide = true
			widen(s.pipe)
		}
		if moved == 0 {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
			return
		}
	}
}

// move takes at most so many bytes from the pipe, to the file or to nowhere, and returns how many.
// Zero is the end of the stream; unix.EAGAIN: nothing is there now.
func (s *stream) move(pipe, most int) (int64, error) {
	if s.file != nil && !s.plain {
		n, err := s.splice(pipe, most)
		if !errors.Is(err, unix.EINVAL) {
			return n, err
		}
		s.plain = true // a file system that cannot
	}
	return s.copy(pipe, most)
}

func (s *stream) splice(pipe, most int) (int64, error) {
	for {
		offset := s.kept
		n, err := unix.Splice(pipe, nil, int(s.file.Fd()), &offset, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch {
		case err == nil:
			s.keep(n)
			return n, nil
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN || err == unix.EINVAL:
			return 0, err
		}
		return s.drop(pipe, err)
	}
}

// copy reads, then writes: what it has read when its process is killed is lost.
func (s *stream) copy(pipe, most int) (int64, error) {
	buf := make([]byte, min(most, 64<<10))
	n, err := read(pipe, buf)
	if n <= 0 || err != nil {
		return 0, err
	}
	if s.file == nil {
		s.lose(int64(n), s.reason)
		return int64(n), nil
	}
	written, err := s.file.WriteAt(buf[:n], s.kept)
	s.keep(int64(written))
	if err != nil {
		s.lose(int64(n-written), boundary.Errno(err))
	}
	return int64(n), nil
}

// drop takes from the pipe what could not be kept, so that the work is not held up.
func (s *stream) drop(pipe int, because error) (int64, error) {
	var nowhere [64 << 10]byte
	n, err := read(pipe, nowhere[:])
	if n <= 0 || err != nil {
		return 0, err
	}
	s.lose(int64(n), boundary.Errno(because))
	return int64(n), nil
}

func (s *stream) keep(n int64) {
	s.mu.Lock()
	s.kept += n
	s.mu.Unlock()
}

func (s *stream) fail(err error) {
	s.reason = boundary.Errno(err)
	if s.reason == "" {
		s.reason = err.Error()
	}
}

func (s *stream) lose(n int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += n
	s.reason = reason
	if last := len(s.gaps) - 1; last >= 0 && (s.gaps[last].at == s.kept || last == 15) {
		s.gaps[last].bytes += n
		return
	}
	s.gaps = append(s.gaps, gap{s.kept, n, reason})
}

// end stops the pump, takes what is in the pipe at this moment and no more (somebody may be writing
// for ever), and closes it.
func (s *stream) end() (ended bool, missing []string) {
	s.pipe.SetReadDeadline(time.Unix(1, 0))
	<-s.idle
	s.pipe.SetReadDeadline(time.Time{})
	if raw, err := s.pipe.SyscallConn(); err == nil && !s.ended {
		raw.Control(func(fd uintptr) { s.drain(int(fd)) })
	}
	s.pipe.Close()
	if s.file != nil {
		s.file.Close()
	}
	for _, g := range s.gaps {
		missing = append(missing, fmt.Sprintf("%s: %d bytes after byte %d were not kept (%s)", s.name, g.bytes, g.at, g.reason))
	}
	return s.ended, missing
}

func (s *stream) drain(pipe int) {
	waiting, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	for left := int64(waiting); err == nil; {
		most := left
		if most <= 0 {
			most = 1 // one look more, for the end of the stream
		}
		var n int64
		n, err = s.move(pipe, int(most))
		if err == nil && n == 0 {
			s.ended = true
			return
		}
		if left -= n; left < 0 {
			return
		}
	}
}

func read(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}
