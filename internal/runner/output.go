package runner

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

const (
	// maxOutput is the most of a stream that one answer carries.
	maxOutput = 1 << 20

	// lookAgain is how often a waiter looks by itself where changes are told, lookOften where not.
	lookAgain = 200 * time.Millisecond
	lookOften = 20 * time.Millisecond
)

// output answers with kept bytes of a stream from an offset. With WaitMS it waits for some, or for
// the stream's end, that long.
func output(ctx context.Context, s *session, request wire.OutputRequest) (wire.OutputAnswer, error) {
	if request.Stream != "stdout" && request.Stream != "stderr" {
		return wire.OutputAnswer{}, &longstop.Error{Code: longstop.CodeUsage, Message: "a stream is stdout or stderr, not " + quoted(request.Stream)}
	}
	if request.Offset < 0 || request.Max < 0 {
		return wire.OutputAnswer{}, &longstop.Error{Code: longstop.CodeUsage, Message: "an offset or a size is not negative"}
	}
	if request.Max == 0 || request.Max > maxOutput {
		request.Max = maxOutput
	}
	run, err := s.folder.Run(request.RunID)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	defer run.Close()
	if run.DirFD() < 0 {
		return wire.OutputAnswer{}, &longstop.Error{Code: longstop.CodeExpired, Message: "the run's output is no longer on the host"}
	}
	if request.Times {
		return outputTimes(run, request)
	}
	if request.Flow {
		return s.flow(ctx, run, request)
	}
	answer, err := readOutput(run, request)
	if err != nil || request.WaitMS <= 0 || worthTelling(answer) {
		return answer, err
	}
	return s.awaitOutput(ctx, run, request)
}

func worthTelling(answer wire.OutputAnswer) bool {
	return len(answer.Data) > 0 || len(answer.Dropped) > 0 || answer.End
}

// awaitOutput waits for what worthTelling says. The deadline is no error: the answer is what there
// is then.
func (s *session) awaitOutput(ctx context.Context, run *record.Run, request wire.OutputRequest) (wire.OutputAnswer, error) {
	deadline := time.Now().Add(time.Duration(request.WaitMS) * time.Millisecond)
	if limit, ok := ctx.Deadline(); ok && limit.Add(-lookOften).Before(deadline) {
		deadline = limit.Add(-lookOften)
	}
	w := s.changes.watch(run.Path(""), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO)
	defer w.stop()
	pause := lookAgain
	if !w.told() {
		pause = lookOften
	}
	for {
		answer, err := readOutput(run, request)
		left := time.Until(deadline)
		if err != nil || worthTelling(answer) || left <= 0 {
			return answer, err
		}
		if err := w.wait(ctx, min(left, pause)); err != nil {
			return wire.OutputAnswer{}, err
		}
	}
}

// readOutput reads what there is. Whether the stream is over is asked first: what is read after
// that is then all there will ever be.
func readOutput(run *record.Run, request wire.OutputRequest) (wire.OutputAnswer, error) {
	final, err := finalOutput(run)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	stream := run.Stream(request.Stream)
	defer stream.Close()
	if err := stream.Look(final); err != nil {
		return wire.OutputAnswer{}, err
	}
	answer := wire.OutputAnswer{Offset: request.Offset, Total: stream.Total}
	for {
		next, passed := stream.Skip(answer.Offset)
		answer.Offset, answer.Dropped = next, append(answer.Dropped, passed...)
		size := min(int64(request.Max), stream.Kept(next)-next)
		buffer := make([]byte, max(size, 0))
		n, err := stream.Read(buffer, next)
		if err != nil {
			return wire.OutputAnswer{}, err
		}
		if n == 0 && size > 0 && final == nil {
			if again, _ := stream.Skip(next); again > next {
				continue
			}
		}
		answer.Data, answer.End = buffer[:n], final != nil && next+int64(n) >= stream.Total
		return answer, nil
	}
}

// finalOutput is what the run's final record says of its output, once nothing more can be written: no
// released process that could is alive. Nil: more may come.
func finalOutput(run *record.Run) (*longstop.Output, error) {
	final := run.Final()
	if !final { // its last record may be where its others are, once nobody writes any more
		if held, err := run.Locked(); held || err != nil {
			return nil, nil
		}
	}
	_, rec, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) || errors.Is(err, fs.ErrNotExist) || !final && (err != nil || !rec.State.Final()) {
		return nil, nil
	}
	if longstop.CodeOf(err) == longstop.CodeUnreadable || longstop.CodeOf(err) == longstop.CodeVersionMismatch {
		out := run.Outputs(longstop.Output{}) // its bytes are as good as they ever will be
		return &out, nil
	}
	if err != nil {
		return nil, err
	}
	if rec.Output.AfterEnd && (len(releasedAlive(rec)) > 0 || len(releasedHidden(rec)) > 0) {
		return nil, nil
	}
	return &rec.Output, nil
}

// outputTimes answers with when a stream's bytes came, and which of them were not kept.
func outputTimes(run *record.Run, request wire.OutputRequest) (wire.OutputAnswer, error) {
	final, err := finalOutput(run)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	stream := run.Stream(request.Stream)
	defer stream.Close()
	if err := stream.Look(final); err != nil {
		return wire.OutputAnswer{}, err
	}
	answer := wire.OutputAnswer{Total: stream.Total, Dropped: stream.Dropped, End: final != nil}
	if _, rec, err := run.Read(); err == nil && rec.Leftover == longstop.LeftoverRelease {
		return answer, nil // nobody saw it come
	}
	answer.Times, err = run.Arrivals(request.Stream)
	return answer, err
}
