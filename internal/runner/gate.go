package runner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/wire"
)

// The gate is the process that becomes the workload. It stands in its final session, group,
// directory and descriptors and waits for one byte; its identity is on record before the byte comes.
// If its owner dies first it sees the end of the stream instead and goes, and nothing ever ran.
//
// What it did is kept in a page of shared memory that keeper and owner have too (see report): it
// outlives both the gate and the owner, and reading it takes nothing away.

// gateStream is the descriptor of a gate's end of the pair that it has with its owner. From the
// owner: a plan, with four descriptors (the workload's 0 to 2, and the report), then the byte. To
// it: one byte for each change of the report.
const gateStream = 3

// plan is what the gate is to become. Bytes, not strings: arguments, values and paths need not be
// UTF-8.
type plan struct {
	Argv   [][]byte         `json:"argv"`
	Env    [][]byte         `json:"env"`
	Dir    []byte           `json:"dir"`
	Umask  int              `json:"umask"`
	Limits *longstop.Limits `json:"limits,omitempty"`
}

// RunGate is the gate's main function; it returns only if the workload did not start.
func RunGate([]string) int {
	unix.CloseOnExec(gateStream)
	boundary.CloseInherited(gateStream)
	g := gate{stream: os.NewFile(gateStream, "owner")}
	wire.Tolerant([]byte("{}"), &plan{}) // what its first use costs is paid while nobody waits
	p, err := g.plan()
	if err != nil {
		return 126
	}
	fault.At("gate.planned")
	if refused := g.settle(p); refused != nil {
		g.say(gateFailed, refused)
		return 126
	}
	g.say(gateReady, nil)
	fault.At("gate.ready")
	var opened [1]byte
	if _, err := io.ReadFull(g.stream, opened[:]); err != nil {
		g.say(gateNever, nil)
		return 126
	}
	fault.At("gate.byte")
	g.say(gateOpened, nil)
	fault.At("gate.opened")
	g.say(gateFailed, g.become(p))
	return 127
}

type gate struct {
	stream *os.File
	said   *report
}

// say puts a change into the report, then wakes the owner.
func (g *gate) say(state gateState, failure *longstop.LaunchError) {
	g.said.set(state, failure)
	g.stream.Write([]byte{byte(state)})
}

// plan receives the plan, and takes the descriptors that come with it into use.
func (g *gate) plan() (plan, error) {
	var p plan
	var head [4]byte
	control := make([]byte, unix.CmsgSpace(4*4))
	n, controlled, _, _, err := unix.Recvmsg(gateStream, head[:1], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 {
		return p, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fds, err := rights(control[:controlled])
	if err != nil || len(fds) != 4 {
		return p, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	for to, fd := range fds[:3] {
		if err := unix.Dup3(fd, to, 0); err != nil {
			return p, err
		}
	}
	if g.said, err = mapReport(fds[3]); err != nil {
		return p, err
	}
	if _, err := io.ReadFull(g.stream, head[1:]); err != nil {
		return p, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(g.stream, body); err != nil {
		return p, err
	}
	return p, wire.Tolerant(body, &p)
}

// settle goes to where the workload will be, and says why it cannot.
func (g *gate) settle(p plan) *longstop.LaunchError {
	if err := unix.Chdir(string(p.Dir)); err != nil {
		return launchError("chdir", string(p.Dir), err)
	}
	unix.Umask(p.Umask)
	for _, limit := range rlimits(p.Limits) {
		var now unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &now); err != nil {
			return launchError("limits", limit.name, err)
		}
		if limit.value > now.Max && os.Geteuid() != 0 {
			return launchError("limits", limit.name, unix.EPERM)
		}
	}
	return nil
}

// become turns the gate into the workload, or says why it cannot. Signals are as a new session's:
// nothing ignored, nothing blocked, whatever the login or the runtime had set.
func (g *gate) become(p plan) *longstop.LaunchError {
	runtime.LockOSThread() // the thread that execs is the one whose mask counts
	argv, env := texts(p.Argv), texts(p.Env)
	for _, limit := range rlimits(p.Limits) {
		most := limit.value
		if limit.resource == unix.RLIMIT_CPU {
			most = secondMore(most) // for XCPU, which names what the work died of; at the hard limit comes KILL
		}
		// syscall's, not unix's: it also forgets the soft limit on files that the runtime raised
		// for itself and would put back at exec.
		if err := syscall.Setrlimit(limit.resource, &syscall.Rlimit{Cur: limit.value, Max: most}); err != nil {
			return launchError("limits", limit.name, err)
		}
	}
	defaultSignals()
	if len(argv) == 0 || argv[0] == "" {
		return launchError("exec", "", unix.ENOENT)
	}
	if strings.Contains(argv[0], "/") {
		return launchError("exec", argv[0], execute(argv[0], argv, env))
	}
	// As execvp(3): the first that can be executed; one that is there and may not be is remembered.
	failure := error(unix.ENOENT)
	for _, dir := range strings.Split(searchPath(env), ":") {
		if dir == "" {
			dir = "."
		}
		switch err := execute(dir+"/"+argv[0], argv, env); {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.EACCES):
			failure = err
		default:
			return launchError("exec", dir+"/"+argv[0], err)
		}
	}
	return launchError("exec", argv[0], failure)
}

// execute returns only if it fails. A file that has no interpreter and no known format is given to
// the shell, as execvp(3) and every shell do.
func execute(path string, argv, env []string) error {
	err := syscall.Exec(path, argv, env)
	if errors.Is(err, unix.ENOEXEC) {
		return syscall.Exec(shell, append([]string{"sh", path}, argv[1:]...), env)
	}
	return err
}

const shell = "/bin/sh"

func searchPath(env []string) string {
	for _, entry := range env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// defaultSignals sets every disposition to the default and unblocks every signal.
func defaultSignals() {
	var action [4]uint64 // struct sigaction of rt_sigaction(2): all zero is SIG_DFL without flags
	for sig := uintptr(1); sig <= 64; sig++ {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
	var none unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
}

// secondMore is a hard limit on CPU time above a soft one, as far as this process may set it.
func secondMore(seconds uint64) uint64 {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CPU, &now) == nil && now.Max < seconds+1 {
		return max(seconds, now.Max)
	}
	return seconds + 1
}

type rlimit struct {
	name     string
	resource int
	value    uint64
}

// rlimits are the limits that a tree can hold. They bind each process, and files and processes by
// number: RLIMIT_NPROC counts all of the user's.
func rlimits(l *longstop.Limits) []rlimit {
	if l == nil {
		return nil
	}
	var limits []rlimit
	for _, r := range []struct {
		name     string
		resource int
		value    int64
	}{
		{"open_files", unix.RLIMIT_NOFILE, l.OpenFiles},
		{"processes", unix.RLIMIT_NPROC, l.Processes},
		{"cpu_s", unix.RLIMIT_CPU, l.CPUS},
		{"file_bytes", unix.RLIMIT_FSIZE, l.FileBytes},
	} {
		if r.value > 0 {
			limits = append(limits, rlimit{r.name, r.resource, uint64(r.value)})
		}
	}
	return limits
}

func texts(words [][]byte) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

func launchError(step, path string, err error) *longstop.LaunchError {
	e := &longstop.LaunchError{Step: step, Path: path, Errno: boundary.Errno(err), Message: err.Error()}
	if path != "" {
		e.Message = path + ": " + err.Error()
	}
	return e
}

// gateState is how far a gate has come. What is not ready, or never, ran nothing of the work.
type gateState uint32

const (
	gateMade   gateState = iota // nothing said yet
	gateReady                   // in place, waiting for the byte
	gateNever                   // the stream ended before the byte; it went, and nothing ran
	gateFailed                  // it could not be put in place, or exec failed; nothing ran
	gateOpened                  // the byte came: from here on the work may run
)

// report is a gate's word about itself: a page of shared memory with a state, and for gateFailed
// the reason as JSON after its length. Written by plain stores, it is not subject to the limit on
// file sizes that the workload may have.
type report struct{ page []byte }

const reportSize = 4096

// newReport makes the memory. The descriptor is closed on exec, and so never the workload's.
func newReport() (int, error) {
	fd, err := unix.MemfdCreate("longstop-gate", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := unix.Ftruncate(fd, reportSize); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func mapReport(fd int) (*report, error) {
	page, err := unix.Mmap(fd, 0, reportSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &report{page}, nil
}

// readReport reads a gate's report. A state that is read holds; it never goes back.
func readReport(fd int) (gateState, *longstop.LaunchError) {
	page := make([]byte, reportSize)
	if n, err := unix.Pread(fd, page, 0); err != nil || n != reportSize {
		return gateMade, nil
	}
	state := gateState(binary.LittleEndian.Uint32(page))
	length := binary.LittleEndian.Uint32(page[4:])
	if state != gateFailed || length > reportSize-8 {
		return state, nil
	}
	var failure longstop.LaunchError
	if err := json.Unmarshal(page[8:8+length], &failure); err != nil {
		return state, &longstop.LaunchError{Step: "gate", Message: "its reason cannot be read: " + err.Error()}
	}
	return state, &failure
}

func (r *report) set(state gateState, failure *longstop.LaunchError) {
	if failure != nil {
		reason, err := json.Marshal(failure)
		if err != nil || len(reason) > reportSize-8 {
			short := *failure
			short.Path, short.Message = "", "the path is too long to be named: "+short.Errno
			reason, _ = json.Marshal(short)
		}
		binary.LittleEndian.PutUint32(r.page[4:], uint32(len(reason)))
		copy(r.page[8:], reason)
	}
	binary.LittleEndian.PutUint32(r.page, uint32(state)) // last: a reader believes what it says
}
