package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	f := &flowing{out: s.out, nonce: s.request.Nonce, run: run, stream: request.Stream, offset: request.Offset}
	defer f.close()
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
		reached := wire.OutputAnswer{Offset: f.offset, Total: f.total, End: over}
		if over {
			return reached, nil
		}
		// What is there once the stream is over is all there will ever be.
		if over, err = streamOver(run); err != nil {
			return wire.OutputAnswer{}, err
		}
		if over {
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

// flowing is a stream on its way out.
type flowing struct {
	out    *outlet
	nonce  string
	run    *record.Run
	stream string
	file   *os.File // nil: not there yet
	number uint64
	offset int64
	total  int64
}

func (f *flowing) close() {
	if f.file != nil {
		f.file.Close()
	}
}

// send sends what is there now, and reports whether that was anything.
func (f *flowing) send() (sent bool, err error) {
	if f.file == nil {
		f.file, err = f.run.File(f.stream, unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	info, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	f.total = info.Size()
	for f.offset < f.total {
		body, err := json.Marshal(wire.OutputAnswer{Offset: f.offset, Total: f.total})
		if err != nil {
			return sent, err
		}
		f.number++
		size := int(min(f.total-f.offset, flowBlock))
		answer := wire.Answer{Nonce: f.nonce, Number: f.number, Body: body}
		if err := f.out.answer(answer, f.file, f.offset, size); err != nil {
			return sent, fmt.Errorf("send %s: %w", f.stream, err)
		}
		f.offset += int64(size)
		sent = true
	}
	return sent, nil
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

// answer writes an answer with size bytes of a file from an offset on.
func (o *outlet) answer(answer wire.Answer, file *os.File, offset int64, size int) error {
	head, tail, err := wire.AroundData(answer, size)
	if err != nil {
		return err
	}
	if _, err := o.Write(head); err != nil {
		return err
	}
	if o.failed = o.pass(file, offset, size); o.failed != nil {
		return o.failed
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
