package reconcile_test

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
)

func TestEveryUnknownHasALimit(t *testing.T) {
	t.Parallel()
	for _, because := range []longstop.UnknownReason{longstop.UnansweredSubmit, longstop.UnansweredCancel, longstop.Unreachable,
		longstop.AccessRefused, longstop.OwnerLost, longstop.Rebooted, longstop.HostMismatch, longstop.UnreadableRecord,
		longstop.RecordExpired, longstop.NoOwner} {
		if _, known := reconcile.Limits[because]; !known {
			t.Errorf("%s has none", because)
		}
	}
}

// TestPointEscalation: what is brought to people, after how long, and when it is over.
func TestPointEscalation(t *testing.T) {
	t.Parallel()
	running := action(longstop.LaunchAccepted, observed(record(3, longstop.WorkloadRunning)))
	with := func(a longstop.Action, changes ...func(*longstop.Action)) longstop.Action {
		for _, change := range changes {
			change(&a)
		}
		return a
	}
	blocked := func(because longstop.UnknownReason) func(*longstop.Action) {
		return func(a *longstop.Action) { lifecycle.CannotSee(a, because, "no route", ago(0)) }
	}
	cancelled := func(s longstop.CancelState) func(*longstop.Action) {
		return func(a *longstop.Action) { a.Cancel = longstop.Cancel{State: s, At: ago(0)} }
	}
	lost := func(because longstop.UnknownReason) func(*longstop.Action) {
		return func(a *longstop.Action) { a.Workload.State, a.Workload.LostBecause = longstop.WorkloadLost, because }
	}
	direct := func(s longstop.SSHState) func(*longstop.Action) {
		return func(a *longstop.Action) {
			a.Request.Owner, a.Workload, a.SSHCommand = longstop.OwnerNone, longstop.Workload{State: longstop.WorkloadNone}, longstop.SSHCommand{State: s, At: ago(0)}
		}
	}
	survivors := func(a *longstop.Action) {
		a.Workload.State, a.Workload.Survivors = longstop.WorkloadCancelling, []longstop.Process{{PID: 7, Command: "/bin/cp -a secret /mnt", Why: "waits for a disk"}}
		a.Observation = &longstop.Observation{At: ago(0), Source: longstop.Live}
	}
	for _, c := range []struct {
		name    string
		a       longstop.Action
		because longstop.EscalationReason // "": nothing, however long
		after   time.Duration
	}{
		{"unreachable", with(running, blocked(longstop.Unreachable)), "unreachable", 15 * time.Minute},
		{"unreachable, a cancel wanted", with(running, blocked(longstop.Unreachable), cancelled(longstop.CancelRequested)), "unanswered_cancel", 2 * time.Minute},
		{"a cancel unconfirmed", with(running, blocked(longstop.Unreachable), cancelled(longstop.CancelUnconfirmed)), "unanswered_cancel", 2 * time.Minute},
		{"launch unknown", with(action(longstop.LaunchUnknown), func(a *longstop.Action) { a.Launch.At = ago(0) }), "unanswered_submit", 2 * time.Minute},
		{"login refused", with(running, blocked(longstop.AccessRefused)), "access_refused", 0},
		{"another machine", with(running, blocked(longstop.HostMismatch)), "host_mismatch", 0},
		{"record altered", with(running, blocked(longstop.UnreadableRecord)), "unreadable_record", 0},
		{"lost", with(running, lost(longstop.OwnerLost)), "owner_lost", 0},
		{"rebooted", with(running, lost(longstop.Rebooted)), "rebooted", 0},
		{"survivors", with(running, survivors), "survivors", 0},
		{"direct, ended", with(running, direct(longstop.SSHExited)), "", 0},
		{"direct, connection lost", with(running, direct(longstop.SSHLost)), "no_owner", 0},
		{"resolved", with(running, lost(longstop.Rebooted), func(a *longstop.Action) { a.Resolution = &longstop.Resolution{} }), "", 0},
		{"rejected", action(longstop.LaunchRejected), "", 0},
	} {
		at := func(after time.Duration) []longstop.Escalation {
			seen := lifecycle.Project(c.a, now.Add(after), time.Minute)
			return reconcile.Pressing(&seen, now.Add(after))
		}
		switch list := at(c.after); {
		case c.because == "" && len(list)+len(at(24*time.Hour)) > 0:
			t.Errorf("%s: %+v", c.name, list)
		case c.because == "":
			continue
		case len(list) != 1 || list[0].Because != c.because:
			t.Errorf("%s, after %s: %+v, want %s", c.name, c.after, list, c.because)
		}
		if c.after > 0 && len(at(c.after-time.Second)) > 0 {
			t.Errorf("%s: a second early", c.name)
		}
		seen := lifecycle.Project(c.a, now.Add(c.after), time.Minute)
		if reconcile.Over(&seen, c.because) {
			t.Errorf("%s: over at once", c.name)
		}
		end := with(c.a, func(a *longstop.Action) {
			code, empty := 0, true
			a.Launch.State, a.Request.Owner = longstop.LaunchAccepted, longstop.OwnerRunner
			a.Workload = longstop.Workload{State: longstop.WorkloadFinished, Result: &longstop.Result{ExitCode: &code}, Boundary: longstop.Boundary{Empty: &empty}}
		})
		if end = lifecycle.Project(end, now, time.Minute); !reconcile.Over(&end, c.because) {
			t.Errorf("%s: not over at the end of the work", c.name)
		}
	}
}

func TestPointEscalationNamesNoArguments(t *testing.T) {
	t.Parallel()
	a := action(longstop.LaunchAccepted, observed(record(3, longstop.WorkloadRunning)))
	a.Workload.State = longstop.WorkloadCancelling
	for pid := range 7 {
		a.Workload.Survivors = append(a.Workload.Survivors, longstop.Process{PID: pid + 1, Command: "/bin/cp -a secret /mnt", Why: "waits for a disk"})
	}
	want := "cannot be killed: 1 cp: waits for a disk, 2 cp: waits for a disk, 3 cp: waits for a disk, 4 cp: waits for a disk, 5 cp: waits for a disk, and 2 more"
	if list := reconcile.Pressing(&a, now); len(list) != 1 || list[0].Message != want {
		t.Errorf("%+v", list)
	}
}

// What keeps a host from being asked changes while it lasts: the unknown is one.
func TestPointEscalationOutlastsItsReason(t *testing.T) {
	t.Parallel()
	a := action(longstop.LaunchAccepted, observed(record(3, longstop.WorkloadRunning)))
	lifecycle.CannotSee(&a, longstop.AccessRefused, "", ago(0))
	if a = lifecycle.Project(a, now, time.Minute); reconcile.Over(&a, "unreachable") {
		t.Error("over while it is unknown for another reason")
	}
}
