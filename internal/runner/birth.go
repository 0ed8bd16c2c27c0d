package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/gate"
)

// birth is a workload behind its gate, as its owner sees it.
type birth struct {
	gate   *gate.Gate
	stream *link
	stat   boundary.Stat
	oom    string // our oom_score_adj, where the gate has another, and we with it (gate.Start)
}

// ownOOM is this process's oom_score_adj where no gate has set it.
var ownOOM = sync.OnceValue(boundary.OOMScoreAdj)

// startServant starts this program as another of ours, with its arguments, in a session of its own. Its descriptor 3 is the
// other end of the stream that is returned; 0 to 2 are nothing, and there are no others.
func startServant(reaper *boundary.Reaper, who string, args ...string) (*link, boundary.Identity, error) {
	stream, theirs, err := pair()
	if err != nil {
		return nil, boundary.Identity{}, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		stream.close()
		return nil, boundary.Identity{}, err
	}
	defer null.Close()
	id, err := reaper.Start(func() (int, error) {
		return syscall.ForkExec("/proc/self/exe", append([]string{"longstop-runner", who}, args...), &syscall.ProcAttr{
			Env:   servantEnv(who),
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		stream.close()
		return nil, id, err
	}
	return stream, id, nil
}

// placeGate makes the gate that becomes the work.
func (o *owner) placeGate() *longstop.LaunchError {
	p, failure := o.plan()
	if failure != nil {
		return failure
	}
	files, failure := o.descriptors()
	if failure != nil {
		return failure
	}
	for i, f := range files {
		defer f.Close()
		p.Files[i] = int(f.Fd())
	}
	o.gate, failure = o.place(p, o.report)
	return failure
}

// place makes a gate, waits for it to be in place, and looks whether it is. One that was made is
// returned beside what is wrong with it.
func (o *owner) place(p gate.Plan, report int) (*birth, *longstop.LaunchError) {
	stream, theirs, err := pair()
	if err != nil {
		return nil, launchError("gate", "", err)
	}
	if o.group != nil {
		p.Cgroup = o.group.FD()
		p.Apart = o.given.Submit.Request.Limits != nil && o.given.Submit.Request.Limits.MemoryBytes > 0
	}
	b := &birth{stream: stream}
	if own := ownOOM(); p.OOM == own {
		p.OOM = ""
	} else if p.OOM != "" {
		b.oom = own
	}
	id, err := o.reaper.Start(func() (int, error) {
		var err error
		if b.gate, err = gate.Start(p, int(theirs.Fd()), report); err != nil {
			return 0, err
		}
		return b.gate.PID, nil
	})
	theirs.Close()
	if err != nil {
		stream.close()
		if failed := (*gate.Failure)(nil); errors.As(err, &failed) {
			return nil, failureOf(failed)
		}
		return nil, launchError("gate", "", err)
	}
	b.stat.Identity = id
	fault.At("owner.gate.started")
	if _, failure := b.heed(report); failure != nil {
		return b, failure
	}
	fault.At("owner.gate.ready")
	return b, b.verify()
}

// verify looks at the gate from outside: it must be our own child, leader of its own session and
// group. That its folder and descriptors are what it was given is the kernel's answer to itself.
func (b *birth) verify() *longstop.LaunchError {
	pid := b.stat.PID
	s, err := boundary.Look(pid)
	if err != nil || s.Identity != b.stat.Identity || s.PPID != os.Getpid() || s.SID != pid || s.PGID != pid {
		return &longstop.LaunchError{Step: "gate", Message: fmt.Sprintf("it is not where it was put: %+v", s)}
	}
	b.stat = s
	return nil
}

// heed waits for the gate to say something. Ended: it said nothing, and its end of the stream is
// closed: it was exec'd, or is gone.
func (b *birth) heed(report int) (ended bool, failure *longstop.LaunchError) {
	var said [1]byte
	_, err := io.ReadFull(b.stream.file, said[:])
	state, failed := gate.ReadReport(report)
	if lostWord(err) {
		b.gate.Release()
	}
	if b.oom != "" && (lostWord(err) || state == gate.Failed) { // it left our memory, or never executes
		boundary.SetOOMScoreAdj(b.oom)
	}
	if state == gate.Failed {
		return false, failureOf(failed)
	}
	if err != nil && state < gate.Opened {
		return true, diedEarly()
	}
	return err != nil, nil
}

func (b *birth) identity() *longstop.Main {
	return &longstop.Main{PID: b.stat.PID, PGID: b.stat.PGID, SID: b.stat.SID, StartTime: b.stat.Start, PIDNS: boundary.PIDNamespace()}
}

// open lets the gate through and waits until it was exec'd or could not be.
func (b *birth) open(report int) *longstop.LaunchError {
	defer b.stream.close()
	switch _, err := b.stream.file.Write([]byte{1}); {
	case errors.Is(err, unix.EPIPE):
		return diedEarly()
	case err != nil:
		return launchError("gate", "", err)
	}
	fault.At("owner.opened")
	for {
		ended, failure := b.heed(report)
		if failure != nil || ended {
			return failure
		}
	}
}

func diedEarly() *longstop.LaunchError {
	return &longstop.LaunchError{Step: "gate", Message: "the process that was to become the work died before it was let through"}
}

// failureOf puts what a gate said of itself into a record's words.
func failureOf(f *gate.Failure) *longstop.LaunchError { return launchError(f.Step, f.Path, f.Errno) }

func launchError(step, path string, err error) *longstop.LaunchError {
	e := &longstop.LaunchError{Step: step, Path: path, Errno: boundary.Errno(err), Message: err.Error()}
	if path != "" {
		e.Message = path + ": " + err.Error()
	}
	return e
}

const shell = "/bin/sh"

// plan is what the gate becomes.
func (o *owner) plan() (gate.Plan, *longstop.LaunchError) {
	req := o.given.Submit.Request
	p := gate.Plan{Env: workEnv(o.given, o.run), Dir: req.Cwd, Umask: o.given.Login.Umask, OOM: o.given.Login.OOM, Cgroup: -1, Terminal: req.PTY}
	if req.Cwd == "" {
		p.Dir = o.given.Login.Dir
	}
	var failure *longstop.LaunchError
	if p.Limits, failure = limitsOf(req.Limits); failure != nil {
		return p, failure
	}
	switch {
	case req.Script != "":
		p.Argv, failure = o.scriptArgv()
	case req.ArgvB64 != nil:
		for _, word := range req.ArgvB64 {
			p.Argv = append(p.Argv, string(word))
		}
	default:
		p.Argv = req.Argv
	}
	return p, failure
}

// longScript is how long a script may be as an argument: one is limited to 128 KiB (execve(2)).
const longScript = 100 << 10

// scriptArgv gives the script to the shell: as an argument, or as a file where that is too long.
func (o *owner) scriptArgv() ([]string, *longstop.LaunchError) {
	req := o.given.Submit.Request
	argv := []string{shell}
	if req.StrictShell {
		argv = append(argv, "-e", "-o", "pipefail")
	}
	if len(req.Script) <= longScript {
		return append(argv, "-c", req.Script), nil
	}
	file, err := o.run.File("script", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return nil, launchError("script", "", err)
	}
	defer file.Close()
	if _, err := file.WriteString(req.Script); err != nil {
		return nil, launchError("script", file.Name(), err)
	}
	return append(argv, o.run.Path("script")), nil
}

// descriptors are the workload's 0, 1 and 2.
func (o *owner) descriptors() ([3]*os.File, *longstop.LaunchError) {
	var files [3]*os.File
	var err error
	switch req := o.given.Submit.Request; {
	case req.StdinBytes > 0:
		files[0], err = o.run.File("stdin", unix.O_RDONLY)
	case req.PTY:
		var fd int
		if fd, err = unix.FcntlInt(uintptr(o.inputs[0]), unix.F_DUPFD_CLOEXEC, 4); err == nil {
			files[0] = os.NewFile(uintptr(fd), "terminal")
		}
	default:
		files[0], err = os.Open(os.DevNull)
	}
	if err != nil {
		return files, launchError("stdin", "", err)
	}
	for i, name := range streamNames {
		if o.rec.Leftover == longstop.LeftoverRelease {
			// Who is released must outlive us, and so write into the file itself.
			if files[i+1], err = o.run.File(name, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
				return files, launchError(name, o.run.Path(name), err)
			}
			continue
		}
		files[i+1] = os.NewFile(uintptr(o.inputs[i]), name)
	}
	return files, nil
}

// servantEnv is the environment of keeper, owner and gate: nothing of the login's, which may have
// been meant for another run's work. One thread's worth of Go is enough for each, and small.
func servantEnv(who string) []string {
	env := []string{"GOTRACEBACK=single", "GOMAXPROCS=1"}
	if who == "owner" {
		env = append(env, openFilesEnv+"="+strconv.FormatUint(loginOpenFiles(), 10))
	}
	if fault.Enabled {
		env = append(env, faultEnv(who)...)
	}
	return env
}

// faultEnv hands on what tests have planned: for all, and for one kind of process alone, as
// LONGSTOP_FAULT_OWNER.
func faultEnv(who string) []string {
	var env []string
	plan := os.Getenv("LONGSTOP_FAULT")
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "LONGSTOP_FAULT_"+strings.ToUpper(who):
			plan = strings.Trim(plan+","+value, ",")
			fallthrough
		case strings.HasPrefix(name, "LONGSTOP_FAULT_"), strings.HasPrefix(name, "LONGSTOP_FLUSH_"):
			env = append(env, entry)
		}
	}
	return append(env, "LONGSTOP_FAULT="+plan)
}
