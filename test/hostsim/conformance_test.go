package hostsim

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// TestHostsimAnswersAsTheRunner puts the same requests to a simulated host and to the real runner,
// and compares what matters of the answers: a simulation of a host that does not exist proves nothing.
func TestHostsimAnswersAsTheRunner(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "longstop-runner")
	build := exec.Command("go", "build", "-o", binary, "./cmd/longstop-runner")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the runner: %v\n%s", err, out)
	}
	for _, name := range slices.Sorted(maps.Keys(conversations)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := func(c *caller) string {
				conversations[name](c)
				return strings.Join(c.lines, "\n")
			}
			simulated, real := of(simulatedCaller(t)), of(realCaller(t, binary))
			if simulated != real {
				t.Errorf("the simulated host:\n%s\n\nthe runner:\n%s", simulated, real)
			}
		})
	}
}

// caller speaks with one host over a serve channel, and notes what matters of each answer.
type caller struct {
	t        *testing.T
	in       io.Writer
	stateDir string
	hello    longstop.HostHello
	lines    []string

	killOwner  func(longstop.RunID)
	killKeeper func()

	mu      sync.Mutex
	waiting map[string]chan wire.Answer
	pushed  []wire.RunStatus
	runs    int
	own     string // part of every run's id
	secrets map[longstop.RunID][]byte
}

func newCaller(t *testing.T, in io.Writer, out io.Reader, stateDir string) *caller {
	c := &caller{t: t, in: in, stateDir: stateDir, waiting: map[string]chan wire.Answer{}, secrets: map[longstop.RunID][]byte{}, own: wire.NewNonce()[:16]}
	go c.read(wire.NewReader(out, wire.Options{Data: true}))
	a := c.ask(wire.VerbHello, wire.HelloRequest{Create: true})
	c.into(a, &c.hello)
	return c
}

func simulatedCaller(t *testing.T) *caller {
	h := NewHost("sim", nil, nil, Broken{})
	link, err := NewNet(h).Dialer(nil).Dial(t.Context(), sshlink.Target{Name: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	ch, err := link.Exec(t.Context(), wire.Command("/runner", wire.VerbServe))
	if err != nil {
		t.Fatal(err)
	}
	c := newCaller(t, ch.Stdin(), ch.Stdout(), h.StateDir)
	c.killOwner, c.killKeeper = h.KillOwner, h.KillKeeper
	return c
}

func realCaller(t *testing.T, binary string) *caller {
	dir, err := os.MkdirTemp("", "ls")
	if err != nil {
		t.Fatal(err)
	}
	serve := exec.Command(binary, "serve")
	serve.Stderr = os.Stderr
	in, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		serve.Wait()
		for end := time.Now().Add(20 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	})
	c := newCaller(t, in, out, filepath.Join(dir, "s"))
	look := func(id longstop.RunID) (answer wire.InspectAnswer) {
		c.into(c.ask(wire.VerbInspect, wire.RunRequest{RunIDs: []longstop.RunID{id}}), &answer)
		return answer
	}
	var keeper int
	c.killOwner = func(id longstop.RunID) {
		seen := look(id)
		if seen.Keeper != nil {
			keeper = seen.Keeper.PID
		}
		if seen.Owner == nil {
			t.Fatal("the run has no owner")
		}
		syscall.Kill(seen.Owner.PID, syscall.SIGKILL)
	}
	c.killKeeper = func() {
		if keeper == 0 {
			if k := look(c.last()).Keeper; k != nil {
				keeper = k.PID
			}
		}
		syscall.Kill(keeper, syscall.SIGKILL)
		for end := time.Now().Add(10 * time.Second); syscall.Kill(keeper, 0) == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	return c
}

func (c *caller) read(frames *wire.Reader) {
	for {
		nonce, body, err := frames.Next()
		if err != nil {
			return
		}
		a, err := wire.DecodeAnswer(nonce, body)
		if err != nil {
			c.t.Errorf("an answer: %v", err)
			return
		}
		a.Data = frames.Data()
		c.mu.Lock()
		if waiting := c.waiting[nonce]; a.Final && waiting != nil {
			waiting <- a
		} else if !a.Final {
			var p wire.Pushed
			if err := wire.Tolerant(a.Body, &p); err != nil {
				c.t.Errorf("a push: %v", err)
			}
			c.pushed = append(c.pushed, p.Runs...)
		}
		c.mu.Unlock()
	}
}

// request is one to the host as it said it is.
func (c *caller) request(verb wire.Verb, body any) wire.Request {
	raw, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	r := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: verb, StateDir: c.stateDir, Body: raw}
	if c.hello.MachineID != "" {
		r.Host = wire.Identity{MachineID: c.hello.MachineID, UID: c.hello.UID, StateID: c.hello.StateID}
	}
	return r
}

func (c *caller) ask(verb wire.Verb, body any) wire.Answer { return c.put(c.request(verb, body)) }

func (c *caller) put(r wire.Request) wire.Answer {
	c.t.Helper()
	answered := make(chan wire.Answer, 1)
	c.mu.Lock()
	c.waiting[r.Nonce] = answered
	c.mu.Unlock()
	if err := c.write(r); err != nil {
		c.t.Fatal(err)
	}
	select {
	case a := <-answered:
		return a
	case <-time.After(60 * time.Second):
		c.t.Fatalf("no answer to %s", r.Verb)
	}
	return wire.Answer{}
}

func (c *caller) into(a wire.Answer, body any) {
	c.t.Helper()
	if a.Error != nil {
		c.t.Fatalf("answered %v", a.Error)
	}
	if err := wire.Tolerant(a.Body, body); err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) note(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// last is the run of the last submit. No two callers have one in common: a host knows processes by it.
func (c *caller) last() longstop.RunID {
	return longstop.RunID(fmt.Sprintf("run_%s%016x", c.own, c.runs))
}

// newSubmit is a submit of a script.
func (c *caller) newSubmit(key, script string, changes ...func(*wire.Submit)) wire.Submit {
	c.runs++
	now := c.bootNow()
	s := wire.Submit{RunID: c.last(), ActionID: "act_0123456789ABCDE", SessionID: "ses_0123456789ABCDE", Key: key,
		NotAfter: now.Add(time.Minute), BootID: c.hello.BootID, Secret: slices.Repeat([]byte{7}, 32),
		Request: longstop.Request{Script: script, Lifetime: longstop.Detached, Owner: longstop.OwnerRunner, Leftover: longstop.LeftoverWait,
			Effect: longstop.EffectOnce, GraceS: 10, Digest: "sha256:" + key}}
	for _, change := range changes {
		change(&s)
	}
	c.secrets[s.RunID] = s.Secret
	return s
}

func leased(d time.Duration) func(*wire.Submit) {
	return func(s *wire.Submit) {
		s.Request.Lifetime, s.Request.LeaseS = longstop.Leased, d.Seconds()
		s.LeaseUntil = s.NotAfter.Add(d - time.Minute)
	}
}

func leaving(l longstop.Leftover) func(*wire.Submit) {
	return func(s *wire.Submit) { s.Request.Leftover = l }
}

func grace(d time.Duration) func(*wire.Submit) {
	return func(s *wire.Submit) { s.Request.GraceS = d.Seconds() }
}

func (c *caller) bootNow() longstop.BootTime {
	var answer wire.StatusAnswer
	c.into(c.ask(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{}}), &answer)
	return answer.BootNow
}

// submit submits and notes the answer.
func (c *caller) submit(s wire.Submit) longstop.RunID {
	c.t.Helper()
	a := c.ask(wire.VerbSubmit, s)
	if a.Error != nil {
		c.note("submit %s: %s", s.Key, a.Error.Code)
		return s.RunID
	}
	var answer wire.SubmitAnswer
	c.into(a, &answer)
	rec := c.record(answer.Record)
	state := rec.State
	if state == longstop.WorkloadFinished || state == longstop.WorkloadLingering {
		state = longstop.WorkloadRunning // a short one may be over by then
	}
	c.note("submit %s: existing %v %s main %v error %v", s.Key, answer.Existing, state, rec.Main != nil, launchError(rec))
	return s.RunID
}

func launchError(rec longstop.Record) string {
	if rec.LaunchError == nil {
		return "none"
	}
	return rec.LaunchError.Step + " " + rec.LaunchError.Errno
}

// record reads a record and its MAC.
func (c *caller) record(raw []byte) longstop.Record {
	c.t.Helper()
	var rec longstop.Record
	if err := wire.Tolerant(raw, &rec); err != nil {
		c.t.Fatalf("a record: %v", err)
	}
	if _, signed, err := wire.Verify(raw, c.secrets[rec.RunID]); err != nil || signed != (rec.Writer.Kind != longstop.WriterSuccessor) {
		c.t.Fatalf("a record by the %s: signed %v, %v", rec.Writer.Kind, signed, err)
	}
	return rec
}

// said is what a record says, but for numbers and times.
func said(rec longstop.Record) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	add("%s by %s", rec.State, rec.Writer.Kind)
	if r := rec.Result; r != nil {
		add("result %s", ended(r.ExitCode, r.Signal))
	}
	if m := rec.Main; m != nil {
		add("main %s", ended(m.ExitCode, m.Signal))
	}
	if rec.State.Final() && rec.State != longstop.WorkloadLost {
		add("empty %v", rec.Boundary.Empty != nil && *rec.Boundary.Empty)
	}
	add("cause %q lost %q", rec.Cause, rec.LostBecause)
	if l := rec.Cancel; l != nil {
		add("signalled %v killed %v empty %v", !l.SignalledAt.IsZero(), !l.KilledAt.IsZero(), !l.EmptyAt.IsZero())
	}
	add("released %d out %d", len(rec.Released), rec.Output.StdoutBytes)
	return strings.Join(all, ", ")
}

func ended(code *int, signal string) string {
	if code != nil {
		return fmt.Sprint(*code)
	}
	return signal
}

// until asks for a run's status until it is so, and notes it.
func (c *caller) until(id longstop.RunID, is func(wire.RunStatus, longstop.Record) bool) (longstop.Record, wire.RunStatus) {
	c.t.Helper()
	var rec longstop.Record
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var answer wire.StatusAnswer
		c.into(c.ask(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{id}}), &answer)
		s := answer.Runs[0]
		if s.Error != nil {
			continue
		}
		if rec = c.record(s.Record); is(s, rec) {
			return rec, s
		}
	}
	c.t.Fatalf("%s is still %s", id, said(rec))
	return rec, wire.RunStatus{}
}

func (c *caller) final(id longstop.RunID) {
	c.t.Helper()
	rec, s := c.until(id, func(_ wire.RunStatus, rec longstop.Record) bool { return rec.State.Final() })
	c.note("%s orphaned %v", said(rec), s.Orphaned)
}

func (c *caller) reaches(id longstop.RunID, state longstop.WorkloadState) {
	c.t.Helper()
	rec, _ := c.until(id, func(_ wire.RunStatus, rec longstop.Record) bool { return rec.State == state })
	c.note("%s main %v", rec.State, rec.Main != nil && rec.Main.ExitCode != nil)
}

func (c *caller) found(verb wire.Verb, key string) {
	c.t.Helper()
	var body any = wire.FindRequest{Key: key}
	if verb == wire.VerbVoid {
		body = wire.VoidRequest{Key: key, Reason: "a test"}
	}
	var answer wire.FindAnswer
	c.into(c.ask(verb, body), &answer)
	c.note("%s %s: found %v void %v expired %v run %s record %v", verb, key, answer.Found, answer.Void, answer.Expired, strings.ReplaceAll(string(answer.RunID), c.own, ""), len(answer.Record) > 0)
}

func (c *caller) cancel(id longstop.RunID, wait time.Duration) {
	c.t.Helper()
	a := c.ask(wire.VerbCancel, wire.CancelRequest{RunID: id, GraceMS: -1, WaitMS: wait.Milliseconds()})
	if a.Error != nil {
		c.note("cancel: %s", a.Error.Code)
		return
	}
	var answer wire.CancelAnswer
	c.into(a, &answer)
	c.note("cancel: %s, survivors %v, refused %v", said(c.record(answer.Record)), len(answer.Survivors) > 0, answer.Refused != "")
}

func (c *caller) code(what string, a wire.Answer) {
	if a.Error == nil {
		c.note("%s: answered", what)
		return
	}
	c.note("%s: %s", what, a.Error.Code)
}

func (c *caller) watch() {
	c.put0(c.request(wire.VerbWatch, wire.WatchRequest{HeartbeatMS: 100}))
}

func (c *caller) write(r wire.Request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return wire.WriteFrame(c.in, r.Nonce, text)
}

// put0 sends a request without waiting for its final answer.
func (c *caller) put0(r wire.Request) {
	if err := c.write(r); err != nil {
		c.t.Fatal(err)
	}
}

// told waits until a run's end was pushed and says which states were, each once.
func (c *caller) told(id longstop.RunID) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		var states []longstop.WorkloadState
		for _, s := range c.pushed {
			if s.RunID != id || s.Error != nil {
				continue
			}
			if rec := c.record(s.Record); len(states) == 0 || states[len(states)-1] != rec.State {
				states = append(states, rec.State)
			}
		}
		c.mu.Unlock()
		if len(states) > 0 && states[len(states)-1].Final() {
			c.note("pushed %v", states[len(states)-1])
			return
		}
	}
	c.t.Fatal("no end was pushed")
}

var conversations = map[string]func(c *caller){
	"ends": func(c *caller) {
		c.final(c.submit(c.newSubmit("a", "true")))
		c.final(c.submit(c.newSubmit("b", "echo hello; exit 3")))
		c.final(c.submit(c.newSubmit("c", "kill -KILL $$")))
		c.final(c.submit(c.newSubmit("d", "", func(s *wire.Submit) { s.Request.Argv = []string{"/no/such/thing"} })))
	},
	"keys": func(c *caller) {
		s := c.newSubmit("k", "sleep 1; exit 4")
		c.found(wire.VerbFind, "k")
		c.submit(s)
		c.found(wire.VerbFind, "k")
		c.found(wire.VerbVoid, "k")
		c.submit(s)
		c.submit(c.newSubmit("k", "sleep 1; exit 4")) // another run of the same request
		c.submit(c.newSubmit("k", "true", func(s *wire.Submit) { s.Request.Digest = "sha256:other" }))
		c.final(s.RunID)
		c.submit(s)
		c.found(wire.VerbVoid, "v")
		c.found(wire.VerbVoid, "v")
		c.found(wire.VerbFind, "v")
		c.submit(c.newSubmit("v", "true"))
	},
	"too late": func(c *caller) {
		c.submit(c.newSubmit("a", "true", func(s *wire.Submit) { s.NotAfter = 1 }))
		c.found(wire.VerbFind, "a")
		c.submit(c.newSubmit("b", "true", func(s *wire.Submit) { s.BootID = "another" }))
		c.submit(c.newSubmit("c", "true", leased(-time.Second)))
	},
	"nobody": func(c *caller) {
		id := c.newSubmit("x", "true").RunID
		var answer wire.StatusAnswer
		c.into(c.ask(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{id}}), &answer)
		c.note("status: %s", answer.Runs[0].Error.Code)
		c.cancel(id, time.Second)
		var renewed wire.RenewAnswer
		c.into(c.ask(wire.VerbRenew, wire.RenewRequest{BootID: c.hello.BootID, Leases: []wire.RunLease{{RunID: id, Until: c.bootNow().Add(time.Minute)}}}), &renewed)
		c.note("renewed %d refused %d", len(renewed.Renewed), len(renewed.Refused))
		c.code("output", c.ask(wire.VerbOutput, wire.OutputRequest{RunID: id, Stream: "stdout"}))
		c.code("inspect", c.ask(wire.VerbInspect, wire.RunRequest{RunIDs: []longstop.RunID{id}}))
	},
	"strangers": func(c *caller) {
		r := c.request(wire.VerbFind, wire.FindRequest{Key: "k"})
		r.Host.StateID = "another"
		c.code("state", c.put(r))
		r = c.request(wire.VerbFind, wire.FindRequest{Key: "k"})
		r.Host.MachineID = "another"
		c.code("machine", c.put(r))
		r = c.request(wire.VerbFind, wire.FindRequest{Key: "k"})
		r.Protocol = 99
		c.code("protocol", c.put(r))
		c.code("field", c.ask(wire.VerbFind, map[string]any{"key": "k", "more": 1}))
		c.code("verb", c.ask("dance", map[string]any{}))
	},
	"cancel": func(c *caller) {
		id := c.submit(c.newSubmit("a", "sleep 60"))
		c.cancel(id, 20*time.Second)
		c.cancel(id, time.Second)
		id = c.submit(c.newSubmit("b", `trap "" TERM; echo deaf; sleep 60`, grace(200*time.Millisecond)))
		c.until(id, func(s wire.RunStatus, _ longstop.Record) bool { return s.Output.StdoutBytes == 5 })
		c.cancel(id, 20*time.Second)
		id = c.submit(c.newSubmit("c", "exit 7"))
		c.final(id)
		c.cancel(id, time.Second)
	},
	"what is left": func(c *caller) {
		id := c.submit(c.newSubmit("wait", "sleep 0.5 & exit 5"))
		c.reaches(id, longstop.WorkloadLingering)
		c.final(id)
		c.final(c.submit(c.newSubmit("kill", "sleep 60 & exit 5", leaving(longstop.LeftoverKill))))
		id = c.submit(c.newSubmit("release", "sleep 60 & exit 5", leaving(longstop.LeftoverRelease)))
		_, s := c.until(id, func(_ wire.RunStatus, rec longstop.Record) bool { return rec.State.Final() })
		c.note("released alive %d", len(s.Released))
		c.cancel(id, 20*time.Second)
		_, s = c.until(id, func(s wire.RunStatus, _ longstop.Record) bool { return len(s.Released) == 0 })
		c.note("released alive %d", len(s.Released))
		id = c.submit(c.newSubmit("cancelled", "sleep 60 & exit 5"))
		c.reaches(id, longstop.WorkloadLingering)
		c.cancel(id, 20*time.Second)
	},
	"time": func(c *caller) {
		c.final(c.submit(c.newSubmit("lease", "sleep 60", leased(time.Second))))
		c.final(c.submit(c.newSubmit("deadline", "sleep 60", func(s *wire.Submit) { s.Request.DeadlineS = 0.3 })))
		id := c.submit(c.newSubmit("renewed", "sleep 2; exit 6", leased(time.Second)))
		var renewed wire.RenewAnswer
		c.into(c.ask(wire.VerbRenew, wire.RenewRequest{BootID: c.hello.BootID, Leases: []wire.RunLease{{RunID: id, Until: c.bootNow().Add(time.Minute)}}}), &renewed)
		c.note("renewed %d refused %d", len(renewed.Renewed), len(renewed.Refused))
		c.final(id)
	},
	"owner killed": func(c *caller) {
		id := c.submit(c.newSubmit("a", "sleep 1; exit 9"))
		c.killOwner(id)
		c.reaches(id, longstop.WorkloadOrphaned)
		c.final(id)
		id = c.submit(c.newSubmit("b", "sleep 60"))
		c.killOwner(id)
		c.reaches(id, longstop.WorkloadOrphaned)
		c.cancel(id, 20*time.Second)
	},
	"keeper killed": func(c *caller) {
		id := c.submit(c.newSubmit("a", "sleep 1; exit 9"))
		c.killKeeper()
		c.final(id)
		c.final(c.submit(c.newSubmit("b", "exit 8")))
	},
	"both killed": func(c *caller) {
		id := c.submit(c.newSubmit("a", "sleep 60"))
		c.killOwnerAndKeeper(id)
		c.reaches(id, longstop.WorkloadOrphaned)
		c.cancel(id, 20*time.Second)
		c.final(id)
	},
	"told": func(c *caller) {
		c.watch()
		c.told(c.submit(c.newSubmit("a", "sleep 0.3; exit 2")))
	},
	"output": func(c *caller) {
		id := c.submit(c.newSubmit("a", "echo one; sleep 0.3; echo two"))
		all := ""
		for end := false; !end; {
			a := c.ask(wire.VerbOutput, wire.OutputRequest{RunID: id, Stream: "stdout", Offset: int64(len(all)), WaitMS: 5000})
			var answer wire.OutputAnswer
			c.into(a, &answer)
			all, end = all+string(a.Data), answer.End
		}
		c.note("%q", all)
		runs := wire.RunRequest{RunIDs: []longstop.RunID{id, "run_ffffffffffffffffffffffffffffffff"}}
		var collected wire.CollectAnswer
		c.into(c.ask(wire.VerbCollect, runs), &collected)
		c.note("collected %d", len(collected.Collected))
		var gone wire.GCAnswer
		c.into(c.ask(wire.VerbGC, wire.GCRequest{RunIDs: runs.RunIDs[:1]}), &gone)
		c.note("removed %d", len(gone.Removed))
		c.code("output", c.ask(wire.VerbOutput, wire.OutputRequest{RunID: id, Stream: "stdout"}))
		c.found(wire.VerbFind, "a")
		c.submit(c.newSubmit("a", "echo one; sleep 0.3; echo two"))
		c.final(id)
	},
}

func (c *caller) killOwnerAndKeeper(id longstop.RunID) {
	c.killKeeper()
	c.killOwner(id)
}
