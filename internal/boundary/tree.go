package boundary

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Children returns the pids of the children of all threads of a process. Read from outside it may
// miss one while others come and go; a parent that reads its own with its Reaper's lock held (see
// Reaper.Children) misses none.
func Children(pid, threads int) []int {
	if !haveChildrenFile() {
		return childrenByParent(pid)
	}
	proc := "/proc/" + strconv.Itoa(pid) + "/task/"
	if threads == 1 {
		return readChildren(nil, proc+strconv.Itoa(pid))
	}
	tasks, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var pids []int
	for _, task := range tasks {
		pids = readChildren(pids, proc+task.Name())
	}
	return pids
}

func readChildren(pids []int, task string) []int {
	var buf [512]byte
	data, err := readSmall(task+"/children", buf[:])
	if err == nil && len(data) == len(buf) {
		data, err = readWhole(task+"/children", 64<<20)
	}
	if err != nil {
		return pids
	}
	for _, field := range bytes.Fields(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// haveChildrenFile reports whether the kernel was built with CONFIG_PROC_CHILDREN, as all general
// distributions' are.
var haveChildrenFile = sync.OnceValue(func() bool {
	pid := strconv.Itoa(os.Getpid())
	return unix.Access("/proc/"+pid+"/task/"+pid+"/children", unix.F_OK) == nil
})

// childrenByParent looks through all processes: slower, and can miss one that forks meanwhile.
func childrenByParent(pid int) []int {
	var pids []int
	for _, s := range All() {
		if s.PPID == pid {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// All returns every process that /proc shows.
func All() []Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := Look(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// Walk visits the descendants of a process that it knows the children of, parents before their
// children. visit says whether to go into a process's own children; those are read before the
// visit and again after it, so that what a process forked while it was visited is visited too, and
// so are the children of one that ended then.
//
// Each is taken only if its parent is the root or one of those visited: a number that was used
// again between two looks leads nowhere.
func Walk(root int, children []int, visit func(Stat) (descend bool)) {
	walk(root, children, Look, visit)
}

func walk(root int, children []int, look func(pid int) (Stat, error), visit func(Stat) (descend bool)) {
	seen := map[int]bool{root: true}
	queue := children
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		s, err := look(pid)
		if err != nil || !seen[s.PPID] {
			continue
		}
		seen[pid] = true
		before := Children(pid, s.Threads)
		if !visit(s) {
			continue
		}
		queue = append(queue, before...)
		queue = append(queue, Children(pid, s.Threads)...)
	}
}

// Descendants returns all descendants of a process, parents before their children, the dead ones
// left out.
func Descendants(pid int) []Stat {
	s, err := Look(pid)
	if err != nil {
		return nil
	}
	var all []Stat
	Walk(pid, Children(pid, s.Threads), func(s Stat) bool {
		if !s.Dead() {
			all = append(all, s)
		}
		return true
	})
	return all
}
