package hostsim

import (
	"bytes"
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// Scenes are what the simulation found once, told by themselves.

// scene runs a gateway with one host in a bubble.
func scene(t *testing.T, plan *Plan, witness *Witness, play func(t *testing.T, g *gateway.Gateway, h *Host)) {
	t.Helper()
	home := folderOf(t)
	copyHome(t, template(t, newHosts(nil, nil, Broken{})), home)
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(plan, witness, Broken{})
		store, err := sqlite.Open(filepath.Join(home, "longstop.db"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(gateway.Config{Store: store, Dialers: map[string]sshlink.Dialer{"sim": NewNet(hosts...).Dialer(nil)},
			Runners: noRunners{}, Home: home, Name: "sim"})
		if err != nil {
			t.Fatal(err)
		}
		play(t, g, hosts[0])
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
		store.Close()
		hosts[0].CutLinks()
		time.Sleep(time.Hour)
	})
}

// A submit's connection goes before its answer, and what the run released is gone by the time the host is
// asked how it is: it had been taken for what the record says, for ever.
func TestLaw3WhatWasReleasedAndIsGoneIsSeenToBeGone(t *testing.T) {
	t.Parallel()
	var cut atomic.Bool
	plan := &Plan{Latency: 20 * time.Millisecond, Message: func(_ string, toHost bool, _ int, frame []byte) Fate {
		if toHost && bytes.Contains(frame, []byte(`"verb":"submit"`)) && cut.CompareAndSwap(false, true) {
			return Fate{Kind: CutAfter}
		}
		return Fate{}
	}}
	scene(t, plan, nil, func(t *testing.T, g *gateway.Gateway, h *Host) {
		a, err := g.Run(t.Context(), longstop.RunRequest{Host: h.Name, Request: longstop.Request{Script: "sleep 3 & exit 0", Leftover: longstop.LeftoverRelease}},
			agent, gateway.Told{})
		if err != nil || a.Workload.State != longstop.WorkloadFinished || len(a.Workload.Released) != 1 || !cut.Load() {
			t.Fatalf("%s, %d released, %v", a.Workload.State, len(a.Workload.Released), err)
		}
		time.Sleep(2 * time.Minute)
		if a, err = g.Action(t.Context(), string(a.ID)); err != nil || a.Unresolved() || a.Alive != longstop.AliveNo {
			t.Errorf("two minutes later: unresolved %v, alive %s, %v", a.Unresolved(), a.Alive, err)
		}
	})
}

// Whoever waits for a submit leaves while a channel is opened for sending it once more: it is not sent.
func TestLaw5WhatNobodyWaitsForIsNotSentAgain(t *testing.T) {
	t.Parallel()
	const latency = 200 * time.Millisecond
	var submits, hellos atomic.Int64
	plan := &Plan{Latency: latency, Message: func(_ string, toHost bool, _ int, frame []byte) Fate {
		if toHost && bytes.Contains(frame, []byte(`"verb":"submit"`)) && submits.Add(1) == 1 {
			return Fate{Kind: CutAfter}
		}
		return Fate{}
	}}
	var leave context.CancelFunc
	witness := &Witness{Asked: func(_ string, r wire.Request) {
		if r.Verb == wire.VerbHello && hellos.Add(1) == 2 {
			time.AfterFunc(latency+latency/2, leave) // the answer has come, and the next channel is being opened
		}
	}}
	scene(t, plan, witness, func(t *testing.T, g *gateway.Gateway, h *Host) {
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		defer leave()
		_, err := g.Run(ctx, longstop.RunRequest{Host: h.Name, Request: longstop.Request{Script: "sleep 60", OwnChannel: true}}, agent, gateway.Told{})
		time.Sleep(10 * time.Second)
		if ctx.Err() == nil || submits.Load() != 1 || hellos.Load() != 2 {
			t.Errorf("sent %d times, over %d channels, %v", submits.Load(), hellos.Load(), err)
		}
	})
}
