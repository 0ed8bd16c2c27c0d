package api

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
)

// Whoever has seen all of a stream by what the final action says has the gateway hear its end too: a run
// whose output was read is not kept as one that nobody read.
func TestTheEndOfWhatWasFollowedIsHeard(t *testing.T) {
	t.Parallel()
	for range 20 {
		f := newFake()
		f.change(func(a *longstop.Action) {
			a.Launch.State, a.Workload.State = longstop.LaunchAccepted, longstop.WorkloadRunning
		})
		c, _ := serve(t, f)
		stream, err := c.Follow(t.Context(), f.action.ID, client.Offsets{Stderr: -1})
		if err != nil {
			t.Fatal(err)
		}
		f.write("stdout", "all")
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
		if _, _, err := collectRest(stream); err != nil {
			t.Fatal(err)
		}
		stream.Close()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			heard := f.ended["stdout"]
			f.mu.Unlock()
			if heard {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the stream's end was not heard")
			}
		}
	}
}

// collectRest reads a follow stream to its end, wherever it begins.
func collectRest(f *client.Follow) (out map[longstop.FollowKind]string, gaps []longstop.DroppedOutput, err error) {
	out = map[longstop.FollowKind]string{}
	for {
		e, err := f.Next()
		if err == io.EOF {
			return out, gaps, nil
		}
		if err != nil {
			return out, gaps, err
		}
		out[e.Kind] += string(e.Data)
		if e.Kind == longstop.FollowDropped {
			var gap longstop.DroppedOutput
			if err := json.Unmarshal(e.Data, &gap); err != nil {
				return out, gaps, err
			}
			gaps = append(gaps, gap)
		}
	}
}

// What a host did not keep is told in its place, and the stream goes on behind it.
func TestFollowTellsWhatWasDropped(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.noRoom = true // pulled: the flow of a host is its own
	f.gap = longstop.Dropped{From: 7, To: 20, Reason: "ENOSPC"}
	f.change(func(a *longstop.Action) { a.Launch.State = longstop.LaunchAccepted })
	f.write("stdout", "written\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00after")
	f.finish(0)
	c, _ := serve(t, f)
	stream, err := c.Follow(t.Context(), f.action.ID, client.Offsets{Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out, gaps, err := collectRest(stream)
	if err != nil || out[longstop.FollowStdout] != "writtenafter" || len(gaps) != 1 || gaps[0] != (longstop.DroppedOutput{Stream: "stdout", Dropped: f.gap}) {
		t.Errorf("%q without %v, %v", out[longstop.FollowStdout], gaps, err)
	}
	raw, err := c.Output(t.Context(), string(f.action.ID), "stdout", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if all, err := io.ReadAll(raw); err != nil || string(all) != "writtenafter" {
		t.Errorf("bytes alone: %q, %v", all, err)
	}
}

// With the rest asked for, a stream goes on after the run's end until nobody can write any more; without, it
// ends with the run.
func TestFollowGoesOnForReleased(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.released = true
	f.change(func(a *longstop.Action) { a.Launch.State = longstop.LaunchAccepted })
	f.write("stdout", "in time")
	f.finish(0)
	f.show(func(a *longstop.Action) { a.Output.AfterEnd, a.Output.StdoutAtEnd = true, 7 })
	c, _ := serve(t, f)
	whole, err := c.Follow(t.Context(), f.action.ID, client.Offsets{Stderr: -1, Rest: true})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	short, err := c.Follow(t.Context(), f.action.ID, client.Offsets{Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if out, _, err := collectRest(short); err != nil || out[longstop.FollowStdout] != "in time" {
		t.Errorf("to the run's end: %q, %v", out, err)
	}
	f.write("stdout", ", late")
	f.mu.Lock()
	f.released = false
	f.changed.Broadcast()
	f.mu.Unlock()
	if out, _, err := collectRest(whole); err != nil || out[longstop.FollowStdout] != "in time, late" {
		t.Errorf("to the end of all: %q, %v", out, err)
	}
}
