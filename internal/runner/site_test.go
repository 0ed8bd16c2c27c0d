package runner

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// shipped is longstop-runner as it is shipped, faulty the same with its fault points; each is built
// once for all tests.
var (
	shipped = sync.OnceValues(func() (string, error) { return build("longstop-runner") })
	faulty  = sync.OnceValues(func() (string, error) { return build("longstop-runner-faults", "-tags", "faults") })
)

// built is the folder of the binaries, removed after the tests.
var built = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "longstop-runner") })

func build(name string, flags ...string) (string, error) {
	dir, err := built()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path}, flags...)
	build := exec.Command("go", append(args, "../../cmd/longstop-runner")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	if err != nil {
		os.Stderr.Write(output)
	}
	return path, err
}

// site is a state folder as a gateway sees it: by the verbs of a real longstop-runner.
type site struct {
	*lab
	runner string
	id     wire.Identity
}

func newSite(t testing.TB) *site {
	t.Helper()
	return newSiteOf(t, shipped)
}

func newSiteOf(t testing.TB, binary func() (string, error)) *site {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("build longstop-runner: %v", err)
	}
	l := newLab(t)
	return &site{lab: l, runner: path, id: identityOf(l.f)}
}

func identityOf(f *record.Folder) wire.Identity {
	return wire.Identity{MachineID: boundary.MachineID(), UID: os.Getuid(), StateID: f.StateID()}
}

// ask is a request of this site.
func (s *site) ask(verb wire.Verb, body any) wire.Request {
	s.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: verb, Host: s.id, StateDir: s.f.Dir(), WithinMS: 20_000, Body: encoded}
}

// outcome is what one call of longstop-runner did.
type outcome struct {
	status         int
	stdout, stderr []byte
}

// run calls longstop-runner with standard input.
func (s *site) run(input []byte, args ...string) outcome {
	s.t.Helper()
	return runCommand(s.t, exec.Command(s.runner, args...), input)
}

func runCommand(t testing.TB, cmd *exec.Cmd, input []byte) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()}
}

// call is a verb on a channel of its own. It returns the answer and reads its body into into.
func (s *site) call(request wire.Request, into any) *longstop.Error {
	s.t.Helper()
	return s.answer(request, s.run(s.encode(request), string(request.Verb)), into)
}

func (s *site) encode(request wire.Request) []byte {
	s.t.Helper()
	encoded, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	return encoded
}

func (s *site) answer(request wire.Request, r outcome, into any) *longstop.Error {
	s.t.Helper()
	body, frame, err := wire.ReadOne(bytes.NewReader(r.stdout), request.Nonce, wire.Options{MaxNoise: -1, Data: true})
	if err != nil {
		s.t.Fatalf("%s: %v; exit %d, stdout %q, stderr %q", request.Verb, err, r.status, r.stdout, r.stderr)
	}
	answer, err := wire.DecodeAnswer(request.Nonce, body)
	if err != nil || !answer.Final {
		s.t.Fatalf("%s: %+v, %v", request.Verb, answer, err)
	}
	answer.Data = frame.Data()
	want := exitAnswered
	if answer.Error != nil {
		want = exitError
	}
	if r.status != want || len(r.stderr) > 0 {
		s.t.Errorf("%s: exit %d (want %d), stderr %q", request.Verb, r.status, want, r.stderr)
	}
	s.read(answer, into)
	return answer.Error
}

func (s *site) read(answer wire.Answer, into any) {
	s.t.Helper()
	if answer.Error == nil && into != nil {
		if err := wire.Strict(answer.Body, into); err != nil {
			s.t.Fatalf("%s: %v", answer.Body, err)
		}
		if output, ok := into.(*wire.OutputAnswer); ok {
			output.Data = answer.Data
		}
	}
}

// must is a verb on a channel of its own that succeeds.
func (s *site) must(verb wire.Verb, body, into any) {
	s.t.Helper()
	if err := s.call(s.ask(verb, body), into); err != nil {
		s.t.Fatalf("%s: %v", verb, err)
	}
}

// channel is one running serve.
type channel struct {
	s      *site
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer

	mu      sync.Mutex
	waiting map[string]chan wire.Answer
	ledger  *wire.Ledger
	over    chan struct{} // stdout ended
}

func (s *site) serve() *channel {
	s.t.Helper()
	return s.serveBy(exec.Command(s.runner, "serve"))
}

func (s *site) serveBy(cmd *exec.Cmd) *channel {
	s.t.Helper()
	c := &channel{s: s, cmd: cmd, waiting: map[string]chan wire.Answer{}, ledger: wire.NewLedger(), over: make(chan struct{})}
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = &c.stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.stdin.Close(); cmd.Process.Kill(); <-c.over })
	go c.listen(wire.NewReader(out, wire.Options{MaxNoise: -1, Data: true}))
	return c
}

// listen hands frames to whoever asked, and checks that each may come.
func (c *channel) listen(frames *wire.Reader) {
	defer close(c.over)
	for {
		nonce, body, err := frames.Next()
		if err != nil {
			if err != io.EOF {
				c.s.t.Errorf("serve: %v", err)
			}
			break
		}
		answer, err := wire.DecodeAnswer(nonce, body)
		answer.Data = frames.Data()
		c.mu.Lock()
		if err == nil {
			err = c.ledger.Accept(answer)
		}
		to := c.waiting[nonce]
		c.mu.Unlock()
		if err != nil || to == nil {
			c.s.t.Errorf("serve: answer %s: %v", body, err)
			continue
		}
		to <- answer
	}
	c.cmd.Wait()
}

// send sends a request; its answers come on the channel returned.
func (c *channel) send(request wire.Request) <-chan wire.Answer {
	c.s.t.Helper()
	answers := make(chan wire.Answer, 1000)
	c.mu.Lock()
	c.waiting[request.Nonce] = answers
	err := c.ledger.Expect(request.Nonce, request.Verb == wire.VerbWatch)
	c.mu.Unlock()
	body, encodeErr := json.Marshal(request)
	if err != nil || encodeErr != nil {
		c.s.t.Fatal(err, encodeErr)
	}
	if err := wire.WriteFrame(c.stdin, request.Nonce, body); err != nil {
		c.s.t.Fatalf("%v; stderr %s", err, &c.stderr)
	}
	return answers
}

// call sends a request and waits for its one answer.
func (c *channel) call(request wire.Request, into any) *longstop.Error {
	c.s.t.Helper()
	answer := next(c.s.t, c.send(request), string(request.Verb))
	c.s.read(answer, into)
	return answer.Error
}

func (c *channel) must(verb wire.Verb, body, into any) {
	c.s.t.Helper()
	if err := c.call(c.s.ask(verb, body), into); err != nil {
		c.s.t.Fatalf("%s: %v", verb, err)
	}
}

// end closes the channel and returns the exit status.
func (c *channel) end() int {
	c.s.t.Helper()
	c.stdin.Close()
	select {
	case <-c.over:
	case <-time.After(15 * time.Second):
		c.s.t.Fatal("serve does not end with its standard input")
	}
	return c.cmd.ProcessState.ExitCode()
}

func next[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(15 * time.Second):
		t.Fatalf("not within fifteen seconds: %s", what)
		panic("unreachable")
	}
}

// pushed waits for the next pushed frame that tells of runs, heartbeats passed over.
func (c *channel) pushed(watch <-chan wire.Answer) wire.Pushed {
	c.s.t.Helper()
	for {
		answer := next(c.s.t, watch, "a pushed frame")
		if answer.Final {
			c.s.t.Fatalf("the watch ended: %+v", answer.Error)
		}
		var p wire.Pushed
		c.s.read(answer, &p)
		if len(p.Runs) > 0 {
			return p
		}
	}
}
