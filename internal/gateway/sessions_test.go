package gateway_test

import (
	"slices"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

var scout = longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "test"}

func (b *bench) session(purpose string, by longstop.Requester) longstop.SessionView {
	b.t.Helper()
	s, err := b.StartSession(b.t.Context(), longstop.SessionRequest{Purpose: purpose}, by)
	b.must(err)
	return s
}

func in(s longstop.SessionID, req longstop.RunRequest) longstop.RunRequest {
	req.SessionID = s
	return req
}

// Runs that name no session are in one that belongs to their owner, outlives processes and gateways, and is
// another one once it has ended.
func TestPointRunsWithoutASessionShareTheirOwners(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	one, two := b.run(script("true")), b.run(script("true"))
	agents, err := b.Run(t.Context(), script("true"), scout, gateway.Told{})
	b.must(err)
	if one.SessionID != two.SessionID || agents.SessionID == one.SessionID {
		t.Errorf("sessions %s, %s and the agent's %s", one.SessionID, two.SessionID, agents.SessionID)
	}
	for _, a := range []longstop.Action{one, two, agents} {
		b.wait(a.ID)
	}
	b.stop()
	b.start()
	three := b.run(script("true"))
	if three.SessionID != one.SessionID {
		t.Errorf("after a restart the session is %s, was %s", three.SessionID, one.SessionID)
	}
	b.wait(three.ID)
	s, err := b.Session(t.Context(), string(one.SessionID), operator)
	if err != nil || !s.Default || s.Unresolved != 0 || s.Outcomes[longstop.OutcomeSucceeded] != 3 || s.StartedBy.Name != "anna" {
		t.Errorf("%s %v", pretty(s), err)
	}
	ended, err := b.EndSession(t.Context(), string(one.SessionID), "", operator)
	if err != nil || !ended.Session.Ended() {
		t.Fatalf("%s %v", pretty(ended), err)
	}
	four := b.run(script("true"))
	if four.SessionID == one.SessionID {
		t.Error("a run is in a session that has ended")
	}
	b.wait(four.ID)
}

// What the end of a session does: leased runs are cancelled, detached ones go on, nothing new is started; and
// who it belongs to decides who may.
func TestPointSessionEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	ctx := t.Context()
	s := b.session("upgrade the database", operator)
	leased := b.run(in(s.ID, script("sleep 300")))
	asked := in(s.ID, script("sleep 300"))
	asked.Request.Lifetime, asked.Request.DeadlineS = longstop.Detached, 600
	detached := b.run(asked)
	elsewhere := b.run(script("sleep 300"))

	if _, err := b.Run(ctx, in(s.ID, script("true")), scout, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeNotAllowed {
		t.Errorf("an agent's run in another's session: %v", err)
	}
	if _, err := b.EndSession(ctx, string(s.ID), "", scout); longstop.CodeOf(err) != longstop.CodeNotAllowed {
		t.Errorf("an agent ends another's session: %v", err)
	}
	if list, err := b.Sessions(ctx, gateway.SessionFilter{}, scout); err != nil || len(list) != 0 {
		t.Errorf("an agent sees %s, %v", pretty(list), err)
	}
	view, err := b.Session(ctx, string(s.ID)[8:], operator)
	if err != nil || view.Unresolved != 2 || view.Purpose != "upgrade the database" {
		t.Errorf("%s %v", pretty(view), err)
	}

	ended, err := b.EndSession(ctx, string(s.ID), "", operator)
	b.must(err)
	if !slices.Equal(ended.Cancelling, []longstop.ActionID{leased.ID}) || !slices.Equal(ended.GoingOn, []longstop.ActionID{detached.ID}) {
		t.Errorf("%s", pretty(ended))
	}
	if a := b.wait(leased.ID); a.Outcome != longstop.OutcomeCancelled || a.Cancel.By != "operator anna (ended the session)" {
		t.Errorf("the leased run: %s", pretty(a))
	}
	if _, err := b.Run(ctx, in(s.ID, script("true")), operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeSessionEnded {
		t.Errorf("a run in a session that has ended: %v", err)
	}
	if again, err := b.EndSession(ctx, string(s.ID), longstop.CancelsAll, operator); err != nil || again.Session.EndCancels != longstop.CancelsLeased {
		t.Errorf("ended twice: %s %v", pretty(again), err)
	}
	for _, id := range []longstop.ActionID{detached.ID, elsewhere.ID} {
		if a, err := b.Action(ctx, string(id)); err != nil || a.Outcome != longstop.OutcomePending {
			t.Errorf("%s is not the session's to stop: %v %v", id, a.Outcome, err)
		}
		_, err := b.Cancel(ctx, string(id), operator, nil)
		b.must(err)
	}
	if view, err := b.Session(ctx, string(s.ID), operator); err != nil || view.Unresolved != 0 || view.Outcomes[longstop.OutcomeCancelled] != 2 {
		t.Errorf("%s %v", pretty(view), err)
	}
}

// Leases of an ended session are not renewed, also where its cancel does not reach the host.
func TestPointSessionEndStopsLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	s := b.session("lease", operator)
	asked := in(s.ID, script("sleep 300"))
	asked.Request.LeaseS = 2
	a := b.run(asked)
	kept := b.session("kept", operator)
	asked = in(kept.ID, script("sleep 5; exit 9"))
	asked.Request.LeaseS = 2
	goesOn := b.run(asked)
	if ended, err := b.EndSession(t.Context(), string(kept.ID), longstop.CancelsNobody, operator); err != nil || len(ended.GoingOn) != 1 {
		t.Errorf("%s %v", pretty(ended), err)
	}
	if a := b.wait(goesOn.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 9 {
		t.Errorf("with its leases kept: %s", pretty(a))
	}
	b.proxy.Cut()
	_, err := b.EndSession(t.Context(), string(s.ID), "", operator)
	b.must(err)
	if a := b.wait(a.ID); a.Outcome != longstop.OutcomeCancelled {
		t.Errorf("%s", pretty(a))
	}
}

// A session is idle when nothing has happened in it for long enough and nothing is unresolved; the gateway
// ends it by itself, also one that was stopped meanwhile.
func TestPointIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	busy, quiet := b.session("busy", operator), b.session("quiet", operator)
	asked := in(busy.ID, script("sleep 300"))
	asked.Request.Lifetime, asked.Request.DeadlineS = longstop.Detached, 600
	run := b.run(asked)
	b.stop()
	b.shift = 25 * time.Hour
	b.start()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s, err := b.Session(t.Context(), string(quiet.ID), operator)
		b.must(err)
		if s.Ended() {
			if s.EndedBecause != longstop.SessionIdle || s.EndedBy != "gateway@test" {
				t.Errorf("%s", pretty(s))
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("an idle session stays open")
		}
	}
	if s, err := b.Session(t.Context(), string(busy.ID), operator); err != nil || s.Ended() {
		t.Errorf("one with an unresolved run ended: %s %v", pretty(s), err)
	}
	_, err := b.Cancel(t.Context(), string(run.ID), operator, nil)
	b.must(err)
	if s, err := b.Session(t.Context(), string(busy.ID), operator); err != nil || s.Ended() {
		t.Errorf("the end of its run is a use: %s %v", pretty(s), err)
	}
}
