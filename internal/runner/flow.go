package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// flowBlock is the most that one answer of flowing output carries: whoever reads it holds one whole.
const flowBlock = 256 << 10

// flowMoment is how long what has just begun to come is let come: a program that writes much does so
// in many small pieces, each of which would wake everybody on the way.
const flowMoment = time.Millisecond

// widePipe is the room that pipe(7) lets a user give a pipe. With the usual 64 KiB those at the two ends
// of a stream spend more on waking each other than on moving bytes. A user who has many wide pipes is
// refused another, and it stays as it was.
const widePipe = 1 << 20

func widen(pipe *os.File) {
	if raw, err := pipe.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) })
	}
}

// flow sends what a stream has from the request's offset on, and what it gets, until it is over or
// has got nothing for WaitMS.
func (s *session) flow(ctx context.Context, run *record.Run, request wire.OutputRequest) (wire.OutputAnswer, error) {
	if _, bounded := ctx.Deadline(); s.out == nil || bounded {
		return wire.OutputAnswer{}, &longstop.Error{Code: longstop.CodeUsage, Message: "output flows on a channel of its own, without a deadline"}
	}
	w := s.changes.watch(run.Path(""), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO)
	defer w.stop()
	pause := lookAgain
	if !w.told() {
		pause = lookOften
	}
	if out, ok := s.out.to.(*os.File); ok {
		widen(out)
	}
	f := &flowing{out: s.out, nonce: s.request.Nonce, run: run, stream: run.Stream(request.Stream), offset: request.Offset}
	defer f.stream.Close()
	f.sure = sureHead(run)
	wait := time.Duration(request.WaitMS) * time.Millisecond
	until := time.Now().Add(wait)
	for over := false; ; {
		sent, err := f.send()
		if err != nil {
			return wire.OutputAnswer{}, err
		}
		if sent {
			until = time.Now().Add(wait)
			continue
		}
		reached := wire.OutputAnswer{Offset: f.offset, Total: f.stream.Total, Dropped: f.passed, End: over}
		if over {
			return reached, nil
		}
		// What is there once the stream is over is all there will ever be.
		if f.final, err = finalOutput(run); err != nil {
			return wire.OutputAnswer{}, err
		}
		if over = f.final != nil; over {
			f.sure = math.MaxInt64
			continue
		}
		left := time.Until(until)
		if left <= 0 {
			return reached, nil
		}
		if err := w.wait(ctx, min(left, pause)); err != nil {
			return wire.OutputAnswer{}, err
		}
		time.Sleep(flowMoment)
	}
}

// sureHead is up to where nothing of a running run's streams is ever cut out.
func sureHead(run *record.Run) int64 {
	_, rec, err := run.Read()
	switch {
	case err != nil:
		return 0
	case rec.Output.MaxBytes == 0:
		return math.MaxInt64
	}
	return rec.Output.MaxBytes/2 - block
}

// flowing is a stream on its way out.
type flowing struct {
	out    *outlet
	nonce  string
	run    *record.Run
	stream *record.Stream
	final  *longstop.Output // once the stream is over
	sure   int64            // what is before it stays where it is, and can go out without a look at it
	number uint64
	offset int64
	passed []longstop.Dropped // just before offset, and not told yet
	buffer []byte
}

// send sends what is there now, and reports whether that was anything.
func (f *flowing) send() (sent bool, err error) {
	if err := f.stream.Look(f.final); err != nil {
		return false, err
	}
	for {
		next, passed := f.stream.Skip(f.offset)
		f.offset, f.passed = next, append(f.passed, passed...)
		size := min(f.stream.Kept(next)-next, flowBlock)
		if size <= 0 {
			return sent, nil
		}
		if next < f.sure {
			size = min(size, f.sure-next)
			err = f.answer(size, func() error { return f.out.pass(f.stream.File(), next, int(size)) })
		} else {
			size, err = f.sendRead(size)
		}
		if err != nil {
			return sent, fmt.Errorf("send output: %w", err)
		}
		f.offset += size
		sent = true
	}
}

// sendRead sends what can still be there and gone a moment later: what has been handed to the kernel
// as a part of a file would change with it.
func (f *flowing) sendRead(size int64) (int64, error) {
	if f.buffer == nil {
		f.buffer = make([]byte, flowBlock)
	}
	n, err := f.stream.Read(f.buffer[:size], f.offset)
	if next, _ := f.stream.Skip(f.offset); err == nil && n == 0 && next == f.offset {
		err = io.ErrUnexpectedEOF
	}
	if err != nil || n == 0 {
		return 0, err
	}
	return int64(n), f.answer(int64(n), func() error {
		_, err := f.out.Write(f.buffer[:n])
		return err
	})
}

func (f *flowing) answer(size int64, data func() error) error {
	body, err := json.Marshal(wire.OutputAnswer{Offset: f.offset, Total: max(f.stream.Total, f.offset+size), Dropped: f.passed})
	if err != nil {
		return err
	}
	f.number++
	f.passed = nil
	return f.out.answer(wire.Answer{Nonce: f.nonce, Number: f.number, Body: body}, int(size), data)
}

// outlet is the standard output of a call of its own. Once a write has failed nothing more goes out:
// what came behind half a frame could be taken for its other half.
type outlet struct {
	to     io.Writer
	failed error
}

func (o *outlet) Write(b []byte) (int, error) {
	if o.failed != nil {
		return 0, o.failed
	}
	n, err := o.to.Write(b)
	o.failed = err
	return n, err
}

// answer writes an answer around size bytes, which data writes.
func (o *outlet) answer(answer wire.Answer, size int, data func() error) error {
	head, tail, err := wire.AroundData(answer, size)
	if err != nil {
		return err
	}
	if _, err := o.Write(head); err != nil {
		return err
	}
	if err := data(); err != nil {
		o.failed = err
		return err
	}
	_, err = o.Write(tail)
	return err
}

// pass moves bytes from the file to the output, in the kernel where it can (sendfile(2)).
func (o *outlet) pass(file *os.File, offset int64, size int) error {
	if to, ok := o.to.(*os.File); ok {
		n, err := sendfile(to, file, offset, size)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return err
		}
		offset, size = offset+int64(n), size-n
	}
	n, err := io.Copy(o.to, io.NewSectionReader(file, offset, int64(size)))
	if err == nil && n < int64(size) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// sendfile returns how much it moved: all, or less where the file is shorter or with an error.
func sendfile(to, file *os.File, offset int64, size int) (moved int, err error) {
	out, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	in, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = in.Control(func(from uintptr) {
		failed = out.Write(func(fd uintptr) bool {
			for moved < size && err == nil {
				var n int
				n, err = unix.Sendfile(int(fd), int(from), &offset, size-moved)
				switch {
				case err == unix.EINTR:
					err = nil
				case err == unix.EAGAIN:
					err = nil
					return false
				case n == 0:
					return true
				}
				moved += max(n, 0)
			}
			return true
		})
	})
	return moved, errors.Join(err, failed)
}
