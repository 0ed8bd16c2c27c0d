package boundary

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is the cgroup v2 hierarchy as this process sees it, cgroups(7). Beside v1 hierarchies it
// is mounted too (systemd's hybrid layout), though its controllers are mostly theirs then.
type Hierarchy struct {
	Mount string // the folder of the topmost cgroup that is to be seen
	Self  string // the folder of this process's own cgroup; empty where the mount does not show it
}

// FindHierarchy finds it, or says why there is none.
func FindHierarchy() (Hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Hierarchy{}, err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Hierarchy{}, err
	}
	return findHierarchy(string(mounts), string(self), isCgroup2)
}

// findHierarchy takes, of several mounts, one that shows the process's own cgroup rather than one
// that does not. there says whether a mount is still to be seen at its folder: another may hide it.
func findHierarchy(mountinfo, cgroup string, there func(dir string) bool) (Hierarchy, error) {
	own, ok := ownCgroup(cgroup)
	if !ok {
		return Hierarchy{}, errors.New("the kernel has no cgroup v2 hierarchy: " + strings.TrimSpace("v1 alone "+v1Controllers(cgroup)))
	}
	var found Hierarchy
	for line := range strings.Lines(mountinfo) {
		root, point, ok := cgroup2Mount(line)
		if !ok || !there(point) {
			continue
		}
		h := Hierarchy{Mount: point, Self: below(point, root, own)}
		if h.Self != "" && there(h.Self) {
			return h, nil
		}
		h.Self = ""
		if found.Mount == "" {
			found = h
		}
	}
	if found.Mount == "" {
		return found, errors.New("the cgroup v2 hierarchy is not mounted where this process could see it")
	}
	return found, nil
}

// ownCgroup is the v2 line of /proc/PID/cgroup.
func ownCgroup(data string) (string, bool) {
	for line := range strings.Lines(data) {
		if own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return strings.TrimSuffix(own, " (deleted)"), true
		}
	}
	return "", false
}

// v1Controllers are the controllers that belong to v1 hierarchies, as /proc/PID/cgroup lists them.
func v1Controllers(data string) string {
	var all []string
	for line := range strings.Lines(data) {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) == 3 && fields[0] != "0" && !strings.HasPrefix(fields[1], "name=") {
			all = append(all, fields[1])
		}
	}
	if all == nil {
		return ""
	}
	return "(" + strings.Join(all, ",") + ")"
}

// cgroup2Mount reads a line of proc_pid_mountinfo(5): which cgroup is mounted, and where.
func cgroup2Mount(line string) (root, point string, ok bool) {
	left, right, found := strings.Cut(line, " - ")
	fields, kind := strings.Fields(left), strings.Fields(right)
	if !found || len(fields) < 6 || len(kind) < 1 || kind[0] != "cgroup2" {
		return "", "", false
	}
	root, point = unescape(fields[3]), unescape(fields[4])
	return root, point, path.IsAbs(point) && point == path.Clean(point)
}

// unescape undoes the octal escapes of mountinfo: \040 is a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// below is where a mount shows a cgroup, or empty: it may be mounted from further down, and a cgroup
// outside of this process's namespace has a path that begins with "/..".
func below(point, root, own string) string {
	if strings.HasPrefix(root, "/..") || strings.HasPrefix(own, "/..") {
		return ""
	}
	rest, ok := strings.CutPrefix(path.Clean(own)+"/", strings.TrimSuffix(path.Clean(root), "/")+"/")
	if !ok {
		return ""
	}
	return filepath.Join(point, rest)
}

func isCgroup2(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// homes are the folders in which runs' cgroups could be made, best first. The top of the hierarchy is
// root's: what is there belongs to no login session and no service that may be stopped. Then come
// one's own cgroup and those above it, which is what delegation gives; last the user's service
// manager, in which a login session may make cgroups that it then may not enter.
func (h Hierarchy) homes(uid int) []string {
	all := []string{h.Mount}
	if h.Self == "" {
		return all
	}
	var managers []string
	for dir := h.Self; dir != h.Mount; dir = filepath.Dir(dir) {
		all = append(all, dir)
		if id := strconv.Itoa(uid); filepath.Base(dir) == "user-"+id+".slice" {
			managers = append(managers, filepath.Join(dir, "user@"+id+".service"))
		}
	}
	return append(all, managers...)
}
