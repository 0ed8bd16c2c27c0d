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
	if request.Flow {
		return s.flow(ctx, run, request)
	}
	answer, err := readOutput(run, request)
	if err != nil || request.WaitMS <= 0 || worthTelling(answer) {
		return answer, err
	}
	return s.awaitOutput(ctx, run, request)
}

func worthTelling(answer wire.OutputAnswer) bool { return len(answer.Data) > 0 || answer.End }

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
	over, err := streamOver(run)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	size := int64(request.Max)
	if stdout, stderr := run.Sizes(); request.Stream == "stdout" {
		size = min(size, stdout-request.Offset)
	} else {
		size = min(size, stderr-request.Offset)
	}
	buffer := make([]byte, max(size, 0))
	n, total, err := run.ReadOutput(request.Stream, request.Offset, buffer)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	return wire.OutputAnswer{Offset: request.Offset, Data: buffer[:n], Total: total,
		End: over && request.Offset+int64(n) >= total}, nil
}

// streamOver reports whether nothing more can be written: the run is final and no released process
// that could still write is alive.
func streamOver(run *record.Run) (bool, error) {
	final := run.Final()
	if !final { // its last record may be where its others are, once nobody writes any more
		if held, err := run.Locked(); held || err != nil {
			return false, nil
		}
	}
	_, rec, err := run.Read()
	if errors.Is(err, record.ErrNoRecord) || errors.Is(err, fs.ErrNotExist) || !final && (err != nil || !rec.State.Final()) {
		return false, nil
	}
	if longstop.CodeOf(err) == longstop.CodeUnreadable || longstop.CodeOf(err) == longstop.CodeVersionMismatch {
		return true, nil // its bytes are as good as they ever will be
	}
	if err != nil {
		return false, err
	}
	return !rec.Output.AfterEnd || len(releasedAlive(rec)) == 0, nil
}
