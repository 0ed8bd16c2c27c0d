package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/gateway"
)

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

// Much output flows, or is asked for ahead in whole blocks where no flow is to be had; it arrives in
// order, each byte once, and the end is the end.
func TestLongOutputArrivesInOrder(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*fake){
		"flowing": func(*fake) {}, "no room for a flow": func(f *fake) { f.noRoom = true },
		"a flow that is cut":      func(f *fake) { f.flowCut = 3 * block },
		"a flow cut at its start": func(f *fake) { f.flowCut = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			prepare(f)
			followLong(t, f)
			if flows := f.flows; flows == 0 || f.noRoom && flows > 1 {
				t.Errorf("%d flows", flows)
			}
			checkLong(t, f)
		})
	}
}

// checkLong reads the whole of it once more, as bytes.
func checkLong(t *testing.T, f *fake) {
	t.Helper()
	f.flowCut = 3 * block
	c, _ := serve(t, f)
	r, err := c.Output(t.Context(), "0001", "stdout", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(data, f.out["stdout"][1:]) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func followLong(t *testing.T, f *fake) {
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
func TestC137ClientGoneStopsNothing(t *testing.T) {
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
