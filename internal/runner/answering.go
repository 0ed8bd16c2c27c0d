package runner

import (
	"sync"
	"time"

	"github.com/longstop/longstop"
)

// answering are a serve channel's runs whose submit is about to be answered. The answer tells of them,
// and the channel's watch would say the same twice: it leaves them alone meanwhile, but for at most
// answerFirst, and learns here what was told.
type answering struct {
	mu   sync.Mutex
	runs map[longstop.RunID]*beingTold // nil: nobody watches
	told *changeWatch                  // of runs to be looked at
}

type beingTold struct {
	nonce   string
	until   time.Time // when the answer is not waited for any more
	record  string    // that the answer has
	skipped *time.Timer
}

// answerFirst is how long the watch leaves a run to its submit's answer.
const answerFirst = 50 * time.Millisecond

func newAnswering() *answering {
	return &answering{told: &changeWatch{wd: -1, changed: make(chan struct{}, 1), names: map[string]bool{}}}
}

// watched says whether there is a watch.
func (a *answering) watched(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs = nil
	if is {
		a.runs = map[longstop.RunID]*beingTold{}
	}
}

// begin takes note of a submit. Nil is nobody to be told twice.
func (a *answering) begin(nonce string, id longstop.RunID) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs != nil {
		a.runs[id] = &beingTold{nonce: nonce, until: time.Now().Add(answerFirst)}
	}
}

// say takes note of the record that a submit's answer has.
func (a *answering) say(id longstop.RunID, record []byte) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.runs[id]; t != nil {
		t.record = string(record)
	}
}

// sent says that a submit's answer is out, and has the watch look at its run.
func (a *answering) sent(nonce string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range a.runs {
		if t.nonce == nonce {
			t.until = time.Time{}
			a.told.tell(string(id), false)
		}
	}
}

// quiet reports whether a run is to be left to an answer. If that does not come soon, the watch is
// told to look again.
func (a *answering) quiet(id longstop.RunID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.runs[id]
	if t == nil {
		return false
	}
	left := time.Until(t.until)
	if left > 0 && t.skipped == nil {
		t.skipped = time.AfterFunc(left, func() { a.told.tell(string(id), false) })
	}
	return left > 0
}

// take returns the record that a submit's answer had, once its run is not left to it any more.
func (a *answering) take(id longstop.RunID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.runs[id]
	if t == nil || !t.until.IsZero() {
		return ""
	}
	delete(a.runs, id)
	if t.skipped != nil {
		t.skipped.Stop()
	}
	return t.record
}
