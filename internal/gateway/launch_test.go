package gateway_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// counting is a request whose every execution appends a line to a file.
func counting(t *testing.T) (longstop.RunRequest, func() int) {
	t.Helper()
	name := filepath.Join(sshtest.ShortDir(t), "ran")
	return script("echo ran >>" + name), func() int { return lines(name) }
}

// TestLaw5C128AnswerLost: C128. The host accepts, the answer is lost, the caller is still there: the
// same submit goes again under the same key and is answered with the run that exists.
func TestLaw5C128AnswerLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true")) // the channel is up
	req, ran := counting(t)
	b.tap.once(wire.VerbSubmit, loseAns)
	a := b.wait(b.run(req).ID)
	if a.Outcome != longstop.OutcomeSucceeded || ran() != 1 {
		t.Errorf("ran %d times\n%s", ran(), pretty(a))
	}
	if kinds := b.kinds(a.ID); !slices.Contains(kinds, "launch_unanswered") || b.tap.count(wire.VerbSubmit) != 3 {
		t.Errorf("%d submits, journal %v: want one more submit and the loss journalled", b.tap.count(wire.VerbSubmit), kinds)
	}
}

// TestLaw5AnswerLostCallerGone: nobody waits, so nothing is sent again. The run is found by its key,
// unless the next channel tells of it before anybody asks.
func TestLaw5AnswerLostCallerGone(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true"))
	req, ran := counting(t)
	b.tap.once(wire.VerbSubmit, loseAns)
	a := b.launchAndLeave(req)
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeSucceeded || ran() != 1 || b.tap.count(wire.VerbSubmit) != 2 {
		t.Errorf("ran %d times, %d submits\n%s", ran(), b.tap.count(wire.VerbSubmit), pretty(a))
	}
	kinds := b.kinds(a.ID)
	lost := slices.Index(kinds, "launch_unanswered")
	if lost < 0 || !slices.Contains(kinds[lost:], "key_found") && !slices.Contains(kinds[lost:], "observed") {
		t.Errorf("journal %v: want the loss, then the run found or seen", kinds)
	}
}

// launchAndLeave runs, and stops waiting as soon as the submit is on its way.
func (b *bench) launchAndLeave(req longstop.RunRequest) longstop.Action {
	b.t.Helper()
	ctx, leave := context.WithCancel(b.t.Context())
	defer leave()
	a, err := b.Run(ctx, req, operator, gateway.Told{Action: func(a longstop.Action) {
		if a.Launch.State == longstop.LaunchSent {
			leave()
		}
	}})
	b.must(err)
	return a
}

// TestLaw5ConnectionLostBefore: the connection goes before the submit arrives, the caller waits, and
// the work runs once.
func TestLaw5ConnectionLostBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true"))
	req, ran := counting(t)
	b.tap.once(wire.VerbSubmit, loseIt)
	a := b.wait(b.run(req).ID)
	if a.Outcome != longstop.OutcomeSucceeded || ran() != 1 {
		t.Errorf("ran %d times\n%s", ran(), pretty(a))
	}
}

// TestLaw5OnlyAVoidSaysNotStarted: the submit is lost and so is its caller. That the host knows
// nothing of the key proves nothing; only its burning shows not_started.
func TestLaw5OnlyAVoidSaysNotStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true"))
	req, ran := counting(t)
	req.Key = "lost"
	b.tap.once(wire.VerbSubmit, loseIt)
	a := b.launchAndLeave(req)
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeNotStarted || a.Launch.State != longstop.LaunchRejected || a.Launch.Because != string(longstop.CodeKeyVoid) || ran() != 0 {
		t.Errorf("ran %d times\n%s", ran(), pretty(a))
	}
	kinds := b.kinds(a.ID)
	intended, voided := slices.Index(kinds, "reconcile_intended"), slices.Index(kinds, "key_voided")
	if intended < 0 || voided < intended || !slices.Contains(kinds, "launch_unanswered") {
		t.Errorf("journal %v: want the intent before the void", kinds)
	}
	// The key is spent: the same request under it starts nothing, and says so.
	again, err := b.Run(t.Context(), req, operator, gateway.Told{})
	if again.ID != a.ID || longstop.CodeOf(err) != longstop.CodeKeyVoid || ran() != 0 {
		t.Errorf("again: %s, %v", again.ID, err)
	}
}

// TestLaw5SlowStart: the request is on its way, the far side is slow to start, the connection goes.
// The key is burnt before the slow runner reads it, and the late submit is refused.
func TestLaw5SlowStart(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{
		ForceCommand: `case "$SSH_ORIGINAL_COMMAND" in *" submit") sleep 3;; esac; exec sh -c "$SSH_ORIGINAL_COMMAND"`})
	b.run(script("true"))
	req, ran := counting(t)
	req.Request.OwnChannel = true
	b.tap.set(func(verb wire.Verb) fate {
		if verb == wire.VerbSubmit {
			time.AfterFunc(200*time.Millisecond, b.proxy.Cut)
		}
		return pass
	})
	a := b.launchAndLeave(req)
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeNotStarted || a.SSHCommand.State != longstop.SSHLost {
		t.Errorf("%s", pretty(a))
	}
	// The late submit ends: refused. Its process is gone when the sleep and what follows is.
	time.Sleep(4 * time.Second)
	if ran() != 0 {
		t.Errorf("a late submit ran after its key was burnt")
	}
}

// TestLaw5TwoSubmitsOneKey: two callers of one request at the same moment get one action.
func TestLaw5TwoSubmitsOneKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req, ran := counting(t)
	req.Key = "both"
	var callers sync.WaitGroup
	ids := make([]longstop.ActionID, 4)
	for i := range ids {
		callers.Go(func() {
			a, err := b.Run(t.Context(), req, operator, gateway.Told{})
			if err != nil || a.Launch.State != longstop.LaunchAccepted {
				t.Errorf("caller %d: %v, launch %s", i, err, a.Launch.State)
			}
			ids[i] = a.ID
		})
	}
	callers.Wait()
	b.wait(ids[0])
	if distinct := slices.Compact(slices.Sorted(slices.Values(ids))); len(distinct) != 1 || ran() != 1 {
		t.Errorf("actions %v, ran %d times", distinct, ran())
	}
}

// TestC130SameKeyOtherRequest: a conflict names what differs, and leaves the first alone.
func TestC130SameKeyOtherRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	first := script("echo one")
	first.Key = "k"
	first.EnvValues = map[string][]byte{"A": []byte("1")}
	a := b.run(first)
	for differs, change := range map[string]func(*longstop.RunRequest){
		"script":   func(r *longstop.RunRequest) { r.Request.Script = "echo two" },
		"env A":    func(r *longstop.RunRequest) { r.EnvValues = map[string][]byte{"A": []byte("2")} },
		"env B":    func(r *longstop.RunRequest) { r.EnvValues = map[string][]byte{"A": []byte("1"), "B": nil} },
		"cwd":      func(r *longstop.RunRequest) { r.Request.Cwd = "/tmp" },
		"lifetime": func(r *longstop.RunRequest) { r.Request.Lifetime = longstop.Detached },
	} {
		other := first
		change(&other)
		_, err := b.Run(t.Context(), other, operator, gateway.Told{})
		if longstop.CodeOf(err) != longstop.CodeKeyConflict || !strings.Contains(err.Error(), ": "+differs) {
			t.Errorf("%s: error %v", differs, err)
		}
	}
	if again := b.run(first); again.ID != a.ID {
		t.Errorf("the same request got %s, not %s", again.ID, a.ID)
	}
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded {
		t.Errorf("the first: %s", pretty(a))
	}
	// What was kept of the value tells equal from other, and nothing else.
	entries, _ := b.Journal(t.Context(), gateway.JournalFilter{Action: a.ID, After: -1})
	if text := fmt.Sprintf("%s", entries[0].Body); !strings.Contains(text, `"env":{"A":"`) || strings.Contains(text, `"A":"1"`) {
		t.Errorf("kept of the environment: %s", text)
	}
}

// TestNothingSent: what fails before a byte of the submit has left is rejected with its reason, and
// an action says so. C023: there is no workload field that could be taken for a result.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.server.Stop()
	b.proxy.Cut()
	req, _ := counting(t)
	a, err := b.Run(t.Context(), req, operator, gateway.Told{})
	if code := longstop.CodeOf(err); code != longstop.CodeUnreachable || longstop.Codes[code].Exit != longstop.ExitNotStarted {
		t.Errorf("error %v", err)
	}
	if a.Outcome != longstop.OutcomeNotStarted || a.Launch.State != longstop.LaunchRejected || a.SSHCommand.State != longstop.SSHNotOpened || a.Workload.Result != nil {
		t.Errorf("%s", pretty(a))
	}
	if kinds := b.kinds(a.ID); slices.Contains(kinds, "launch_intended") {
		t.Errorf("journal %v: an intent without a channel", kinds)
	}
}

// TestOwnChannel has an SSH fact of its own: the channel ends long before the work does.
func TestOwnChannel(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req := script("sleep 2; exit 3")
	req.Request.OwnChannel = true
	a := b.run(req)
	if s := a.SSHCommand; s.State != longstop.SSHExited || s.Status == nil || *s.Status != 0 || a.Workload.State.Final() {
		t.Errorf("after acceptance: %s", pretty(a))
	}
	if a = b.wait(a.ID); *a.Workload.Result.ExitCode != 3 || *a.SSHCommand.Status != 0 {
		t.Errorf("at the end: %s", pretty(a))
	}
}

// TestGarbledAnswer: what could be taken for an answer and is none is kept, and the launch is
// unknown until the run is found. Law 8.
func TestLaw8GarbledAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true"))
	req, ran := counting(t)
	b.tap.once(wire.VerbSubmit, garble)
	a := b.wait(b.run(req).ID)
	if a.Outcome != longstop.OutcomeSucceeded || ran() != 1 {
		t.Errorf("ran %d times\n%s", ran(), pretty(a))
	}
	raws, err := b.Raw(t.Context(), string(a.ID))
	b.must(err)
	if len(raws) == 0 || !strings.HasPrefix(string(raws[0].Bytes), "LONGSTOP/1 what") {
		t.Errorf("kept: %q", raws)
	}
}

// TestStdin arrives whole, in as many parts as it takes.
func TestStdin(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	content := strings.Repeat("0123456789abcdef", 200_000) + "\x00\xff end"
	in, err := b.SpoolStdin(t.Context(), strings.NewReader(content))
	b.must(err)
	req := script("sha256sum; wc -c </dev/stdin")
	req.StdinID = in.ID
	a := b.wait(b.run(req).ID)
	if out := b.output(a.ID, "stdout"); !strings.HasPrefix(out, in.SHA256) {
		t.Errorf("the workload read %q, sent was %s", out, in.SHA256)
	}
	if a.Request.StdinBytes != int64(len(content)) {
		t.Errorf("stdin_bytes %d", a.Request.StdinBytes)
	}
}

// TestUsage: what cannot be run is refused before an action is made, and says what and why.
func TestUsage(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	for says, req := range map[string]longstop.RunRequest{
		"either arguments":  {Host: "loop"},
		"NUL byte":          {Host: "loop", Request: longstop.Request{Argv: []string{"a\x00b"}}},
		"absolute path":     {Host: "loop", Request: longstop.Request{Script: "true", Cwd: "srv"}},
		"detached run has":  {Host: "loop", Request: longstop.Request{Script: "true", Lifetime: longstop.Detached, LeaseS: 3}},
		"not supported yet": {Host: "loop", Request: longstop.Request{Script: "true", Owner: longstop.OwnerSlurm}},
		"LONGSTOP_":         {Host: "loop", Request: longstop.Request{Script: "true"}, EnvValues: map[string][]byte{"LONGSTOP_X": nil}},
		"no host":           {Host: "other", Request: longstop.Request{Script: "true"}},
		"standard input":    {Host: "loop", Request: longstop.Request{Script: "true"}, StdinID: "stdin_../../x"},
		"at most":           {Host: "loop", Request: longstop.Request{Script: strings.Repeat("x", 13<<20)}},
	} {
		a, err := b.Run(t.Context(), req, operator, gateway.Told{})
		if err == nil || !strings.Contains(err.Error(), says) || a.ID != "" {
			t.Errorf("want an error that says %q and no action, got %v, %q", says, err, a.ID)
		}
	}
	if list, err := b.Actions(t.Context(), gateway.ActionFilter{All: true}); err != nil || len(list) != 0 {
		t.Errorf("actions %v, %v", list, err)
	}
}

// TestLaw4SubmitIsWholeWhenItsIntentIsDurable: the submit travels while the intent is written, but the
// host does not have it before: its last line goes when the intent is in the store.
func TestLaw4SubmitIsWholeWhenItsIntentIsDurable(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true")) // the channel is up
	submits := 1
	b.tap.set(func(verb wire.Verb) fate {
		if verb != wire.VerbSubmit {
			return pass
		}
		submits++
		entries, err := b.store.Entries(context.Background(), sqlite.EntryFilter{Limit: 1000})
		if err != nil {
			t.Error(err)
		}
		intents := 0
		for _, e := range entries {
			if e.Kind == journal.LaunchIntended {
				intents++
			}
		}
		if intents != submits {
			t.Errorf("submit %d is whole, and %d intents are in the store", submits, intents)
		}
		return pass
	})
	for tries := 0; b.tap.begun.Load() == 0; tries++ { // where another request is being written, none is begun
		if tries == 20 {
			t.Fatal("no submit was begun before its intent was durable")
		}
		b.run(script("true"))
	}
	b.tap.set(nil)
}

// A submit that is not to be after all, for its key has a run, is withdrawn: the host never had it, and
// the channel carries on.
func TestSubmitIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req, ran := counting(t)
	req.Key = "nightly"
	first := b.wait(b.run(req).ID)
	again, err := b.Run(t.Context(), req, operator, gateway.Told{})
	if err != nil || again.ID != first.ID || ran() != 1 {
		t.Errorf("%v: %s, not %s; it ran %d times", err, again.ID, first.ID, ran())
	}
	req.Key = ""
	b.wait(b.run(req).ID)
	b.tap.mu.Lock()
	dials := b.tap.dials
	b.tap.mu.Unlock()
	if submits := b.tap.count(wire.VerbSubmit); submits != 2 || dials != 1 || ran() != 2 {
		t.Errorf("%d submits over %d connections, it ran %d times: want 2, 1, 2", submits, dials, ran())
	}
}

// TestLaw5OneKeyManyCallers: of callers who ask under one key at once one gets the run, and all are told of it.
// Beside them others ask under keys of their own, on the same channel: what is withdrawn there is nobody's.
func TestLaw5OneKeyManyCallers(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.run(script("true")) // the channel is up
	for round := range 8 {
		shared, ran := counting(t)
		shared.Key = fmt.Sprint("round-", round)
		var all sync.WaitGroup
		var ids [16]longstop.ActionID
		for i := range ids {
			all.Go(func() {
				a, err := b.Run(t.Context(), shared, operator, gateway.Told{})
				if ids[i] = a.ID; err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				own, ranOwn := counting(t)
				if a := b.wait(b.run(own).ID); a.Outcome != longstop.OutcomeSucceeded || ranOwn() != 1 {
					t.Errorf("ran %d times: %s", ranOwn(), pretty(a))
				}
			})
		}
		all.Wait()
		if a := b.wait(ids[0]); a.Outcome != longstop.OutcomeSucceeded || ran() != 1 || slices.ContainsFunc(ids[:], func(id longstop.ActionID) bool { return id != a.ID }) {
			t.Errorf("ran %d times, for %v", ran(), ids)
		}
	}
}
