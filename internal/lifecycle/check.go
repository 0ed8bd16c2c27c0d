package lifecycle

import (
	"errors"
	"fmt"
	"slices"

	"github.com/longstop/longstop"
)

// RecordVersion is the version of longstop.Record that this release reads and writes.
const RecordVersion = 1

// CheckRecord refuses a record that contradicts itself or claims more than it shows: what no owner
// that keeps the host contract writes. The laws hold for a record because it passed.
func CheckRecord(rec longstop.Record) error {
	if rec.Version != RecordVersion {
		return fmt.Errorf("version %d is not one that this release knows (%d)", rec.Version, RecordVersion)
	}
	if !slices.Contains(Workloads.States, rec.State) || rec.State == longstop.WorkloadNone {
		return fmt.Errorf("there is no state %q", rec.State)
	}
	switch rec.Writer.Kind {
	case longstop.WriterOwner, longstop.WriterKeeper, longstop.WriterSuccessor:
	default:
		return fmt.Errorf("nobody called %q writes records", rec.Writer.Kind)
	}
	// Its records bear no MAC, so that whoever can write the file can make one: it must never be able
	// to say more than that nobody knows.
	if rec.Writer.Kind == longstop.WriterSuccessor && (rec.State == longstop.WorkloadFinished || rec.State == longstop.WorkloadCancelled) {
		return fmt.Errorf("a successor says %s: it cannot know how the work ended", rec.State)
	}
	if rec.Result != nil && rec.State != longstop.WorkloadFinished {
		return fmt.Errorf("%s with a result", rec.State)
	}
	if rec.EffectProof == longstop.ProofPassed && !verified(rec) {
		return errors.New("the effect is called proven, and no verify of finished work passed")
	}
	if rec.Main != nil && rec.Main.ExitCode != nil && rec.Main.Signal != "" {
		return errors.New("the main process ended in two ways")
	}
	switch rec.State {
	case longstop.WorkloadLingering:
		if !mainEnded(rec) {
			return errors.New("lingering, and the main process has not ended")
		}
	case longstop.WorkloadFinished:
		return checkFinished(rec)
	case longstop.WorkloadCancelled:
		switch {
		case !proven(rec.Boundary.Empty):
			return errors.New("cancelled, and the boundary is not proven empty")
		case rec.Cause == "":
			return errors.New("cancelled without a cause")
		}
	case longstop.WorkloadLaunchFailed:
		if rec.LaunchError == nil {
			return errors.New("launch_failed without an error")
		}
	case longstop.WorkloadLost:
		if rec.LostBecause != longstop.Rebooted && rec.LostBecause != longstop.OwnerLost {
			return fmt.Errorf("lost because %q", rec.LostBecause)
		}
	}
	return nil
}

// checkFinished: the result is the main process's own end, and what is left is nothing or named.
func checkFinished(rec longstop.Record) error {
	result := rec.Result
	if rec.NothingToDo() {
		return checkNothingToDo(rec)
	}
	switch {
	case result == nil, (result.ExitCode == nil) == (result.Signal == ""):
		return errors.New("finished without one result")
	case !mainEnded(rec):
		return errors.New("finished, and the main process has not ended")
	case result.Signal != rec.Main.Signal, result.ExitCode != nil && *result.ExitCode != *rec.Main.ExitCode:
		return errors.New("the result is not how the main process ended")
	// Of a run that releases what it leaves behind all may be gone again before it is named.
	case !proven(rec.Boundary.Empty) && len(rec.Released) == 0 && rec.Leftover != longstop.LeftoverRelease:
		return errors.New("finished, the boundary is not proven empty, and nothing is named as released")
	}
	return nil
}

func mainEnded(rec longstop.Record) bool {
	return rec.Main != nil && (rec.Main.ExitCode != nil || rec.Main.Signal != "")
}

// checkNothingToDo: a preflight's word ends a run only if nothing of its work ran.
func checkNothingToDo(rec longstop.Record) error {
	switch code := rec.Preflight.ExitCode; {
	case rec.Main != nil, rec.Result != nil:
		return errors.New("a preflight found nothing to do, and the command was run")
	case code == nil || *code != longstop.PreflightDone:
		return errors.New("nothing to do, and the preflight did not say so")
	case !proven(rec.Boundary.Empty):
		return errors.New("nothing to do, and the boundary is not proven empty")
	}
	return nil
}

// verified reports whether a verify's own exit shows that it passed, after work that succeeded.
func verified(rec longstop.Record) bool {
	v, main := rec.Verify, rec.Main
	return v != nil && v.State == longstop.CheckPassed && v.ExitCode != nil && *v.ExitCode == 0 &&
		main != nil && main.ExitCode != nil && *main.ExitCode == 0
}
