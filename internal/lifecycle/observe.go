package lifecycle

import (
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
	Orphaned bool               // nobody holds the run's lock
	Output   longstop.Output    // newer than the record's
}

// Observe applies a host's record to the facts, through the tables. An older record changes nothing,
// a final state never changes. contradiction says in words, for the journal, what does not fit with
// what is known; the facts then stay as they were. changed is false where only the observation's
// time moved.
func Observe(a *longstop.Action, rec longstop.Record, s Sighting) (changed bool, contradiction string) {
	return false, ""
}

// CannotSee notes that the host gave no usable sight of the run, and since when. It changes nothing
// about the work.
func CannotSee(a *longstop.Action, because longstop.UnknownReason, message string, at longstop.Time) (changed bool) {
	return false
}

// Reject notes that nothing was or will be started: refused by the host, its key void, or given up
// before anything was sent. A cancel that was asked is thereby confirmed. because is an error code.
func Reject(a *longstop.Action, because longstop.Code, message string, at longstop.Time) error {
	return nil
}
