package gateway

import (
	"context"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

const (
	maxOutput  = 1 << 20
	pollWithin = 10 * time.Second // one long poll; the host is asked again after it
)

// Output reads bytes of a stream ("stdout", "stderr") from an offset, waiting at most wait for some.
// Max 0 is 1 MiB, the most. A lost connection is made again within wait; when the host still does not
// answer then, the error is CodeUnreachable and the same offset may be asked again. That it does not is
// seen in the action. What is configured as secret is masked.
func (g *Gateway) Output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration) (wire.OutputAnswer, error) {
	if g.cfg.Redact == nil || offset < 0 {
		return g.output(ctx, id, stream, offset, max, wait)
	}
	if max <= 0 || max > maxOutput {
		max = maxOutput
	}
	r := &maskedReader{g: g, id: id, stream: stream, offset: offset, max: max, wait: wait, until: time.Now().Add(wait)}
	return r.read(ctx)
}

func (g *Gateway) output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration) (wire.OutputAnswer, error) {
	if stream != "stdout" && stream != "stderr" {
		return wire.OutputAnswer{}, usage("stream %q: there are stdout and stderr", stream)
	}
	if offset < 0 {
		return wire.OutputAnswer{}, usage("an offset of %d", offset)
	}
	a, h, err := g.running(ctx, id)
	if err != nil {
		return wire.OutputAnswer{}, err
	}
	if a.Removed != nil {
		return wire.OutputAnswer{Offset: offset, Total: offset, End: true}, notRemoved(&a)
	}
	if max <= 0 || max > maxOutput {
		max = maxOutput
	}
	if a.Request.Owner == longstop.OwnerNone {
		return g.directOutput(ctx, &a, stream, offset, max, wait)
	}
	r := &outputReader{h: h, a: a, stream: stream, until: time.Now().Add(wait),
		ask: wire.OutputRequest{RunID: a.RunID, Stream: stream, Offset: offset, Max: max}}
	return r.read(ctx)
}

// OutputTimes says when the bytes of a stream came at the host.
func (g *Gateway) OutputTimes(ctx context.Context, id, stream string) (longstop.OutputTimes, error) {
	var times longstop.OutputTimes
	if stream != "stdout" && stream != "stderr" {
		return times, usage("stream %q: there are stdout and stderr", stream)
	}
	a, h, err := g.running(ctx, id)
	if err != nil {
		return times, err
	}
	if a.Request.Owner == longstop.OwnerNone {
		return times, &longstop.Error{Code: longstop.CodeUnsupported, ActionID: a.ID, Message: "of a direct action nobody kept when its output came"}
	}
	if a.Removed != nil {
		return times, notRemoved(&a)
	}
	got, err := h.inquire(ctx, wire.VerbOutput, wire.OutputRequest{RunID: a.RunID, Stream: stream, Times: true}, answerWithin)
	var answer wire.OutputAnswer
	if err == nil {
		err = got.read(&answer)
	}
	return longstop.OutputTimes{Arrivals: answer.Times, Dropped: answer.Dropped, Total: answer.Total}, err
}

// outputReader asks for one answer with bytes in it, over as many connections as that takes.
type outputReader struct {
	h      *host
	a      longstop.Action
	stream string
	until  time.Time
	ask    wire.OutputRequest
}

func (r *outputReader) read(ctx context.Context) (wire.OutputAnswer, error) {
	for tries := 0; ; tries++ {
		answer, err := r.once(ctx)
		left := time.Until(r.until)
		switch {
		case err == nil:
			if len(answer.Data) > 0 || len(answer.Dropped) > 0 || answer.End || left <= 0 {
				r.h.haveRead(r.a.RunID, r.stream, answer)
				return answer, nil
			}
			continue
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case longstop.CodeOf(err) == longstop.CodeTimeout && r.halve():
			continue
		case !longstop.CodeOf(err).OfTheWay() || left <= 0:
			return answer, err
		}
		pause := min(250*time.Millisecond<<min(tries, 3), left)
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// once asks once, over the present channel or a new one.
func (r *outputReader) once(ctx context.Context) (answer wire.OutputAnswer, err error) {
	ask := r.ask
	ask.Max = min(ask.Max, r.h.mostOutput())
	ask.WaitMS = max(min(time.Until(r.until), pollWithin), 0).Milliseconds()
	if ask.WaitMS > 0 {
		if err := r.h.refuses(); err != nil {
			return answer, err
		}
	}
	begun := time.Now()
	got, err := r.h.inquire(ctx, wire.VerbOutput, ask, pollWithin+answerWithin)
	if err != nil {
		return answer, err
	}
	if len(got.Data) == ask.Max && time.Since(begun) < time.Second {
		r.h.quick(ask.Max)
	}
	if err := got.read(&answer); err != nil {
		return answer, err
	}
	answer.Data = got.Data
	if err := answer.Follows(ask.Offset); err != nil {
		return answer, &longstop.Error{Code: longstop.CodeBadAnswer, Message: r.h.name + " gave other bytes of " + r.stream + " than were asked for", Err: err}
	}
	return answer, nil
}

// What is asked for at once of a host: at first, and over the slowest link. Whatever else the host says on
// its channel waits behind it.
const (
	firstOutput = 256 << 10
	leastOutput = 16 << 10
)

// halve asks for half as much at once from now on, of this host: over a slow link a block takes longer than
// its answer may. It reports whether that can help.
func (r *outputReader) halve() bool {
	most := min(r.h.mostOutput(), r.ask.Max)
	if most <= leastOutput {
		return false
	}
	r.h.outputMost.Store(int64(max(most/2, leastOutput)))
	return true
}

// mostOutput is how much of a stream is asked for at once. It grows as blocks come soon, and shrinks as they do not.
func (h *host) mostOutput() int {
	if most := h.outputMost.Load(); most > 0 {
		return int(most)
	}
	return firstOutput
}

// quick notes that a whole block came soon: the next may be larger.
func (h *host) quick(block int) {
	if most := min(2*block, maxOutput); most > h.mostOutput() {
		h.outputMost.Store(int64(most))
	}
}

// goneQuiet reports whether an error is the connection's, so that asking again may help.
func goneQuiet(err error) bool {
	switch longstop.CodeOf(err) {
	case longstop.CodeUnreachable, longstop.CodeTimeout, longstop.CodeSessionRefused:
		return true
	}
	return false
}
