package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// TestMain is the command itself where a test starts this binary again for it.
func TestMain(m *testing.M) {
	if os.Getenv("LONGSTOP_TEST_COMMAND") == "1" {
		main()
		return
	}
	status := m.Run()
	if programs != "" {
		os.RemoveAll(programs)
	}
	os.Exit(status)
}

// script is a scripted gateway: one handler for each request.
type script struct {
	t    *testing.T
	home client.Home
	mux  *http.ServeMux
	http *http.Server

	mu    sync.Mutex
	calls []string
	waits []string
}

func newScript(t *testing.T) *script {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &script{t: t, home: client.Home{Dir: dir, Runtime: filepath.Join(dir, "run")}, mux: http.NewServeMux()}
	if err := s.home.Make(); err != nil {
		t.Fatal(err)
	}
	s.on("POST /api/v1/actions/{id}/waits", func(w http.ResponseWriter, r *http.Request) {
		var g longstop.GiveUp
		json.NewDecoder(r.Body).Decode(&g)
		s.mu.Lock()
		s.waits = append(s.waits, g.By)
		s.mu.Unlock()
		w.Write([]byte("{}"))
	})
	s.listen()
	return s
}

// listen serves on the home's socket, again after stop.
func (s *script) listen() {
	s.t.Helper()
	os.Remove(s.home.Socket())
	l, err := net.Listen("unix", s.home.Socket())
	if err != nil {
		s.t.Fatal(err)
	}
	s.http = &http.Server{Handler: s.mux}
	go s.http.Serve(l)
	s.t.Cleanup(func() { s.http.Close() })
}

func (s *script) on(pattern string, h http.HandlerFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.RequestURI())
		s.mu.Unlock()
		w.Header().Set(longstop.APIHeader, "1")
		h(w, r)
	})
}

// answers serves a value as JSON.
func (s *script) answers(pattern string, v any) {
	s.on(pattern, func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(v) })
}

// fails serves an error.
func (s *script) fails(pattern string, e *longstop.Error) {
	s.on(pattern, func(w http.ResponseWriter, _ *http.Request) {
		status := longstop.Codes[e.Code].HTTP
		w.Header().Set("Content-Type", longstop.ProblemType)
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(longstop.Problem{Status: status, Code: e.Code, Detail: e.Message, Hint: e.Hint, ActionID: e.ActionID})
	})
}

// stream serves a follow stream, told event by event.
func (s *script) stream(pattern string, tell func(r *http.Request, send func(kind longstop.FollowKind, offset int64, data any))) {
	s.on(pattern, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", longstop.FollowType)
		flush := http.NewResponseController(w).Flush
		flush()
		io.Copy(io.Discard, r.Body)
		tell(r, func(kind longstop.FollowKind, offset int64, data any) {
			var text []byte
			switch d := data.(type) {
			case string:
				text = []byte(d)
			default:
				text, _ = json.Marshal(d)
			}
			fmt.Fprintf(w, "%s %d %d\n%s", kind, offset, len(text), text)
			flush()
		})
	})
}

func (s *script) called(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.Contains(c, part) {
			n++
		}
	}
	return n
}

func (s *script) gaveUp() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.waits...)
}

// process is one call of longstop, as a process.
type process struct {
	*exec.Cmd
	out, err *lines
}

// lines is output that can be waited for.
type lines struct {
	mu   sync.Mutex
	more *sync.Cond
	text bytes.Buffer
}

func newLines() *lines {
	l := new(lines)
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.more.Broadcast()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	late := false
	timer := time.AfterFunc(20*time.Second, func() { l.mu.Lock(); late = true; l.more.Broadcast(); l.mu.Unlock() })
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text.String(), part) {
		if late {
			t.Fatalf("%q did not come; so far:\n%s", part, l.text.String())
		}
		l.more.Wait()
	}
}

func (s *script) command(args ...string) *process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	c := &process{Cmd: exec.Command(self, args...), out: newLines(), err: newLines()}
	c.Env = append(os.Environ(), "LONGSTOP_TEST_COMMAND=1", "LONGSTOP_HOME="+s.home.Dir, "TZ=UTC", "PATH="+os.Getenv("PATH"))
	c.Stdout, c.Stderr = c.out, c.err
	return c
}

// start starts the command and makes sure that it ends with the test.
func (s *script) start(args ...string) *process {
	s.t.Helper()
	c := s.command(args...)
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Process.Kill() })
	return c
}

// status is the command's exit status, once it has ended.
func (c *process) status(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { c.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	c.Wait()
	return c.ProcessState.ExitCode()
}

func (s *script) run(args ...string) (status int, out, err string) {
	s.t.Helper()
	c := s.start(args...)
	status = c.status(s.t)
	return status, c.out.String(), c.err.String()
}

// anAction is an accepted, running action.
func anAction(edit ...func(*longstop.Action)) *longstop.Action {
	at := longstop.At(time.Date(2026, 11, 29, 13, 21, 4, 0, time.UTC))
	a := &longstop.Action{
		ID: "act_01KB6Y3T0000Q2M", Revision: 3, SessionID: "ses_01KB6Y3T0000AAA", RunID: "run_00112233445566778899aabbccddeeff",
		Host: "web-1", CreatedAt: at, RequestedBy: longstop.Requester{Kind: "operator", Name: "ann", Via: "cli"},
		Request: longstop.Request{Argv: []string{"./migrate.sh", "--to", "42"}, Lifetime: longstop.Leased, Owner: longstop.OwnerAuto,
			Leftover: longstop.LeftoverWait, Effect: longstop.EffectOnce, LeaseS: 120, GraceS: 10},
		Alive: longstop.AliveYes, Outcome: longstop.OutcomePending,
		Launch:      longstop.Launch{State: longstop.LaunchAccepted, At: later(at, time.Second)},
		SSHCommand:  longstop.SSHCommand{State: longstop.SSHCarried, At: later(at, time.Second)},
		Workload:    longstop.Workload{State: longstop.WorkloadRunning, StartedAt: later(at, time.Second)},
		Observation: &longstop.Observation{At: later(at, 2*time.Second), By: "serve@gw-1", Source: longstop.Live},
	}
	for _, e := range edit {
		e(a)
	}
	return a
}

func later(t longstop.Time, d time.Duration) longstop.Time { return longstop.At(t.Add(d)) }

// ended makes an action that ended with an exit status.
func ended(code int) func(*longstop.Action) {
	return func(a *longstop.Action) {
		a.Revision += 10
		a.Alive, a.Outcome = longstop.AliveNo, longstop.OutcomeSucceeded
		if code != 0 {
			a.Outcome = longstop.OutcomeFailed
		}
		empty := true
		a.Workload.State, a.Workload.FinishedAt = longstop.WorkloadFinished, later(a.Workload.StartedAt, 38200*time.Millisecond)
		a.Workload.Result, a.Workload.Boundary = &longstop.Result{ExitCode: &code}, longstop.Boundary{Kind: longstop.BoundaryTree, Empty: &empty}
		a.CompletionSource = "owner@web-1"
	}
}
