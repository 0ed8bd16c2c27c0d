//go:build faults

package runner

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// A flush that fails is never taken for one that did not: what was to be durable before the work might run has
// it not run; what comes later is in the record's own words, and how the work ended is what it was.
func TestFlushesThatFail(t *testing.T) {
	t.Parallel()
	const script = "echo ran > ran; (sleep 0.2 &); exit 7"
	for _, c := range []struct{ plan, says string }{
		{"record.write.running.flush=eio", ""},
		{"record.claim.flush=eio", ""},
		{"record.settle.flush=eio", "the run's folder did not take the final record, which is kept in the record file: "},
		{"record.settle.flush:2=eio", "the run's folder did not take the final record, which is kept in the record file: "},
		{"record.write.lingering.flush=eio", "a record could not be written: "},
		{"record.finish.data=eio", "the run's folder did not take the final record, which is kept in the record file: "},
		{"record.finish.data=eio,record.finish.slot.flush=eio", "the final record could not be written at first: "},
	} {
		t.Run(c.plan, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.plan("owner", c.plan)
			sub := l.script(script)
			answer := l.submit(sub)
			rec := l.final(sub.RunID)
			ran := l.exists("ran")
			if c.says == "" {
				if e := rec.LaunchError; ran || rec.State != longstop.WorkloadLaunchFailed || e == nil || e.Step != "record" || e.Errno != "EIO" || answer.State != rec.State {
					t.Errorf("ran: %v, %s", ran, show(rec))
				}
				return
			}
			rec = l.until(sub.RunID, c.says, func(r longstop.Record) bool { return strings.Contains(strings.Join(r.Anomalies, "\n"), c.says) })
			said := strings.Join(rec.Anomalies, "\n")
			if !ran || !exited(rec, 7) || !strings.Contains(said, c.says) || !strings.Contains(said, "input/output error") {
				t.Errorf("%s", show(rec))
			}
		})
	}
}
