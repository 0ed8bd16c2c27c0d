package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/approver"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
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
func newApprovals(t *testing.T, set ...func(*bench)) *bench {
	t.Helper()
	b := newBench(t, sshtest.Options{}, append([]func(*bench){func(b *bench) { b.policy = asksAbout }}, set...)...)
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
	if kinds := b.kinds(id); !slices.Contains(kinds, "proof_refused") {
		b.t.Errorf("the journal has no refusal: %v", kinds)
	}
}

func (b *bench) marker() (path, script string) {
	path = filepath.Join(b.t.TempDir(), "ran")
	return path, "echo ran | tee -a " + path
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

// Whoever asked has gone: the launch is the approver's, with what the request had in memory.
func TestApprovalOutlivesWhoAsked(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("from standard input"))
	b.must(err)
	req := script(`cat; echo " and $RELEASE"`)
	req.StdinID, req.EnvValues = stdin.ID, map[string][]byte{"RELEASE": []byte("1.2")}
	a := b.ask(req)
	b.approve(a.ID)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || b.output(a.ID, "stdout") != "from standard input and 1.2\n" {
		t.Errorf("%q %s", b.output(a.ID, "stdout"), pretty(a))
	}
}

// A gateway that is restarted between all steps has the same approval afterwards, and launches once.
func TestApprovalAcrossRestarts(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	state := func(want longstop.ApprovalState) {
		t.Helper()
		now, err := b.Action(t.Context(), string(a.ID))
		b.must(err)
		if now.Approval.State != want || now.Approval.Binds != a.Approval.Binds || !now.Approval.ExpiresAt.Equal(a.Approval.ExpiresAt.Time) {
			t.Fatalf("want %s: %s", want, pretty(now.Approval))
		}
	}
	b.unreachable()
	state(longstop.ApprovalPending)
	if list, err := b.Approvals(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
	b.approve(a.ID)
	state(longstop.ApprovalGranted)
	b.stop()
	b.start()
	state(longstop.ApprovalGranted)
	b.notSent(a.ID)
	b.stop()
	b.proxy.Thaw()
	b.start()
	b.wait(a.ID)
	state(longstop.ApprovalConsumed)
	b.stop()
	b.start()
	state(longstop.ApprovalConsumed)
	_, err := b.trySign("anna", about(longstop.ChallengeApprove, a.ID))
	b.refused(a.ID, err, longstop.CodeNotPending, "it is consumed")
	if lines(path) != 1 {
		t.Errorf("it ran %d times", lines(path))
	}
}

// What is kept in memory alone goes with a restart, and its action with it, by name.
func TestApprovalNeedsWhatARestartTakes(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("x"))
	b.must(err)
	needs := map[string]longstop.RunRequest{}
	env, input, pty := script("true"), script("true"), script("true")
	env.EnvValues = map[string][]byte{"RELEASE": []byte("1.2")}
	input.StdinID = stdin.ID
	pty.Request.PTY = true
	needs["the environment (RELEASE)"], needs["standard input"], needs["what its terminal is like"] = env, input, pty
	ids := map[string]longstop.ActionID{}
	for what, req := range needs {
		ids[what] = b.ask(req).ID
	}
	b.stop()
	b.start()
	for what, id := range ids {
		a, err := b.Action(t.Context(), string(id))
		b.must(err)
		if a.Launch.State != longstop.LaunchRejected || !strings.Contains(a.Launch.Message, what+" is kept in memory alone") {
			t.Errorf("%s: %s", what, pretty(a.Launch))
		}
		_, err = b.trySign("anna", about(longstop.ChallengeApprove, id))
		b.refused(id, err, longstop.CodeNotPending, "is over: the gateway was restarted")
	}
}

// Stopping needs nobody's yes: what waits for approval is cancelled at once, and never sent.
func TestApprovalCancelledWhilePending(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a := b.ask(script(text))
	a, err := b.Cancel(t.Context(), string(a.ID), operator, nil)
	b.must(err)
	if a.Outcome != longstop.OutcomeNotStarted || a.Approval.State != longstop.ApprovalExpired || a.Approval.Reason != "cancelled before it was sent" {
		t.Errorf("%s", pretty(a))
	}
	if list, err := b.Approvals(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%s %v", pretty(list), err)
	}
	_, err = b.trySign("anna", about(longstop.ChallengeApprove, a.ID))
	b.refused(a.ID, err, longstop.CodeNotPending, "is over: cancelled before it was sent")
	b.notSent(a.ID)
}

// TestC140ResentWhilePending: the request comes again under its key while it waits. It is the same action,
// with one approval, and runs once.
func TestC140ResentWhilePending(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	req := script(text)
	req.Key = "sent-twice"
	a := b.ask(req)
	again := make(chan longstop.Action, 1)
	go func() {
		a, _ := b.Run(context.Background(), req, operator, gateway.Told{})
		again <- a
	}()
	b.approve(a.ID)
	if got := <-again; got.ID != a.ID || got.Launch.State != longstop.LaunchAccepted {
		t.Errorf("%s", pretty(got))
	}
	b.wait(a.ID)
	if lines(path) != 1 {
		t.Errorf("it ran %d times", lines(path))
	}
}

// Who waits is told that it was denied, by whom and why.
// What waits for approval in a session that ends is never sent, whatever else goes on.
func TestApprovalInASessionThatEnds(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	for _, cancels := range []longstop.SessionCancel{longstop.CancelsLeased, longstop.CancelsNobody} {
		s := b.session("a change", operator)
		path, text := b.marker()
		req := in(s.ID, script(text))
		req.Request.Lifetime = longstop.Detached
		a := b.ask(req)
		proof := b.sign("anna", about(longstop.ChallengeApprove, a.ID))
		_, err := b.EndSession(t.Context(), string(s.ID), cancels, operator)
		b.must(err)
		_, err = b.Approve(t.Context(), string(a.ID), operator, proof)
		b.refused(a.ID, err, longstop.CodeNotPending, "is over: cancelled before it was sent")
		if a = b.wait(a.ID); a.Outcome != longstop.OutcomeNotStarted || lines(path) != 0 {
			t.Errorf("%s: %s", cancels, pretty(a))
		}
	}
}

// However many refusals an action's journal has, the yes is found after them.
func TestApprovalAfterManyRefusals(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	a := b.ask(script(text))
	b.must(b.store.Update(t.Context(), func(tx *sqlite.Tx) error {
		for range 1000 {
			if _, err := tx.Append(journal.Entry{Kind: journal.ProofRefused, ActionID: a.ID, By: "somebody"}); err != nil {
				return err
			}
		}
		return nil
	}))
	b.approve(a.ID)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || lines(path) != 1 {
		t.Errorf("%s", pretty(a))
	}
}

func TestApprovalDenied(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	path, text := b.marker()
	type answer struct {
		a   longstop.Action
		err error
	}
	made, got := make(chan longstop.ActionID, 1), make(chan answer, 1)
	go func() {
		a, err := b.Run(context.Background(), script(text), operator, gateway.Told{Action: func(a longstop.Action) {
			select {
			case made <- a.ID:
			default:
			}
		}})
		got <- answer{a, err}
	}()
	id := <-made
	why := longstop.ChallengeRequest{Kind: longstop.ChallengeDeny, ActionID: id, Reason: "not on a Friday"}
	_, err := b.Deny(t.Context(), string(id), why.Reason, operator, b.sign("anna", why))
	b.must(err)
	answered := <-got
	if longstop.CodeOf(answered.err) != longstop.CodeDenied || !strings.Contains(answered.err.Error(), "approver anna said no: not on a Friday") ||
		answered.a.Approval.State != longstop.ApprovalDenied || answered.a.Outcome != longstop.OutcomeNotStarted {
		t.Errorf("%v\n%s", answered.err, pretty(answered.a))
	}
	b.notSent(id)
	if lines(path) != 0 {
		t.Error("it ran")
	}
}

// What is configured as secret is not shown to who approves, and is sent all the same; a restart takes it.
func TestApprovalOfWhatIsRedacted(t *testing.T) {
	t.Parallel()
	const secret = "pa55-of-nobody"
	b := newApprovals(t, withSecrets(t, []string{secret}, nil))
	a, lost := b.ask(script("printf %s "+secret+" | wc -c")), b.ask(script("true "+secret))
	if strings.Contains(pretty(a), secret) || !a.Request.Redacted {
		t.Errorf("%s", pretty(a))
	}
	b.approve(a.ID)
	if a = b.wait(a.ID); b.output(a.ID, "stdout") != fmt.Sprintln(len(secret)) {
		t.Errorf("%q %s", b.output(a.ID, "stdout"), pretty(a))
	}
	b.stop()
	b.start()
	lost, err := b.Action(t.Context(), string(lost.ID))
	b.must(err)
	if lost.Launch.State != longstop.LaunchRejected || !strings.Contains(lost.Launch.Message, "what was taken out of the request as secret is kept in memory alone") {
		t.Errorf("%s", pretty(lost.Launch))
	}
}

// A direct action waits like any other, and its approval is used up with its intent; a restart leaves it.
func TestApprovalOfADirectAction(t *testing.T) {
	t.Parallel()
	b := newDirect(t, func(b *bench) { b.policy = asksAbout })
	_, err := b.SetApprover(t.Context(), people["anna"]().Approver, nil, operator)
	b.must(err)
	path, text := b.marker()
	req := directly(text)
	a := b.ask(req)
	b.stop()
	b.start()
	b.approve(a.ID)
	a = b.until(a.ID, "its channel ends", func(a longstop.Action) bool { return a.SSHCommand.State == longstop.SSHExited })
	if a.Approval.State != longstop.ApprovalConsumed || *a.SSHCommand.Status != 0 || lines(path) != 1 {
		t.Errorf("%s", pretty(a))
	}
	kinds := b.kinds(a.ID)
	if used := slices.Index(kinds, "approval_consumed"); used < 0 || kinds[used+1] != "launch_intended" {
		t.Errorf("%v", kinds)
	}
}

// Standard input that waits for approval is there when it comes, however long that takes.
func TestPointStdinWaitsForApproval(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("kept for long"))
	b.must(err)
	req := script("cat")
	req.StdinID = stdin.ID
	a := b.ask(req)
	left, err := b.SpoolStdin(t.Context(), strings.NewReader("taken by nobody"))
	b.must(err)
	folder := filepath.Join(b.home, "stdin")
	old := time.Now().Add(-25 * time.Hour)
	for _, name := range []string{stdin.ID, stdin.ID + ".json", left.ID, left.ID + ".json"} {
		b.must(os.Chtimes(filepath.Join(folder, name), old, old))
	}
	_, err = b.SpoolStdin(t.Context(), strings.NewReader("sweeps"))
	b.must(err)
	if _, err := os.Stat(filepath.Join(folder, left.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("input that nobody took is kept for ever: %v", err)
	}
	b.approve(a.ID)
	if a := b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || b.output(a.ID, "stdout") != "kept for long" {
		t.Errorf("%s", pretty(a))
	}
	if _, err := os.Stat(filepath.Join(folder, stdin.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("input that was sent is kept: %v", err)
	}
}

// outOfReach is a bench whose host nobody reaches from now on, with an approved action.
func outOfReach(t *testing.T, set ...func(*bench)) (b *bench, id longstop.ActionID, path string) {
	t.Helper()
	b = newApprovals(t, set...)
	path, text := b.marker()
	a := b.ask(script(text))
	b.stop()
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route to host"})
	b.start()
	b.approve(a.ID)
	a = b.until(a.ID, "it says that the host is out of reach", func(a longstop.Action) bool { return a.Launch.Message != "" })
	if a.Approval.State != longstop.ApprovalGranted || a.Outcome != longstop.OutcomePending || !strings.Contains(a.Launch.Message, "no route to host") {
		t.Errorf("%s", pretty(a))
	}
	b.notSent(a.ID)
	return b, a.ID, path
}

// What was approved is launched once its host can be reached, under the same yes.
func TestPointAYesOutlastsAHostOutOfReach(t *testing.T) {
	t.Parallel()
	b, id, path := outOfReach(t)
	b.tap.refuseDials(nil)
	if a := b.wait(id); a.Outcome != longstop.OutcomeSucceeded || a.Approval.State != longstop.ApprovalConsumed || lines(path) != 1 || a.Launch.Message != "" {
		t.Errorf("%s", pretty(a))
	}
}

// It can be given up before that, and the yes is then none any more.
func TestPointAYesIsGivenUp(t *testing.T) {
	t.Parallel()
	b, id, path := outOfReach(t)
	_, err := b.Cancel(t.Context(), string(id), operator, nil)
	b.must(err)
	b.tap.refuseDials(nil)
	a := b.over(id)
	if a.Approval.State != longstop.ApprovalExpired || a.Outcome != longstop.OutcomeNotStarted || !strings.Contains(a.Approval.Reason, "cancelled") || lines(path) != 0 {
		t.Errorf("%s", pretty(a))
	}
	b.notSent(id)
}

// It ends with the approval, and says why it was not launched.
func TestPointAYesEndsOutOfReach(t *testing.T) {
	t.Parallel()
	b, id, _ := outOfReach(t, askFor(5*time.Second))
	_, err := b.Wait(t.Context(), string(id))
	b.must(err)
	a := b.over(id)
	if a.Approval.State != longstop.ApprovalExpired || a.Outcome != longstop.OutcomeNotStarted || !strings.Contains(a.Approval.Reason, "out of reach") {
		t.Errorf("%s", pretty(a))
	}
	b.notSent(id)
}

// A refusal, which no waiting mends, ends it at once, and the approval with it.
func TestPointAYesEndsWhereTheHostRefuses(t *testing.T) {
	t.Parallel()
	b := newApprovals(t)
	_, text := b.marker()
	a := b.ask(script(text))
	b.stop()
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeAccessRefused, Message: "the key is refused"})
	b.start()
	b.approve(a.ID)
	a = b.over(a.ID)
	if a.Approval.State != longstop.ApprovalExpired || a.Launch.State != longstop.LaunchRejected || !strings.Contains(a.Approval.Reason, "the key is refused") {
		t.Errorf("%s", pretty(a))
	}
	b.notSent(a.ID)
}
