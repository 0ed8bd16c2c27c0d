package lifecycle

import (
	"fmt"
	"reflect"
	"time"

	"github.com/longstop/longstop"
)

// Sighting is the circumstances of a record: who read it where and when, and what the host said
// beside it.
type Sighting struct {
	At     longstop.Time // the gateway's clock
	By     string        // "serve@gateway", "reconcile@gateway"
	Signed bool          // the record bears the MAC of the run's secret

	// BootNow is the host's boot clock at At, where its answer said so: it turns instants of that
	// clock into times for people. Zero: the record's own pair of clocks is used.
	BootNow longstop.BootTime

	// Status says that the answer was a look at the run as it is (status, list, a push), not the
	// record alone; only then do the fields below mean anything.
	Status   bool
	Released []longstop.Process // released processes that are alive now
	Unseen   string             // why none of them may be seen, though some may be alive
	Orphaned bool               // nobody holds the run's lock
	Output   longstop.Output    // newer than the record's
	Unit     *longstop.Unit     // what the service manager says beside the record
}

// Observe applies a host's record to the facts, through the tables. An older record changes nothing,
// a final state never changes. contradiction says in words, for the journal, what does not fit with
// what is known; the facts then stay as they were, and of a run that may still change there is no
// sight: unreadable_record. changed is false where nothing moved but the observation's time, the
// lease's times, counts of output, the record's number, how far the work says it is and what processes do.
func Observe(a *longstop.Action, rec longstop.Record, s Sighting) (changed bool, contradiction string) {
	if contradiction = contradicts(a, rec, s); contradiction != "" {
		if !a.Workload.State.Final() && a.Launch.State != longstop.LaunchRejected && a.Launch.State != longstop.LaunchNotAttempted {
			changed = CannotSee(a, longstop.UnreadableRecord, contradiction, s.At)
		}
		return changed, contradiction
	}
	w := &a.Workload
	known := w.Writer != nil
	later := !known || rec.Sequence > w.Sequence && !w.State.Final() || closedAfterBoot(w, rec)
	if known && rec.Sequence < w.Sequence && !later {
		return false, ""
	}
	before := settled(*a)
	if a.Launch.State != longstop.LaunchAccepted {
		a.Launch = longstop.Launch{State: must(Launches.Step(a.Launch.State, longstop.LaunchAccepted)), At: s.At}
	}
	if later {
		a.Workload = workload(a.Workload, rec, s)
		a.Output = rec.Output
	}
	if s.Status {
		lookAtRun(a, rec, s)
	}
	observeCancel(a, rec)
	if s.Unseen != "" && a.Workload.State.Final() {
		CannotSee(a, longstop.AccessRefused, s.Unseen, s.At)
	} else {
		sighted(a, s)
	}
	return !reflect.DeepEqual(before, settled(*a)), ""
}

// contradicts says why a record is no evidence about the action, or why it cannot follow what is
// known.
func contradicts(a *longstop.Action, rec longstop.Record, s Sighting) string {
	says := func() string { return claim(rec.State, rec.Result) }
	switch {
	case rec.RunID != a.RunID:
		return fmt.Sprintf("a record of another run: %s", rec.RunID)
	case rec.ActionID != "" && rec.ActionID != a.ID:
		return fmt.Sprintf("a record of another action: %s", rec.ActionID)
	case rec.Digest != "" && a.Request.Digest != "" && rec.Digest != a.Request.Digest:
		return fmt.Sprintf("a record of another request: %s", rec.Digest)
	}
	if err := CheckRecord(rec); err != nil {
		return fmt.Sprintf("record %d cannot be: %v", rec.Sequence, err)
	}
	switch w := &a.Workload; {
	case !s.Signed && rec.Writer.Kind != longstop.WriterSuccessor:
		return fmt.Sprintf("record %d (%s) says that the %s wrote it and bears no MAC", rec.Sequence, says(), rec.Writer.Kind)
	case !s.Signed && rec.State == longstop.WorkloadLaunchFailed && ran(w):
		// A successor says so only of a run whose gate cannot have opened.
		return fmt.Sprintf("record %d said %s, and record %d, which bears no MAC, says %s", w.Sequence, claim(w.State, w.Result), rec.Sequence, says())
	case a.Launch.State == longstop.LaunchRejected:
		return fmt.Sprintf("the launch was rejected, and record %d says %s", rec.Sequence, says())
	case a.Launch.State == longstop.LaunchNotAttempted:
		return fmt.Sprintf("nothing was sent, and record %d says %s", rec.Sequence, says())
	case w.Writer == nil, sameClaim(w, rec), inferred(w) && rec.Sequence > w.Sequence,
		closedAfterBoot(w, rec) && Workloads.Reaches(w.State, rec.State):
		return ""
	// Two final records differ whichever was written first: somebody wrote a second one.
	case w.State.Final() && (rec.State.Final() || rec.Sequence > w.Sequence), rec.Sequence == w.Sequence,
		rec.Sequence > w.Sequence && rec.State != w.State && !Workloads.Reaches(w.State, rec.State):
		return fmt.Sprintf("record %d said %s, and record %d says %s", w.Sequence, claim(w.State, w.Result), rec.Sequence, says())
	}
	return ""
}

// closedAfterBoot reports whether a record is the end that a successor wrote in a later boot than the one of
// what is known. Its number need not be higher: a power failure takes back records that were seen and not
// flushed, and it goes on from the last that was.
func closedAfterBoot(w *longstop.Workload, rec longstop.Record) bool {
	return w.Writer != nil && !w.State.Final() && rec.State.Final() && rec.Writer.Kind == longstop.WriterSuccessor &&
		rec.Writer.BootID != w.Writer.BootID && rec.Writer.MachineID == w.Writer.MachineID
}

// ran reports whether the work was seen past its start. That nobody answers for it any more does not
// say so.
func ran(w *longstop.Workload) bool {
	if inferred(w) {
		return w.Main != nil
	}
	switch w.State {
	case longstop.WorkloadNone, longstop.WorkloadQueued, longstop.WorkloadStarting, longstop.WorkloadLaunchFailed:
		return false
	}
	return true
}

// inferred reports whether the work is taken to be orphaned because nobody held the run's lock, and
// not from a record: no owner writes that of itself. It stands until the next record or look, for
// an owner may have taken the lock just after it was tried.
func inferred(w *longstop.Workload) bool {
	return w.State == longstop.WorkloadOrphaned && w.Writer != nil && w.Writer.Kind == longstop.WriterOwner
}

// sameClaim reports whether a record says of the work what is known.
func sameClaim(w *longstop.Workload, rec longstop.Record) bool {
	if inferred(w) && Workloads.Allows(rec.State, longstop.WorkloadOrphaned) {
		return true
	}
	return w.State == rec.State && w.Cause == rec.Cause && w.LostBecause == rec.LostBecause && reflect.DeepEqual(w.Result, rec.Result)
}

func claim(state longstop.WorkloadState, result *longstop.Result) string {
	switch {
	case result == nil:
		return string(state)
	case result.ExitCode != nil:
		return fmt.Sprintf("%s, exit %d", state, *result.ExitCode)
	}
	return fmt.Sprintf("%s, signal %s", state, result.Signal)
}

// workload is the fact as a record has it. Of the one before it keeps the times that would only
// differ by how exactly they can be told.
func workload(before longstop.Workload, rec longstop.Record, s Sighting) longstop.Workload {
	writer := rec.Writer
	w := longstop.Workload{
		State: rec.State, StartedAt: rec.StartedAt, FinishedAt: rec.FinishedAt, ClockSetMS: rec.ClockSetMS,
		Main: rec.Main, Writer: &writer, Boundary: rec.Boundary,
		Released: rec.Released, Survivors: rec.Survivors, Left: rec.Left,
		Result: rec.Result, Cause: rec.Cause, OOM: rec.OOM, LostBecause: rec.LostBecause, EmptyProven: rec.EmptyProven,
		LaunchError: rec.LaunchError, Anomalies: rec.Anomalies, Unsigned: !s.Signed, Sequence: rec.Sequence, Unit: before.Unit,
		Exclusive: rec.Exclusive, Preflight: rec.Preflight, Verify: rec.Verify, EffectProof: rec.EffectProof,
		Evidence: rec.Evidence, Progress: rec.Progress,
	}
	if rec.State == longstop.WorkloadLost {
		// Its clock may be another boot's than the one that the instants belong to.
		w.DeadlineAt, w.Lease = before.DeadlineAt, over(before.Lease)
		return w
	}
	w.DeadlineAt = steady(before.DeadlineAt, wallTime(rec.DeadlineUntil, rec, s))
	if rec.Lifetime == longstop.Leased && rec.LeaseUntil != 0 {
		lease := longstop.Lease{State: leaseState(rec, s), RenewedAt: rec.LeaseRenewed, ExpiresAt: wallTime(rec.LeaseUntil, rec, s)}
		if before.Lease != nil {
			lease.ExpiresAt = steady(before.Lease.ExpiresAt, lease.ExpiresAt)
		}
		w.Lease = &lease
	}
	return w
}

// over is a lease of a run that has ended.
func over(lease *longstop.Lease) *longstop.Lease {
	if lease == nil {
		return nil
	}
	ended := *lease
	ended.State = longstop.LeaseNone
	return &ended
}

func leaseState(rec longstop.Record, s Sighting) longstop.LeaseState {
	switch {
	case rec.Cause == longstop.CauseLease, !rec.State.Final() && max(s.BootNow, rec.BootAt) > rec.LeaseUntil:
		return longstop.LeaseExpired
	case rec.State.Final():
		return longstop.LeaseNone
	}
	return longstop.LeaseActive
}

// wallTime tells an instant of the host's boot clock by the gateway's clock where the host said
// what its boot clock showed, else by the host's own at the time of the record. A boot clock behind
// the record's is another boot's.
func wallTime(at longstop.BootTime, rec longstop.Record, s Sighting) longstop.Time {
	switch {
	case at == 0:
		return longstop.Time{}
	case s.BootNow >= rec.BootAt && s.BootNow != 0:
		return longstop.At(s.At.Add(at.Sub(s.BootNow)))
	}
	return longstop.At(rec.At.Add(at.Sub(rec.BootAt)))
}

// steady keeps the earlier telling of a time unless the new one differs by more than the journey of
// an answer explains.
func steady(before, now longstop.Time) longstop.Time {
	if d := now.Sub(before.Time); !before.IsZero() && !now.IsZero() && d.Abs() < time.Second {
		return before
	}
	return now
}

// lookAtRun applies what a look at the run says beside its record.
func lookAtRun(a *longstop.Action, rec longstop.Record, s Sighting) {
	w := &a.Workload
	a.Output = s.Output
	if s.Unit != nil {
		w.Unit = s.Unit
	}
	switch {
	case s.Orphaned && Workloads.Allows(w.State, longstop.WorkloadOrphaned):
		w.State = longstop.WorkloadOrphaned
	case !s.Orphaned && inferred(w):
		w.State = rec.State
	}
	if w.State.Final() && len(rec.Released) > 0 && s.Unseen == "" {
		w.Released = s.Released
		if len(s.Released) == 0 {
			// What the record said of the boundary was said while they lived.
			w.Boundary.Empty, w.Boundary.Processes = nil, nil
		}
	}
}

// sighted notes the sight, unless a later one is known.
func sighted(a *longstop.Action, s Sighting) {
	if o := a.Observation; o != nil && (s.At.Before(o.At.Time) || s.At.Before(o.Since.Time)) {
		return
	}
	a.Observation = &longstop.Observation{At: s.At, By: s.By, Source: longstop.Live}
}

// settled is an action without what moves by itself: two of them are equal where nothing happened.
func settled(a longstop.Action) longstop.Action {
	a.Workload.Released = identities(a.Workload.Released)
	a.Workload.Survivors = identities(a.Workload.Survivors)
	a.Output.StdoutBytes, a.Output.StderrBytes = 0, 0
	a.Output.DroppedBytes, a.Output.StdoutDropped, a.Output.StderrDropped = min(a.Output.DroppedBytes, 1), nil, nil
	a.Workload.Sequence = 0
	a.Workload.Progress = nil
	if !a.Workload.State.Final() {
		a.Workload.Evidence = nil // it may still be added to, at any pace
	}
	if a.Workload.Lease != nil {
		a.Workload.Lease = &longstop.Lease{State: a.Workload.Lease.State}
	}
	if a.Observation != nil {
		a.Observation = &longstop.Observation{Source: a.Observation.Source, Because: a.Observation.Because}
	}
	return a
}

func identities(processes []longstop.Process) []longstop.Process {
	var who []longstop.Process
	for _, p := range processes {
		who = append(who, longstop.Process{PID: p.PID, StartTime: p.StartTime, Why: p.Why})
	}
	return who
}

// CannotSee notes that the host gave no usable sight of the run, and since when. It changes nothing
// about the work. A message alone is no change.
func CannotSee(a *longstop.Action, because longstop.UnknownReason, message string, at longstop.Time) (changed bool) {
	o := longstop.Observation{Since: at}
	if a.Observation != nil {
		if o = *a.Observation; at.Before(o.At.Time) {
			return false // seen since
		}
		if o.Because == "" {
			o.Since = at
		}
	}
	changed = o.Because != because || o.Source != longstop.Cached
	o.Source, o.Because, o.Message = longstop.Cached, because, message
	a.Observation = &o
	return changed
}

// Reject notes that nothing was or will be started: refused by the host, its key void, or given up
// before anything was sent. A cancel that was asked is thereby confirmed. because is an error code.
func Reject(a *longstop.Action, because longstop.Code, message string, at longstop.Time) error {
	state, err := Launches.Step(a.Launch.State, longstop.LaunchRejected)
	if err != nil {
		return err
	}
	a.Launch = longstop.Launch{State: state, At: at, Because: string(because), Message: message}
	if wanted(a.Cancel.State) {
		a.Cancel.State, a.Cancel.Because = must(walk(Cancels, a.Cancel.State, longstop.CancelConfirmed)), ""
	}
	return nil
}

// walk goes to a state by way of those between, which must have been passed unseen.
func walk[S ~string](t *Table[S], from, to S) (S, error) {
	for _, s := range t.Path(from, to) {
		var err error
		if from, err = t.Step(from, s); err != nil {
			return from, err
		}
	}
	if from != to {
		return t.Step(from, to)
	}
	return to, nil
}

// must is for steps whose first state was looked at: the table itself would be wrong.
func must[S ~string](s S, err error) S {
	if err != nil {
		panic("lifecycle: " + err.Error())
	}
	return s
}
