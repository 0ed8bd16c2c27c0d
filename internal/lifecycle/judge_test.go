package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

const stale = 15 * time.Second

var now = time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)

// ago is an instant before now.
func ago(d time.Duration) longstop.Time { return longstop.At(now.Add(-d)) }

// action is an accepted one, seen a second ago, as its changes make it.
func action(changes ...func(*longstop.Action)) *longstop.Action {
	a := &longstop.Action{
		ID: "act_0123456789ABCDE", RunID: "run_00112233445566778899aabbccddeeff", Host: "web-1",
		Request:  longstop.Request{Owner: longstop.OwnerAuto, Effect: longstop.EffectOnce, Digest: "sha256:1"},
		Approval: longstop.Approval{State: longstop.ApprovalNotRequired},
		Launch:   longstop.Launch{State: longstop.LaunchAccepted, At: ago(time.Hour)},
		Workload: longstop.Workload{State: longstop.WorkloadNone},
		Cancel:   longstop.Cancel{State: longstop.CancelNone},
	}
	seen(a)
	for _, change := range changes {
		change(a)
	}
	return a
}

func seen(a *longstop.Action) {
	a.Observation = &longstop.Observation{At: ago(time.Second), By: "serve@gateway", Source: longstop.Live}
}

func cached(a *longstop.Action) { a.Observation.At = ago(16 * time.Second) }

func never(a *longstop.Action) { a.Observation = nil }

func blocked(because longstop.UnknownReason) func(*longstop.Action) {
	return func(a *longstop.Action) { lifecycle.CannotSee(a, because, "", ago(time.Minute/120)) }
}

func approval(s longstop.ApprovalState) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Approval.State, a.Launch.State = s, longstop.LaunchNotAttempted }
}

func launch(s longstop.LaunchState) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Launch.State = s }
}

func cancel(s longstop.CancelState) func(*longstop.Action) {
	return func(a *longstop.Action) { a.Cancel.State = s }
}

func ptr[T any](v T) *T { return &v }

func work(s longstop.WorkloadState) func(*longstop.Action) {
	return func(a *longstop.Action) {
		w := &a.Workload
		w.State = s
		switch s {
		case longstop.WorkloadCancelled:
			w.Boundary.Empty = ptr(true)
		case longstop.WorkloadLost:
			w.LostBecause = longstop.OwnerLost
		}
	}
}

func exited(code int, changes ...func(*longstop.Action)) func(*longstop.Action) {
	return func(a *longstop.Action) {
		a.Workload.State = longstop.WorkloadFinished
		a.Workload.Result = &longstop.Result{ExitCode: &code}
		a.Workload.Boundary.Empty = ptr(true)
		for _, change := range changes {
			change(a)
		}
	}
}

func killed(signal string) func(*longstop.Action) {
	return exited(0, func(a *longstop.Action) { a.Workload.Result = &longstop.Result{Signal: signal} })
}

func released(a *longstop.Action) {
	a.Workload.Released = []longstop.Process{{PID: 7, StartTime: 8}}
	a.Workload.Boundary.Empty = nil
}

func direct(a *longstop.Action) { a.Request.Owner = longstop.OwnerNone }

// Every row of the table in the design, and what lies between them.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		changes []func(*longstop.Action)
		want    string // alive, outcome, reason
		next    string
	}{
		{"approval denied", on(approval(longstop.ApprovalDenied)), "no not_started", "show"},
		{"approval expired", on(approval(longstop.ApprovalExpired)), "no not_started", "show"},
		{"approval revoked before launch", on(approval(longstop.ApprovalRevoked)), "no not_started", "show"},
		{"launch rejected", on(launch(longstop.LaunchRejected)), "no not_started", "show"},
		{"launch rejected, host gone since", on(launch(longstop.LaunchRejected), blocked(longstop.Unreachable)), "no not_started", "show"},
		{"approval revoked after launch", on(func(a *longstop.Action) { a.Approval.State = longstop.ApprovalRevoked }, work(longstop.WorkloadRunning)), "yes pending", "wait"},

		{"launch unknown", on(launch(longstop.LaunchUnknown)), "unknown unknown unanswered_submit", "reconcile"},
		{"launch unknown, host gone", on(launch(longstop.LaunchUnknown), blocked(longstop.Unreachable)), "unknown unknown unanswered_submit", "reconcile"},
		{"launch unknown, login refused", on(launch(longstop.LaunchUnknown), blocked(longstop.AccessRefused)), "unknown unknown unanswered_submit", "reconcile"},
		{"launch unknown, another machine answers", on(launch(longstop.LaunchUnknown), blocked(longstop.HostMismatch)), "unknown unknown host_mismatch", "host check"},
		{"launch unknown, cancel asked", on(launch(longstop.LaunchUnknown), cancel(longstop.CancelRequested)), "unknown unknown unanswered_submit", "reconcile"},
		{"launch sent, answer awaited", on(launch(longstop.LaunchSent), func(a *longstop.Action) { a.Launch.At = ago(time.Second) }), "unknown pending", "wait"},
		{"launch sent, answer overdue", on(launch(longstop.LaunchSent)), "unknown unknown unanswered_submit", "reconcile"},

		{"before launch", on(approval(longstop.ApprovalNotRequired), never), "no pending", "wait"},
		{"before launch, nobody looking", on(approval(longstop.ApprovalPending), cached), "no pending", "wait"},
		{"approval granted", on(approval(longstop.ApprovalGranted)), "no pending", "wait"},
		{"claimed, no record yet", on(work(longstop.WorkloadNone)), "no pending", "wait"},
		{"queued", on(work(longstop.WorkloadQueued)), "no pending", "wait"},
		{"starting", on(work(longstop.WorkloadStarting)), "yes pending", "wait"},
		{"running", on(work(longstop.WorkloadRunning)), "yes pending", "wait"},
		{"lingering", on(work(longstop.WorkloadLingering)), "yes pending", "wait"},
		{"cancelling", on(work(longstop.WorkloadCancelling)), "yes pending", "wait"},
		{"orphaned", on(work(longstop.WorkloadOrphaned)), "yes pending", "wait"},

		{"queued, cached", on(work(longstop.WorkloadQueued), cached), "unknown unknown unreachable", "reconcile"},
		{"starting, cached", on(work(longstop.WorkloadStarting), cached), "unknown unknown unreachable", "reconcile"},
		{"running, cached", on(work(longstop.WorkloadRunning), cached), "unknown unknown unreachable", "reconcile"},
		{"lingering, cached", on(work(longstop.WorkloadLingering), cached), "unknown unknown unreachable", "reconcile"},
		{"cancelling, cached", on(work(longstop.WorkloadCancelling), cached), "unknown unknown unreachable", "reconcile"},
		{"orphaned, cached", on(work(longstop.WorkloadOrphaned), cached), "unknown unknown unreachable", "reconcile"},
		{"running, its lease ran out since it was seen", on(work(longstop.WorkloadRunning), func(a *longstop.Action) {
			a.Observation.At, a.Workload.Lease = ago(8*time.Second), &longstop.Lease{ExpiresAt: ago(3 * time.Second)}
		}), "unknown unknown unreachable", "reconcile"},
		{"running, its deadline passed since it was seen", on(work(longstop.WorkloadRunning), func(a *longstop.Action) {
			a.Observation.At, a.Workload.DeadlineAt = ago(8*time.Second), ago(3*time.Second)
		}), "unknown unknown unreachable", "reconcile"},
		{"running, seen after its lease ran out", on(work(longstop.WorkloadRunning), func(a *longstop.Action) {
			a.Workload.Lease = &longstop.Lease{ExpiresAt: ago(3 * time.Second)}
		}), "yes pending", "wait"},
		{"running, never seen", on(work(longstop.WorkloadRunning), never), "unknown unknown unreachable", "reconcile"},
		{"running, seen in the future", on(work(longstop.WorkloadRunning), func(a *longstop.Action) { a.Observation.At = ago(-time.Hour) }), "unknown unknown unreachable", "reconcile"},
		{"running, stored as cached", on(work(longstop.WorkloadRunning), func(a *longstop.Action) { a.Observation.Source = longstop.Cached }), "unknown unknown unreachable", "reconcile"},
		{"running, host gone", on(work(longstop.WorkloadRunning), blocked(longstop.Unreachable)), "unknown unknown unreachable", "reconcile"},
		{"running, login refused", on(work(longstop.WorkloadRunning), blocked(longstop.AccessRefused)), "unknown unknown access_refused", "host check"},
		{"running, record altered", on(work(longstop.WorkloadRunning), blocked(longstop.UnreadableRecord)), "unknown unknown unreadable_record", "reconcile"},
		{"running, record gone", on(work(longstop.WorkloadRunning), blocked(longstop.RecordExpired)), "unknown unknown record_expired", "reconcile"},
		{"running, cancel unanswered", on(work(longstop.WorkloadRunning), cancel(longstop.CancelUnconfirmed), blocked(longstop.Unreachable)), "unknown unknown unanswered_cancel", "reconcile"},
		{"running, cancel unanswered, login refused", on(work(longstop.WorkloadRunning), cancel(longstop.CancelUnconfirmed), blocked(longstop.AccessRefused)), "unknown unknown access_refused", "host check"},
		{"running, cancel unanswered, host seen", on(work(longstop.WorkloadRunning), cancel(longstop.CancelUnconfirmed)), "yes pending", "wait"},
		{"running, lease expired", on(work(longstop.WorkloadRunning), cached, func(a *longstop.Action) {
			a.Workload.Lease = &longstop.Lease{State: longstop.LeaseActive, ExpiresAt: ago(time.Hour)}
		}), "unknown unknown unreachable", "reconcile"},
		{"running, another machine answers", on(work(longstop.WorkloadRunning), blocked(longstop.HostMismatch)), "unknown unknown host_mismatch", "host check"},

		{"finished 0", on(exited(0)), "no succeeded", "logs"},
		{"finished 0, cached", on(exited(0), cached), "no succeeded", "logs"},
		{"finished 0, never seen since", on(exited(0), never), "no succeeded", "logs"},
		{"finished 0, another machine answers", on(exited(0), blocked(longstop.HostMismatch)), "no succeeded", "logs"},
		{"finished 3", on(exited(3)), "no failed", "logs"},
		{"finished by SEGV", on(killed("SEGV")), "no failed", "logs"},
		{"finished 0, some released", on(exited(0, released)), "yes succeeded", "inspect"},
		{"finished 3, some released", on(exited(3, released)), "yes failed", "inspect"},
		{"finished 0, some released, cached", on(exited(0, released), cached), "unknown succeeded", "reconcile"},
		{"finished 3, some released, host gone", on(exited(3, released), blocked(longstop.Unreachable)), "unknown failed", "reconcile"},
		{"finished, not empty, nothing named", on(exited(0, func(a *longstop.Action) { a.Workload.Boundary.Empty = ptr(false) })), "unknown unknown unreadable_record", "logs"},
		{"cancelled", on(work(longstop.WorkloadCancelled)), "no cancelled", "logs"},
		{"cancelled, cached", on(work(longstop.WorkloadCancelled), cached), "no cancelled", "logs"},
		{"cancelling with survivors", on(work(longstop.WorkloadCancelling), func(a *longstop.Action) {
			a.Workload.Survivors = []longstop.Process{{PID: 9}}
		}), "yes pending", "inspect"},
		{"launch failed", on(work(longstop.WorkloadLaunchFailed)), "no not_started", "show"},
		{"launch failed, cached", on(work(longstop.WorkloadLaunchFailed), cached), "no not_started", "show"},
		{"lost, other boot", on(work(longstop.WorkloadLost), func(a *longstop.Action) { a.Workload.LostBecause = longstop.Rebooted }), "no unknown rebooted", "logs"},
		{"lost, emptiness proven", on(work(longstop.WorkloadLost), func(a *longstop.Action) { a.Workload.EmptyProven = true }), "no unknown owner_lost", "logs"},
		{"lost", on(work(longstop.WorkloadLost)), "unknown unknown owner_lost", "logs"},
		{"lost, cached", on(work(longstop.WorkloadLost), cached), "unknown unknown owner_lost", "logs"},

		{"direct", on(direct), "unknown unknown no_owner", "show"},
		{"direct, sent", on(direct, launch(longstop.LaunchSent)), "unknown unknown no_owner", "show"},
		{"direct, its channel said 0", on(direct, func(a *longstop.Action) {
			a.SSHCommand = longstop.SSHCommand{State: longstop.SSHExited, Status: ptr(0)}
		}), "unknown unknown no_owner", "show"},
		{"direct, before launch", on(direct, approval(longstop.ApprovalNotRequired)), "no pending", "wait"},
		{"direct, no connection", on(direct, launch(longstop.LaunchRejected)), "no not_started", "show"},

		{"finished without a result", on(work(longstop.WorkloadFinished)), "unknown unknown unreadable_record", "logs"},
		{"finished in two ways", on(exited(0, func(a *longstop.Action) { a.Workload.Result.Signal = "TERM" })), "unknown unknown unreadable_record", "logs"},
		{"cancelled, not empty", on(work(longstop.WorkloadCancelled), func(a *longstop.Action) { a.Workload.Boundary.Empty = nil }), "unknown unknown unreadable_record", "logs"},
		{"a state of a later release", on(work("paused")), "unknown unknown unreadable_record", "reconcile"},
		{"a launch of a later release", on(launch("queued")), "unknown unknown unanswered_submit", "reconcile"},
		{"nothing at all", on(func(a *longstop.Action) { *a = longstop.Action{} }), "unknown unknown unanswered_submit", "reconcile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := lifecycle.Judge(action(c.changes...), now, stale)
			if got := strings.TrimSpace(string(v.Alive) + " " + string(v.Outcome) + " " + string(v.UnknownBecause)); got != c.want {
				t.Errorf("judged %q, want %q", got, c.want)
			}
			if !strings.HasPrefix(v.Next, "longstop "+c.next+" ") {
				t.Errorf("next is %q, want longstop %s …", v.Next, c.next)
			}
		})
	}
}

func on(changes ...func(*longstop.Action)) []func(*longstop.Action) { return changes }
