package gateway

import (
	"testing"

	"github.com/longstop/longstop/internal/wire"
)

// What is asked for at once shrinks by halves as it does not come in time, to a bound, and grows again as it
// comes soon.
func TestBlocksFollowTheLink(t *testing.T) {
	t.Parallel()
	h := &host{}
	r := &outputReader{h: h, ask: wire.OutputRequest{Max: maxOutput}}
	for want := firstOutput / 2; want >= leastOutput; want /= 2 {
		if !r.halve() || h.mostOutput() != want {
			t.Fatalf("%d, want %d", h.mostOutput(), want)
		}
	}
	if r.halve() {
		t.Errorf("less than the least: %d", h.mostOutput())
	}
	for range 10 {
		h.quick(h.mostOutput())
	}
	h.quick(10) // asked for by somebody who wanted no more
	if h.mostOutput() != maxOutput {
		t.Errorf("%d", h.mostOutput())
	}
	if small := (&outputReader{h: h, ask: wire.OutputRequest{Max: 100}}); small.halve() {
		t.Error("a hundred bytes are halved")
	}
}
