package gateway_test

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestMainJob runs commands on a real host and knows what became of each.
func TestMainJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("echo out; echo err >&2; exit 7"))
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeFailed || a.Alive != longstop.AliveNo || *a.Workload.Result.ExitCode != 7 || a.CompletionSource != "owner@loop" {
		t.Errorf("exit 7: %s", pretty(a))
	}
	if a.SSHCommand.State != longstop.SSHCarried || a.SSHCommand.Status != nil {
		t.Errorf("the shared channel has no status of its own: %+v", a.SSHCommand)
	}
	if out, errs := b.output(a.ID, "stdout"), b.output(a.ID, "stderr"); out != "out\n" || errs != "err\n" {
		t.Errorf("output %q %q", out, errs)
	}
}
