package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFindHome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"its own variable":           {[]string{"LONGSTOP_HOME", "/x/y", "HOME", "/h", "XDG_STATE_HOME", "/s"}, "/x/y"},
		"the XDG state folder":       {[]string{"HOME", "/h", "XDG_STATE_HOME", "/s"}, "/s/longstopd"},
		"a relative one, ignored":    {[]string{"HOME", "/h", "XDG_STATE_HOME", "s"}, "/h/.local/state/longstopd"},
		"the home":                   {[]string{"HOME", "/h"}, "/h/.local/state/longstopd"},
		"a path with detours":        {[]string{"LONGSTOP_HOME", "/x/../z/"}, "/z"},
		"nothing":                    {nil, ""},
		"a home that is no absolute": {[]string{"HOME", "h"}, ""},
	} {
		h, err := FindHome(env(c.env...))
		if (err == nil) != (c.want != "") || h.Dir != c.want {
			t.Errorf("%s: %q, %v", name, h.Dir, err)
		}
	}
}

// Whatever leads to a folder, its sockets are in one place.
func TestRuntimeFollowsFromTheFolder(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(base, strings.Repeat("long/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "l")
	if err := os.Symlink(deep, link); err != nil {
		t.Fatal(err)
	}
	direct, err1 := FindHome(env("LONGSTOP_HOME", deep))
	linked, err2 := FindHome(env("LONGSTOP_HOME", link, "XDG_RUNTIME_DIR", "/elsewhere"))
	if err1 != nil || err2 != nil || direct != linked {
		t.Errorf("%+v (%v), %+v (%v)", direct, err1, linked, err2)
	}
	if len(direct.Socket()) >= 108 || len(direct.Runtime) > longestRuntime {
		t.Errorf("%s does not fit", direct.Socket())
	}
	t.Cleanup(func() { os.RemoveAll(direct.Runtime) })
	if err := direct.Make(); err != nil {
		t.Error(err)
	}
	// Not made yet, the folder has the same name as once it is.
	later := filepath.Join(link, "a", "b")
	before, _ := FindHome(env("LONGSTOP_HOME", later))
	if err := os.MkdirAll(later, 0o700); err != nil {
		t.Fatal(err)
	}
	if after, _ := FindHome(env("LONGSTOP_HOME", later)); after != before {
		t.Errorf("%+v, then %+v", before, after)
	}
	if short, _ := FindHome(env("LONGSTOP_HOME", "/x/y")); short.Runtime != "/x/y/run" {
		t.Errorf("a short one: %s", short.Runtime)
	}
}

func TestMakeRefuses(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(dir string) error{
		"a file":           func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"others may write": func(dir string) error { os.Mkdir(dir, 0o700); return os.Chmod(dir, 0o777) },
		"its sockets open": func(dir string) error {
			os.MkdirAll(filepath.Join(dir, "run"), 0o700)
			return os.Chmod(filepath.Join(dir, "run"), 0o755)
		},
		"its sockets elsewhere": func(dir string) error {
			os.Mkdir(dir, 0o700)
			return os.Symlink("/tmp", filepath.Join(dir, "run"))
		},
	} {
		dir := filepath.Join(t.TempDir(), "h")
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		err := Home{Dir: dir, Runtime: filepath.Join(dir, "run")}.Make()
		if longstop.CodeOf(err) != longstop.CodeUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A folder that others may read is taken: what is secret in it is not theirs to read.
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	if err := (Home{Dir: dir, Runtime: filepath.Join(dir, "run")}).Make(); err != nil {
		t.Error(err)
	}
}

// The gateway's agent is that of the last command which had one.
func TestLendAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := Home{Dir: dir, Runtime: filepath.Join(dir, "run")}
	if h.LendAgent(env(agentEnv, "/a")) {
		t.Error("lent to a gateway that has no folder")
	}
	if err := h.Make(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mine, then string
		lent       bool
	}{{"/a", "/a", true}, {"/a", "/a", true}, {"/b", "/b", true}, {"", "/b", false}, {h.agent(), "/b", true}, {"relative", "/b", false}} {
		if lent := h.LendAgent(env(agentEnv, c.mine)); lent != c.lent {
			t.Errorf("%q: %v", c.mine, lent)
		}
		if now, err := os.Readlink(h.agent()); err != nil || now != c.then {
			t.Errorf("after %q: %q, %v", c.mine, now, err)
		}
	}
	if rest, _ := filepath.Glob(filepath.Join(h.Runtime, "*")); len(rest) != 1 {
		t.Errorf("left behind: %q", rest)
	}
}
