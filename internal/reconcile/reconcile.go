// Package reconcile decides what to do about an action whose fate is not settled, from what is
// known and what its host answered. It is where the rules live that join two facts: a launch nobody
// knows about and a cancel somebody wants, say. It is pure: the caller performs the steps, intent
// journalled first, and asks again. No step starts work; there is none that could.
package reconcile

import (
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

// Sight is what the host answered about one run: one of the types below.
type Sight interface{ sight() }

type (
	// NotAsked: nobody has asked yet, or the last answer was acted upon.
	NotAsked struct{}
	// Seen is a record.
	Seen struct {
		Record   longstop.Record
		Sighting lifecycle.Sighting
	}
	// Claimed: the key has a run, which has no record yet.
	Claimed struct{}
	// NotFound: the host knows neither key nor run. That proves nothing about a submit under way.
	NotFound struct{}
	// Voided: the key is burnt, nothing will ever start under it.
	Voided struct{}
	// Taken: the key has another run, of another gateway on the same account. A claim never changes:
	// nothing will ever start under the key for this action.
	Taken struct{ By longstop.RunID }
	// Expired: the run was removed after its retention and left no record.
	Expired struct{}
	// Blocked: there was no usable answer, for a reason that the words have.
	Blocked struct {
		Because longstop.UnknownReason // unreachable, access_refused, host_mismatch, unreadable_record
		Message string
	}
)

func (NotAsked) sight() {}
func (Seen) sight()     {}
func (Claimed) sight()  {}
func (NotFound) sight() {}
func (Voided) sight()   {}
func (Taken) sight()    {}
func (Expired) sight()  {}
func (Blocked) sight()  {}

// Step is one thing to do, in the order returned: one of the types below. An empty list of steps
// says that nothing is left to do.
type Step interface{ step() }

type (
	// MarkUnknown: the launch was sent and nobody is waiting for its answer any more.
	MarkUnknown struct{}
	// Find asks the host for the run of the key.
	Find struct{}
	// Void burns the key; the answer may still be a run, which is then seen.
	Void struct{ Reason string }
	// Look asks the host for the run's status.
	Look struct{}
	// Accept notes that the run exists on the host, without a record of it yet.
	Accept struct{}
	// ApplyRecord gives the record to lifecycle.Observe.
	ApplyRecord struct{ Seen Seen }
	// Reject notes that nothing was started (lifecycle.Reject).
	Reject struct {
		Because longstop.Code
		Message string
	}
	// AskCancel asks the host to stop the run, on a channel of its own.
	AskCancel struct{}
	// Collect tells the host that the final record is durable here.
	Collect struct{}
	// CannotSee notes why there is no sight of the run (lifecycle.CannotSee).
	CannotSee struct {
		Because longstop.UnknownReason
		Message string
	}
	// AskAgain comes last: decide anew after this time, with NotAsked.
	AskAgain struct{ After time.Duration }
)

func (MarkUnknown) step() {}
func (Find) step()        {}
func (Void) step()        {}
func (Look) step()        {}
func (Accept) step()      {}
func (ApplyRecord) step() {}
func (Reject) step()      {}
func (AskCancel) step()   {}
func (Collect) step()     {}
func (CannotSee) step()   {}
func (AskAgain) step()    {}
