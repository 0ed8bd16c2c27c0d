package gateway_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// unreachable restarts the gateway with a host that does not answer: what is approved is not launched yet.
func (b *bench) unreachable() {
	b.t.Helper()
	b.stop()
	b.proxy.Freeze()
	b.start()
}

// edit changes the store behind the gateway's back, while none runs.
func (b *bench) edit(query string, args ...any) {
	b.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(b.home, "longstop.db")+"?_pragma=busy_timeout(10000)")
	b.must(err)
	defer db.Close()
	done, err := db.Exec(query, args...)
	b.must(err)
	if n, _ := done.RowsAffected(); n != 1 {
		b.t.Fatalf("%s changed %d rows", query, n)
	}
}

// edited checks that the journal tells what was changed, and puts it right.
func (b *bench) edited() {
	b.t.Helper()
	if _, err := b.store.CheckProjections(b.t.Context()); !errors.As(err, new(*sqlite.Difference)) {
		b.t.Errorf("the journal does not tell what was changed: %v", err)
	}
	_, err := b.store.Rebuild(b.t.Context())
	b.must(err)
}

// notSent checks that nothing of an action ever went out.
func (b *bench) notSent(id longstop.ActionID) {
	b.t.Helper()
	for _, kind := range []string{"launch_intended", "approval_consumed"} {
		if slices.Contains(b.kinds(id), kind) {
			b.t.Errorf("the journal has %s: %v", kind, b.kinds(id))
		}
	}
}

// over waits until nothing can come of an action any more.
func (b *bench) over(id longstop.ActionID) longstop.Action {
	b.t.Helper()
	return b.until(id, "it is over", func(a longstop.Action) bool { return !a.Unresolved() })
}

// A yes to one action is none to another: not on another host, not of another script, lifetime or leftover.
func TestApprovalOfAnotherAction(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	other := sshtest.Start(t, sshtest.Options{Alias: "other"})
	_, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: "other", SSHConfig: other.SSHConfig}, nil)
	b.must(err)
	_, text := b.marker()
	approved := b.ask(script(text))
	for what, change := range map[string]func(*longstop.RunRequest){
		"host":     func(r *longstop.RunRequest) { r.Host = "other" },
		"script":   func(r *longstop.RunRequest) { r.Request.Script += " " },
		"lifetime": func(r *longstop.RunRequest) { r.Request.Lifetime = longstop.Detached },
		"leftover": func(r *longstop.RunRequest) { r.Request.Leftover = longstop.LeftoverRelease },
		"deadline": func(r *longstop.RunRequest) { r.Request.DeadlineS = 3600 },
		"limits":   func(r *longstop.RunRequest) { r.Request.Limits = &longstop.Limits{OpenFiles: 100} },
	} {
		req := script(text)
		change(&req)
		other := b.ask(req)
		proof := b.sign("anna", about(longstop.ChallengeApprove, approved.ID))
		_, err := b.Approve(t.Context(), string(other.ID), operator, proof)
		b.refused(other.ID, err, longstop.CodeNotProven, "what was signed is not what is to be done now: it is now action: "+string(other.ID))
		if words := what + ": "; what != "script" && !strings.Contains(err.Error(), words) {
			t.Errorf("%s is not named: %v", what, err)
		}
		b.notSent(other.ID)
	}
	if a, err := b.Action(t.Context(), string(approved.ID)); err != nil || a.Approval.State != longstop.ApprovalPending {
		t.Errorf("the other one: %s %v", a.Approval.State, err)
	}
}

// TestC142ChangedBetweenApprovalAndLaunch: what was approved is changed in the store, by somebody who can
// write it, before it is launched. Each change is found where the launch would use the approval up.
func TestC142ChangedBetweenApprovalAndLaunch(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]struct{ field, value, says string }{
		"script":   {"$.request.script", "echo other", "the request, the host or its key are not those"},
		"lifetime": {"$.request.lifetime", "detached", "the request, the host or its key are not those"},
		"leftover": {"$.request.leftover", "release", "the request, the host or its key are not those"},
		"digest":   {"$.request.digest", "sha256:00", "the request, the host or its key are not those"},
		"policy":   {"$.approval.policy", "sha256:p0", "the policy is another one"},
		"expiry":   {"$.approval.expires_at", "2099-01-01T00:00:00.000000Z", "launch before is 2099"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newApprovals(t)
			path, text := b.marker()
			a := b.ask(script(text))
			b.unreachable()
			b.approve(a.ID)
			b.stop()
			b.edit(`UPDATE actions SET json = json_set(json, ?, ?)`, change.field, change.value)
			b.proxy.Thaw()
			b.start()
			a = b.over(a.ID)
			if a.Launch.State != longstop.LaunchRejected || !strings.Contains(a.Launch.Message, change.says) || lines(path) != 0 {
				t.Errorf("%d lines, %s", lines(path), pretty(a.Launch))
			}
			b.notSent(a.ID)
			b.edited()
		})
	}
}

// The host that the launch reaches has another key than the one that was approved.
func TestApprovalOfAnotherHostKey(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	b.stop()
	b.edit(`UPDATE hosts SET json = json_set(json, '$.host_key', 'SHA256:another')`)
	b.proxy.Freeze()
	b.start()
	c, err := b.Challenge(t.Context(), about(longstop.ChallengeApprove, a.ID), operator)
	b.must(err)
	if !strings.Contains(c.Statement, "\nhost key: SHA256:another\n") {
		t.Fatalf("the person signs %s", c.Statement)
	}
	_, err = b.Approve(t.Context(), string(a.ID), operator, people["anna"]().key.Prove(c))
	b.must(err)
	b.proxy.Thaw()
	if a = b.over(a.ID); a.Launch.State != longstop.LaunchRejected || !strings.Contains(a.Launch.Message, "host key is "+b.server.HostKeyFP+" now, and that was not signed") || lines(path) != 0 {
		t.Errorf("%d lines, %s", lines(path), pretty(a.Launch))
	}
	b.notSent(a.ID)
}

// TestC142ScriptChangedBeforeApproval: the person would be shown another script than the digest that they sign.
func TestC142ScriptChangedBeforeApproval(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script("true"))
	b.stop()
	b.edit(`UPDATE actions SET json = json_set(json, '$.request.script', ?)`, text)
	b.start()
	b.approve(a.ID)
	if a = b.over(a.ID); a.Launch.State != longstop.LaunchRejected || lines(path) != 0 {
		t.Errorf("%d lines, %s", lines(path), pretty(a.Launch))
	}
	b.notSent(a.ID)
	b.edited()
}

// Who writes "granted" into the store has granted nothing.
func TestApprovalGrantedByTheStoreAlone(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	b.stop()
	b.edit(`UPDATE actions SET json = json_set(json, '$.approval.state', 'granted')`)
	b.start()
	if a = b.over(a.ID); a.Launch.State != longstop.LaunchRejected || !strings.Contains(a.Launch.Message, "no signature of an approver") || lines(path) != 0 {
		t.Errorf("%d lines, %s", lines(path), pretty(a.Launch))
	}
	b.notSent(a.ID)
	b.edited()
}

// A yes is good for one launch: neither the same proof nor another one starts it again.
func TestApprovalSecondUse(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	_, err := b.Approve(t.Context(), string(a.ID), operator, proof)
	b.must(err)
	b.wait(a.ID)
	_, err = b.Approve(t.Context(), string(a.ID), operator, proof)
	b.refused(a.ID, err, longstop.CodeNotPending, "is not waiting for approval: it is consumed")
	_, err = b.trySign("anna", about(longstop.ChallengeApprove, a.ID))
	b.refused(a.ID, err, longstop.CodeNotPending, "is not waiting for approval: it is consumed")
	if n := lines(path); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// A proof is good for one thing, once: replayed it is refused, and so is one of before a restart, of
// another kind of decision, or that somebody else's key made.
func TestApprovalReplayedC142(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a, other := b.ask(script(text)), b.ask(script(text+" "))
	proof := b.sign("anna", about(longstop.ChallengeDeny, a.ID))
	_, err := b.Deny(t.Context(), string(a.ID), "", operator, proof)
	b.must(err)
	_, err = b.Deny(t.Context(), string(other.ID), "", operator, proof)
	b.refused(other.ID, err, longstop.CodeNotProven, "is not open: it was used")

	proof = b.sign("anna", about(longstop.ChallengeDeny, other.ID))
	_, err = b.Approve(t.Context(), string(other.ID), operator, proof)
	b.refused(other.ID, err, longstop.CodeNotProven, "it is now kind: approve")

	proof = b.sign("anna", longstop.ChallengeRequest{Kind: longstop.ChallengeDeny, ActionID: other.ID, Reason: "one"})
	_, err = b.Deny(t.Context(), string(other.ID), "another", operator, proof)
	b.refused(other.ID, err, longstop.CodeNotProven, "it is now reason: another")

	c, err := b.Challenge(t.Context(), longstop.ChallengeRequest{Kind: longstop.ChallengeApprove, ActionID: other.ID, Approver: "anna"}, operator)
	b.must(err)
	_, err = b.Approve(t.Context(), string(other.ID), operator, people["bob"]().key.Prove(c))
	b.refused(other.ID, err, longstop.CodeNotProven, "this was not anna")

	b.stop()
	b.start()
	proof = b.sign("anna", about(longstop.ChallengeApprove, other.ID))
	b.stop()
	b.start()
	_, err = b.Approve(t.Context(), string(other.ID), operator, proof)
	b.refused(other.ID, err, longstop.CodeNotProven, "is from before the gateway's restart")
	b.notSent(other.ID)
	b.approve(other.ID)
	b.wait(other.ID)
}

// askFor is asksAbout with another time to live.
func askFor(ttl time.Duration) func(*bench) {
	return func(b *bench) {
		b.policy = func(q policy.Question) (policy.Verdict, string) {
			v, digest := asksAbout(q)
			v.ApprovalTTL = ttl
			return v, digest
		}
	}
}

// Nobody's answer in time is no answer: expired, not denied; and whoever waits is told.
func TestApprovalExpires(t *testing.T) {
	t.Parallel()
	b := newApprovals(t, askFor(1500*time.Millisecond))
	path, text := b.marker()
	waited, err := b.Run(t.Context(), script(text), operator, gateway.Told{})
	if longstop.CodeOf(err) != longstop.CodeExpired || waited.Approval.State != longstop.ApprovalExpired || waited.Outcome != longstop.OutcomeNotStarted {
		t.Errorf("who waited: %v\n%s", err, pretty(waited))
	}
	a := b.ask(script(text + " "))
	proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	b.until(a.ID, "it expires", func(a longstop.Action) bool { return a.Approval.State == longstop.ApprovalExpired })
	_, err = b.Approve(t.Context(), string(a.ID), operator, proof)
	b.refused(a.ID, err, longstop.CodeNotPending, "it is expired")
	_, err = b.trySign("anna", about(longstop.ChallengeApprove, a.ID))
	b.refused(a.ID, err, longstop.CodeNotPending, "it is expired")
	b.notSent(a.ID)
	if kinds := b.kinds(a.ID); !slices.Contains(kinds, "approval_expired") || slices.Contains(kinds, "approval_denied") || lines(path) != 0 {
		t.Errorf("%d lines, %v", lines(path), kinds)
	}
}

// A yes that was given in time is none after it: not even where the gateway was away meanwhile.
func TestApprovalGrantExpires(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	granted, pending := b.ask(script(text)), b.ask(script(text+" "))
	b.unreachable()
	b.approve(granted.ID)
	b.stop()
	b.proxy.Thaw()
	b.shift = 2 * time.Hour
	b.start()
	for _, id := range []longstop.ActionID{granted.ID, pending.ID} {
		if a := b.over(id); a.Approval.State != longstop.ApprovalExpired || a.Outcome != longstop.OutcomeNotStarted {
			t.Errorf("%s", pretty(a))
		}
		b.notSent(id)
	}
	if lines(path) != 0 {
		t.Error("it ran")
	}
}

// A challenge is open for two minutes.
func TestApprovalChallengeExpires(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	var late atomic.Int64
	b.stop()
	b.clock = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	b.start()
	_, text := b.marker()
	a := b.ask(script(text))
	proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	late.Store(int64(2*time.Minute + time.Second))
	_, err := b.Approve(t.Context(), string(a.ID), operator, proof)
	b.refused(a.ID, err, longstop.CodeNotProven, "the challenge ran out")
	b.notSent(a.ID)
}

// Taken back before its launch, an approval is none.
func TestApprovalRevokedBeforeLaunch(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	b.unreachable()
	b.approve(a.ID)
	why := longstop.ChallengeRequest{Kind: longstop.ChallengeRevoke, ActionID: a.ID, Reason: "a mistake"}
	a, err := b.Revoke(t.Context(), string(a.ID), why.Reason, operator, b.sign("anna", why))
	b.must(err)
	if a.Approval.State != longstop.ApprovalRevoked || a.Approval.Reason != "a mistake" || a.Outcome != longstop.OutcomeNotStarted {
		t.Errorf("%s", pretty(a))
	}
	b.stop()
	b.proxy.Thaw()
	b.start()
	_, err = b.trySign("anna", about(longstop.ChallengeApprove, a.ID))
	b.refused(a.ID, err, longstop.CodeNotPending, "it is revoked")
	b.notSent(a.ID)
	if lines(path) != 0 {
		t.Error("it ran")
	}
}

// Taken back while the work runs: what is leased loses its lease and is stopped; what is detached needs no
// word from here, and goes on until somebody cancels it.
func TestApprovalRevokedWhileRunning(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	for _, lifetime := range []longstop.Lifetime{longstop.Leased, longstop.Detached} {
		req := script("sleep 300")
		req.Request.Lifetime = lifetime
		a := b.ask(req)
		b.approve(a.ID)
		b.until(a.ID, "it runs", func(a longstop.Action) bool { return a.Workload.State == longstop.WorkloadRunning })
		why := longstop.ChallengeRequest{Kind: longstop.ChallengeRevoke, ActionID: a.ID, Reason: "enough"}
		_, err := b.Revoke(t.Context(), string(a.ID), why.Reason, operator, b.sign("anna", why))
		b.must(err)
		if lifetime == longstop.Detached {
			if a, err = b.Action(t.Context(), string(a.ID)); err != nil || a.Cancel.State != longstop.CancelNone || a.Workload.State != longstop.WorkloadRunning {
				t.Errorf("detached: %v %s", err, pretty(a))
			}
			_, err = b.Cancel(t.Context(), string(a.ID), operator, nil)
			b.must(err)
		}
		a = b.wait(a.ID)
		if a.Outcome != longstop.OutcomeCancelled || a.Approval.State != longstop.ApprovalRevoked || lifetime == longstop.Leased && a.Cancel.By != "approver anna" {
			t.Errorf("%s: %s", lifetime, pretty(a))
		}
	}
}

// An agent has no way to any of it, whatever proof it holds; and each try is in the journal.
func TestApprovalByAnAgent(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a := b.ask(script(text))
	agent := longstop.Requester{Kind: longstop.RequesterAgent, Name: "scout", Via: "mcp"}
	proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	for what, try := range map[string]func() error{
		"challenge": func() error {
			_, err := b.Challenge(t.Context(), about(longstop.ChallengeResolve, a.ID), agent)
			return err
		},
		"approve": func() error { _, err := b.Approve(t.Context(), string(a.ID), agent, proof); return err },
		"deny":    func() error { _, err := b.Deny(t.Context(), string(a.ID), "", agent, proof); return err },
		"revoke":  func() error { _, err := b.Revoke(t.Context(), string(a.ID), "", agent, proof); return err },
		"set approver": func() error {
			_, err := b.SetApprover(t.Context(), people["bob"]().Approver, &proof, agent)
			return err
		},
		"route": func() error { return b.RefuseAgent(t.Context(), agent, "POST /x", string(a.ID)) },
	} {
		before := b.refusals("agent scout")
		if err := try(); longstop.CodeOf(err) != longstop.CodeNotAllowed {
			t.Errorf("%s: %v", what, err)
		}
		if after := b.refusals("agent scout"); after != before+1 {
			t.Errorf("%s: %d entries of a refusal, after %d", what, after, before)
		}
	}
	b.notSent(a.ID)
}

// refusals counts the journal's entries about who was refused.
func (b *bench) refusals(by string) (n int) {
	b.t.Helper()
	entries, err := b.Journal(b.t.Context(), gateway.JournalFilter{After: -1, Limit: 10_000})
	b.must(err)
	for _, e := range entries {
		if (e.Kind == "proof_refused" || e.Kind == "agent_refused") && e.By == by {
			n++
		}
	}
	return n
}

// Wrong proofs and challenges without end keep no approver with the right passphrase from their yes.
func TestPointNobodyKeepsAnApproverOut(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a := b.ask(script(text))
	proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	wrong := proof
	wrong.Signature = make([]byte, len(proof.Signature))
	_, err := b.Approve(t.Context(), string(a.ID), operator, wrong)
	b.refused(a.ID, err, longstop.CodeNotProven, "this was not anna: a wrong passphrase")
	for range 1500 {
		if _, err := b.Challenge(t.Context(), longstop.ChallengeRequest{Kind: longstop.ChallengeDeny, ActionID: a.ID, Approver: "anna"}, operator); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Approve(t.Context(), string(a.ID), operator, wrong); longstop.CodeOf(err) != longstop.CodeNotProven {
			t.Fatal(err)
		}
	}
	b.notSent(a.ID)
	_, err = b.Approve(t.Context(), string(a.ID), operator, proof)
	b.must(err)
	b.wait(a.ID)
}

// A ticket that the gateway did not make, or that is another challenge's, opens nothing.
func TestPointTicketsAreTheGateways(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a := b.ask(script(text))
	proof, other := b.sign("anna", about(longstop.ChallengeApprove, a.ID)), b.sign("anna", about(longstop.ChallengeApprove, a.ID))
	for what, ticket := range map[string][]byte{"none": nil, "another's": other.Ticket, "cut": proof.Ticket[:20],
		"changed": bytes.Replace(proof.Ticket, []byte("anna"), []byte("anne"), 1)} {
		changed := proof
		changed.Ticket = ticket
		_, err := b.Approve(t.Context(), string(a.ID), operator, changed)
		if longstop.CodeOf(err) != longstop.CodeNotProven || !strings.Contains(err.Error(), "is not open") {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.notSent(a.ID)
}

// Two people say yes, or one yes and one no, at the same time: one of them was first, and it runs at most once.
func TestApprovalTwoAtOnce(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	bob := people["bob"]()
	b.addBob()
	for _, second := range []longstop.ChallengeKind{longstop.ChallengeApprove, longstop.ChallengeDeny} {
		path, text := b.marker()
		a := b.ask(script(text))
		proofs := []longstop.Proof{b.sign("anna", about(longstop.ChallengeApprove, a.ID)), b.sign(bob.Name, about(second, a.ID))}
		var both sync.WaitGroup
		errs := make([]error, 2)
		both.Go(func() { _, errs[0] = b.Approve(context.Background(), string(a.ID), operator, proofs[0]) })
		both.Go(func() {
			if second == longstop.ChallengeDeny {
				_, errs[1] = b.Deny(context.Background(), string(a.ID), "", operator, proofs[1])
			} else {
				_, errs[1] = b.Approve(context.Background(), string(a.ID), operator, proofs[1])
			}
		})
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("%s: %v", second, errs)
		}
		for _, err := range errs {
			if err != nil {
				b.refused(a.ID, err, longstop.CodeNotPending, "is not waiting for approval")
			}
		}
		a = b.wait(a.ID)
		if ran := lines(path); a.Approval.State == longstop.ApprovalConsumed && ran != 1 || a.Approval.State == longstop.ApprovalDenied && ran != 0 {
			t.Errorf("it ran %d times: %s", ran, pretty(a))
		}
	}
}

// addBob has anna make bob an approver.
func (b *bench) addBob() {
	b.t.Helper()
	bob := people["bob"]().Approver
	proof := b.sign("anna", setOf(bob))
	_, err := b.SetApprover(b.t.Context(), bob, &proof, operator)
	b.must(err)
}

// setOf is what is signed for an approver to be set.
func setOf(a longstop.Approver) longstop.ChallengeRequest {
	return longstop.ChallengeRequest{Kind: longstop.ChallengeApprover, Reason: longstop.ApproverSet + a.Name, Content: approver.Digest(a)}
}
