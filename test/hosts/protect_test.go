//go:build hosts

package hosts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longstop/longstop/test/rig"
)

// Keeper, owner and the gateway's channel hold secrets: the work, which is the same user's, can look into none
// of them, and into its own processes as ever. Each is what its number says.
func TestTheWorkLooksIntoNobodyWhoAnswersForIt(t *testing.T) {
	t.Parallel()
	h, g := rig.New(t), newGateway(t)
	g.enrol(t, h)
	id := g.launch(t, h.Name, "-c", `
		until [ -e /tmp/whom ]; do sleep .05; done
		for pid in $(cat /tmp/whom); do
			kill -0 $pid || echo "$pid is not ours"
			for file in environ maps mem fd/0 exe root; do
				if head -c 1 /proc/$pid/$file >/dev/null 2>&1 || readlink /proc/$pid/$file >/dev/null 2>&1; then echo "/proc/$pid/$file is open"; fi
			done
			[ "$(stat -c %u /proc/$pid/environ)" = 0 ] || echo "/proc/$pid/environ is ours"
		done
		head -c 1 /proc/$$/environ >/dev/null && readlink /proc/$$/exe && cat /proc/self/oom_score_adj`)
	i := g.inspect(t, id)
	serve := strings.Fields(h.Sh(t, "pgrep -u deploy -f 'longstop-runner-[0-9a-f]* serve'"))
	if i.Owner == nil || i.Keeper == nil || len(serve) == 0 {
		t.Fatalf("%s, serving: %q", pretty(i), serve)
	}
	h.Sh(t, fmt.Sprintf("echo %d %d %s > /tmp/whom.new; mv /tmp/whom.new /tmp/whom", i.Owner.PID, i.Keeper.PID, strings.Join(serve, " ")))
	wantExit(t, g.final(t, id, 20e9), 0)
	if out := g.must(t, "logs", string(id)).stdout; !strings.HasPrefix(out, "/") || strings.Count(out, "\n") != 2 || !strings.HasSuffix(out, "\n0\n") {
		t.Errorf("it saw: %s", out)
	}
}
