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
		if f.from[i] < 0 || a.Settled() && f.from[i] >= totals[i] {
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
	defer p.stop()
	ahead := &readAhead{f: f, id: id, p: p}
	defer ahead.drop()
	offset, retry, mayFlow := p.offset, pause{}, true
	for {
		if ahead.whole && mayFlow {
			reached, err := f.flow(id, p, offset)
			if p.ctx.Err() != nil || reached.End || p.reached(reached.Offset) {
				return
			}
			// What was wrong is told by who asks again from there, if it still is.
			mayFlow = err == nil || reached.Offset > offset
			offset, ahead.whole = reached.Offset, false
		}
		answer, err := ahead.read(offset)
		if p.ctx.Err() != nil {
			return
		}
		if err != nil {
			code := longstop.CodeOf(err)
			if !p.final() && (code == longstop.CodeUnreachable || code == longstop.CodeTimeout || code == longstop.CodeSessionRefused) {
				if retry.wait(p.ctx) != nil {
					return
				}
				continue
			}
			f.note(string(p.kind) + " could not be read further: " + asError(err).Error())
			return
		}
		retry = pause{}
		if len(answer.Data) > 0 {
			f.send(p.kind, answer.Offset, answer.Data, false)
			offset = answer.Offset + int64(len(answer.Data))
		}
		if p.reached(offset) || answer.End {
			return
		}
	}
}

// flow sends the stream as long as the host has much of it.
func (f *follower) flow(id string, p *pump, offset int64) (wire.OutputAnswer, error) {
	return f.server.gateway.Flow(p.ctx, id, string(p.kind), offset, func(answer wire.OutputAnswer) error {
		f.send(p.kind, answer.Offset, answer.Data, false)
		p.reached(answer.Offset + int64(len(answer.Data)))
		return p.ctx.Err()
	})
}

const (
	block  = 1 << 20 // bytes asked for at once, the most that a host gives
	inWork = 3       // blocks of a stream that are asked for at once, while it is read in whole ones
)

// readAhead asks for the blocks behind the one that is waited for, as long as blocks come whole: host,
// link and gateway then work at the same time. What was asked for ahead of a short block is dropped: the
// stream's next byte comes first.
type readAhead struct {
	f     *follower
	id    string
	p     *pump
	queue []*fetch // of neighbouring offsets
	whole bool     // the last block was
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
	next := offset + int64(len(r.queue))*block
	for len(r.queue) == 0 || r.whole && len(r.queue) < inWork {
		r.queue = append(r.queue, r.ask(next))
		next += block
	}
	first := r.queue[0]
	<-first.done
	first.stop()
	r.queue = r.queue[1:]
	r.whole = first.err == nil && len(first.answer.Data) == block && !first.answer.End
	if !r.whole {
		r.drop()
	}
	return first.answer, first.err
}

func (r *readAhead) ask(offset int64) *fetch {
	ctx, stop := context.WithCancel(r.p.ctx)
	one := &fetch{offset: offset, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		one.answer, one.err = r.f.server.gateway.Output(ctx, r.id, string(r.p.kind), offset, block, longPoll)
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
