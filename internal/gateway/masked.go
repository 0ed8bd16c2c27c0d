package gateway

import (
	"context"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/wire"
)

// maskedReader reads a stream with what is configured as secret masked in place, so that offsets stay true. It
// reads what lies before the offset too, for a secret may begin there, and holds back what may be the beginning
// of one: until more of the stream is there, or its end, or nobody waits any longer; then it is masked.
type maskedReader struct {
	g          *Gateway
	id, stream string
	offset     int64
	max        int
	wait       time.Duration
	until      time.Time
}

// read gives one answer, as Output does.
func (r *maskedReader) read(ctx context.Context) (wire.OutputAnswer, error) {
	from := max(0, r.offset-redact.MaxMatch)
	first := r.wait // to wait for the first byte, where there is nothing before it
	if from < r.offset {
		first = 0
	}
	got, err := r.g.output(ctx, r.id, r.stream, from, r.max+int(r.offset-from), first)
	for {
		if err != nil {
			return wire.OutputAnswer{Offset: r.offset, Total: r.offset}, err
		}
		if got.End || got.Next() > r.offset {
			if answer, ok := r.masked(got, got.End); ok {
				return answer, nil
			}
		}
		left := time.Until(r.until)
		if reached := got.Next(); reached >= got.Total && left <= 0 {
			return r.givenUp(got), nil
		}
		var more wire.OutputAnswer
		more, err = r.g.output(ctx, r.id, r.stream, got.Next(), r.max, max(left, 0))
		if len(more.Dropped) > 0 {
			if got.Next() > r.offset { // nothing that is missing completes a secret
				answer, _ := r.masked(got, true)
				answer.Total = more.Total
				return answer, nil
			}
			got.Dropped = append(got.Dropped, more.Dropped...)
			got.Offset, got.Data = more.Offset, nil
		}
		if err == nil {
			got.Data = append(got.Data[:len(got.Data):len(got.Data)], more.Data...)
			got.Total, got.End = more.Total, more.End
		}
	}
}

// masked is what of some bytes may be given; not ok: nothing yet.
func (r *maskedReader) masked(got wire.OutputAnswer, last bool) (_ wire.OutputAnswer, ok bool) {
	data, sure := r.g.cfg.Redact.Stream(got.Data, last)
	answer := r.cut(got)
	skip := int(answer.Offset - got.Offset)
	if sure < len(got.Data) && got.Next() >= got.Total { // what is held back is not there yet
		answer.Total = got.Offset + int64(sure)
	}
	if answer.Data = data[min(skip, len(data)):max(skip, sure)]; len(answer.Data) > 0 || last {
		return answer, true
	}
	return answer, len(answer.Dropped) > 0
}

// cut is an answer to who asked from the offset on, without bytes.
func (r *maskedReader) cut(got wire.OutputAnswer) wire.OutputAnswer {
	answer := wire.OutputAnswer{Offset: max(got.Offset, r.offset), Total: max(got.Total, r.offset), End: got.End}
	for _, d := range got.Dropped {
		if d.To > r.offset {
			answer.Dropped = append(answer.Dropped, longstop.Dropped{From: max(d.From, r.offset), To: d.To, Reason: d.Reason})
		}
	}
	return answer
}

// givenUp is what is given when nobody waits any longer: of what was held back, only that there is something.
// Who looks at what there is now, and does not wait, is not told of it yet.
func (r *maskedReader) givenUp(got wire.OutputAnswer) wire.OutputAnswer {
	answer := r.cut(got)
	held := got.Next() - answer.Offset
	if held <= 0 {
		return answer
	}
	if r.wait <= 0 {
		answer.Total = answer.Offset
		return answer
	}
	answer.Data = make([]byte, held)
	for i := range answer.Data {
		answer.Data[i] = '*'
	}
	return answer
}
