package gateway_test

import (
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestShortLeaseBesideLong: each lease is renewed at its own pace, however long others on the host last.
func TestShortLeaseBesideLong(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	long, short := script("sleep 60"), script("sleep 5; exit 3")
	long.Request.LeaseS = 3600
	first := b.run(long)
	sshtest.Eventually(t, "the long lease is renewed", func() bool { return b.tap.count(wire.VerbRenew) > 0 })
	short.Request.LeaseS, short.Request.GraceS = 1.5, 1
	if a := b.wait(b.run(short).ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 3 {
		t.Errorf("%s", pretty(a))
	}
	b.cancel(first.ID, nil)
}
