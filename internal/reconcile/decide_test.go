package reconcile_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
)

var now = time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)

func ago(d time.Duration) longstop.Time { return longstop.At(now.Add(-d)) }

func ptr[T any](v T) *T { return &v }

func action(launch longstop.LaunchState, changes ...func(*longstop.Action)) longstop.Action {
	a := longstop.Action{
		ID: "act_0123456789ABCDE", RunID: "run_00112233445566778899aabbccddeeff", Host: "web-1",
		Request:  longstop.Request{Owner: longstop.OwnerAuto, GraceS: 10},
		Approval: longstop.Approval{State: longstop.ApprovalNotRequired},
		Launch:   longstop.Launch{State: launch, At: ago(time.Minute)},
		Workload: longstop.Workload{State: longstop.WorkloadNone},
		Cancel:   longstop.Cancel{State: longstop.CancelNone},
	}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func cancel(s longstop.CancelState, asked time.Duration) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Cancel = longstop.Cancel{State: s, At: ago(asked)} }
}

func observed(recs ...longstop.Record) func(*longstop.Action) {
	return func(a *longstop.Action) {
		for _, rec := range recs {
			lifecycle.Observe(a, rec, lifecycle.Sighting{At: ago(20 * time.Second), Signed: true})
		}
	}
}

func unseen(because longstop.UnknownReason, since time.Duration) func(*longstop.Action) {
	return func(a *longstop.Action) { lifecycle.CannotSee(a, because, "", ago(since)) }
}

func record(sequence uint64, s longstop.WorkloadState) longstop.Record {
	rec := longstop.Record{Version: 1, RunID: "run_00112233445566778899aabbccddeeff", Sequence: sequence, State: s,
		Writer: longstop.Writer{Kind: longstop.WriterOwner}}
	switch s {
	case longstop.WorkloadFinished:
		rec.Main = &longstop.Main{ExitCode: ptr(0)}
		rec.Result = &longstop.Result{ExitCode: ptr(0)}
		rec.Boundary.Empty = ptr(true)
	case longstop.WorkloadCancelled:
		rec.Boundary.Empty, rec.Cause = ptr(true), longstop.CauseRequest
	case longstop.WorkloadLost:
		rec.LostBecause = longstop.Rebooted
	}
	return rec
}

func releasing(rec longstop.Record) longstop.Record {
	rec.Boundary.Empty, rec.Released = nil, []longstop.Process{{PID: 7}}
	return rec
}

func saw(rec longstop.Record) reconcile.Seen {
	return reconcile.Seen{Record: rec, Sighting: lifecycle.Sighting{At: ago(0), Signed: true}}
}

// said is the steps in words, times left out.
func said(steps []reconcile.Step) string {
	var all []string
	for _, step := range steps {
		word := strings.TrimPrefix(fmt.Sprintf("%T", step), "reconcile.")
		switch s := step.(type) {
		case reconcile.Reject:
			word += " " + string(s.Because)
		case reconcile.CannotSee:
			word += " " + string(s.Because)
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		sent, lost, accepted = longstop.LaunchSent, longstop.LaunchUnknown, longstop.LaunchAccepted
		running, finished    = longstop.WorkloadRunning, longstop.WorkloadFinished
	)
	requested, unconfirmed := cancel(longstop.CancelRequested, time.Second), cancel(longstop.CancelUnconfirmed, time.Minute)
	gone := reconcile.Blocked{Because: longstop.Unreachable, Message: "no route"}
	for _, c := range []struct {
		name  string
		a     longstop.Action
		sight reconcile.Sight
		want  string
	}{
		{"sent, the gateway restarted", action(sent), reconcile.NotAsked{}, "MarkUnknown, Find"},
		{"unknown", action(lost), reconcile.NotAsked{}, "Find"},
		{"sent, not found", action(sent), reconcile.NotFound{}, "MarkUnknown, Void"},
		{"unknown, not found", action(lost), reconcile.NotFound{}, "Void"},
		{"unknown, void", action(lost), reconcile.Voided{}, "Reject key_void"},
		{"sent, void", action(sent), reconcile.Voided{}, "Reject key_void"},
		{"unknown, taken", action(lost), reconcile.Taken{By: "run_2"}, "Reject key_conflict"},
		{"sent, taken", action(sent), reconcile.Taken{By: "run_2"}, "Reject key_conflict"},
		{"unknown, claimed", action(lost), reconcile.Claimed{}, "Accept, AskAgain"},
		{"unknown, running", action(lost), saw(record(3, running)), "ApplyRecord, AskAgain"},
		{"unknown, finished", action(lost), saw(record(3, finished)), "ApplyRecord, Collect"},
		{"unknown, removed after its retention", action(lost), reconcile.Expired{}, "Accept, CannotSee record_expired, AskAgain"},
		{"unknown, host gone", action(lost), gone, "CannotSee unreachable, AskAgain"},
		{"sent, host gone", action(sent), gone, "MarkUnknown, CannotSee unreachable, AskAgain"},
		{"unknown, host gone for long", action(lost, func(a *longstop.Action) { a.Launch.At = ago(time.Hour) }, unseen(longstop.Unreachable, time.Hour)), gone,
			"CannotSee unreachable, AskAgain"},
		{"unknown, another machine", action(lost), reconcile.Blocked{Because: longstop.HostMismatch}, "CannotSee host_mismatch, AskAgain"},

		{"unknown, a cancel wanted", action(lost, requested), reconcile.NotAsked{}, "Find"},
		{"unknown, a cancel wanted, not found", action(lost, requested), reconcile.NotFound{}, "Void"},
		{"unknown, a cancel wanted, void", action(lost, requested), reconcile.Voided{}, "Reject key_void"},
		{"unknown, a cancel wanted, claimed", action(lost, requested), reconcile.Claimed{}, "Accept, AskCancel, AskAgain"},
		{"unknown, a cancel wanted, running", action(lost, requested), saw(record(3, running)), "ApplyRecord, AskCancel, AskAgain"},
		{"unknown, a cancel wanted, finished", action(lost, requested), saw(record(3, finished)), "ApplyRecord, Collect"},

		{"accepted", action(accepted), reconcile.NotAsked{}, "Look"},
		{"running", action(accepted, observed(record(3, running))), reconcile.NotAsked{}, "Look"},
		{"running, seen", action(accepted, observed(record(3, running))), saw(record(3, running)), "ApplyRecord, AskAgain"},
		{"running, a cancel requested before a restart", action(accepted, observed(record(3, running)), requested), reconcile.NotAsked{}, "AskCancel"},
		{"running, a cancel unanswered", action(accepted, observed(record(3, running)), unconfirmed), reconcile.NotAsked{}, "AskCancel"},
		{"running, a cancel unanswered, seen", action(accepted, observed(record(3, running)), unconfirmed), saw(record(3, running)), "ApplyRecord, AskCancel, AskAgain"},
		{"running, a cancel unanswered, host gone", action(accepted, observed(record(3, running)), unconfirmed), gone, "CannotSee unreachable, AskAgain"},
		{"running, a cancel unanswered for long", action(accepted, observed(record(3, running)), cancel(longstop.CancelUnconfirmed, time.Hour)), gone,
			"CannotSee unreachable, AskAgain"},
		{"running, a cancel delivered just now", action(accepted, observed(record(3, running)), cancel(longstop.CancelDelivered, 20*time.Second)), reconcile.NotAsked{}, "Look"},
		{"running, a cancel delivered long ago", action(accepted, observed(record(3, running)), cancel(longstop.CancelDelivered, time.Minute)), reconcile.NotAsked{}, "AskCancel"},
		{"running, a cancel refused", action(accepted, observed(record(3, running)), cancel(longstop.CancelRefused, time.Minute)), reconcile.NotAsked{}, "Look"},
		{"running, host gone", action(accepted, observed(record(3, running))), gone, "CannotSee unreachable, AskAgain"},
		{"running, host gone for long", action(accepted, observed(record(3, running)), unseen(longstop.Unreachable, 16*time.Second)), gone, "CannotSee unreachable, AskAgain"},
		{"running, login refused", action(accepted, observed(record(3, running))), reconcile.Blocked{Because: longstop.AccessRefused}, "CannotSee access_refused, AskAgain"},
		{"running, record altered", action(accepted, observed(record(3, running))), reconcile.Blocked{Because: longstop.UnreadableRecord}, "CannotSee unreadable_record, AskAgain"},
		{"claimed, no record yet", action(accepted), reconcile.NotFound{}, "AskAgain"},
		{"claimed, no record yet, a cancel wanted", action(accepted, requested), reconcile.NotFound{}, "AskCancel, AskAgain"},
		{"claimed, no record for long", action(accepted, func(a *longstop.Action) { a.Launch.At = ago(time.Hour) }), reconcile.NotFound{},
			"CannotSee unreadable_record, AskAgain"},
		{"running, not found", action(accepted, observed(record(3, running))), reconcile.NotFound{}, "CannotSee unreadable_record, AskAgain"},
		{"running, void", action(accepted, observed(record(3, running))), reconcile.Voided{}, "CannotSee unreadable_record, AskAgain"},
		{"running, taken", action(accepted, observed(record(3, running))), reconcile.Taken{By: "run_2"}, "CannotSee unreadable_record, AskAgain"},
		{"running, expired", action(accepted, observed(record(3, running))), reconcile.Expired{}, "CannotSee record_expired, AskAgain"},
		{"running, a record that cannot be", action(accepted, observed(record(3, running))), saw(record(4, longstop.WorkloadStarting)), "ApplyRecord, AskAgain"},
		{"running, finished", action(accepted, observed(record(3, running))), saw(record(4, finished)), "ApplyRecord, Collect"},
		{"running, lost", action(accepted, observed(record(3, running))), saw(record(4, longstop.WorkloadLost)), "ApplyRecord, Collect"},

		{"finished", action(accepted, observed(record(3, finished))), reconcile.NotAsked{}, ""},
		{"finished, a cancel that came too late", action(accepted, observed(record(3, finished)), cancel(longstop.CancelTooLate, time.Minute)), reconcile.NotAsked{}, ""},
		{"finished, host gone", action(accepted, observed(record(3, finished))), gone, ""},
		{"finished, not found any more", action(accepted, observed(record(3, finished))), reconcile.NotFound{}, ""},
		{"finished, seen again", action(accepted, observed(record(3, finished))), saw(record(3, finished)), "ApplyRecord, Collect"},
		{"finished, a second end", action(accepted, observed(record(3, finished))), saw(record(4, longstop.WorkloadCancelled)), "ApplyRecord"},
		{"finished, released ones alive", action(accepted, observed(releasing(record(3, finished)))), reconcile.NotAsked{}, "Look"},
		{"finished, released ones seen", action(accepted, observed(releasing(record(3, finished)))), saw(releasing(record(3, finished))), "ApplyRecord, AskAgain"},
		{"finished, released ones to be stopped", action(accepted, observed(releasing(record(3, finished))), requested), reconcile.NotAsked{}, "AskCancel"},
		{"lost", action(accepted, observed(record(3, longstop.WorkloadLost))), reconcile.NotAsked{}, ""},

		{"rejected", action(longstop.LaunchRejected), reconcile.NotAsked{}, ""},
		{"rejected, and it runs", action(longstop.LaunchRejected), saw(record(3, running)), "ApplyRecord"},
		{"never sent", action(longstop.LaunchNotAttempted), reconcile.NotAsked{}, "Reject expired"},
		{"never sent, cancelled", action(longstop.LaunchNotAttempted, requested), reconcile.NotAsked{}, "Reject expired"},
		{"waiting for approval", action(longstop.LaunchNotAttempted, func(a *longstop.Action) { a.Approval.State = longstop.ApprovalPending }), reconcile.NotAsked{}, ""},
		{"waiting for approval, cancelled", action(longstop.LaunchNotAttempted, requested, func(a *longstop.Action) { a.Approval.State = longstop.ApprovalPending }), reconcile.NotAsked{}, "Reject expired"},
		{"denied", action(longstop.LaunchNotAttempted, func(a *longstop.Action) { a.Approval.State = longstop.ApprovalDenied }), reconcile.NotAsked{}, ""},
		{"direct", action(lost, func(a *longstop.Action) { a.Request.Owner = longstop.OwnerNone }), reconcile.NotAsked{}, ""},
		{"no sight at all", action(lost), nil, "Find"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := c.a
			if got := said(reconcile.Decide(c.a, c.sight, now)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if !reflect.DeepEqual(before, c.a) {
				t.Error("Decide changed the action")
			}
		})
	}
}

func sights() []reconcile.Sight {
	all := []reconcile.Sight{reconcile.NotAsked{}, reconcile.Claimed{}, reconcile.NotFound{}, reconcile.Voided{}, reconcile.Taken{By: "run_2"}, reconcile.Expired{}}
	for _, because := range []longstop.UnknownReason{longstop.Unreachable, longstop.AccessRefused, longstop.HostMismatch, longstop.UnreadableRecord} {
		all = append(all, reconcile.Blocked{Because: because})
	}
	for _, s := range lifecycle.Workloads.States {
		all = append(all, saw(record(5, s)), saw(releasing(record(5, s))))
	}
	return all
}

// each tries Decide on every launch, workload and cancel with every sight.
func each(t *testing.T, try func(a longstop.Action, sight reconcile.Sight, steps []reconcile.Step) error) {
	t.Helper()
	for _, launch := range lifecycle.Launches.States {
		for _, w := range lifecycle.Workloads.States {
			for _, c := range lifecycle.Cancels.States {
				for _, sight := range sights() {
					a := action(launch, cancel(c, time.Hour))
					a.Workload.State = w
					if err := try(a, sight, reconcile.Decide(a, sight, now)); err != nil {
						t.Errorf("launch %s, workload %s, cancel %s, %T %+v: %v", launch, w, c, sight, sight, err)
					}
				}
			}
		}
	}
}

func has[S reconcile.Step](steps []reconcile.Step) bool {
	return slices.ContainsFunc(steps, func(s reconcile.Step) bool { _, is := s.(S); return is })
}

// Law 5: not found proves nothing. A key is burnt only after it was looked for, and a launch that
// was sent is rejected only when its key is, or is another run's.
func TestLaw5OnlyAVoidKeySaysNotStarted(t *testing.T) {
	t.Parallel()
	each(t, func(a longstop.Action, sight reconcile.Sight, steps []reconcile.Step) error {
		_, notFound := sight.(reconcile.NotFound)
		_, voided := sight.(reconcile.Voided)
		_, taken := sight.(reconcile.Taken)
		sent := a.Launch.State == longstop.LaunchSent || a.Launch.State == longstop.LaunchUnknown
		switch {
		case has[reconcile.Void](steps) && !(sent && notFound):
			return fmt.Errorf("burns the key: %s", said(steps))
		case has[reconcile.Reject](steps) && a.Launch.State != longstop.LaunchNotAttempted && !(sent && (voided || taken)):
			return fmt.Errorf("says not started: %s", said(steps))
		case has[reconcile.Find](steps) && !sent:
			return fmt.Errorf("looks for a key: %s", said(steps))
		}
		return nil
	})
}

// Law 10: wherever there is a run that is not over, a wanted cancel is asked for, or the question
// comes up again.
func TestLaw10AWantedCancelIsNeverDropped(t *testing.T) {
	t.Parallel()
	each(t, func(a longstop.Action, sight reconcile.Sight, steps []reconcile.Step) error {
		wanted := a.Cancel.State == longstop.CancelRequested || a.Cancel.State == longstop.CancelUnconfirmed
		if !wanted || a.Launch.State != longstop.LaunchAccepted || a.Workload.State.Final() {
			return nil
		}
		if has[reconcile.AskCancel](steps) || has[reconcile.AskAgain](steps) || has[reconcile.Collect](steps) {
			return nil
		}
		return fmt.Errorf("forgets it: %s", said(steps))
	})
}

// Law 3: what is unknown goes on being asked about.
func TestLaw3AnUnknownIsAskedAboutForEver(t *testing.T) {
	t.Parallel()
	each(t, func(a longstop.Action, sight reconcile.Sight, steps []reconcile.Step) error {
		for _, step := range steps {
			if again, is := step.(reconcile.AskAgain); is && (again.After <= 0 || again.After > 2*time.Minute) {
				return fmt.Errorf("asks again after %s", again.After)
			}
		}
		if i := slices.IndexFunc(steps, func(s reconcile.Step) bool { _, is := s.(reconcile.AskAgain); return is }); i >= 0 && i != len(steps)-1 {
			return fmt.Errorf("AskAgain is not the last: %s", said(steps))
		}
		if _, blocked := sight.(reconcile.Blocked); blocked && a.Unresolved() && a.Launch.State != longstop.LaunchNotAttempted && !has[reconcile.AskAgain](steps) {
			return fmt.Errorf("gives up: %s", said(steps))
		}
		return nil
	})
}

func TestAskAgainLessOftenTheLongerItLasts(t *testing.T) {
	t.Parallel()
	a := action(longstop.LaunchAccepted, observed(record(3, longstop.WorkloadRunning)))
	lifecycle.CannotSee(&a, longstop.Unreachable, "", ago(0))
	after := func(a longstop.Action, silence time.Duration) time.Duration {
		steps := reconcile.Decide(a, reconcile.Blocked{Because: longstop.Unreachable}, now.Add(silence))
		return steps[len(steps)-1].(reconcile.AskAgain).After
	}
	for silence, most := range map[time.Duration]time.Duration{0: time.Second, 8 * time.Second: 2 * time.Second, time.Minute: 15 * time.Second, time.Hour: 2 * time.Minute} {
		if got := after(a, silence); got > most || got < most/2 {
			t.Errorf("after %s of silence: in %s, want %s to %s", silence, got, most/2, most)
		}
	}
	a.Cancel.State = longstop.CancelUnconfirmed
	if got := after(a, time.Hour); got > 15*time.Second {
		t.Errorf("with a cancel wanted: in %s", got)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	distinct := map[time.Duration]bool{}
	for attempt, most := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120, 120} {
		most *= time.Second
		for seed := range uint64(50) {
			got := reconcile.Backoff(attempt, seed)
			if got > most || got < most/2 || got != reconcile.Backoff(attempt, seed) {
				t.Errorf("attempt %d, seed %d: %s, want %s to %s", attempt, seed, got, most/2, most)
			}
			distinct[got] = true
		}
	}
	if len(distinct) < 450 {
		t.Errorf("only %d of 500 differ", len(distinct))
	}
	if got := reconcile.Backoff(-1, 1); got > time.Second || got <= 0 {
		t.Errorf("attempt -1: %s", got)
	}
	if got := reconcile.Backoff(1<<62, 1); got > 2*time.Minute || got <= 0 {
		t.Errorf("attempt 2^62: %s", got)
	}
}

// What a voided launch says keeps why its answer was not read.
func TestVoidedSaysWhy(t *testing.T) {
	t.Parallel()
	a := action(longstop.LaunchUnknown)
	a.Launch.Message = "the connection to web-1 was lost"
	steps := reconcile.Decide(a, reconcile.Voided{}, now)
	reject, ok := steps[0].(reconcile.Reject)
	if !ok || reject.Message != "no answer to the submit was read (the connection to web-1 was lost); its key is void now, so nothing was or will be started" {
		t.Errorf("%+v", steps)
	}
}
