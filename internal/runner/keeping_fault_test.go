//go:build faults

package runner

import (
	"strings"
	"testing"
)

// The owner dies between declaring a hole and making it, and just after it: what its heir keeps is what
// was to be kept, and no more.
func TestBoundedOutputWhenItsOwnerDiesCutting(t *testing.T) {
	for _, plan := range []string{"capture.declared=kill", "capture.declared:4=kill", "capture.cut=kill", "capture.cut:9=kill"} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", plan)
			const lines, most = 2_000_000, 256 << 10
			sub := l.bounded(numbered(lines)+"; exit 2", most)
			l.submit(sub)
			rec := l.final(sub.RunID)
			if !exited(rec, 2) || rec.Writer.Kind != "keeper" {
				t.Errorf("%s", show(rec))
			}
			l.checkBounded(rec, "stdout", lines*16, most)
		})
	}
}

// The owner dies on either side of the gate's opening: on a terminal, too, nothing ran or all that was written
// is there, by the keeper, which holds the master.
func TestTerminalWhenItsOwnerDies(t *testing.T) {
	for plan, ran := range map[string]bool{"owner.gate.ready=kill": false, "owner.running=kill": false, "owner.opened=kill": true, "owner.answered=kill": true} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", plan)
			sub := l.onTerminal("seq 1000; exit 7")
			l.trySubmit(sub)
			rec := l.final(sub.RunID)
			out := l.stdout(sub.RunID)
			if ran != exited(rec, 7) || ran != strings.HasSuffix(out, "\r\n999\r\n1000\r\n") || !ran && (out != "" || rec.State != "launch_failed") {
				t.Errorf("%d bytes: %s", len(out), show(rec))
			}
		})
	}
}
