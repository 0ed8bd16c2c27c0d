package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

const runPath = "POST /api/v1/actions"

type sender = func(kind longstop.FollowKind, offset int64, data any)

func TestRunShowsOutputAndBothAnswers(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(_ *http.Request, send sender) {
		send("action", 0, anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchSent }))
		send("stdout", 0, "one\x00\n")
		send("stderr", 0, "oops")
		send("stdout", 5, "two")
		send("note", 0, "what \x1b[31mthe gateway says")
		send("beat", 0, "")
		send("action", 0, anAction(ended(3)))
	})
	status, out, err := s.run("run", "web-1", "--", "./migrate.sh", "--to", "42")
	wantErr := "· act_01KB6Y3T0000Q2M on web-1 · lease 2m\n" +
		"oops· what \\x1b[31mthe gateway says\n" +
		"· failed in 38.2s · exit 3 · nothing left running · said by owner@web-1\n"
	if status != 3 || out != "one\x00\ntwo" || err != wantErr {
		t.Errorf("status %d\nstdout %q\nstderr %q\nwant   %q", status, out, err, wantErr)
	}
	if status, out, err = s.run("run", "-q", "web-1", "--", "x"); status != 3 || out != "one\x00\ntwo" || err != "oops" {
		t.Errorf("quiet: %d %q %q", status, out, err)
	}
}

// TestQuietSaysWhyNothingRan: --quiet hides talk, not why the exit status is Longstop's own.
func TestQuietSaysWhyNothingRan(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction(func(a *longstop.Action) {
			a.Outcome, a.Alive = longstop.OutcomeNotStarted, longstop.AliveNo
			a.Launch.State, a.Workload.State = longstop.LaunchAccepted, longstop.WorkloadLaunchFailed
			a.Workload.LaunchError = &longstop.LaunchError{Step: "exec", Path: "x", Errno: "ENOENT", Message: "x: no such file or directory"}
		}))
	})
	if status, _, err := s.run("run", "-q", "web-1", "--", "x"); status != longstop.ExitNotStarted || !strings.Contains(err, "no such file or directory") {
		t.Errorf("%d %q", status, err)
	}
}

// Trying again is told once, and silence is told whose it is.
func TestWaitingSaysWhatFor(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(_ *http.Request, send sender) {
		send("action", 0, anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchSent }))
		send("note", 0, "connecting to web-1…")
		send("note", 0, "connecting to web-1…")
		send("action", 0, anAction(ended(0)))
	})
	if _, _, err := s.run("run", "web-1", "--", "x"); strings.Count(err, "connecting") != 1 {
		t.Errorf("%q", err)
	}
	told := func(f *follower) string {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		f.app = &app{talk: newTalk(file)}
		f.tellSlow()
		text, _ := os.ReadFile(file.Name())
		return string(text)
	}
	if got := told(new(follower)); got != "· waiting for the gateway\n" {
		t.Errorf("%q", got)
	}
	sent := anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchSent })
	if got := told(&follower{action: sent}); got != "· waiting for web-1 to answer\n" {
		t.Errorf("%q", got)
	}
	if told(&follower{action: anAction()}) != "" {
		t.Error("an accepted run is waited for in silence")
	}
}

func TestRunJSON(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		if r.URL.Query().Get("stdout") != "-1" || r.URL.Query().Get("stderr") != "-1" {
			t.Errorf("output asked for: %s", r.URL.RawQuery)
		}
		send("action", 0, anAction())
		send("action", 0, anAction(ended(0)))
	})
	status, out, _ := s.run("run", "--json", "web-1", "--", "true")
	var a longstop.Action
	if err := json.Unmarshal([]byte(out), &a); err != nil || status != 0 || a.Outcome != longstop.OutcomeSucceeded || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %v %s", status, err, out)
	}
}

func TestRunDetaches(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		if q := r.URL.Query(); q.Get("stdout") != "-1" || q.Get("stderr") != "-1" {
			t.Errorf("its output is waited for: %s", r.URL.RawQuery)
		}
		send("action", 0, anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchSent }))
		send("action", 0, anAction(func(a *longstop.Action) {
			a.Request.Lifetime, a.Request.LeaseS = longstop.Detached, 0
			a.Workload.DeadlineAt = later(a.CreatedAt, 6*time.Hour)
		}))
		<-r.Context().Done()
	})
	status, out, err := s.run("run", "-d", "--detached", "web-1", "--", "true")
	if status != 0 || out != "act_01KB6Y3T0000Q2M\n" || !strings.Contains(err, "accepted by web-1 at") || !strings.Contains(err, "detached · may run until") ||
		!strings.Contains(err, "longstop wait act_01KB6Y3T0000Q2M") || strings.Contains(err, "done") {
		t.Errorf("%d %q %q", status, out, err)
	}
}

func TestRunRefused(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	rejected := func(a *longstop.Action) {
		a.Launch = longstop.Launch{State: longstop.LaunchRejected, Because: "host_key_unknown", Message: "the host key is not known"}
		a.Workload, a.Alive, a.Outcome = longstop.Workload{State: longstop.WorkloadNone}, longstop.AliveNo, longstop.OutcomeNotStarted
	}
	s.stream(runPath, func(_ *http.Request, send sender) {
		send("action", 0, anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchNotAttempted }))
		send("error", 0, &longstop.Error{Code: longstop.CodeHostKeyUnknown, Message: "web-9: the host key is not known (ssh-ed25519 SHA256:2Y0d)",
			Hint: "Check it, then: ssh-keyscan web-9 >> ~/.ssh/known_hosts, or connect once with ssh.", ActionID: "act_01KB6Y3T0000Q2M"})
	})
	s.answers("GET /api/v1/actions/act_01KB6Y3T0000Q2M", anAction(rejected))
	status, out, err := s.run("run", "web-9", "--", "true")
	want := "· act_01KB6Y3T0000Q2M on web-1 · lease 2m\n" +
		"longstop: web-9: the host key is not known (ssh-ed25519 SHA256:2Y0d).\n" +
		"  Check it, then: ssh-keyscan web-9 >> ~/.ssh/known_hosts, or connect once with ssh.\n" +
		"  Nothing was started.\n"
	if status != 251 || out != "" || err != want {
		t.Errorf("%d %q\n%s", status, out, err)
	}
	status, out, _ = s.run("run", "--json", "web-9", "--", "true")
	var a longstop.Action
	if json.Unmarshal([]byte(out), &a); status != 251 || a.Launch.Because != "host_key_unknown" {
		t.Errorf("%d %s", status, out)
	}
}

// A code that of other errors leaves things open does not make an action unknown of which nothing
// was sent.
func TestRunRejectedIsNotUnknown(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(_ *http.Request, send sender) {
		send("action", 0, anAction(func(a *longstop.Action) { a.Launch.State = longstop.LaunchNotAttempted }))
		send("error", 0, &longstop.Error{Code: longstop.CodeTimeout, Message: "web-1 did not answer in time", ActionID: "act_01KB6Y3T0000Q2M"})
	})
	s.answers("GET /api/v1/actions/act_01KB6Y3T0000Q2M", anAction(func(a *longstop.Action) {
		a.Launch = longstop.Launch{State: longstop.LaunchRejected, Because: "timeout", Message: "web-1 did not answer in time"}
		a.Workload, a.Alive, a.Outcome = longstop.Workload{State: longstop.WorkloadNone}, longstop.AliveNo, longstop.OutcomeNotStarted
	}))
	status, _, err := s.run("run", "web-1", "--", "true")
	if status != longstop.ExitNotStarted || !strings.HasSuffix(err, "  Nothing was started.\n") {
		t.Errorf("%d %s", status, err)
	}
}

func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.fails("GET /api/v1/actions/nope", &longstop.Error{Code: longstop.CodeNotFound, Message: "no action nope", Hint: "longstop ps -a"})
	status, out, err := s.run("show", "--json", "nope")
	if status != 254 || out != `{"error":{"code":"not_found","message":"no action nope","hint":"longstop ps -a"}}`+"\n" || !strings.HasPrefix(err, "longstop: no action nope.\n") {
		t.Errorf("%d %q %q", status, out, err)
	}
}

// The stream breaks in the middle of an event; the same bytes come once.
func TestResumesAtTheByteWhereItBroke(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("stdout", 0, "0123456789")
		panic(http.ErrAbortHandler)
	})
	s.stream("GET /api/v1/actions/act_01KB6Y3T0000Q2M/follow", func(r *http.Request, send sender) {
		if got := r.URL.Query().Get("stdout"); got != "10" {
			t.Errorf("asked from %s", got)
		}
		send("stdout", 8, "89ab") // an overlap is cut, not shown twice
		send("action", 0, anAction(ended(0)))
	})
	status, out, err := s.run("run", "web-1", "--", "true")
	if status != 0 || out != "0123456789ab" || !strings.Contains(err, "the gateway answers again · resumed at byte 10") {
		t.Errorf("%d %q %q", status, out, err)
	}
}

// An answer lost before the action's id came: the same request again, under the same key.
func TestAsksAgainUnderTheSameKey(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	var keys []string
	s.on(runPath, func(w http.ResponseWriter, r *http.Request) {
		var req longstop.RunRequest
		json.NewDecoder(r.Body).Decode(&req)
		keys = append(keys, req.Key)
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", longstop.FollowType)
		text, _ := json.Marshal(anAction(ended(0)))
		w.Write(append([]byte("action 0 "+strconv.Itoa(len(text))+"\n"), text...))
	})
	status, _, err := s.run("run", "web-1", "--", "true")
	if status != 0 || len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("%d %q %s", status, keys, err)
	}
}

func TestInterruptCancels(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	cancelled := make(chan struct{})
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("stdout", 0, "working\n")
		<-cancelled
		send("action", 0, anAction(ended(0), func(a *longstop.Action) {
			a.Outcome, a.Workload.State, a.Workload.Cause = longstop.OutcomeCancelled, longstop.WorkloadCancelled, longstop.CauseRequest
			a.Workload.Result, a.Cancel.State = nil, longstop.CancelConfirmed
		}))
	})
	s.stream("POST /api/v1/actions/act_01KB6Y3T0000Q2M/cancel", func(_ *http.Request, send sender) {
		send("note", 0, "TERM to 4 processes")
		close(cancelled)
		send("result", 0, anAction())
	})
	c := s.start("run", "web-1", "--", "true")
	c.out.await(t, "working")
	c.Process.Signal(os.Interrupt)
	if status := c.status(t); status != 252 {
		t.Errorf("status %d", status)
	}
	for _, part := range []string{"cancelling act_01KB6Y3T0000Q2M", "TERM to 4 processes", "cancelled (request) in 38.2s · nothing left running · said by owner@web-1"} {
		c.err.await(t, part)
	}
	if len(s.gaveUp()) != 0 {
		t.Errorf("waits: %q", s.gaveUp())
	}
}

// Who interrupts before the gateway has said anything has cancelled what it then names.
func TestInterruptBeforeAnIdCancels(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	asked, interrupted, cancelled := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.on(runPath, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-interrupted
		w.Header().Set("Content-Type", longstop.FollowType)
		flush := http.NewResponseController(w).Flush
		flush()
		for _, a := range []*longstop.Action{anAction(), anAction(ended(3))} {
			text, _ := json.Marshal(a)
			fmt.Fprintf(w, "action 0 %d\n%s", len(text), text)
			flush()
			<-cancelled
		}
	})
	s.stream("POST /api/v1/actions/act_01KB6Y3T0000Q2M/cancel", func(_ *http.Request, send sender) {
		close(cancelled)
		send("result", 0, anAction())
	})
	c := s.start("run", "web-1", "--", "true")
	<-asked
	c.Process.Signal(os.Interrupt)
	c.err.await(t, "it is cancelled as soon as it has an id")
	close(interrupted)
	if status := c.status(t); status != 3 {
		t.Errorf("status %d: %s", status, c.err)
	}
	c.err.await(t, "cancelling act_01KB6Y3T0000Q2M")
}

func TestSecondInterruptLeaves(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		<-r.Context().Done()
	})
	asked := make(chan struct{})
	s.stream("POST /api/v1/actions/act_01KB6Y3T0000Q2M/cancel", func(r *http.Request, send sender) {
		close(asked)
		<-r.Context().Done()
	})
	c := s.start("run", "web-1", "--", "true")
	c.err.await(t, "lease 2m")
	c.Process.Signal(os.Interrupt)
	<-asked
	c.Process.Signal(os.Interrupt)
	if status := c.status(t); status != 253 {
		t.Errorf("status %d: %s", status, c.err)
	}
	if w := s.gaveUp(); len(w) != 1 || w[0] != "interrupted" {
		t.Errorf("waits: %q", w)
	}
	c.err.await(t, "the gateway goes on cancelling it")
}

func TestOtherSignalsLeave(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		s := newScript(t)
		s.stream(runPath, func(r *http.Request, send sender) {
			send("action", 0, anAction())
			<-r.Context().Done()
		})
		c := s.start("run", "web-1", "--", "true")
		c.err.await(t, "lease 2m")
		c.Process.Signal(sig)
		if status := c.status(t); status != 253 || s.called("/cancel") != 0 || len(s.gaveUp()) != 1 {
			t.Errorf("%v: status %d, calls %q", sig, status, s.calls)
		}
		c.err.await(t, "is left")
	}
}

func TestNobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("stdout", 0, "a line\n")
		<-r.Context().Done()
	})
	s.answers("GET /api/v1/actions/act_01KB6Y3T0000Q2M/wait", anAction())
	c := s.command("run", "web-1", "--", "yes")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if status := c.status(t); status != 253 {
		t.Errorf("status %d: %s", status, c.err)
	}
	c.err.await(t, "nobody reads the output any more · act_01KB6Y3T0000Q2M is left")
	if s.called("/cancel") != 0 {
		t.Error("it was cancelled")
	}
}

func TestGatewayStopped(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("error", 0, &longstop.Error{Code: longstop.CodeStopped, Message: "the gateway was stopped"})
	})
	status, _, err := s.run("run", "web-1", "--", "true")
	if status != 253 || !strings.Contains(err, "the gateway was stopped · act_01KB6Y3T0000Q2M is left") {
		t.Errorf("%d %s", status, err)
	}
}

// What is said of an action that is left is what is known of it: one that was never sent does not go on anywhere, and
// nobody sees a direct one.
func TestWhatIsLeftIsNotSaidToGoOn(t *testing.T) {
	t.Parallel()
	direct := func(a *longstop.Action) {
		a.Request.Owner, a.Launch.State = longstop.OwnerNone, longstop.LaunchAccepted
		a.Alive, a.Outcome, a.UnknownBecause, a.Observation = longstop.AliveUnknown, longstop.OutcomeUnknown, longstop.NoOwner, nil
		a.Workload = longstop.Workload{State: longstop.WorkloadNone}
	}
	for _, c := range []struct {
		edit func(*longstop.Action)
		says string
	}{
		{func(a *longstop.Action) {
			a.Approval.State, a.Request.Lifetime = longstop.ApprovalPending, longstop.Detached
			a.Launch.State, a.Workload, a.Observation = longstop.LaunchNotAttempted, longstop.Workload{State: longstop.WorkloadNone}, nil
		}, "is left: nothing of it was sent yet"},
		{func(a *longstop.Action) { a.Launch.State = longstop.LaunchSent }, "is left: whether it began is not known"},
		{direct, "is left: whether it goes on is not known"},
	} {
		s := newScript(t)
		s.stream(runPath, func(r *http.Request, send sender) {
			send("action", 0, anAction(c.edit))
			send("error", 0, &longstop.Error{Code: longstop.CodeStopped, Message: "the gateway was stopped"})
		})
		if status, _, err := s.run("run", "web-1", "--", "true"); status != 253 || !strings.Contains(err, c.says) || strings.Contains(err, "cannot be asked") {
			t.Errorf("%s: %d %s", c.says, status, err)
		}
	}
}

func TestHostLostAndFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	lost := func(a *longstop.Action) {
		a.Revision++
		a.Alive, a.Outcome, a.UnknownBecause = longstop.AliveUnknown, longstop.OutcomeUnknown, longstop.Unreachable
		a.Observation.Source, a.Observation.Because = longstop.Cached, longstop.Unreachable
		a.Observation.Since = longstop.At(time.Now().Add(-12 * time.Second))
		a.Workload.Lease = &longstop.Lease{State: longstop.LeaseActive, ExpiresAt: longstop.At(time.Now().Add(time.Minute))}
	}
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("stdout", 0, strings.Repeat("x", 4312))
		send("action", 0, anAction(lost))
		send("action", 0, anAction(lost, func(a *longstop.Action) { a.Revision++ })) // said once
		send("action", 0, anAction(func(a *longstop.Action) { a.Revision += 3 }))
		send("action", 0, anAction(ended(2)))
	})
	status, _, err := s.run("run", "web-1", "--", "true")
	if status != 2 || strings.Count(err, "web-1 does not answer (12s) · the run may go on until ") != 1 ||
		!strings.Contains(err, "web-1 answers again · resumed at byte 4,312 · nothing missed\n") {
		t.Errorf("%d %s", status, err)
	}
}

func TestLingeringIsNamed(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	told := make(chan struct{})
	code := 0
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("action", 0, anAction(func(a *longstop.Action) {
			a.Workload.State = longstop.WorkloadLingering
			a.Workload.Main = &longstop.Main{PID: 7, ExitCode: &code, EndedAt: later(a.Workload.StartedAt, 100*time.Millisecond)}
		}))
		<-told
		send("action", 0, anAction(ended(0)))
	})
	s.answers("GET /api/v1/actions/act_01KB6Y3T0000Q2M/inspect", map[string]any{"processes": []longstop.Process{
		{PID: 8, Command: "/bin/deploy.sh -x"}, {PID: 9, Command: "rsync"}}, "complete": true})
	c := s.start("run", "web-1", "-c", "./deploy.sh &")
	c.err.await(t, "main process ended (exit 0) after 0.1s · 2 processes left: deploy.sh, rsync · waiting (Ctrl-C cancels)")
	close(told)
	if status := c.status(t); status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestWaitTimesOut(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.answers("GET /api/v1/actions/{id}", anAction())
	s.stream("GET /api/v1/actions/{id}/follow", func(r *http.Request, send sender) {
		send("action", 0, anAction())
		<-r.Context().Done()
	})
	status, _, err := s.run("wait", "--timeout", "50ms", "0Q2M")
	if status != 253 || len(s.gaveUp()) != 1 || !strings.Contains(err, "is left") {
		t.Errorf("%d %q %s", status, s.gaveUp(), err)
	}
}

func TestWaitOfSeveral(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	exits := map[string]int{"a": 0, "b": 7, "c": 0, "d": 254}
	for id, code := range exits {
		final := anAction(ended(code), func(a *longstop.Action) { a.ID = longstop.ActionID(id) })
		s.answers("GET /api/v1/actions/"+id, anAction(func(a *longstop.Action) { a.ID = longstop.ActionID(id) }))
		s.stream("GET /api/v1/actions/"+id+"/follow", func(_ *http.Request, send sender) { send("action", 0, final) })
	}
	for args, want := range map[string]int{"a c": 0, "a b c": 1, "b": 7, "a d": 1, "d": 254} {
		if status, _, err := s.run(append([]string{"wait"}, strings.Fields(args)...)...); status != want {
			t.Errorf("wait %s: %d, want %d: %s", args, status, want, err)
		}
	}
	status, out, _ := s.run("wait", "--json", "a", "b")
	var list []longstop.Action
	if json.Unmarshal([]byte(out), &list); status != 1 || len(list) != 2 || list[1].Outcome != longstop.OutcomeFailed {
		t.Errorf("%d %s", status, out)
	}
}

func TestCancelStatus(t *testing.T) {
	t.Parallel()
	over := anAction(ended(0))
	survives := anAction(func(a *longstop.Action) {
		a.Workload.State, a.Cancel.State = longstop.WorkloadCancelling, longstop.CancelDelivered
		a.Workload.Survivors = []longstop.Process{{PID: 9, Command: "sleep 94", Why: "belongs to uid 0"}}
	})
	for name, c := range map[string]struct {
		before, after *longstop.Action
		err           *longstop.Error
		status        int
		says          string
	}{
		"over already": {over, nil, nil, 0, "was over already"},
		"stopped":      {anAction(), over, nil, 0, "nothing left running"},
		"survivors":    {anAction(), survives, nil, 250, "sleep (pid 9, belongs to uid 0)"},
		"no answer":    {anAction(), nil, &longstop.Error{Code: longstop.CodeUnreachable, Message: "web-1 does not answer", ActionID: "x"}, 250, "web-1 does not answer"},
		"our fault":    {anAction(), nil, &longstop.Error{Code: longstop.CodeInternal, Message: "the disk is full"}, 254, "the disk is full"},
	} {
		s := newScript(t)
		s.answers("GET /api/v1/actions/{id}", c.before)
		s.stream("POST /api/v1/actions/{id}/cancel", func(_ *http.Request, send sender) {
			if c.err != nil {
				send("error", 0, c.err)
				return
			}
			send("result", 0, c.after)
		})
		if status, _, err := s.run("cancel", "0Q2M"); status != c.status || !strings.Contains(err, c.says) {
			t.Errorf("%s: %d, want %d: %s", name, status, c.status, err)
		}
	}
}

func TestAnotherVersionSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.mux.HandleFunc("GET /api/v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(longstop.APIHeader, "2")
		w.Write([]byte("[]"))
	})
	status, _, err := s.run("host", "list")
	if status != 254 || !strings.Contains(err, "version 1 of the API, the running gateway 2") || !strings.Contains(err, "longstop daemon stop (runs go on)") {
		t.Errorf("%d %s", status, err)
	}
}

func TestStalledGatewayIsFoundAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three missed beats")
	}
	t.Parallel()
	s := newScript(t)
	var calls atomic.Int32
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		<-r.Context().Done() // no beat: as a stopped process
	})
	s.stream("GET /api/v1/actions/{id}/follow", func(_ *http.Request, send sender) {
		calls.Add(1)
		send("action", 0, anAction(ended(0)))
	})
	if status, _, err := s.run("run", "web-1", "--", "true"); status != 0 || calls.Load() != 1 || !strings.Contains(err, "does not answer: looking for it") {
		t.Errorf("%d %d %s", status, calls.Load(), err)
	}
}

// What the run printed and could not be written here is no success, whatever the run's own code: it is
// said, and where all of it is kept.
func TestRunOutputCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.stream(runPath, func(r *http.Request, send sender) {
		send("action", 0, anAction())
		send("stdout", 0, "two")
		<-r.Context().Done()
	})
	s.answers("GET /api/v1/actions/act_01KB6Y3T0000Q2M/wait", anAction(ended(0)))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	c := s.command("run", "web-1", "--", "true")
	c.Stdout = full
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	status := c.status(t)
	for _, want := range []string{"succeeded in", "cannot be written here", "no space left on device", "longstop logs act_01KB6Y3T0000Q2M"} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("it does not say %q: %s", want, c.err)
		}
	}
	if status != longstop.ExitOurs || strings.Contains(c.err.String(), "Nothing was started") {
		t.Errorf("%d %s", status, c.err)
	}
}
