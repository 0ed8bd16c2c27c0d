package gate

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// born is a gate with its maker's ends.
type born struct {
	t      *testing.T
	gate   *Gate
	pid    int
	stream *os.File
	report int
	output *os.File // of the work, both streams
}

func start(t *testing.T, p Plan) *born {
	t.Helper()
	b, err := try(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func try(t *testing.T, p Plan) (*born, error) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	report, err := NewReport()
	must(t, err)
	output, theirs, err := os.Pipe()
	must(t, err)
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	defer theirs.Close()
	defer unix.Close(ends[1])
	p.Files = [3]int{int(null.Fd()), int(theirs.Fd()), int(theirs.Fd())}
	if p.Dir == "" {
		p.Dir = "/"
	}
	if p.Cgroup == 0 {
		p.Cgroup = -1
	}
	b := &born{t: t, stream: os.NewFile(uintptr(ends[0]), "stream"), report: report, output: output}
	t.Cleanup(func() {
		b.stream.Close()
		b.output.Close()
		unix.Close(report)
	})
	if b.gate, err = Start(p, ends[1], report); err == nil {
		b.pid = b.gate.PID
	}
	return b, err
}

// hears returns the next state that the gate tells of; io.EOF is reported as false.
func (b *born) hears() (State, bool) {
	b.t.Helper()
	var said [1]byte
	if _, err := io.ReadFull(b.stream, said[:]); err != nil {
		b.gate.Release()
		return 0, false
	}
	return State(said[0]), true
}

func (b *born) expect(want ...State) {
	b.t.Helper()
	for _, state := range want {
		if said, ok := b.hears(); !ok || said != state {
			_, failure := ReadReport(b.report)
			b.t.Fatalf("said %d (%v), want %d; %v", said, ok, state, failure)
		}
	}
}

func (b *born) open() {
	b.t.Helper()
	_, err := b.stream.Write([]byte{1})
	must(b.t, err)
}

// end lets the gate through and returns what the work printed and how it ended.
func (b *born) end() (string, unix.WaitStatus) {
	b.t.Helper()
	b.expect(Ready)
	return b.pass()
}

// pass lets through a gate that is ready.
func (b *born) pass() (string, unix.WaitStatus) {
	b.t.Helper()
	b.open()
	b.expect(Opened)
	if state, more := b.hears(); more {
		_, failure := ReadReport(b.report)
		b.t.Fatalf("after it was opened: %d, %v", state, failure)
	}
	said, err := io.ReadAll(b.output)
	must(b.t, err)
	return string(said), b.wait()
}

func (b *born) wait() unix.WaitStatus {
	b.t.Helper()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(b.pid, &status, 0, nil); err != unix.EINTR {
			must(b.t, err)
			return status
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sh(script string) Plan { return Plan{Argv: []string{"sh", "-c", script}, Env: os.Environ()} }

func TestWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := "a b\n\xff'\"$"
	p := sh(`printf '%s|' "$PWD" "$(umask)" "$(ulimit -Sn)" "$X" "$@"; cat; exit 7`)
	p.Argv = append(p.Argv, "sh", odd, "")
	p.Env = append(p.Env, "X=\xfe\n")
	p.Dir, p.Umask = dir, 0027
	p.Limits = []Limit{{"open_files", unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 77, Max: 99}}}
	said, status := start(t, p).end()
	if want := dir + "|0027|77|\xfe\n|" + odd + "||"; said != want || status.ExitStatus() != 7 {
		t.Errorf("%q, want %q; %v", said, want, status)
	}
}

// The work's oom_score_adj is the one that it is given, whatever its maker's; its maker sets its own again.
func TestOOMScoreAdj(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	for given, want := range map[string]string{"": string(own), "501": "501\n", "x": string(own)} {
		p := sh("cat /proc/self/oom_score_adj")
		p.OOM = given
		if said, status := start(t, p).end(); said != want || status.ExitStatus() != 0 {
			t.Errorf("%q: %q, want %q; %v", given, said, want, status)
		}
		must(t, os.WriteFile("/proc/self/oom_score_adj", own, 0))
	}
}

// What a gate that is apart sets is its own.
func TestApart(t *testing.T) {
	score := func(of string) string {
		text, err := os.ReadFile("/proc/" + of + "/oom_score_adj")
		must(t, err)
		return string(text)
	}
	own := score("self")
	p := sh("cat /proc/self/oom_score_adj")
	p.OOM, p.Apart = "501", true
	b := start(t, p)
	b.expect(Ready)
	if gates, mine := score(strconv.Itoa(b.pid)), score("self"); gates != "501\n" || mine != own {
		t.Errorf("the gate's %q, its maker's %q, before %q", gates, mine, own)
	}
	if said, status := b.pass(); said != "501\n" || status.ExitStatus() != 0 {
		t.Errorf("%q, %v", said, status)
	}
}

// The child's stack is aligned as each processor wants it, wherever the heap has put it, and ends in its room.
func TestStackIsAligned(t *testing.T) {
	t.Parallel()
	for range 8 {
		c, _, err := compile(Plan{}, make([]byte, reportSize))
		must(t, err)
		begins := uintptr(unsafe.Pointer(&c.stack))
		if bottom := c.bottom(); bottom%16 != 0 || bottom < begins || bottom+stackTop+16 > begins+unsafe.Sizeof(c.stack) {
			t.Errorf("from %x, of %d from %x", bottom, unsafe.Sizeof(c.stack), begins)
		}
	}
}

// Law 4: nothing runs before the byte; and nothing after it if its maker went.
func TestLaw4ShutUntilTheByte(t *testing.T) {
	t.Parallel()
	mark := t.TempDir() + "/ran"
	b := start(t, sh("echo ran >"+mark))
	b.expect(Ready)
	if state, _ := ReadReport(b.report); state != Ready {
		t.Errorf("state %d", state)
	}
	b.stream.Close()
	if status := b.wait(); status.ExitStatus() != 126 {
		t.Errorf("%v", status)
	}
	if state, _ := ReadReport(b.report); state != Never {
		t.Errorf("state %d", state)
	}
	if _, err := os.Stat(mark); !os.IsNotExist(err) {
		t.Errorf("it ran: %v", err)
	}
}

// The work leads a session of its own, has no descriptor but its three, ignores and blocks nothing.
func TestWorkStartsClean(t *testing.T) {
	t.Parallel()
	quiet := make(chan os.Signal, 1)
	signal.Notify(quiet, unix.SIGUSR1)
	signal.Ignore(unix.SIGUSR2)
	defer signal.Reset(unix.SIGUSR2)
	for range 20 {
		leak, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // not closed on exec
		must(t, err)
		defer unix.Close(leak)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := start(t, Plan{Argv: []string{"cat", "/proc/self/status", "/proc/self/stat"}, Env: os.Environ()})
	b.expect(Ready)
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.pid) + "/stat")
	must(t, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if pid := strconv.Itoa(b.pid); fields[1] != strconv.Itoa(os.Getpid()) || fields[2] != pid || fields[3] != pid {
		t.Errorf("parent, group, session: %v", fields[1:4])
	}
	open, err := os.ReadDir("/proc/" + strconv.Itoa(b.pid) + "/fd")
	must(t, err)
	if len(open) != 4 { // the stream too, until it executes
		t.Errorf("descriptors: %v", open)
	}
	b.open()
	b.expect(Opened)
	b.hears()
	said, err := io.ReadAll(b.output)
	must(t, err)
	b.wait()
	for _, none := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "SigCgt:\t0000000000000000"} {
		if !strings.Contains(string(said), none) {
			t.Errorf("not %q in %s", none, said)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		must(t, os.WriteFile(dir+"/"+name, []byte(text), mode))
		return dir + "/" + name
	}
	plain := file("plain", "#!/bin/sh\n", 0600)
	lost := file("lost", "#!/no/such/interpreter\n", 0700)
	path := "PATH=" + dir + ":/usr/bin"
	for name, c := range map[string]struct {
		plan  Plan
		ready bool
		want  Failure
	}{
		"no file":          {Plan{Argv: []string{"/no/such"}}, true, Failure{"exec", "/no/such", unix.ENOENT}},
		"nowhere":          {Plan{Argv: []string{"no-such"}, Env: []string{path}}, true, Failure{"exec", "no-such", unix.ENOENT}},
		"not executable":   {Plan{Argv: []string{plain}}, true, Failure{"exec", plain, unix.EACCES}},
		"found, forbidden": {Plan{Argv: []string{"plain"}, Env: []string{path}}, true, Failure{"exec", "plain", unix.EACCES}},
		"a folder":         {Plan{Argv: []string{dir}}, true, Failure{"exec", dir, unix.EACCES}},
		"no interpreter":   {Plan{Argv: []string{lost}}, true, Failure{"exec", lost, unix.ENOENT}},
		"nothing":          {Plan{}, true, Failure{"exec", "", unix.ENOENT}},
		"empty":            {Plan{Argv: []string{""}}, true, Failure{"exec", "", unix.ENOENT}},
		"too long":         {Plan{Argv: []string{"/bin/true", strings.Repeat("x", 1<<20)}}, true, Failure{"exec", "/bin/true", unix.E2BIG}},
		"no folder":        {Plan{Argv: []string{"/bin/true"}, Dir: dir + "/none"}, false, Failure{"chdir", dir + "/none", unix.ENOENT}},
		"no such limit":    {Plan{Argv: []string{"/bin/true"}, Limits: []Limit{{Name: "odd", Resource: 99}}}, true, Failure{"limits", "odd", unix.EINVAL}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, c.plan)
			if c.ready {
				b.expect(Ready)
				b.open()
				b.expect(Opened)
			}
			b.expect(Failed)
			state, failure := ReadReport(b.report)
			if state != Failed || failure == nil || *failure != c.want {
				t.Errorf("%d, %v, want %v", state, failure, &c.want)
			}
			if status := b.wait(); status.ExitStatus() != 127 {
				t.Errorf("%v", status)
			}
		})
	}
	for name, p := range map[string]Plan{"argument": {Argv: []string{"true", "a\x00b"}}, "value": {Argv: []string{"true"}, Env: []string{"A=\x00"}}, "folder": {Dir: "/\x00"}} {
		if _, err := try(t, p); err == nil {
			t.Errorf("a zero byte in the %s went through", name)
		}
	}
}

// A script without an interpreter is the shell's, with its arguments.
func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bare")
	must(t, os.WriteFile(path, []byte("echo \"$0 $1\"\n"), 0700))
	said, status := start(t, Plan{Argv: []string{path, "one"}, Env: os.Environ()}).end()
	if said != path+" one\n" || status.ExitStatus() != 0 {
		t.Errorf("%q, %v", said, status)
	}
}

// A gate waits in memory of its maker's, which collects and writes over all that it does not use any more.
func TestMemoryIsKeptForAGateThatWaits(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("argument", 100)
	p := sh(`echo "$1" "$X"`)
	p.Argv, p.Env = append(p.Argv, "sh", word), append(p.Env, "X="+word)
	b := start(t, p)
	p = Plan{}
	b.expect(Ready)
	for range 3 {
		debug.FreeOSMemory()
		for range 1000 {
			used = bytes.Repeat([]byte{0xff}, 6<<10)
		}
	}
	if said, status := b.pass(); said != word+" "+word+"\n" || status.ExitStatus() != 0 {
		t.Errorf("%q, %v", said, status)
	}
	gates.Lock()
	defer gates.Unlock()
	if gates.using[b.gate] {
		t.Error("its memory is kept after it executed")
	}
}

var used []byte

// Gates are made beside whatever else a Go program does: allocating, collecting, starting others.
func TestBesideABusyProgram(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = strings.Repeat("x", 1<<12)
					runtime.Gosched()
				}
			}
		})
	}
	busy.Go(func() {
		for range 20 {
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
			}
			runtime.GC()
		}
	})
	for i := range 100 {
		if said, status := start(t, sh("echo "+strconv.Itoa(i))).end(); said != strconv.Itoa(i)+"\n" || !status.Exited() {
			t.Fatalf("%q, %v", said, status)
		}
	}
	close(stop)
	busy.Wait()
}

// A gate's birth beside the start of a small program by package os, which execs at once.
func BenchmarkGate(b *testing.B) {
	b.Run("gate", func(b *testing.B) {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		fd := int(null.Fd())
		for b.Loop() {
			report, err := NewReport()
			if err != nil {
				b.Fatal(err)
			}
			ends, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			gate, err := Start(Plan{Argv: []string{"/bin/true"}, Dir: "/", Files: [3]int{fd, fd, fd}, Cgroup: -1}, ends[1], report)
			if err != nil {
				b.Fatal(err)
			}
			unix.Close(ends[1])
			unix.Write(ends[0], []byte{1})
			unix.Wait4(gate.PID, nil, 0, nil)
			gate.Release()
			unix.Close(ends[0])
			unix.Close(report)
		}
	})
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
