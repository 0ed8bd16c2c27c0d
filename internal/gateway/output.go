package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

const (
	maxOutput  = 1 << 20
	pollWithin = 10 * time.Second // one long poll; the host is asked again after it
	// quietFor is how long a host may be silent before a reader is told, toldEvery how often then.
	quietFor  = 3 * time.Second
	toldEvery = 10 * time.Second
)

// Output reads bytes of a stream ("stdout", "stderr") from an offset, waiting at most wait for some.
// Max 0 is 1 MiB, the most. A lost connection is made again within wait, and told through note; when
// the host still does not answer then, the error is CodeUnreachable and the same offset may be asked again.
func (g *Gateway) Output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration, note func(string)) (wire.OutputAnswer, error) {
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
	if max <= 0 || max > maxOutput {
		max = maxOutput
	}
	r := &outputReader{h: h, a: a, stream: stream, note: note, until: time.Now().Add(wait),
		ask: wire.OutputRequest{RunID: a.RunID, Stream: stream, Offset: offset, Max: max}}
	return r.read(ctx)
}

// outputReader asks for one answer with bytes in it, over as many connections as that takes.
type outputReader struct {
	h      *host
	a      longstop.Action
	stream string
	note   func(string)
	until  time.Time
	ask    wire.OutputRequest
}

// outage is how long readers of a run's output have had no answer, and when they were last told.
type outage struct{ since, told time.Time }

func (r *outputReader) read(ctx context.Context) (wire.OutputAnswer, error) {
	for tries := 0; ; tries++ {
		answer, err := r.once(ctx)
		left := time.Until(r.until)
		switch {
		case err == nil:
			r.resumed(answer)
			if len(answer.Data) > 0 || answer.End || left <= 0 {
				r.h.haveRead(r.a.RunID, r.stream, answer)
				return answer, nil
			}
			continue
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case !goneQuiet(err) || left <= 0:
			return answer, err
		}
		r.silent(time.Now())
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
	left := time.Until(r.until)
	ch, err := r.h.connectPatiently(ctx, r.note, func() { r.silent(time.Now()) }) // told while it lasts
	if err != nil {
		return answer, err
	}
	ask := r.ask
	ask.WaitMS = max(min(left, pollWithin), 0).Milliseconds()
	got, err := ch.ask(ctx, wire.VerbOutput, ask, pollWithin+answerWithin)
	if err != nil {
		if goneQuiet(err) {
			r.silent(time.Now().Add(-ch.silence()))
		}
		return answer, err
	}
	if err := got.read(&answer); err != nil {
		return answer, err
	}
	if answer.Offset != ask.Offset {
		return answer, &longstop.Error{Code: longstop.CodeBadAnswer,
			Message: fmt.Sprintf("%s gave bytes from %d of %s, asked were those from %d", r.h.name, answer.Offset, r.stream, ask.Offset)}
	}
	return answer, nil
}

// goneQuiet reports whether an error is the connection's, so that asking again may help.
func goneQuiet(err error) bool {
	switch longstop.CodeOf(err) {
	case longstop.CodeUnreachable, longstop.CodeTimeout, longstop.CodeSessionRefused:
		return true
	}
	return false
}

// silent notes an outage that began at a time, if none was noted yet, and tells a reader of it when
// it has lasted a while.
func (r *outputReader) silent(began time.Time) {
	h, now := r.h, time.Now()
	h.mu.Lock()
	o := h.outages[r.a.ID]
	if o.since.IsZero() {
		o.since = began
	}
	tell := r.note != nil && now.Sub(o.since) >= quietFor && now.Sub(o.told) >= toldEvery
	if tell {
		o.told = now
	}
	h.outages[r.a.ID] = o
	h.mu.Unlock()
	if tell {
		r.note(fmt.Sprintf("%s does not answer (%ds)…", h.name, int(now.Sub(o.since).Seconds())))
	}
}

// resumed ends an outage, and says so if readers were told of it.
func (r *outputReader) resumed(answer wire.OutputAnswer) {
	h := r.h
	h.mu.Lock()
	o := h.outages[r.a.ID]
	delete(h.outages, r.a.ID)
	h.mu.Unlock()
	if !o.told.IsZero() && r.note != nil {
		r.note(fmt.Sprintf("%s answers again · %s resumed at byte %d", h.name, r.stream, answer.Offset))
	}
}
