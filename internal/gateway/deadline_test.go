package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestC098OneDeadline: from the first byte to the runner's first answer there is one deadline, nearer here than any
// stage's own bound. It is kept wherever a connection stands still, and the error names that stage. Nothing was
// started; once the host answers again all is well.
func TestC098OneDeadline(t *testing.T) {
	eachTransport(t, func(t *testing.T, over func(*bench)) {
		const reach = 3 * time.Second
		hold := filepath.Join(t.TempDir(), "hold")
		b := newBench(t, sshtest.Options{ForceCommand: `while [ -e ` + hold + ` ]; do sleep 0.05; done; eval "$SSH_ORIGINAL_COMMAND"`}, over)
		direct := func() longstop.RunRequest {
			req := script("true")
			req.Request.Owner = longstop.OwnerNone
			return req
		}
		dialed := func(f func()) {
			b.tap.mu.Lock()
			defer b.tap.mu.Unlock()
			b.tap.dialed = f
		}
		for _, c := range []struct {
			name, says string
			req        longstop.RunRequest
			stop, goOn func()
		}{
			{"the banner", "no SSH banner", script("true"), b.proxy.Freeze, b.proxy.Thaw},
			{"the banner of a direct action", "no SSH banner", direct(), b.proxy.Freeze, b.proxy.Thaw},
			{"the session", "no session was opened", script("true"), func() { dialed(b.proxy.Freeze) }, func() { dialed(nil); b.proxy.Thaw() }},
			{"the runner", "did not start the runner", script("true"), func() { b.must(os.WriteFile(hold, nil, 0o600)) }, func() { b.must(os.Remove(hold)) }},
		} {
			b.stop()
			b.reach = reach
			c.stop()
			b.start()
			begun := time.Now()
			a, err := b.Run(t.Context(), c.req, operator, gateway.Told{})
			if took := time.Since(begun); took > reach+5*time.Second { // the nearest bound of a stage is 10 s
				t.Errorf("%s: %v", c.name, took)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "all stages of a connection have 3s together") {
				t.Errorf("%s: %v", c.name, err)
			}
			if a.Outcome != longstop.OutcomeNotStarted {
				t.Errorf("%s: %s", c.name, pretty(a))
			}
			c.goOn()
			b.stop()
			b.reach = 0
			b.start()
			if again := b.wait(b.run(script("exit 3")).ID); again.Outcome != longstop.OutcomeFailed {
				t.Errorf("after %s: %s", c.name, pretty(again))
			}
		}
	})
}
