package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

const (
	annas = "correct horse battery"
	bobs  = "staple of four words"
)

// person is an approver with the key that their passphrase unlocks, made once: it takes its time.
type person struct {
	longstop.Approver
	key approver.Key
}

var people = map[string]func() person{
	"anna": sync.OnceValue(func() person { return newPerson("anna", annas) }),
	"bob":  sync.OnceValue(func() person { return newPerson("bob", bobs) }),
}

func newPerson(name, passphrase string) person {
	a, err := approver.New(name, []byte(passphrase), []byte(name + "0123456789abcdef")[:approver.SaltBytes])
	if err != nil {
		panic(err)
	}
	key, err := approver.Unlock(a, []byte(passphrase))
	if err != nil {
		panic(err)
	}
	return person{a, key}
}

// asksAbout is a policy that asks about everything but what begins with "free".
func asksAbout(q policy.Question) (policy.Verdict, string) {
	if strings.HasPrefix(q.Request.Script, "free") {
		return policy.Verdict{Decision: policy.Allow}, "sha256:p1"
	}
	return policy.Verdict{Decision: policy.Ask, Rule: "all", Reason: "a person looks at all of it", ApprovalTTL: time.Hour}, "sha256:p1"
}

// newApprovals is a bench whose policy asks, with anna as its first approver.
func newApprovals(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, sshtest.Options{}, func(b *bench) { b.policy = asksAbout })
	_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
	b.must(err)
	return b
}

// ask requests a run that waits for approval, and leaves.
func (b *bench) ask(req longstop.RunRequest) longstop.Action {
	b.t.Helper()
	ctx, leave := context.WithCancel(b.t.Context())
	defer leave()
	made := make(chan longstop.Action, 1)
	a, err := b.Run(ctx, req, operator, gateway.Told{Action: func(a longstop.Action) {
		select {
		case made <- a:
		default:
		}
		leave()
	}})
	if err != nil && !errors.Is(err, context.Canceled) {
		b.t.Fatalf("ask: %v", err)
	}
	if a.Approval.State != longstop.ApprovalPending || a.Launch.State != longstop.LaunchNotAttempted {
		b.t.Fatalf("it does not wait for approval:\n%s", pretty(a))
	}
	return a
}

// sign has a person answer a challenge.
func (b *bench) sign(name string, about longstop.ChallengeRequest) longstop.Proof {
	b.t.Helper()
	p, err := b.trySign(name, about)
	b.must(err)
	return p
}

func (b *bench) trySign(name string, about longstop.ChallengeRequest) (longstop.Proof, error) {
	about.Approver = name
	c, err := b.Challenge(b.t.Context(), about, operator)
	return people[name]().key.Prove(c), err
}

func about(kind longstop.ChallengeKind, id longstop.ActionID) longstop.ChallengeRequest {
	return longstop.ChallengeRequest{Kind: kind, ActionID: id}
}

func (b *bench) approve(id longstop.ActionID) longstop.Action {
	b.t.Helper()
	a, err := b.Approve(b.t.Context(), string(id), operator, b.sign("anna", about(longstop.ChallengeApprove, id)))
	b.must(err)
	return a
}

// refused checks an error, that nothing was sent, and that the journal has it.
func (b *bench) refused(id longstop.ActionID, err error, code longstop.Code, words string) {
	b.t.Helper()
	if longstop.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), words) {
		b.t.Errorf("got %s %v\nwant %s …%s…", longstop.CodeOf(err), err, code, words)
	}
	if !slices.Contains(b.kinds(id), "proof_refused") {
		b.t.Errorf("the journal has no refusal: %v", b.kinds(id))
	}
}

func (b *bench) marker() (path, script string) {
	path = filepath.Join(b.t.TempDir(), "ran")
	return path, "echo ran >> " + path
}

func TestApprovalGranted(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	list, err := b.Approvals(t.Context())
	b.must(err)
	if len(list) != 1 || list[0].ID != a.ID || a.Approval.Policy != "sha256:p1" || a.Approval.Rule != "all" {
		t.Errorf("pending: %s", pretty(list))
	}
	b.approve(a.ID)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || a.Approval.State != longstop.ApprovalConsumed || lines(path) != 1 {
		t.Errorf("%d lines, %s", lines(path), pretty(a))
	}
	want := []string{"requested", "approval_asked", "approval_granted", "approval_consumed", "launch_intended"}
	if kinds := b.kinds(a.ID); !slices.Equal(kinds[:len(want)], want) {
		t.Errorf("journal: %v", kinds)
	}
}
