package runner

import (
	"errors"
	"os"
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
type capture struct {
	streams []*stream
	said    longstop.Output // what was known of the output, its bounds among it
}

var streamNames = [2]string{"stdout", "stderr"}

// newCapture takes over the reading ends of a run's pipes, or the one of a terminal. It goes on from
// what the files, and the record, say: an owner that died was moving the same bytes to the same place.
func newCapture(run *record.Run, pipes [2]int, said longstop.Output) *capture {
	c := &capture{said: said}
	said = run.Outputs(said)
	for i, name := range streamNames {
		if said.Merged && i > 0 {
			unix.Close(pipes[i])
			break
		}
		s := &stream{name: name, pipe: os.NewFile(uintptr(pipes[i]), name), idle: make(chan struct{}), terminal: said.Merged, plain: said.Merged,
			keeping: keeping{run: run, name: name, at: said.BytesOf(name), dropped: said.DroppedOf(name)}}
		s.bound(said.MaxBytes)
		s.open()
		c.streams = append(c.streams, s)
	}
	return c
}

// outputOf is what a run's first record says of its output.
func outputOf(req longstop.Request) longstop.Output {
	out := longstop.Output{MaxBytes: longstop.DefaultOutputMax, Merged: req.PTY}
	if req.OutputMax != nil {
		out.MaxBytes = *req.OutputMax
	}
	if req.Leftover == longstop.LeftoverRelease { // it writes into its files itself
		out.MaxBytes = 0
	}
	return out
}

func (c *capture) start() {
	for _, s := range c.streams {
		go s.pump()
	}
}

// now is what was kept and dropped so far.
func (c *capture) now() longstop.Output {
	out := longstop.Output{Stream: longstop.StreamLive, MaxBytes: c.said.MaxBytes, Merged: c.said.Merged}
	for i, s := range c.streams {
		at, dropped, reason := s.sofar()
		*[]*int64{&out.StdoutBytes, &out.StderrBytes}[i] = at
		*[]*[]longstop.Dropped{&out.StdoutDropped, &out.StderrDropped}[i] = dropped
		for _, d := range dropped {
			out.DroppedBytes += d.To - d.From
		}
		if reason != "" {
			out.DropReason = reason
		}
	}
	return out
}

// end takes what is in the pipes now, closes them, and returns what came of it.
func (c *capture) end() longstop.Output {
	complete := true
	for _, s := range c.streams {
		complete = s.end() && complete
	}
	out := c.now()
	out.Stream = longstop.StreamCut
	if complete && out.DroppedBytes == 0 {
		out.Stream = longstop.StreamComplete
	}
	return out
}

// stream is one of the two.
type stream struct {
	name     string
	pipe     *os.File
	idle     chan struct{}
	terminal bool
	plain    bool // splice(2) does not work here: copy
	wide     bool // the pipe has been given more room
	ended    bool // the last writer closed it; for the pump, then for end
	keeping
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
		if !s.wide && s.at >= widePipe && !s.plain { // much is written: few streams are, and wide pipes are few
			s.wide = true
			widen(s.pipe)
		}
		if moved == 0 {
			s.ended = true
			return
		}
	}
}

// move takes at most so many bytes from the pipe, to the file or to nowhere, and returns how many.
// Zero is the end of the stream; unix.EAGAIN: nothing is there now.
func (s *stream) move(pipe, most int) (int64, error) {
	most = s.mostAtOnce(most)
	if why := s.refusal(); why != "" {
		return s.discard(pipe, why)
	}
	if !s.plain {
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
		offset := s.at
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
		return s.discard(pipe, boundary.Errno(err))
	}
}

// copy reads, then writes: what it has read when its process is killed is lost.
func (s *stream) copy(pipe, most int) (int64, error) {
	buf := make([]byte, min(most, 64<<10))
	n, err := read(pipe, buf)
	if n <= 0 || err != nil {
		return 0, err
	}
	written, err := s.file.WriteAt(buf[:n], s.at)
	s.keep(int64(written))
	if err != nil {
		s.lose(int64(n-written), boundary.Errno(err))
	}
	return int64(n), nil
}

// discard takes from the pipe what cannot be kept, so that the work is not held up.
func (s *stream) discard(pipe int, because string) (int64, error) {
	var nowhere [64 << 10]byte
	n, err := read(pipe, nowhere[:])
	if n <= 0 || err != nil {
		return 0, err
	}
	s.lose(int64(n), because)
	return int64(n), nil
}

// end stops the pump, takes what is in the pipe at this moment and no more (somebody may be writing
// for ever), and closes it. It reports whether the stream is over.
func (s *stream) end() bool {
	s.pipe.SetReadDeadline(time.Unix(1, 0))
	<-s.idle
	s.pipe.SetReadDeadline(time.Time{})
	if raw, err := s.pipe.SyscallConn(); err == nil && !s.ended {
		raw.Control(func(fd uintptr) { s.drain(int(fd)) })
	}
	s.pipe.Close()
	s.close()
	return s.ended
}

func (s *stream) drain(pipe int) {
	if s.terminal { // whose buffers do not tell how much is in them
		for left := int64(1 << 20); left > 0; {
			n, err := s.move(pipe, int(left))
			if err != nil || n == 0 {
				s.ended = err == nil
				return
			}
			left -= n
		}
		return
	}
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

// read reads what is there. The master of a terminal that nobody has open any more answers EIO, once
// everything was read: that is its end.
func read(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		switch err {
		case unix.EINTR:
			continue
		case unix.EIO:
			return 0, nil
		}
		return n, err
	}
}
