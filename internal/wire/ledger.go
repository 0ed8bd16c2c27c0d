package wire

import (
	"fmt"
	"sync"
)

// Ledger holds what was asked on one channel and refuses every answer that was not, or not any
// more: an unknown nonce, a second final answer, a push nobody subscribed to, a repeated or missing
// number. A caller that gave up waiting leaves its nonce here: the late answer is still expected.
// Safe for several goroutines.
type Ledger struct {
	mu   sync.Mutex
	open map[string]*expectation
}

type expectation struct {
	watch bool
	last  uint64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{open: map[string]*expectation{}} }

// Expect enters a request before it is sent. A watch may have numbered answers before its final one.
func (l *Ledger) Expect(nonce string, watch bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ValidNonce(nonce) {
		return fmt.Errorf("nonce %q is not 32 hexadecimal digits", nonce)
	}
	if l.open[nonce] != nil {
		return fmt.Errorf("nonce %s is in use", nonce)
	}
	l.open[nonce] = &expectation{watch: watch}
	return nil
}

// Accept checks an answer and strikes the request off with its final one. An error means that the
// channel cannot be trusted any more: *BadFrame.
func (l *Ledger) Accept(answer Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := l.open[answer.Nonce]
	if asked == nil {
		return &BadFrame{Why: fmt.Sprintf("an answer to nonce %q, which nobody asked or which has its answer", clip([]byte(answer.Nonce)))}
	}
	switch next := asked.last + 1; {
	case answer.Final && answer.Number != 0 && (!asked.watch || answer.Number != next):
		return &BadFrame{Why: fmt.Sprintf("the final answer is number %d after %d", answer.Number, asked.last)}
	case answer.Final:
		delete(l.open, answer.Nonce)
	case !asked.watch:
		return &BadFrame{Why: "a pushed answer to a request that is no watch"}
	case answer.Number != next:
		return &BadFrame{Why: fmt.Sprintf("pushed answer number %d after %d: repeated, or one is missing", answer.Number, asked.last)}
	default:
		asked.last = next
	}
	return nil
}

// Open counts the requests without a final answer.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}
