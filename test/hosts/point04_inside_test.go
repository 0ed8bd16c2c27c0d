//go:build hosts

package hosts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
	"github.com/longstop/longstop/test/rig"
)

// inside looks at a host's processes and files from here, where a look takes a millisecond and not
// a process: what is killed at a random moment must be found at that moment.
type inside struct{ pid1 int }

func insideOf(t *testing.T, h *rig.Host) inside { return inside{h.PID(t)} }

func (in inside) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", in.pid1, name) }

// processes lists every process of the host that descends from its PID 1, by this machine's numbers.
func (in inside) processes() []int {
	all := []int{in.pid1}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(all[i])...)
	}
	return all
}

func childrenOf(pid int) (children []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		list, _ := os.ReadFile(file)
		for word := range strings.FieldsSeq(string(list)) {
			child, _ := strconv.Atoi(word)
			children = append(children, child)
		}
	}
	return children
}

// runners lists the processes of Longstop on the host, by what they are: "owner", one that has a run
// (a keeper may have another stand by), "keeper", or "verb", which is serve and every verb that runs
// alone. A keeper's child that looks like one is about to be an owner.
func (in inside) runners() map[string][]int {
	found := map[string][]int{}
	for _, pid := range in.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		argv := strings.Split(string(line), "\x00")
		switch {
		case !strings.HasPrefix(filepath.Base(argv[0]), "longstop-runner"):
		case argv[1] == "keeper" && !slices.Contains(found["keeper"], parentOf(pid)), argv[1] == "owner" && hasRun(pid):
			found[argv[1]] = append(found[argv[1]], pid)
		case argv[1] != "owner" && argv[1] != "gate" && argv[1] != "keeper":
			found["verb"] = append(found["verb"], pid)
		}
	}
	return found
}

func parentOf(pid int) (parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %s %d", new(string), &parent)
	return parent
}

// hasRun reports whether a process has the folder of a run open.
func hasRun(pid int) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		name, _ := os.Readlink(fd)
		return strings.Contains(name, "/runs/run_")
	})
}

// marked counts the living processes of each run by the mark in their environment.
func (in inside) marked() map[longstop.RunID][]int {
	found := map[longstop.RunID][]int{}
	for _, pid := range in.processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if id, ok := bytes.CutPrefix(entry, []byte("LONGSTOP_RUN_ID=")); ok {
				found[longstop.RunID(id)] = append(found[longstop.RunID(id)], pid)
			}
		}
	}
	return found
}

// lines counts the lines of a file, 0 where it is not.
func (in inside) lines(name string) int {
	content, _ := os.ReadFile(in.path(name))
	return bytes.Count(content, []byte("\n"))
}

// final reads a run's final record from the host's disk, past every program of ours.
func (in inside) final(t *testing.T, id longstop.RunID) (rec longstop.Record) {
	t.Helper()
	sealed, err := os.ReadFile(in.path("/home/deploy/.local/state/longstop/runs/" + string(id) + "/final"))
	if err != nil {
		t.Errorf("%s has no final record: %v", id, err)
		return rec
	}
	_, body, _ := bytes.Cut(sealed, []byte("\n"))
	body, _, _ = bytes.Cut(body, []byte("\n"))
	if err := wire.Tolerant(body, &rec); err != nil {
		t.Errorf("the final record of %s: %v\n%s", id, err, sealed)
	}
	return rec
}
