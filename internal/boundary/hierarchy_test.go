package boundary

import (
	"strings"
	"testing"
)

func TestFindHierarchy(t *testing.T) {
	const (
		unified  = "25 30 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
		hybrid   = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		inside   = "700 600 0:22 /docker/4f /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
		spaced   = "41 31 0:38 / /a\\040b\\134c rw - cgroup2 cgroup2 rw\n"
		above    = "700 600 0:22 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
		v1Mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	)
	everywhere := func(string) bool { return true }
	for _, c := range []struct {
		name, mounts, self string
		want               Hierarchy
		fails              string
	}{
		{"v2", unified, "0::/user.slice/s.scope\n", Hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/s.scope"}, ""},
		{"hybrid", hybrid, "1:cpu:/x\n0::/\n", Hierarchy{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"}, ""},
		{"v1", v1Mounts, "2:cpu,cpuacct:/x\n1:name=systemd:/\n", Hierarchy{}, "v1 alone (cpu,cpuacct)"},
		{"v2 without a mount", v1Mounts, "0::/\n", Hierarchy{}, "not mounted"},
		{"mounted from further down", inside, "0::/docker/4f/x\n", Hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/x"}, ""},
		{"mounted beside", inside, "0::/docker/4f2\n", Hierarchy{"/sys/fs/cgroup", ""}, ""},
		{"a namespace's own", unified, "0::/\n", Hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup"}, ""},
		{"outside of the namespace", unified, "0::/../x\n", Hierarchy{"/sys/fs/cgroup", ""}, ""},
		{"mounted from outside of it", above, "0::/\n", Hierarchy{"/sys/fs/cgroup", ""}, ""},
		{"the mount that shows it", inside + unified, "0::/other\n", Hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/other"}, ""},
		{"odd names", spaced, "0::/x\n", Hierarchy{`/a b\c`, `/a b\c/x`}, ""},
		{"removed meanwhile", unified, "0::/x (deleted)\n", Hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/x"}, ""},
		{"nonsense", "cgroup2\n - cgroup2\n", "0::/x", Hierarchy{}, "not mounted"},
	} {
		got, err := findHierarchy(c.mounts, c.self, everywhere)
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	hidden := func(dir string) bool { return dir != "/sys/fs/cgroup" }
	if got, err := findHierarchy(unified, "0::/\n", hidden); err == nil {
		t.Errorf("under another mount: %+v", got)
	}
}

func FuzzHierarchy(f *testing.F) {
	f.Add("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "1:cpu:/x\n0::/y\n", "populated 1\nfrozen 0\n", "oom 1\noom_kill 1\n")
	f.Add("700 600 0:22 /docker/4\\040f /sys ro - cgroup2 cgroup rw", "0::/docker/4 f/x (deleted)", "", "")
	f.Fuzz(func(t *testing.T, mounts, self, events, memory string) {
		h, err := findHierarchy(mounts, self, func(string) bool { return true })
		if err != nil {
			return
		}
		if h.Self != "" && h.Self != h.Mount && !strings.HasPrefix(h.Self, strings.TrimSuffix(h.Mount, "/")+"/") {
			t.Errorf("%q is not below %q", h.Self, h.Mount)
		}
		for _, dir := range h.homes(1000) {
			if dir == "" {
				t.Errorf("a home without a folder: %+v", h)
			}
		}
		parsePopulated([]byte(events))
		parseOOM(memory)
	})
}
