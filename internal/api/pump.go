package api

import (
	"context"
	"sync"

	"github.com/longstop/longstop"
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

func (f *follower) pump(id string) *pumps {
	p := &pumps{f: f}
	for i, kind := range []longstop.FollowKind{longstop.FollowStdout, longstop.FollowStderr} {
		if f.from[i] < 0 {
			continue
		}
		one := &pump{kind: kind, offset: f.from[i], total: -1}
		one.ctx, one.stop = context.WithCancel(f.ctx)
		p.each[i] = one
		p.wait.Go(func() { f.carry(id, one) })
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

// carry reads the stream to its end. That a host does not answer is seen in the action; a host that does not answer is asked again from the same
// byte while the run may go on; once the run is known to be final, the output that cannot be
// read is left for `logs`, and said.
func (f *follower) carry(id string, p *pump) {
	defer p.stop()
	offset, retry := p.offset, pause{}
	for {
		answer, err := f.server.gateway.Output(p.ctx, id, string(p.kind), offset, 0, longPoll, nil)
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
