package api

import (
	"context"
	"sync"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// pumps carry a run's output streams into its follow stream, each from its own offset.
type pumps struct {
	f    *follower
	each [2]*pump
	wait sync.WaitGroup
}

// pump carries one stream. Offset is where the next byte goes; total, once known, is where the
// stream of the finished run ends.
type pump struct {
	kind longstop.FollowKind
	ctx  context.Context
	stop context.CancelFunc

	mu     sync.Mutex
	offset int64
	total  int64 // -1 until the run is final
}

// pump begins to carry the streams that the follower wants, less those that are known to have no more.
func (f *follower) pump(a *longstop.Action) *pumps {
	p := &pumps{f: f}
	totals := []int64{a.Output.StdoutBytes, a.Output.StderrBytes}
	for i, kind := range []longstop.FollowKind{longstop.FollowStdout, longstop.FollowStderr} {
		if f.from[i] < 0 || a.Settled() && f.from[i] >= totals[i] && !(f.rest && a.Output.AfterEnd) {
			continue
		}
		one := &pump{kind: kind, offset: f.from[i], total: -1}
		one.ctx, one.stop = context.WithCancel(f.ctx)
		p.each[i] = one
		p.wait.Go(func() { f.carry(string(a.ID), one) })
	}
	return p
}

// finish tells the pumps where the streams end and waits until they are there.
func (p *pumps) finish(out longstop.Output) error {
	for i, total := range []int64{out.StdoutBytes, out.StderrBytes} {
		if p.each[i] != nil {
			p.each[i].endAt(total)
		}
	}
	p.wait.Wait()
	return p.f.ctx.Err()
}

// abandon ends what is still being carried.
func (p *pumps) abandon() {
	for _, one := range p.each {
		if one != nil {
			one.stop()
		}
	}
	p.wait.Wait()
}

func (p *pump) endAt(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
	if p.offset >= total {
		p.stop()
	}
}

// reached moves the offset and reports whether the stream's end is there.
func (p *pump) reached(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offset = offset
	return p.total >= 0 && offset >= p.total
}

func (p *pump) final() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total >= 0
}

// carry reads the stream to its end. That a host does not answer is seen in the action; a host that
// does not is asked again from the same byte while the run may go on. Once the run is known to be
// final, the output that cannot be read is left for `logs`, and said.
func (f *follower) carry(id string, p *pump) {
	ended := false
	defer func() {
		p.stop()
		if !ended {
			f.server.hearEnd(id, p)
		}
	}()
	ahead := &readAhead{f: f, id: id, p: p, size: block}
	defer ahead.drop()
	offset, retry, mayFlow := p.offset, pause{}, true
	for {
		if ahead.more && mayFlow {
			reached, err := f.flow(id, p, offset)
			ended = reached.End
			if p.ctx.Err() != nil || p.reached(reached.Offset) || ended {
				return
			}
			// What was wrong is told by who asks again from there, if it still is.
			mayFlow = err == nil || reached.Offset > offset
			offset, ahead.more = reached.Offset, false
		}
		answer, err := ahead.read(offset)
		if p.ctx.Err() != nil {
			return
		}
		if err != nil {
			if !p.final() && longstop.CodeOf(err).OfTheWay() {
				if retry.wait(p.ctx) != nil {
					return
				}
				continue
			}
			f.note(string(p.kind) + " could not be read further: " + asError(err).Error())
			return
		}
		retry = pause{}
		f.output(p.kind, answer)
		offset, ended = answer.Next(), answer.End
		if p.reached(offset) || ended {
			return
		}
	}
}

// output sends what an answer has of a stream.
func (f *follower) output(kind longstop.FollowKind, answer wire.OutputAnswer) {
	for _, d := range answer.Dropped {
		f.json(longstop.FollowDropped, longstop.DroppedOutput{Stream: string(kind), Dropped: d}, false)
	}
	if len(answer.Data) > 0 {
		f.send(kind, answer.Offset, answer.Data, false)
	}
}

// hearEnd lets the gateway hear from the host that a stream which was carried to its end, by what the
// action says, is over: only then has somebody read it. The follower does not wait for that.
func (s *Server) hearEnd(id string, p *pump) {
	p.mu.Lock()
	offset, whole := p.offset, p.total > 0 && p.offset >= p.total
	p.mu.Unlock()
	if !whole || s.stopping.Err() != nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.stopping, longPoll)
		defer cancel()
		s.gateway.Output(ctx, id, string(p.kind), offset, 1, longPoll)
	}()
}

// flow sends the stream as long as the host has much of it.
func (f *follower) flow(id string, p *pump, offset int64) (wire.OutputAnswer, error) {
	return f.server.gateway.Flow(p.ctx, id, string(p.kind), offset, func(answer wire.OutputAnswer) error {
		f.output(p.kind, answer)
		p.reached(answer.Next())
		return p.ctx.Err()
	})
}

const (
	block  = 1 << 20 // bytes asked for at once, the most that a host gives
	inWork = 3       // blocks of a stream that are asked for at once, while it is read in whole ones
)

// readAhead asks for the blocks behind the one that is waited for, as long as there is more than one block
// holds: host, link and gateway then work at the same time. What was asked for ahead of a short block is
// dropped: the stream's next byte comes first. Over a slow link the gateway gives less than was asked for.
type readAhead struct {
	f     *follower
	id    string
	p     *pump
	queue []*fetch // of neighbouring offsets
	more  bool     // there was more than the last block held
	size  int      // of a block
}

// fetch is one block that is being asked for.
type fetch struct {
	offset int64
	stop   context.CancelFunc
	done   chan struct{}
	answer wire.OutputAnswer
	err    error
}

func (r *readAhead) read(offset int64) (wire.OutputAnswer, error) {
	if len(r.queue) > 0 && r.queue[0].offset != offset {
		r.drop()
	}
	next := offset + int64(len(r.queue)*r.size)
	for len(r.queue) == 0 || r.more && len(r.queue) < inWork {
		r.queue = append(r.queue, r.ask(next))
		next += int64(r.size)
	}
	first := r.queue[0]
	<-first.done
	first.stop()
	r.queue = r.queue[1:]
	got := len(first.answer.Data)
	r.more = first.err == nil && first.answer.More()
	if !r.more || got != r.size {
		r.drop()
	}
	if r.more && got >= block/64 {
		r.size = got
	}
	return first.answer, first.err
}

func (r *readAhead) ask(offset int64) *fetch {
	ctx, stop := context.WithCancel(r.p.ctx)
	one := &fetch{offset: offset, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		one.answer, one.err = r.f.server.gateway.Output(ctx, r.id, string(r.p.kind), offset, r.size, longPoll)
	}()
	return one
}

// drop ends what is asked for ahead, and waits until it has.
func (r *readAhead) drop() {
	for _, one := range r.queue {
		one.stop()
	}
	for _, one := range r.queue {
		<-one.done
	}
	r.queue = nil
}
