package lifecycle_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// record is the one of that number that an owner in that state writes.
func record(sequence uint64, s longstop.WorkloadState, changes ...func(*longstop.Record)) longstop.Record {
	a := action()
	rec := longstop.Record{
		Version: 1, RunID: a.RunID, ActionID: a.ID, Digest: a.Request.Digest, Sequence: sequence, State: s,
		At: ago(time.Minute), BootAt: longstop.BootTime(time.Hour), Writer: longstop.Writer{Kind: longstop.WriterOwner},
	}
	main := func() { rec.Main = &longstop.Main{PID: 2, StartTime: 3} }
	switch s {
	case longstop.WorkloadRunning, longstop.WorkloadOrphaned:
		main()
		if s == longstop.WorkloadOrphaned {
			rec.Writer.Kind = longstop.WriterKeeper
		}
	case longstop.WorkloadLingering:
		main()
		rec.Main.ExitCode = ptr(0)
	case longstop.WorkloadFinished:
		main()
		rec.Main.ExitCode, rec.Result = ptr(0), &longstop.Result{ExitCode: ptr(0)}
		rec.Boundary.Empty, rec.FinishedAt = ptr(true), ago(30*time.Second)
	case longstop.WorkloadCancelled:
		rec.Boundary.Empty, rec.Cause, rec.FinishedAt = ptr(true), longstop.CauseRequest, ago(30*time.Second)
	case longstop.WorkloadLaunchFailed:
		rec.LaunchError = &longstop.LaunchError{Step: "exec", Errno: "ENOENT"}
	case longstop.WorkloadLost:
		rec.LostBecause = longstop.OwnerLost
	}
	for _, change := range changes {
		change(&rec)
	}
	return rec
}

func result(code int) func(*longstop.Record) {
	return func(r *longstop.Record) {
		r.Main.ExitCode = &code
		r.Result = &longstop.Result{ExitCode: &code}
	}
}

func by(kind longstop.WriterKind) func(*longstop.Record) {
	return func(r *longstop.Record) { r.Writer.Kind = kind }
}

func releasing(r *longstop.Record) {
	r.Boundary.Empty = nil
	r.Released = []longstop.Process{{PID: 7, StartTime: 8}}
}

// signalledAt: the host sent its first signal at that time.
func signalledAt(at longstop.Time) func(*longstop.Record) {
	return func(r *longstop.Record) {
		r.Cancel = &longstop.CancelLog{RequestedAt: at, Signal: "TERM", SignalledAt: at, Signalled: 4}
	}
}

func live() lifecycle.Sighting {
	return lifecycle.Sighting{At: ago(0), By: "serve@gateway", Signed: true}
}

// look is a status with its released processes.
func look(released ...longstop.Process) lifecycle.Sighting {
	s := live()
	s.Status, s.Released = true, released
	return s
}

func TestObserve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		known   []func(*longstop.Action)
		before  []longstop.Record // observed first
		rec     longstop.Record
		changed bool
		says    string // the contradiction
		want    longstop.WorkloadState
		launch  longstop.LaunchState
	}{
		{name: "the first record", rec: record(3, longstop.WorkloadRunning), changed: true, want: longstop.WorkloadRunning},
		{name: "a launch that was sent is accepted", known: on(launch(longstop.LaunchSent)), rec: record(1, longstop.WorkloadStarting), changed: true, want: longstop.WorkloadStarting},
		{name: "a launch that was unknown is accepted", known: on(launch(longstop.LaunchUnknown)), rec: record(9, longstop.WorkloadFinished), changed: true, want: longstop.WorkloadFinished},
		{name: "a launch that failed was accepted", known: on(launch(longstop.LaunchUnknown)), rec: record(2, longstop.WorkloadLaunchFailed), changed: true, want: longstop.WorkloadLaunchFailed},
		{name: "steps may be missed", before: recs(record(1, longstop.WorkloadStarting)), rec: record(9, longstop.WorkloadLost), changed: true, want: longstop.WorkloadLost},
		{name: "the same again", before: recs(record(3, longstop.WorkloadRunning)), rec: record(3, longstop.WorkloadRunning), want: longstop.WorkloadRunning},
		{name: "an older one", before: recs(record(3, longstop.WorkloadLingering)), rec: record(2, longstop.WorkloadRunning), want: longstop.WorkloadLingering},
		{name: "an older one after the final one", before: recs(record(3, longstop.WorkloadFinished)), rec: record(2, longstop.WorkloadRunning), want: longstop.WorkloadFinished},
		{name: "the final one again", before: recs(record(3, longstop.WorkloadFinished)), rec: record(3, longstop.WorkloadFinished), want: longstop.WorkloadFinished},
		{name: "the same final word with a new number", before: recs(record(3, longstop.WorkloadFinished)), rec: record(4, longstop.WorkloadFinished), want: longstop.WorkloadFinished},
		{name: "a successor's, unsigned", before: recs(record(3, longstop.WorkloadOrphaned)), rec: record(4, longstop.WorkloadLost, by(longstop.WriterSuccessor)), changed: true, want: longstop.WorkloadLost},

		{name: "another result", before: recs(record(3, longstop.WorkloadFinished)), rec: record(4, longstop.WorkloadFinished, result(1)),
			says: "record 3 said finished, exit 0, and record 4 says finished, exit 1", want: longstop.WorkloadFinished},
		{name: "another end (two terminal states)", before: recs(record(3, longstop.WorkloadCancelled)), rec: record(4, longstop.WorkloadFinished),
			says: "record 3 said cancelled, and record 4 says finished, exit 0", want: longstop.WorkloadCancelled},
		{name: "another end, written before", before: recs(record(4, longstop.WorkloadCancelled)), rec: record(3, longstop.WorkloadFinished),
			says: "record 4 said cancelled, and record 3 says finished, exit 0", want: longstop.WorkloadCancelled},
		{name: "running again after the end", before: recs(record(3, longstop.WorkloadLost)), rec: record(4, longstop.WorkloadRunning),
			says: "record 3 said lost, and record 4 says running", want: longstop.WorkloadLost},
		{name: "backwards", before: recs(record(3, longstop.WorkloadLingering)), rec: record(4, longstop.WorkloadRunning), changed: true,
			says: "record 3 said lingering, and record 4 says running", want: longstop.WorkloadLingering},
		{name: "two of one number", before: recs(record(3, longstop.WorkloadRunning)), rec: record(3, longstop.WorkloadFinished), changed: true,
			says: "record 3 said running, and record 3 says finished", want: longstop.WorkloadRunning},
		{name: "after a rejected launch", known: on(launch(longstop.LaunchRejected)), rec: record(3, longstop.WorkloadRunning),
			says: "the launch was rejected, and record 3 says running", want: longstop.WorkloadNone, launch: longstop.LaunchRejected},
		{name: "with nothing sent", known: on(launch(longstop.LaunchNotAttempted)), rec: record(3, longstop.WorkloadRunning),
			says: "nothing was sent", want: longstop.WorkloadNone, launch: longstop.LaunchNotAttempted},
		{name: "of another run", rec: record(3, longstop.WorkloadRunning, func(r *longstop.Record) { r.RunID = "run_x" }), changed: true, says: "another run", want: longstop.WorkloadNone},
		{name: "of another action", rec: record(3, longstop.WorkloadRunning, func(r *longstop.Record) { r.ActionID = "act_x" }), changed: true, says: "another action", want: longstop.WorkloadNone},
		{name: "of another request", known: on(launch(longstop.LaunchUnknown)), rec: record(3, longstop.WorkloadRunning, func(r *longstop.Record) { r.Digest = "sha256:2" }), changed: true,
			says: "another request", want: longstop.WorkloadNone, launch: longstop.LaunchUnknown},
		{name: "a successor's, unsigned, that knows the end", before: recs(record(3, longstop.WorkloadRunning)), rec: record(4, longstop.WorkloadFinished, by(longstop.WriterSuccessor)), changed: true,
			says: "a successor says finished", want: longstop.WorkloadRunning},
		{name: "a successor's, unsigned, that saw it cancelled", before: recs(record(3, longstop.WorkloadRunning)), rec: record(4, longstop.WorkloadCancelled, by(longstop.WriterSuccessor)), changed: true,
			says: "a successor says cancelled", want: longstop.WorkloadRunning},
		{name: "a successor's, unsigned, that nothing ran", before: recs(record(1, longstop.WorkloadStarting)), rec: record(2, longstop.WorkloadLaunchFailed, by(longstop.WriterSuccessor)), changed: true,
			want: longstop.WorkloadLaunchFailed},
		{name: "a successor's, unsigned, that nothing ran of what was seen to", before: recs(record(2, longstop.WorkloadRunning)), rec: record(3, longstop.WorkloadLaunchFailed, by(longstop.WriterSuccessor)), changed: true,
			says: "record 2 said running, and record 3, which bears no MAC, says launch_failed", want: longstop.WorkloadRunning},
		{name: "the owner's, unsigned", rec: record(3, longstop.WorkloadFinished, func(r *longstop.Record) { r.MAC = "" }), changed: true, says: "bears no MAC", want: longstop.WorkloadNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := action(c.known...)
			for _, rec := range c.before {
				if _, says := lifecycle.Observe(a, rec, live()); says != "" {
					t.Fatal(says)
				}
			}
			s := live()
			s.Signed = !strings.Contains(c.name, "unsigned")
			before := a.Workload
			changed, says := lifecycle.Observe(a, c.rec, s)
			if changed != c.changed || (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
				t.Errorf("changed %t, contradiction %q; want %t, %q", changed, says, c.changed, c.says)
			}
			if c.launch == "" {
				c.launch = longstop.LaunchAccepted
			}
			if a.Workload.State != c.want || a.Launch.State != c.launch {
				t.Errorf("workload %s, launch %s; want %s, %s", a.Workload.State, a.Launch.State, c.want, c.launch)
			}
			if says != "" && !reflect.DeepEqual(a.Workload, before) {
				t.Errorf("a contradiction changed %+v to %+v", before, a.Workload)
			}
			if unresolved := !a.Workload.State.Final() && c.launch != longstop.LaunchRejected && c.launch != longstop.LaunchNotAttempted; says != "" && unresolved {
				if v := lifecycle.Judge(a, now, stale); v.UnknownBecause != longstop.UnreadableRecord {
					t.Errorf("judged %+v", v)
				}
			}
			if says == "" && a.Workload.Unsigned == s.Signed {
				t.Errorf("unsigned is %t", a.Workload.Unsigned)
			}
		})
	}
}

func recs(r ...longstop.Record) []longstop.Record { return r }

func TestObserveCancel(t *testing.T) {
	t.Parallel()
	early, late := ago(40*time.Second), ago(20*time.Second) // before and after what ended at 30
	for _, c := range []struct {
		name  string
		state longstop.CancelState
		rec   longstop.Record
		want  longstop.CancelState
	}{
		{"nobody asked", longstop.CancelNone, record(3, longstop.WorkloadCancelled), longstop.CancelNone},
		{"asked, running on", longstop.CancelRequested, record(3, longstop.WorkloadRunning), longstop.CancelRequested},
		{"asked, signalled", longstop.CancelRequested, record(3, longstop.WorkloadRunning, signalledAt(early)), longstop.CancelDelivered},
		{"asked, cancelling", longstop.CancelRequested, record(3, longstop.WorkloadCancelling), longstop.CancelDelivered},
		{"asked, stopped for its lease meanwhile", longstop.CancelRequested, record(3, longstop.WorkloadCancelling, func(r *longstop.Record) { r.Cause = longstop.CauseLease }), longstop.CancelRequested},
		{"unanswered, then cancelling", longstop.CancelUnconfirmed, record(3, longstop.WorkloadCancelling), longstop.CancelDelivered},
		{"asked, cancelled", longstop.CancelRequested, record(3, longstop.WorkloadCancelled, signalledAt(early)), longstop.CancelConfirmed},
		{"asked, cancelled by its lease", longstop.CancelRequested, record(3, longstop.WorkloadCancelled, func(r *longstop.Record) { r.Cause = longstop.CauseLease }), longstop.CancelConfirmed},
		{"delivered, cancelled", longstop.CancelDelivered, record(3, longstop.WorkloadCancelled), longstop.CancelConfirmed},
		{"unanswered, cancelled", longstop.CancelUnconfirmed, record(3, longstop.WorkloadCancelled), longstop.CancelConfirmed},
		{"cancelling with survivors", longstop.CancelDelivered, record(3, longstop.WorkloadCancelling, func(r *longstop.Record) { r.Survivors = []longstop.Process{{PID: 4}} }), longstop.CancelDelivered},
		{"finished, no signal", longstop.CancelDelivered, record(3, longstop.WorkloadFinished), longstop.CancelTooLate},
		{"finished before the first signal", longstop.CancelRequested, record(3, longstop.WorkloadFinished, signalledAt(late)), longstop.CancelTooLate},
		{"unanswered, finished", longstop.CancelUnconfirmed, record(3, longstop.WorkloadFinished), longstop.CancelTooLate},
		{"signalled, its owner died, its end reaped", longstop.CancelDelivered, record(3, longstop.WorkloadFinished, signalledAt(early), by(longstop.WriterKeeper)), longstop.CancelConfirmed},
		{"finished, released ones left", longstop.CancelRequested, record(3, longstop.WorkloadFinished, releasing), longstop.CancelRequested},
		{"launch failed", longstop.CancelRequested, record(3, longstop.WorkloadLaunchFailed), longstop.CancelTooLate},
		{"lost", longstop.CancelDelivered, record(3, longstop.WorkloadLost), longstop.CancelUnconfirmed},
		{"lost, again", longstop.CancelUnconfirmed, record(3, longstop.WorkloadLost), longstop.CancelUnconfirmed},
		{"lost, proven empty", longstop.CancelUnconfirmed, record(3, longstop.WorkloadLost, func(r *longstop.Record) { r.EmptyProven = true }), longstop.CancelConfirmed},
		{"rebooted", longstop.CancelRequested, record(3, longstop.WorkloadLost, func(r *longstop.Record) { r.LostBecause = longstop.Rebooted }), longstop.CancelConfirmed},
		{"refused before", longstop.CancelRefused, record(3, longstop.WorkloadCancelled), longstop.CancelRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := action(work(longstop.WorkloadRunning), cancel(c.state))
			if _, says := lifecycle.Observe(a, c.rec, live()); says != "" {
				t.Fatal(says)
			}
			if a.Cancel.State != c.want {
				t.Errorf("cancel is %s, want %s", a.Cancel.State, c.want)
			}
			if c.rec.Cancel != nil && c.state != longstop.CancelNone && a.Cancel.Signal != "TERM" {
				t.Errorf("cancel is %+v", a.Cancel)
			}
		})
	}
}

// A lingering run that is cancelled ends cancelled and keeps its main process's exit code.
func TestLaw6ALingeringRunThatIsCancelledIsCancelled(t *testing.T) {
	t.Parallel()
	a := action(cancel(longstop.CancelRequested))
	lifecycle.Observe(a, record(3, longstop.WorkloadLingering), live())
	if a.Workload.Main.ExitCode == nil || a.Workload.Result != nil {
		t.Fatalf("lingering: %+v", a.Workload)
	}
	lifecycle.Observe(a, record(4, longstop.WorkloadCancelling, func(r *longstop.Record) { r.Main = a.Workload.Main }), live())
	lifecycle.Observe(a, record(5, longstop.WorkloadCancelled, func(r *longstop.Record) { r.Main = a.Workload.Main }), live())
	p := lifecycle.Project(*a, now, stale)
	if p.Outcome != longstop.OutcomeCancelled || p.Alive != longstop.AliveNo || *p.Workload.Main.ExitCode != 0 ||
		p.Cancel.State != longstop.CancelConfirmed || lifecycle.ExitStatus(&p) != longstop.ExitCancelled {
		t.Errorf("%+v", p)
	}
}

// Released processes: alive while the host sees one, unknown when nobody looks, over when it sees none.
func TestReleasedProcesses(t *testing.T) {
	t.Parallel()
	a := action(cancel(longstop.CancelNone))
	final := record(3, longstop.WorkloadFinished, releasing)
	alive := func(at time.Time) longstop.Alive { return lifecycle.Judge(a, at, stale).Alive }
	unseen := look()
	unseen.Unseen = "hidden"
	for _, step := range []struct {
		name    string
		s       lifecycle.Sighting
		changed bool
		want    longstop.Alive
	}{
		{"the record", live(), true, longstop.AliveYes},
		{"a look", look(final.Released...), false, longstop.AliveYes},
		{"a look, a tick later", look(longstop.Process{PID: 7, StartTime: 8, ElapsedMS: 9000, State: "S"}), false, longstop.AliveYes},
		{"they may not be seen", unseen, true, longstop.AliveUnknown},
		{"a look, after that", look(final.Released...), true, longstop.AliveYes},
		{"none is left", look(), true, longstop.AliveNo},
		{"the record once more", live(), false, longstop.AliveNo},
	} {
		changed, says := lifecycle.Observe(a, final, step.s)
		if changed != step.changed || says != "" || alive(now) != step.want {
			t.Errorf("%s: changed %t, alive %s, %q; want %t, %s", step.name, changed, alive(now), says, step.changed, step.want)
		}
		if step.want == longstop.AliveYes && alive(now.Add(time.Minute)) != longstop.AliveUnknown {
			t.Errorf("%s: with nobody looking alive is %s", step.name, alive(now.Add(time.Minute)))
		}
	}
	if v := lifecycle.Judge(a, now, stale); v.Outcome != longstop.OutcomeSucceeded {
		t.Errorf("judged %+v", v)
	}
}

func TestCancellingReleasedProcessesIsConfirmedWhenNoneIsLeft(t *testing.T) {
	t.Parallel()
	a := action()
	final := record(3, longstop.WorkloadFinished, releasing)
	lifecycle.Observe(a, final, look(final.Released...))
	a.Cancel.State = longstop.CancelRequested
	lifecycle.Observe(a, final, look(final.Released...))
	if a.Cancel.State != longstop.CancelRequested {
		t.Errorf("with one left the cancel is %s", a.Cancel.State)
	}
	if changed, _ := lifecycle.Observe(a, final, look()); !changed || a.Cancel.State != longstop.CancelConfirmed {
		t.Errorf("with none left the cancel is %s", a.Cancel.State)
	}
}

func TestOrphanedWithoutARecordThatSaysSo(t *testing.T) {
	t.Parallel()
	a := action()
	running := record(3, longstop.WorkloadRunning)
	s := look()
	s.Orphaned = true
	if changed, says := lifecycle.Observe(a, running, s); !changed || says != "" || a.Workload.State != longstop.WorkloadOrphaned {
		t.Errorf("changed %t, %q, %s", changed, says, a.Workload.State)
	}
	if changed, says := lifecycle.Observe(a, running, s); changed || says != "" || a.Workload.State != longstop.WorkloadOrphaned {
		t.Errorf("again: changed %t, %q, %s", changed, says, a.Workload.State)
	}
	if changed, says := lifecycle.Observe(a, record(4, longstop.WorkloadFinished, result(7), by(longstop.WriterKeeper)), look()); !changed || says != "" {
		t.Errorf("the heir: changed %t, %q", changed, says)
	}
	p := lifecycle.Project(*a, now, stale)
	if p.Outcome != longstop.OutcomeFailed || lifecycle.ExitStatus(&p) != 7 || p.CompletionSource != "keeper@web-1" {
		t.Errorf("%s, exit %d, by %s", p.Outcome, lifecycle.ExitStatus(&p), p.CompletionSource)
	}
	// An owner that took the lock just after it was tried is believed: at the next look, and by its
	// next record. One that an heir wrote is not taken back.
	taken := action()
	lifecycle.Observe(taken, running, s)
	if changed, says := lifecycle.Observe(taken, running, look()); !changed || says != "" || taken.Workload.State != longstop.WorkloadRunning {
		t.Errorf("the lock is held: changed %t, %q, %s", changed, says, taken.Workload.State)
	}
	lifecycle.Observe(taken, running, s)
	if _, says := lifecycle.Observe(taken, record(4, longstop.WorkloadLingering), live()); says != "" || taken.Workload.State != longstop.WorkloadLingering {
		t.Errorf("its owner writes on: %q, %s", says, taken.Workload.State)
	}
	heir := action()
	lifecycle.Observe(heir, record(4, longstop.WorkloadOrphaned, by(longstop.WriterKeeper)), look())
	if _, says := lifecycle.Observe(heir, record(5, longstop.WorkloadRunning), look()); says == "" || heir.Workload.State != longstop.WorkloadOrphaned {
		t.Errorf("running after an heir's word: %q, %s", says, heir.Workload.State)
	}
	// A queue has no owner yet, and an end needs none.
	for _, rec := range recs(record(1, longstop.WorkloadQueued), record(9, longstop.WorkloadFinished)) {
		a := action()
		if lifecycle.Observe(a, rec, s); a.Workload.State != rec.State {
			t.Errorf("%s became %s", rec.State, a.Workload.State)
		}
	}
}

func TestLeaseAndDeadlineInWallTime(t *testing.T) {
	t.Parallel()
	leased := func(r *longstop.Record) {
		r.Lifetime = longstop.Leased
		r.LeaseUntil = longstop.BootTime(time.Hour + 2*time.Minute)
		r.DeadlineUntil = longstop.BootTime(3 * time.Hour)
	}
	rec := record(3, longstop.WorkloadRunning, leased) // at boot + 1 h, 60 s ago by the host's wall clock
	a := action()
	lifecycle.Observe(a, rec, live())
	if l := a.Workload.Lease; l == nil || l.State != longstop.LeaseActive || !l.ExpiresAt.Equal(now.Add(time.Minute)) || !a.Workload.DeadlineAt.Equal(now.Add(119*time.Minute)) {
		t.Errorf("by the record: %+v, deadline %s", l, a.Workload.DeadlineAt)
	}
	s := look()
	s.BootNow = longstop.BootTime(time.Hour + 30*time.Second) // the host's wall clock was 30 s behind
	a = action()
	lifecycle.Observe(a, rec, s)
	if l := a.Workload.Lease; !l.ExpiresAt.Equal(now.Add(90 * time.Second)) {
		t.Errorf("by the host's boot clock: %+v", l)
	}
	s.BootNow += 300_000_000 // an answer that took longer is no news
	rec.Sequence++
	if changed, _ := lifecycle.Observe(a, rec, s); changed || !a.Workload.Lease.ExpiresAt.Equal(now.Add(90*time.Second)) {
		t.Errorf("changed %t, %+v", changed, a.Workload.Lease)
	}
	rec.Sequence++
	rec.LeaseUntil = rec.LeaseUntil.Add(time.Minute)
	if changed, _ := lifecycle.Observe(a, rec, s); changed || a.Workload.Lease.ExpiresAt.Before(now.Add(140*time.Second)) {
		t.Errorf("renewed: changed %t, %+v", changed, a.Workload.Lease)
	}
	if p := lifecycle.Project(*a, now.Add(time.Hour), stale); p.Workload.Lease.State != longstop.LeaseExpired || p.UnknownBecause != longstop.Unreachable {
		t.Errorf("an hour later: %+v, %s", p.Workload.Lease, p.UnknownBecause)
	}
	s.BootNow = rec.LeaseUntil + 1
	rec.Sequence++
	if changed, _ := lifecycle.Observe(a, rec, s); !changed || a.Workload.Lease.State != longstop.LeaseExpired {
		t.Errorf("past its end by the host's clock: changed %t, %+v", changed, a.Workload.Lease)
	}
	lifecycle.Observe(a, record(9, longstop.WorkloadFinished, leased), live())
	if a.Workload.Lease.State != longstop.LeaseNone {
		t.Errorf("after the end: %+v", a.Workload.Lease)
	}
	rebooted := action()
	lifecycle.Observe(rebooted, rec, live())
	known := *rebooted.Workload.Lease
	lifecycle.Observe(rebooted, record(20, longstop.WorkloadLost, leased, func(r *longstop.Record) { r.BootAt = 5 }), live())
	if l := rebooted.Workload.Lease; l.State != longstop.LeaseNone || l.ExpiresAt != known.ExpiresAt || rebooted.Workload.DeadlineAt.IsZero() {
		t.Errorf("after a reboot: %+v, known %+v", l, known)
	}
	detached := action()
	lifecycle.Observe(detached, record(3, longstop.WorkloadRunning), s)
	if detached.Workload.Lease != nil || !detached.Workload.DeadlineAt.IsZero() {
		t.Errorf("detached: %+v", detached.Workload)
	}
}

func TestOutputCountsAloneChangeNothing(t *testing.T) {
	t.Parallel()
	a := action()
	rec := record(3, longstop.WorkloadRunning)
	s := look()
	lifecycle.Observe(a, rec, s)
	s.Output.StdoutBytes = 1000
	if changed, _ := lifecycle.Observe(a, rec, s); changed || a.Output.StdoutBytes != 1000 {
		t.Errorf("changed %t, %+v", changed, a.Output)
	}
	s.Output.DroppedBytes, s.Output.DropReason = 5, "ENOSPC"
	if changed, _ := lifecycle.Observe(a, rec, s); !changed {
		t.Error("that output was lost is no change")
	}
	s.Output.DroppedBytes = 500
	if changed, _ := lifecycle.Observe(a, rec, s); changed {
		t.Error("that more output was lost is a change")
	}
}

func TestLaw3NotSeeingIsNotedAndChangesNoFact(t *testing.T) {
	t.Parallel()
	a := action(work(longstop.WorkloadRunning))
	w := a.Workload
	if !lifecycle.CannotSee(a, longstop.Unreachable, "no route", ago(0)) || a.Observation.Since != ago(0) || !a.Observation.At.Equal(ago(time.Second).Time) {
		t.Errorf("%+v", a.Observation)
	}
	if lifecycle.CannotSee(a, longstop.Unreachable, "timed out", ago(-time.Minute)) || a.Observation.Since != ago(0) || a.Observation.Message != "timed out" {
		t.Errorf("again: %+v", a.Observation)
	}
	if !lifecycle.CannotSee(a, longstop.AccessRefused, "", ago(-2*time.Minute)) || a.Observation.Since != ago(0) {
		t.Errorf("for another reason: %+v", a.Observation)
	}
	if !reflect.DeepEqual(a.Workload, w) || lifecycle.Judge(a, now, stale).UnknownBecause != longstop.AccessRefused {
		t.Errorf("%+v", a.Workload)
	}
	// A sight from before is no sight now; one from after is.
	rec := record(3, longstop.WorkloadRunning)
	old := live()
	old.At = ago(5 * time.Second)
	if lifecycle.Observe(a, rec, old); a.Observation.Because == "" {
		t.Error("an old sight opened our eyes")
	}
	fresh := live()
	fresh.At = ago(-3 * time.Minute)
	if changed, _ := lifecycle.Observe(a, rec, fresh); !changed || a.Observation.Because != "" || a.Observation.Source != longstop.Live {
		t.Errorf("changed %t, %+v", changed, a.Observation)
	}
	if lifecycle.CannotSee(a, longstop.Unreachable, "", ago(0)) {
		t.Error("it was seen since")
	}
	never := action(work(longstop.WorkloadRunning), never)
	if !lifecycle.CannotSee(never, longstop.Unreachable, "", ago(0)) || !never.Observation.At.IsZero() {
		t.Errorf("%+v", never.Observation)
	}
}

func TestLaw5OnlyARejectionSaysNotStarted(t *testing.T) {
	t.Parallel()
	for _, from := range lifecycle.Launches.States {
		for _, asked := range lifecycle.Cancels.States {
			a := action(launch(from), cancel(asked))
			err := lifecycle.Reject(a, longstop.CodeKeyVoid, "the key is void", ago(0))
			if allowed := lifecycle.Launches.Allows(from, longstop.LaunchRejected); (err == nil) != allowed {
				t.Errorf("from %s: %v", from, err)
			}
			if err != nil {
				if a.Launch.State != from || a.Cancel.State != asked {
					t.Errorf("from %s: an error changed the facts", from)
				}
				continue
			}
			if v := lifecycle.Judge(a, now, stale); v.Outcome != longstop.OutcomeNotStarted || a.Launch.Because != "key_void" {
				t.Errorf("from %s: %+v, %+v", from, v, a.Launch)
			}
			want := asked
			switch asked {
			case longstop.CancelRequested, longstop.CancelDelivered, longstop.CancelUnconfirmed:
				want = longstop.CancelConfirmed
			}
			if a.Cancel.State != want {
				t.Errorf("a cancel that was %s is %s", asked, a.Cancel.State)
			}
		}
	}
}

// A power failure takes back records that were seen and not flushed. The end that the next boot's successor
// writes has a number that is no higher, and is the run's last word all the same.
func TestLaw3APowerFailureTakesBackNumbersThatWereSeen(t *testing.T) {
	t.Parallel()
	boot := func(id string) func(*longstop.Record) {
		return func(r *longstop.Record) { r.Writer.BootID = id }
	}
	rebooted := func(r *longstop.Record) { r.LostBecause, r.EmptyProven = longstop.Rebooted, true }
	unsigned := lifecycle.Sighting{At: ago(0), By: "serve@gateway"}
	for number := range uint64(7) {
		a := action()
		a.Launch.State = longstop.LaunchAccepted
		lifecycle.Observe(a, record(2, longstop.WorkloadRunning, boot("b1")), live())
		lifecycle.Observe(a, record(4, longstop.WorkloadOrphaned, boot("b1")), live())
		lost := record(number, longstop.WorkloadLost, by(longstop.WriterSuccessor), boot("b2"), rebooted)
		if _, contradiction := lifecycle.Observe(a, lost, unsigned); contradiction != "" || a.Workload.State != longstop.WorkloadLost {
			t.Errorf("record %d after another boot: %s, %s", number, a.Workload.State, contradiction)
		}
		if _, contradiction := lifecycle.Observe(a, record(5, longstop.WorkloadFinished, boot("b1")), live()); contradiction == "" || a.Workload.State != longstop.WorkloadLost {
			t.Errorf("a final state was changed to %s", a.Workload.State)
		}
	}
	a := action()
	a.Launch.State = longstop.LaunchAccepted
	lifecycle.Observe(a, record(4, longstop.WorkloadOrphaned, boot("b1")), live())
	for _, rec := range []longstop.Record{
		record(4, longstop.WorkloadLost, by(longstop.WriterSuccessor), boot("b1"), rebooted),
		record(3, longstop.WorkloadLost, by(longstop.WriterSuccessor), boot("b1"), rebooted),
	} {
		if lifecycle.Observe(a, rec, unsigned); a.Workload.State != longstop.WorkloadOrphaned {
			t.Errorf("record %d of the same boot made it %s", rec.Sequence, a.Workload.State)
		}
	}
}
