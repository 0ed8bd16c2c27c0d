package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
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

// Whoever waits by turns gives up often: an action shows the last of these, and the journal has them all. What
// somebody says of themselves is bounded.
func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 300"))
	for n := range 25 {
		_, err := b.RecordWait(t.Context(), string(a.ID), fmt.Sprint("turn ", n))
		b.must(err)
	}
	a, err := b.Action(t.Context(), string(a.ID))
	b.must(err)
	given := 0
	for _, kind := range b.kinds(a.ID) {
		if kind == "wait_given_up" {
			given++
		}
	}
	if len(a.Waits) != 20 || a.Waits[0].By != "turn 5" || a.Waits[19].By != "turn 24" || given != 25 {
		t.Errorf("%d in the journal, %s", given, pretty(a.Waits))
	}
	for _, by := range []longstop.Requester{{Via: "a\x1b[2J"}, {Name: strings.Repeat("n", 201)}} {
		req := script("true")
		req.By = by
		if _, err := b.Run(t.Context(), req, operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeUsage {
			t.Errorf("%q: %v", by, err)
		}
	}
	b.cancel(a.ID, nil)
}
