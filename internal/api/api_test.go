package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
)

// serve serves a fake on a socket and gives the client that the command uses.
func serve(t *testing.T, f *fake) (*client.Client, *Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // t.TempDir() may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	home := client.Home{Dir: dir, Runtime: filepath.Join(dir, "run")}
	if err := home.Make(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	s := New(f, slog.New(slog.DiscardHandler), func() {})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &client.Client{Home: home}, s
}

// raw makes a request as any HTTP client would.
func raw(t *testing.T, c *client.Client, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", c.Home.Socket())
	}, DisableKeepAlives: true}}
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://longstop"+path, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// collect reads a follow stream to its end.
func collect(t *testing.T, f *client.Follow) (out map[longstop.FollowKind]string, actions []longstop.Action, err error) {
	t.Helper()
	out = map[longstop.FollowKind]string{}
	next := map[longstop.FollowKind]int64{}
	for {
		e, err := f.Next()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return out, actions, err
		}
		switch e.Kind {
		case longstop.FollowStdout, longstop.FollowStderr:
			if e.Offset != next[e.Kind] {
				t.Errorf("%s at %d, want %d", e.Kind, e.Offset, next[e.Kind])
			}
			next[e.Kind] = e.Offset + int64(len(e.Data))
			out[e.Kind] += string(e.Data)
		case longstop.FollowNote:
			out[e.Kind] += string(e.Data) + "\n"
		case longstop.FollowAction:
			var a longstop.Action
			if err := json.Unmarshal(e.Data, &a); err != nil {
				t.Fatal(err)
			}
			actions = append(actions, a)
		}
	}
}

func TestRunIsFollowedFromItsFirstMoment(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.run = func(_ context.Context, told gateway.Told) error {
		told.Note("copying the runner")
		told.Action(f.change(func(*longstop.Action) {}))
		f.change(func(a *longstop.Action) {
			a.Launch.State, a.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
		})
		go func() {
			f.write("stdout", "hello, ")
			f.write("stderr", "oh\n")
			f.write("stdout", "world\n")
			f.finish(0)
		}()
		return nil
	}
	c, _ := serve(t, f)
	stream, err := c.Run(t.Context(), longstop.RunRequest{Host: "h1", Request: longstop.Request{Argv: []string{"true"}}}, client.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out, actions, err := collect(t, stream)
	if err != nil {
		t.Fatal(err)
	}
	if out["stdout"] != "hello, world\n" || out["stderr"] != "oh\n" || out["note"] != "copying the runner\n" {
		t.Errorf("got %q", out)
	}
	for i := 1; i < len(actions); i++ {
		if actions[i].Revision <= actions[i-1].Revision {
			t.Errorf("revision %d after %d", actions[i].Revision, actions[i-1].Revision)
		}
	}
	if first, last := actions[0], actions[len(actions)-1]; first.Launch.State != longstop.LaunchSent || !last.Settled() {
		t.Errorf("first %v, last %v", first.Launch.State, last.Workload.State)
	}
	if f.peers[0].Kind != "operator" || f.peers[0].Name == "" {
		t.Errorf("peer %+v", f.peers[0])
	}
}

func TestFollowGoesOnAtItsOffsets(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State, f.action.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
	f.out["stdout"], f.out["stderr"] = []byte("0123456789"), []byte("abc")
	f.outErr = &longstop.Error{Code: longstop.CodeUnreachable, Message: "no answer"} // once: asked again
	f.finish(0)
	f.outErr = nil
	c, _ := serve(t, f)
	for _, from := range []client.Offsets{{Stdout: 4, Stderr: -1}, {Stdout: 10, Stderr: 0}, {Stdout: -1, Stderr: -1}} {
		stream, err := c.Follow(t.Context(), "0001", from)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for {
			e, err := stream.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == longstop.FollowStdout || e.Kind == longstop.FollowStderr {
				got += string(e.Data)
			}
		}
		stream.Close()
		want := ""
		if from.Stdout >= 0 {
			want += "0123456789"[from.Stdout:]
		}
		if from.Stderr >= 0 {
			want += "abc"[from.Stderr:]
		}
		if got != want {
			t.Errorf("from %+v: %q, want %q", from, got, want)
		}
	}
}

func TestUnreachableHostIsAskedAgainFromTheSameByte(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State, f.action.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
	f.out["stdout"] = []byte("abc")
	f.outErr = &longstop.Error{Code: longstop.CodeUnreachable, Message: "no answer"}
	c, _ := serve(t, f)
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		e, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == longstop.FollowStdout {
			break
		}
	}
	f.finish(0)
	if _, actions, err := collect(t, stream); err != nil || !actions[len(actions)-1].Settled() {
		t.Errorf("%v, %v", actions, err)
	}
}

// Whole blocks are asked for ahead; they arrive in order, each once, and the end is the end.
func TestLongOutputArrivesInOrder(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.piece = block
	f.action.Launch.State, f.action.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
	want := make([]byte, 7*block+12345)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	f.out["stdout"] = append([]byte(nil), want[:5*block]...)
	c, _ := serve(t, f)
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got []byte
	for {
		e, err := stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != longstop.FollowStdout {
			continue
		}
		if e.Offset != int64(len(got)) {
			t.Fatalf("at %d after %d bytes", e.Offset, len(got))
		}
		got = append(got, e.Data...)
		if len(got) == 5*block { // the run goes on only now: what was asked for ahead waits for it
			f.write("stdout", string(want[5*block:6*block-1]))
			f.write("stdout", string(want[6*block-1:]))
			f.finish(0)
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d, or others", len(got), len(want))
	}
}

func TestUnreadableOutputIsSaid(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State, f.action.Workload.State, f.torn = longstop.LaunchAccepted, longstop.WorkloadRunning, true
	f.out["stdout"] = []byte("abc")
	c, _ := serve(t, f)
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	f.finish(0)
	out, actions, err := collect(t, stream)
	if err != nil || out["note"] != "stdout could not be read further: torn\n" || !actions[len(actions)-1].Settled() {
		t.Errorf("%q, %v", out, err)
	}
}

func TestRefusedRunEndsInItsError(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.run = func(_ context.Context, told gateway.Told) error {
		a := f.change(func(a *longstop.Action) {
			a.Launch.State, a.Outcome, a.Alive = longstop.LaunchRejected, longstop.OutcomeNotStarted, longstop.AliveNo
		})
		return fmt.Errorf("launch: %w", &longstop.Error{Code: longstop.CodeHostKeyUnknown, Message: "the host key is not known", Hint: "ssh-keyscan", ActionID: a.ID})
	}
	c, _ := serve(t, f)
	stream, err := c.Run(t.Context(), longstop.RunRequest{Host: "h1"}, client.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_, _, err = collect(t, stream)
	var e *longstop.Error
	if !errors.As(err, &e) || e.Code != longstop.CodeHostKeyUnknown || e.Hint != "ssh-keyscan" || e.ActionID == "" {
		t.Errorf("got %#v", err)
	}
}

func TestUnknownLaunchIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.run = func(context.Context, gateway.Told) error {
		f.change(func(a *longstop.Action) { a.Launch.State = longstop.LaunchUnknown })
		return &longstop.Error{Code: longstop.CodeTimeout, Message: "no answer came"}
	}
	c, _ := serve(t, f)
	stream, err := c.Run(t.Context(), longstop.RunRequest{Host: "h1"}, client.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		e, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == longstop.FollowAction {
			break
		}
	}
	f.change(func(a *longstop.Action) { a.Launch.State = longstop.LaunchAccepted })
	f.finish(3)
	if _, actions, err := collect(t, stream); err != nil || *actions[len(actions)-1].Workload.Result.ExitCode != 3 {
		t.Errorf("%v, %v", actions, err)
	}
}

// A client that goes away ends its caller's context, and nothing else.
func TestClientGoneStopsNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	callerGone := make(chan struct{})
	var after atomic.Bool
	f.run = func(ctx context.Context, told gateway.Told) error {
		told.Action(f.change(func(*longstop.Action) {}))
		<-ctx.Done()
		after.Store(true)
		close(callerGone)
		return nil
	}
	c, _ := serve(t, f)
	stream, err := c.Run(t.Context(), longstop.RunRequest{Host: "h1"}, client.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	select {
	case <-callerGone:
	case <-time.After(10 * time.Second):
		t.Fatal("the gateway does not know that its caller has gone")
	}
	if _, err := c.Action(t.Context(), "0001"); err != nil || !after.Load() {
		t.Error(err)
	}
}

// What is known grows old without a new revision, and comes back: both are told, once each.
func TestTimeAloneChangesWhatIsShown(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State, f.action.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
	f.action.Observation = &longstop.Observation{Source: longstop.Live}
	c, _ := serve(t, f)
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	next := func() (a longstop.Action) {
		for {
			e, err := stream.Next()
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == longstop.FollowAction {
				if err := json.Unmarshal(e.Data, &a); err != nil {
					t.Fatal(err)
				}
				return a
			}
		}
	}
	first := next()
	for _, source := range []longstop.ObservationSource{longstop.Cached, longstop.Live} {
		f.show(func(a *longstop.Action) { a.Observation = &longstop.Observation{Source: source} })
		if a := next(); a.Observation.Source != source || a.Revision != first.Revision {
			t.Errorf("%+v at revision %d", a.Observation, a.Revision)
		}
	}
}

func TestBeats(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State = longstop.LaunchAccepted
	c, s := serve(t, f)
	s.beat = 20 * time.Millisecond
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for beats := 0; beats < 3; {
		e, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == longstop.FollowBeat {
			beats++
		}
	}
}

func TestShutdownTellsFollowers(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State = longstop.LaunchAccepted
	c, s := serve(t, f)
	stream, err := c.Follow(t.Context(), "0001", client.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Next(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan longstop.Action, 1)
	go func() {
		a, _ := c.Wait(t.Context(), "0001", time.Minute)
		waited <- a
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go s.Shutdown(ctx)
	if _, _, err = collect(t, stream); longstop.CodeOf(err) != longstop.CodeStopped {
		t.Errorf("got %v", err)
	}
	<-waited // a bounded wait ends too, with the action or a refused connection
}

func TestCancelTellsItsSteps(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.cancel = func(note func(string)) error {
		note("TERM to 4 processes")
		f.change(func(a *longstop.Action) { a.Workload.State = longstop.WorkloadCancelled })
		return nil
	}
	c, _ := serve(t, f)
	var notes []string
	a, err := c.Cancel(t.Context(), "0001", func(s string) { notes = append(notes, s) })
	if err != nil || a.Workload.State != longstop.WorkloadCancelled || len(notes) != 1 {
		t.Errorf("%v, %v, %v", a.Workload.State, notes, err)
	}
	f.cancel = func(func(string)) error { return &longstop.Error{Code: longstop.CodeRefused, Message: "not this boot"} }
	if _, err = c.Cancel(t.Context(), "0001", func(string) {}); longstop.CodeOf(err) != longstop.CodeRefused {
		t.Errorf("got %v", err)
	}
}

func TestStdinArrivesWhole(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	want := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 60_000)
	got, err := c.SpoolStdin(t.Context(), io.MultiReader(bytes.NewReader(want[:7]), bytes.NewReader(want[7:])))
	if err != nil || got.Bytes != int64(len(want)) || !bytes.Equal(f.stdin, want) {
		t.Fatalf("%+v, %v: %d bytes", got, err, len(f.stdin))
	}
	// Half a body is no body.
	f.stdin = nil
	if _, err := c.SpoolStdin(t.Context(), io.MultiReader(bytes.NewReader(want[:100]), broken{})); err == nil || f.stdin != nil {
		t.Errorf("a broken input was taken: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestOutput(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.action.Launch.State = longstop.LaunchAccepted
	f.out["stdout"] = []byte("0123456789\xff\x00")
	c, _ := serve(t, f)
	r, err := c.Output(t.Context(), "0001", "stdout", 3)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(data) != "3456789\xff\x00" {
		t.Errorf("%q, %v", data, err)
	}
	f.outErr = &longstop.Error{Code: longstop.CodeUnreachable, Message: "no answer"}
	if _, err := c.Output(t.Context(), "0001", "stdout", 0); longstop.CodeOf(err) != longstop.CodeUnreachable {
		t.Errorf("got %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	huge := `{"host":"` + strings.Repeat("x", maxBody) + `"}`
	for _, bad := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/api/v1/actions", `{"host":"h1","surprise":1}`, 400, "surprise"},
		{"POST", "/api/v1/actions", `{"host":"h1","host":"h2"}`, 400, "host"},
		{"POST", "/api/v1/actions", `{"host":"h1"} {}`, 400, ""},
		{"POST", "/api/v1/actions", ``, 400, ""},
		{"POST", "/api/v1/actions", `[]`, 400, ""},
		{"POST", "/api/v1/actions", huge, 400, "over"},
		{"POST", "/api/v1/actions?follow=yes", `{}`, 400, "follow"},
		{"POST", "/api/v1/actions?stdout=-2&follow=1", `{}`, 400, "stdout"},
		{"GET", "/api/v1/actions?colour=red", ``, 400, "colour"},
		{"GET", "/api/v1/actions?limit=0", ``, 400, "limit"},
		{"GET", "/api/v1/actions?limit=5&limit=6", ``, 400, "twice"},
		{"GET", "/api/v1/actions/act_NONE", ``, 404, "no action"},
		{"GET", "/api/v1/actions/0001/output?stream=stdlog", ``, 400, "stream"},
		{"GET", "/api/v1/actions/0001/wait?timeout_ms=86400000", ``, 400, "timeout_ms"},
		{"POST", "/api/v1/actions/0001/cancel", `{}`, 400, "no body"},
		{"GET", "/api/v1/nothing", ``, 404, "no such request"},
		{"PUT", "/api/v1/actions", ``, 404, "no such request"},
	} {
		resp, body := raw(t, c, bad.method, bad.path, bad.body)
		var p longstop.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != longstop.ProblemType {
			t.Errorf("%s %s: %s %q", bad.method, bad.path, resp.Header.Get("Content-Type"), body)
			continue
		}
		if resp.StatusCode != bad.status || p.Status != bad.status || p.Code == "" || !strings.Contains(p.Detail, bad.says) {
			t.Errorf("%s %s %.40s: %d %+v", bad.method, bad.path, bad.body, resp.StatusCode, p)
		}
	}
}

func TestVersionsAreTold(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	resp, body := raw(t, c, "GET", "/api/v1/hosts", "", longstop.APIHeader, "99")
	if resp.StatusCode != 409 || !strings.Contains(body, "daemon stop") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, _ = raw(t, c, "GET", "/api/v1/status", "", longstop.APIHeader, "99"); resp.StatusCode != 200 {
		t.Errorf("status for another version: %d", resp.StatusCode)
	}
	if got := resp.Header.Get(longstop.APIHeader); got != "1" {
		t.Errorf("%s: %q", longstop.APIHeader, got)
	}
}

func TestEmptyListsAreArrays(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, newFake())
	for _, path := range []string{"/api/v1/actions", "/api/v1/hosts", "/api/v1/journal"} {
		if _, body := raw(t, c, "GET", path, ""); body != "[]" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestGivingUpIsRecordedUnderItsName(t *testing.T) {
	t.Parallel()
	f := newFake()
	c, _ := serve(t, f)
	if err := c.GiveUp(t.Context(), "0001", "interrupted"); err != nil {
		t.Fatal(err)
	}
	if len(f.waits) != 1 || !strings.HasSuffix(f.waits[0], " (interrupted)") {
		t.Errorf("%q", f.waits)
	}
}

func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	s := New(newFake(), slog.New(slog.DiscardHandler), func() {})
	l, err := net.Listen("tcp", "127.0.0.1:0") // no peer credentials there
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	resp, err := http.Get("http://" + l.Addr().String() + "/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", resp.StatusCode)
	}
}
