package gateway_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

func (b *bench) retry(id longstop.ActionID, req longstop.RetryRequest) (longstop.Action, error) {
	b.t.Helper()
	return b.Retry(b.t.Context(), string(id), req, operator, gateway.Told{})
}

// refusedRetry asserts that a retry is refused, says why and what to do, starts nothing and is journalled.
func (b *bench) refusedRetry(id longstop.ActionID, req longstop.RetryRequest, because string) {
	b.t.Helper()
	before, err := b.Actions(b.t.Context(), gateway.ActionFilter{All: true})
	b.must(err)
	_, err = b.retry(id, req)
	if longstop.CodeOf(err) != longstop.CodeNotRetriable || !strings.Contains(err.Error(), because) {
		b.t.Fatalf("%v, want %q", err, because)
	}
	after, err := b.Actions(b.t.Context(), gateway.ActionFilter{All: true})
	b.must(err)
	if len(before) != len(after) {
		b.t.Errorf("%d actions before, %d after", len(before), len(after))
	}
	if !slices.Contains(b.kinds(id), "retry_refused") {
		b.t.Errorf("not journalled: %v", b.kinds(id))
	}
}

// TestPointRetry: a retry is a new action with the earlier one's request and effect token; by its effect
// it is allowed or refused.
func TestPointRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	out := filepath.Join(t.TempDir(), "out")
	work := longstop.RunRequest{Host: "loop", Request: longstop.Request{
		Script: `echo "$LONGSTOP_EFFECT_TOKEN" >> ` + out + `; exit 3`, Effect: longstop.EffectIdempotent, Reason: "first"}}
	first := b.wait(b.run(work).ID)
	second, err := b.retry(first.ID, longstop.RetryRequest{})
	b.must(err)
	if second = b.wait(second.ID); second.Outcome != longstop.OutcomeFailed || second.Attempt != 2 || second.RetryOf != first.ID ||
		second.EffectToken != first.EffectToken || second.RunID == first.RunID || second.IdempotencyKey == first.IdempotencyKey ||
		second.SessionID != first.SessionID || second.Request.Digest != first.Request.Digest || second.Request.Reason != "first" {
		t.Errorf("%s", pretty(second))
	}
	first, err = b.Action(t.Context(), string(first.ID))
	b.must(err)
	if first.RetriedBy != second.ID || first.Retry.Allowed || !slices.Contains(b.kinds(first.ID), "retried") {
		t.Errorf("%s\n%v", pretty(first), b.kinds(first.ID))
	}
	b.refusedRetry(first.ID, longstop.RetryRequest{}, string(second.ID)+" is its next attempt")
	third, err := b.retry(second.ID, longstop.RetryRequest{})
	b.must(err)
	if b.wait(third.ID); third.Attempt != 3 || third.EffectToken != first.EffectToken || lines(out) != 3 {
		t.Errorf("%s, %d lines", pretty(third), lines(out))
	}

	once := b.wait(b.run(script("exit 1")).ID)
	b.refusedRetry(once.ID, longstop.RetryRequest{}, "effect once, and it ran: failed")
	unborn := b.wait(b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Argv: []string{"/no/such"}}}).ID)
	if again, err := b.retry(unborn.ID, longstop.RetryRequest{}); err != nil || again.RetryOf != unborn.ID {
		t.Errorf("nothing was started, and a retry: %v", err)
	}
}

// TestPointRetryMayStillRun: while the earlier attempt may be running nothing but work that only reads is
// started again.
func TestPointRetryMayStillRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	of := func(e longstop.Effect) longstop.Action {
		return b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "sleep 60", Effect: e}})
	}
	once, idempotent, read := of(longstop.EffectOnce), of(longstop.EffectIdempotent), of(longstop.EffectRead)
	b.refusedRetry(once.ID, longstop.RetryRequest{}, "it has not ended")
	b.refusedRetry(idempotent.ID, longstop.RetryRequest{}, "it has not ended")
	again, err := b.retry(read.ID, longstop.RetryRequest{})
	if err != nil || again.Launch.State != longstop.LaunchAccepted {
		t.Errorf("read: %v", err)
	}
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route"})
	b.proxy.Cut()
	b.until(idempotent.ID, "the cut is seen", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeUnknown })
	b.refusedRetry(once.ID, longstop.RetryRequest{Preflight: "true"}, "may still be running")
	b.refusedRetry(idempotent.ID, longstop.RetryRequest{}, "may still be running")
	b.tap.refuseDials(nil)
	for _, id := range []longstop.ActionID{once.ID, idempotent.ID, read.ID, again.ID} {
		b.cancel(id, nil)
	}
}

// TestPointRetryGivenAgain: what is not kept of a request is asked for, and what is given otherwise is said.
func TestPointRetryGivenAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	stdin, err := b.SpoolStdin(t.Context(), strings.NewReader("input"))
	b.must(err)
	first := b.wait(b.run(longstop.RunRequest{Host: "loop", StdinID: stdin.ID, EnvValues: map[string][]byte{"TOKEN": []byte("one"), "WHO": []byte("anna")},
		Request: longstop.Request{Script: "cat; echo $TOKEN", Effect: longstop.EffectIdempotent}}).ID)
	_, err = b.retry(first.ID, longstop.RetryRequest{EnvValues: map[string][]byte{"WHO": []byte("anna")}})
	var missing *longstop.Error
	if !errors.As(err, &missing) || missing.Code != longstop.CodeUsage || missing.Hint != fmt.Sprintf("longstop retry %s -e TOKEN --stdin", first.ID) {
		t.Fatalf("%+v", err)
	}
	given := longstop.RetryRequest{EnvValues: map[string][]byte{"TOKEN": []byte("two"), "WHO": []byte("anna"), "MORE": nil}}
	if stdin, err = b.SpoolStdin(t.Context(), strings.NewReader("input")); err != nil {
		t.Fatal(err)
	}
	given.StdinID = stdin.ID
	if _, err = b.retry(first.ID, given); longstop.CodeOf(err) != longstop.CodeUsage || !strings.Contains(err.Error(), "had no MORE") {
		t.Errorf("another variable: %v", err)
	}
	delete(given.EnvValues, "MORE")
	var notes []string
	second, err := b.Retry(t.Context(), string(first.ID), given, operator, gateway.Told{Note: func(line string) { notes = append(notes, line) }})
	b.must(err)
	if said := strings.Join(notes, "\n"); !strings.Contains(said, "other than in "+string(first.ID)+": env TOKEN") || second.Request.Digest == first.Request.Digest {
		t.Errorf("said %q", said)
	}
	if b.wait(second.ID); b.output(second.ID, "stdout") != "inputtwo\n" {
		t.Errorf("%q", b.output(second.ID, "stdout"))
	}
}

// TestPointRetryOnce: of several who retry one action at once, exactly one starts something; who asks again
// under the same key is given the same attempt.
func TestPointRetryOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	out := filepath.Join(t.TempDir(), "out")
	first := b.wait(b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "echo x >> " + out, Effect: longstop.EffectRead}}).ID)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := map[longstop.ActionID]string{}
	for i := range 8 {
		all.Go(func() {
			key := fmt.Sprintf("retry-%d", i)
			a, err := b.retry(first.ID, longstop.RetryRequest{Key: key})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won[a.ID] = key
			} else if longstop.CodeOf(err) != longstop.CodeNotRetriable {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d retries of one action: %v", len(won), won)
	}
	for id, key := range won {
		b.wait(id)
		if again, err := b.retry(first.ID, longstop.RetryRequest{Key: key}); err != nil || again.ID != id {
			t.Errorf("asked again under its key: %s, %v", again.ID, err)
		}
	}
	if n := lines(out); n != 2 {
		t.Errorf("it ran %d times", n)
	}
}

// TestPointRetryPreflight: a preflight given with the retry is asked first, on the host.
func TestPointRetryPreflight(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	out := filepath.Join(t.TempDir(), "out")
	first := b.wait(b.run(script("echo x >> " + out + "; exit 1")).ID)
	b.refusedRetry(first.ID, longstop.RetryRequest{}, "effect once")
	done, err := b.retry(first.ID, longstop.RetryRequest{Preflight: "exit 204"})
	b.must(err)
	if done = b.wait(done.ID); !done.Workload.NothingToDo() || lines(out) != 1 {
		t.Errorf("%s", pretty(done))
	}
	// It did not run, so the next attempt may.
	again, err := b.retry(done.ID, longstop.RetryRequest{Preflight: "true"})
	b.must(err)
	if again = b.wait(again.ID); again.Outcome != longstop.OutcomeFailed || lines(out) != 2 || again.Attempt != 3 {
		t.Errorf("%s", pretty(again))
	}
}

// TestPointRetryOfWhatIsNotKept: a request of which a secret was taken out is not run as what is left of it.
func TestPointRetryOfWhatIsNotKept(t *testing.T) {
	t.Parallel()
	secret, err := redact.New([]string{"hunter2hunter2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, sshtest.Options{}, func(b *bench) { b.redact = secret })
	a := b.wait(b.run(longstop.RunRequest{Host: "loop", Request: longstop.Request{Script: "echo hunter2hunter2", Preflight: "true", Effect: longstop.EffectRead}}).ID)
	if !a.Request.Redacted {
		t.Fatalf("%s", pretty(a.Request))
	}
	if _, err := b.retry(a.ID, longstop.RetryRequest{}); longstop.CodeOf(err) != longstop.CodeUsage || !strings.Contains(err.Error(), "cannot be asked again") {
		t.Errorf("a retry: %v", err)
	}
	if _, err := b.inquire(a.ID, longstop.InquiryPreflight, ""); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("its own preflight: %v", err)
	}
}

// What a caller brings about again and again is in the journal once a minute, and a gateway that closes has counted
// the rest.
func TestPointAskedInALoop(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req := script("true")
	req.Key = "loop-1"
	a := b.run(req)
	b.wait(a.ID)
	other := script("false")
	other.Key = req.Key
	for range 20 {
		if _, err := b.Run(t.Context(), other, operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeKeyConflict {
			t.Fatal(err)
		}
		if again, err := b.Run(t.Context(), req, operator, gateway.Told{}); err != nil || again.ID != a.ID {
			t.Fatal(err)
		}
		if _, err := b.Retry(t.Context(), string(a.ID), longstop.RetryRequest{}, operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeNotRetriable {
			t.Fatal(err)
		}
	}
	check := func(want int) {
		t.Helper()
		of := map[string]int{}
		for _, kind := range b.kinds(a.ID) {
			of[kind]++
		}
		for _, kind := range []string{"key_conflict", "requested_again", "retry_refused"} {
			if of[kind] != want {
				t.Errorf("%d entries %s, want %d", of[kind], kind, want)
			}
		}
	}
	check(1)
	b.stop()
	b.start()
	check(2)
}
