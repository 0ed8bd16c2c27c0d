package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestC127DamagedOnTheHost: runs end while no gateway is there, and what is in the place of their final records is
// garbage by the time one is. Each of those is unknown for that reason, the garbage is kept, and the others are
// as they were.
func TestC127DamagedOnTheHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	gate := filepath.Join(sshtest.ShortDir(t), "go")
	launch := func() longstop.Action {
		req := script("while [ ! -e " + gate + " ]; do sleep 0.02; done; exit 4")
		req.Request.Lifetime = longstop.Detached
		return b.run(req)
	}
	text := func(s string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(s), 0o600) }
	}
	garbage := map[string]func(path string) error{
		"empty": text(""), "brace": text("{"), "null": text("null"), "list": text("[]"), "state": text(`{"state":5}`), "long": text(strings.Repeat("x", 2_000_000)),
		"unreadable": func(path string) error { return os.WriteFile(path, []byte("{}"), 0) },
		"folder":     func(path string) error { return os.Mkdir(path, 0o700) },
		"link":       func(path string) error { return os.Symlink("/etc/passwd", path) },
	}
	good, bad := launch(), map[string]longstop.Action{}
	for name := range garbage {
		bad[name] = launch()
	}
	state, paths := b.state().StateDir, map[string]string{}
	for name, a := range bad {
		paths[name] = filepath.Join(state, "runs", string(a.RunID), "final")
	}
	b.stop()
	b.must(os.WriteFile(gate, nil, 0o600))
	// Whoever still answers for a run puts garbage aside and writes the record again.
	sshtest.Eventually(t, "the end of owners and keeper", func() bool { return !anyoneNames(state) })
	for name, spoil := range garbage {
		b.must(os.Remove(paths[name]))
		b.must(spoil(paths[name]))
	}
	b.start()
	for name, a := range bad {
		a = b.until(a.ID, "the damage of "+name+" is seen", func(a longstop.Action) bool { return a.UnknownBecause == longstop.UnreadableRecord })
		if a.Outcome != longstop.OutcomeUnknown || a.Workload.Result != nil || a.Workload.State.Final() {
			t.Errorf("%s: %s", name, pretty(a))
		}
		if _, err := os.Lstat(paths[name]); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
	if good = b.wait(good.ID); good.Outcome != longstop.OutcomeFailed || *good.Workload.Result.ExitCode != 4 {
		t.Errorf("beside them: %s", pretty(good))
	}
}

// anyoneNames reports whether a process has the path among its arguments.
func anyoneNames(path string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(all, func(file string) bool {
		args, _ := os.ReadFile(file)
		return strings.Contains(string(args), path)
	})
}
