// Package gate makes the process that becomes a run's work: a child in its final session, group,
// cgroup, folder, limits and descriptors, which waits for one byte and then executes. Whoever made
// it can write down who it is before anything of the work runs; if its maker dies first, the gate
// sees the end of its stream and goes.
//
// The child runs in its maker's memory, and is not a start of its own (child.go): it costs neither a
// program's start nor a copy of the memory, and nothing that can fail stands between it and the work. What it
// did is kept in a page of shared memory, the report, which outlives it and its maker, and which keepers read
// too.
package gate

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop/internal/fault"
)

// Plan is what a gate becomes. Arguments, values and paths are bytes that need not be UTF-8.
type Plan struct {
	Argv   []string
	Env    []string // of the work; PATH in it is searched
	Dir    string
	Umask  int
	OOM    string // its oom_score_adj, where its maker may set that; empty: its maker's
	Files  [3]int // descriptors of this process that become 0, 1 and 2; all above 3
	Limits []Limit
	Cgroup int // descriptor of the cgroup it is born into, or -1
	// Terminal says that 1 is a terminal: its session's own.
	Terminal bool
	// Apart gives it a copy of its maker's memory: the kernel kills whoever shares a memory together, and a gate whose
	// cgroup is short of memory would take its maker with it.
	Apart bool
}

// Limit is a resource limit of the work alone: the gate has its maker's until it executes.
type Limit struct {
	Name     string // for whoever reads that it could not be set
	Resource int
	unix.Rlimit
}

// Failure is why a gate did not become the work.
type Failure struct {
	Step  string // "gate", "chdir", "limits", "exec"
	Path  string // the folder, limit or file, if there is one
	Errno unix.Errno
}

func (f *Failure) Error() string {
	if f.Path == "" {
		return f.Step + ": " + f.Errno.Error()
	}
	return f.Step + ": " + f.Path + ": " + f.Errno.Error()
}

// State is how far a gate has come. What is not Opened ran nothing of the work.
type State uint32

const (
	Made   State = iota // nothing said yet
	Ready               // in place, waiting for the byte
	Never               // the stream ended before the byte; it went, and nothing ran
	Failed              // it could not be put in place, or exec failed; nothing ran
	Opened              // the byte came: from here on the work may run
)

// The report: the state, a step, an errno, the number of a text, and then the texts, each ended by a
// zero byte. The maker writes the texts, the child the rest; the state is written last.
const (
	reportSize  = 64 << 10 // room for every path that a search may name; what is not touched takes none
	reportTexts = 16
)

var steps = [...]string{stepGate: "gate", stepChdir: "chdir", stepLimits: "limits", stepExec: "exec", stepTerminal: "terminal"}

const (
	stepGate = iota
	stepChdir
	stepLimits
	stepExec
	stepTerminal
)

// NewReport makes a report's memory. Its descriptor is closed on exec, and so never the work's.
func NewReport() (fd int, err error) {
	fd, err = unix.MemfdCreate("longstop-gate", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a gate's report: %w", err)
	}
	if err := unix.Ftruncate(fd, reportSize); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make a gate's report: %w", err)
	}
	return fd, nil
}

// ReadReport reads a report. A state that is read holds; it never goes back.
func ReadReport(fd int) (State, *Failure) {
	var head [reportTexts]byte
	if n, err := unix.Pread(fd, head[:], 0); err != nil || n != len(head) {
		return Made, nil
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(head[4*i:]) }
	state := State(word(0))
	if state != Failed {
		return state, nil
	}
	failure := &Failure{Errno: unix.Errno(word(2)), Step: steps[min(int(word(1)), len(steps)-1)]}
	texts := make([]byte, reportSize-reportTexts)
	n, _ := unix.Pread(fd, texts, reportTexts)
	if all := strings.SplitN(string(texts[:max(n, 0)]), "\x00", int(word(3))+2); int(word(3)) < len(all) {
		failure.Path = all[word(3)]
	}
	return state, failure
}

// Gate is a gate that was made. It runs in its maker's memory until it executes or ends.
type Gate struct {
	PID  int
	page []byte
	keep any
}

// gates are those that may still be using memory of ours.
var gates = struct {
	sync.Mutex
	using map[*Gate]bool
}{using: map[*Gate]bool{}}

// Start makes a gate. Its end of the stream is the descriptor stream: it writes one byte for each
// change of the report, and waits for one; both ends closed on exec, the maker's must be the only
// other one. The child is waited for like any other. A plan that can be none is a *Failure.
//
// Until it executes, what it sets its oom_score_adj to is its maker's too, unless it is apart: the kernel has one for
// all who share a memory.
func Start(p Plan, stream, report int) (*Gate, error) {
	page, err := unix.Mmap(report, 0, reportSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the gate's report: %w", err)
	}
	g := &Gate{page: page}
	gates.Lock()
	defer gates.Unlock()
	gates.using[g] = true
	c, keep, err := compile(p, page)
	if err != nil {
		g.forget()
		return nil, err
	}
	c.stream, g.keep = uintptr(stream), [2]any{c, keep}
	syscall.ForkLock.Lock()
	child, errno := c.fork()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		g.forget()
		return nil, os.NewSyscallError("clone", errno)
	}
	g.PID = int(child)
	return g, nil
}

// Release gives back the memory that the gate ran in: for whoever saw the end of its stream, which the kernel
// closes only when the gate has left that memory. Nothing else may be taken for it.
func (g *Gate) Release() {
	gates.Lock()
	defer gates.Unlock()
	if gates.using[g] {
		g.forget()
	}
}

func (g *Gate) forget() {
	delete(gates.using, g)
	unix.Munmap(g.page)
	g.page, g.keep = nil, nil
}

// compile lays out everything that the child needs, so that it needs nothing but system calls. What
// keep holds must live until the child has left this memory.
func compile(p Plan, page []byte) (c *child, keep any, err error) {
	if err := p.check(); err != nil {
		return nil, nil, err
	}
	var memory [][]byte
	text := func(s string) uintptr {
		b := append([]byte(s), 0)
		memory = append(memory, b)
		return uintptr(unsafe.Pointer(&b[0]))
	}
	vector := func(words []string) []uintptr {
		all := make([]uintptr, len(words), len(words)+1)
		for i, word := range words {
			all[i] = text(word)
		}
		return append(all, 0)
	}
	c = &child{state: (*[4]uint32)(unsafe.Pointer(&page[0])), umask: uintptr(p.Umask), cgroup: uint64(p.Cgroup), inCgroup: p.Cgroup >= 0, apart: p.Apart, terminal: p.Terminal, maxFD: highest()}
	for i, fd := range p.Files {
		c.files[i] = uintptr(fd)
	}
	c.argv, c.env, c.dir = vector(p.Argv), vector(p.Env), text(p.Dir)
	c.oom, c.oomFile, c.oomLength = text(p.OOM), text("/proc/self/oom_score_adj"), uintptr(len(p.OOM))
	texts := []string{"", p.Dir}
	for _, limit := range p.Limits {
		c.limits = append(c.limits, rlimit{uintptr(limit.Resource), limit.Rlimit, uint32(len(texts))})
		texts = append(texts, limit.Name)
	}
	c.shell, c.shellArgv = text(shell), append([]uintptr{text("sh"), 0}, c.argv[min(1, len(c.argv)-1):]...)
	for _, path := range candidates(p) {
		c.paths = append(c.paths, candidate{text(path), uint32(len(texts))})
		texts = append(texts, path)
	}
	c.command = uint32(len(texts))
	if len(p.Argv) > 0 {
		texts = append(texts, p.Argv[0])
	}
	// What has no room is not named.
	copy(page[reportTexts:len(page)-1], strings.Join(texts, "\x00")+"\x00")
	if fault.Enabled {
		for i, point := range points {
			c.faults[i].kind, c.faults[i].ms = fault.Planned(point)
		}
	}
	return c, memory, nil
}

// check refuses a zero byte, which no word of a program can hold.
func (p Plan) check() error {
	zero := func(word string) bool { return strings.IndexByte(word, 0) >= 0 }
	switch {
	case zero(p.Dir), zero(p.OOM):
		return &Failure{Step: steps[stepChdir], Errno: unix.EINVAL}
	case slices.ContainsFunc(p.Argv, zero), slices.ContainsFunc(p.Env, zero):
		return &Failure{Step: steps[stepExec], Errno: unix.EINVAL}
	}
	return nil
}

// candidates are the files to try, as execvp(3) does.
func candidates(p Plan) []string {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return nil
	}
	if strings.Contains(p.Argv[0], "/") {
		return p.Argv[:1]
	}
	var paths []string
	for _, dir := range strings.Split(searchPath(p.Env), ":") {
		if dir == "" {
			dir = "."
		}
		paths = append(paths, dir+"/"+p.Argv[0])
	}
	return paths
}

func searchPath(env []string) string {
	for _, entry := range env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// highest is a descriptor that none of this process's is above, with room for what others open
// meanwhile. It is needed where the kernel closes no ranges, before Linux 5.9.
func highest() uintptr {
	if unix.CloseRange(1<<30, 1<<30, 0) == nil {
		return 0
	}
	most := 0
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		defer dir.Close()
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			n := 0
			fmt.Sscan(name, &n)
			most = max(most, n)
		}
	}
	return uintptr(most + 64)
}

const shell = "/bin/sh"

// The points at which tests may end a gate.
var points = [...]string{"gate.planned", "gate.ready", "gate.byte", "gate.opened"}
