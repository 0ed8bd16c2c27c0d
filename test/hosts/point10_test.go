//go:build hosts

package hosts

import (
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/test/rig"
)

func TestPoint10SameKey(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	const file = "/home/deploy/point10"
	h.Exec(t, "rm", "-f", file)
	first := g.launch(t, "--key", "rot-2026-11", "h1", "-c", "echo ran >>"+file)
	second := g.launch(t, "--key", "rot-2026-11", "h1", "-c", "echo ran >>"+file)
	if first != second {
		t.Errorf("two actions, %s and %s, under one key", first, second)
	}
	if r := g.longstop(t, "run", "--key", "rot-2026-11", "h1", "-c", "echo ran >>"+file); r.status != 0 {
		t.Error(r)
	}
	r := g.longstop(t, "run", "--key", "rot-2026-11", "h1", "-c", "echo other >>"+file)
	if r.status != longstop.ExitNotStarted || !strings.Contains(r.stderr, "rot-2026-11") {
		t.Errorf("another request under the key: %s", r)
	}
	if p := g.longstop(t, "run", "--json", "--key", "rot-2026-11", "h1", "-c", "echo other >>"+file).problem(t); p.Code != longstop.CodeKeyConflict {
		t.Errorf("another request under the key: %s", pretty(p))
	}
	g.final(t, first, commandBound)
	if got := string(h.ReadFile(t, file)); got != "ran\n" {
		t.Errorf("ran %q", got)
	}
}
