package boundary

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// helpers are the processes that this package's tests start this program as.
var helpers = map[string]func(){"owner": underTest, "finder": findHome, "killer": killPlace, "reuser": reuse}

// helper is such a process.
func helper(t testing.TB, as string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "BOUNDARY_TEST_AS="+as)
	cmd.Stderr = os.Stderr
	return cmd
}

// An owner under test is another process, which does all of its own waiting. It gets one job on its
// standard input, does a step for each further line, and answers each with a line.

// job is what an owner under test encloses.
type job struct {
	Home   string // "": tree
	Run    longstop.RunID
	Script string
	Old    bool // as on a kernel without cgroup.kill
}

// sight is what it answers.
type sight struct {
	Error   string
	Main    Identity
	Seen    []Stat // by a walk, in its order
	Empty   bool
	Reached int
	Refused int
	Exits   []Exit // since the last answer
	Took    time.Duration
	Place   Place
}

// underTest is the main function of such a process.
func underTest() {
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var j job
	if !in.Scan() || json.Unmarshal(in.Bytes(), &j) != nil {
		os.Exit(2)
	}
	os.Unsetenv("BOUNDARY_TEST_AS")
	o := owned{ended: make(chan struct{}, 1)}
	if err := o.start(j); err != nil {
		out.Encode(sight{Error: err.Error()})
		os.Exit(1)
	}
	defer o.close()
	for in.Scan() {
		out.Encode(o.step(in.Text()))
	}
}

type owned struct {
	Enclosure
	main  Identity
	exits []Exit
	ended chan struct{}
}

func (o *owned) start(j job) error {
	if err := Subreap(); err != nil {
		return err
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			o.poke()
		}
	}()
	o.Reaper = &Reaper{}
	sys := &syscall.SysProcAttr{Setsid: true}
	if j.Home != "" {
		var err error
		if o.Cgroup, err = (Home{Dir: j.Home}).Create(j.Run); err != nil {
			return err
		}
		if _, err = o.Cgroup.Watch(o.poke); err != nil {
			return err
		}
		o.Cgroup.old = j.Old
		sys.UseCgroupFD, sys.CgroupFD = true, o.Cgroup.FD()
	}
	var err error
	o.main, err = o.Reaper.Start(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", j.Script}, &syscall.ProcAttr{
			Env: append(os.Environ(), RunMark+"="+string(j.Run)), Files: []uintptr{2, 2, 2}, Sys: sys})
	})
	return err
}

func (o *owned) poke() {
	select {
	case o.ended <- struct{}{}:
	default:
	}
}

func (o *owned) close() {
	if o.Cgroup == nil {
		return
	}
	if err := o.Cgroup.Remove(5 * time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *owned) step(what string) sight {
	s := sight{Main: o.main}
	var err error
	begun := time.Now()
	switch what {
	case "look":
		s.Empty, err = o.settle()
		o.Walk(func(p Stat) bool {
			if !p.Dead() {
				s.Seen = append(s.Seen, p)
			}
			return true
		})
	case "term":
		s.Reached, s.Refused = o.term()
	case "kill":
		s.Empty, err = o.killAll()
	}
	s.Took, s.Exits, o.exits = time.Since(begun), o.exits, nil
	if o.Cgroup != nil {
		s.Place = o.Cgroup.Place()
	}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

func (o *owned) settle() (bool, error) {
	return o.Settle(func(e Exit) { o.exits = append(o.exits, e) })
}

func (o *owned) term() (int, int) {
	reached, refused := o.Term()
	return reached, len(refused)
}

// killAll is rounds of KILL until nothing is left, at most for ten seconds.
func (o *owned) killAll() (bool, error) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		o.Kill()
		for again := time.Now().Add(20 * time.Millisecond); time.Now().Before(again); {
			if empty, err := o.settle(); empty || err != nil {
				return empty, err
			}
			select {
			case <-o.ended:
			case <-time.After(time.Until(again)):
			}
		}
	}
	return false, nil
}

// owner is an owner under test as its test sees it.
type ownerProcess struct {
	t    testing.TB
	run  longstop.RunID
	in   io.WriteCloser
	out  *json.Decoder
	wait func() error
}

// end lets it remove what it made, and waits for it.
func (o *ownerProcess) end() {
	o.t.Helper()
	o.in.Close()
	if err := o.wait(); err != nil {
		o.t.Errorf("the owner under test: %v", err)
	}
}

func own(t testing.TB, j job) *ownerProcess {
	t.Helper()
	if j.Run == "" {
		j.Run = longstop.NewRunID()
	}
	cmd := helper(t, "owner")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &ownerProcess{t: t, run: j.Run, in: in, out: json.NewDecoder(out), wait: cmd.Wait}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
		for _, s := range Marked(j.Run, 0) {
			Signal(s.Identity, unix.SIGKILL)
		}
	})
	json.NewEncoder(in).Encode(j)
	return o
}

func (o *ownerProcess) do(step string) sight {
	o.t.Helper()
	io.WriteString(o.in, step+"\n")
	var s sight
	if err := o.out.Decode(&s); err != nil {
		o.t.Fatalf("%s: %v", step, err)
	}
	if s.Error != "" {
		o.t.Fatalf("%s: %s", step, s.Error)
	}
	return s
}

// until repeats a step until ok, at most for ten seconds.
func (o *ownerProcess) until(step, what string, ok func(sight) bool) sight {
	o.t.Helper()
	var s sight
	eventually(o.t, what, func() bool {
		next := o.do(step)
		next.Exits = append(s.Exits, next.Exits...)
		s = next
		return ok(s)
	})
	return s
}

// killed stops everything, and looks whether nothing is left by another way than the boundary's own:
// by the mark in every process's environment.
func (o *ownerProcess) killed() sight {
	o.t.Helper()
	s := o.do("kill")
	if !s.Empty {
		o.t.Error("not empty after ten seconds of KILL")
	}
	if left := Marked(o.run, 0); len(left) > 0 {
		o.t.Errorf("said to be empty, and there are %v", left)
	}
	return s
}

// kinds runs a test of the conformance suite for each kind of boundary.
func kinds(t *testing.T, test func(t *testing.T, kind job)) {
	t.Parallel()
	t.Run("tree", func(t *testing.T) {
		t.Parallel()
		test(t, job{})
	})
	t.Run("cgroup", func(t *testing.T) {
		t.Parallel()
		test(t, job{Home: testHome(t).Dir})
	})
	t.Run("cgroup without cgroup.kill", func(t *testing.T) {
		t.Parallel()
		test(t, job{Home: testHome(t).Dir, Old: true})
	})
}

func (j job) owner(t testing.TB, script string) *ownerProcess {
	t.Helper()
	j.Script = script
	return own(t, j)
}

func sees(n int) func(sight) bool { return func(s sight) bool { return len(s.Seen) == n } }

func isEmpty(s sight) bool { return s.Empty }

func TestConformanceEndsByItself(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, "exit 7")
		s := o.until("look", "empty", isEmpty)
		if len(s.Exits) != 1 || s.Exits[0].Identity != s.Main || s.Exits[0].Status.ExitStatus() != 7 || len(s.Seen) != 0 {
			t.Errorf("saw %+v", s)
		}
		o.end()
	})
}

func TestConformanceOneProcess(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, "exec sleep 600")
		s := o.until("look", "one process", sees(1))
		if s.Empty || s.Seen[0].Identity != s.Main {
			t.Errorf("saw %+v", s)
		}
		if s := o.do("term"); s.Reached != 1 || s.Refused != 0 {
			t.Errorf("TERM: %+v", s)
		}
		s = o.until("look", "empty", isEmpty)
		if len(s.Exits) != 1 || s.Exits[0].Status.Signal() != syscall.SIGTERM {
			t.Errorf("ended %+v", s.Exits)
		}
		o.end()
	})
}

// C043: a group is not the tree.
func TestC043ConformanceHundredSessions(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, hundred)
		s := o.until("look", "101 processes", sees(101))
		place := map[int]int{}
		for i, p := range s.Seen {
			place[p.PID] = i
		}
		for i, p := range s.Seen {
			if parent, ok := place[p.PPID]; ok && parent > i {
				t.Errorf("pid %d is visited before its parent", p.PID)
			}
		}
		if s := o.killed(); len(s.Exits) != 101 {
			t.Errorf("%d were reaped", len(s.Exits))
		}
		o.end()
	})
}

func TestConformanceIgnoresTerm(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, `trap "" TERM; sleep 600 & setsid sleep 600 & sleep 600`)
		o.until("look", "four processes", sees(4))
		o.do("term")
		if s := o.do("look"); len(s.Seen) != 4 || s.Empty {
			t.Errorf("after TERM: %+v", s)
		}
		o.killed()
		o.end()
	})
}

func TestConformanceForksAgainOnTerm(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, `trap 'trap "" TERM; setsid sleep 600 & exit 3' TERM; sleep 600 & while :; do wait; done`)
		first := o.until("look", "two processes", sees(2))
		o.do("term")
		s := o.until("look", "the main process to end, and others", func(s sight) bool {
			return len(s.Exits) > 0 && s.Exits[len(s.Exits)-1].Status.ExitStatus() == 3 || len(s.Exits) > 1
		})
		if s.Empty || len(s.Seen) == 0 || s.Seen[0].Identity == first.Main {
			t.Errorf("after TERM: %+v", s)
		}
		o.killed()
		o.end()
	})
}

// C013: a process that starts the next and goes, for ever, each in a session of its own.
func TestC013ConformanceForkStorm(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, `export NEXT='setsid sh -c "$NEXT" &'; for i in 1 2 3; do sh -c "$NEXT"; done; while :; do setsid sh -c : & done`)
		o.until("look", "20 ends", func(s sight) bool {
			if s.Empty {
				t.Error("said to be empty in the storm")
			}
			return len(s.Exits) > 20
		})
		o.killed()
		o.end()
	})
}

func TestConformanceStopped(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, `setsid sleep 600 & kill -STOP $!; kill -STOP $$; exit 1`)
		o.until("look", "two stopped processes", func(s sight) bool {
			return len(s.Seen) == 2 && s.Seen[0].State == 'T' && s.Seen[1].State == 'T'
		})
		o.do("term")
		o.until("look", "the end of all by TERM", isEmpty)
		o.end()
	})
}

// C041: a zombie is dead, and its parent alone may have it go.
func TestC041ConformanceZombie(t *testing.T) {
	kinds(t, func(t *testing.T, kind job) {
		o := kind.owner(t, `(exit 5) & exec sleep 600`)
		s := o.until("look", "one process", func(s sight) bool {
			return len(s.Seen) == 1 && len(Children(s.Main.PID, 1)) == 1 && deadChild(s.Main.PID)
		})
		if s.Empty {
			t.Error("empty, with a process alive")
		}
		if s := o.killed(); len(s.Exits) != 2 {
			t.Errorf("reaped %+v", s.Exits)
		}
		o.end()
	})
}

func deadChild(pid int) bool {
	s, err := Look(Children(pid, 1)[0])
	return err == nil && s.Dead()
}
