package gateway

import (
	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// finished is a run whose final record is durable here and which the host has not been told may go.
// Its output is kept on the host alone, so it waits until somebody has read that to its end.
type finished struct {
	unread map[string]bool // streams with bytes that nobody has read to their end
}

// finish notes a resolved action. h.mu is held.
func (h *host) finish(r *run) {
	a := &r.action
	if a.RunID == "" || !a.Workload.State.Final() {
		return
	}
	f := &finished{unread: map[string]bool{}}
	if a.Output.StdoutBytes > 0 && !r.read["stdout"] {
		f.unread["stdout"] = true
	}
	if a.Output.StderrBytes > 0 && !r.read["stderr"] {
		f.unread["stderr"] = true
	}
	h.done[a.RunID] = f
}

// haveRead notes that a stream was read to its end.
func (h *host) haveRead(id longstop.RunID, stream string, answer wire.OutputAnswer) {
	if !answer.End {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.done[id]; f != nil {
		delete(f.unread, stream)
	}
	if r := h.byRun[id]; r != nil {
		if r.read == nil {
			r.read = map[string]bool{}
		}
		r.read[stream] = true
	}
}

// collect tells the host which results are durable here, with their output read.
func (h *host) collect(ch *channel) {
	var ids []longstop.RunID
	h.mu.Lock()
	for id, f := range h.done {
		if len(f.unread) == 0 {
			ids = append(ids, id)
		}
	}
	h.mu.Unlock()
	for len(ids) > 0 {
		some := ids[:min(len(ids), runsAtOnce)]
		ids = ids[len(some):]
		var answer wire.CollectAnswer
		got, err := ch.ask(h.ctx, wire.VerbCollect, wire.RunRequest{RunIDs: some}, answerWithin)
		if err != nil {
			return
		}
		if got.read(&answer) != nil {
			answer.Collected = some // refused: asking again would not help, and the run stays there
		}
		h.mu.Lock()
		for _, id := range answer.Collected {
			delete(h.done, id)
		}
		h.mu.Unlock()
	}
}
