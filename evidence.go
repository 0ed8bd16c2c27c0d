package longstop

// What a run can be asked beside its work: a name that one run holds at a time, a script that is asked
// before it and one after it, and what the work itself says of its effect and of how far it is.

// PreflightDone is the exit code by which a preflight says that there is nothing to do: the run is
// finished, and its command was not run. 0 goes on; anything else refuses the start.
const PreflightDone = 204

// Bounds of what is asked for and of what is taken. Evidence has to fit into a record.
const (
	DefaultCheckS     = 60       // a preflight, and a verify, may take as long
	MaxCheckScript    = 64 << 10 // bytes
	MaxExclusiveName  = 100
	MaxEvidence       = 32      // entries
	MaxEvidenceBytes  = 2 << 10 // of all keys and values together
	MaxEvidenceKey    = 64
	MaxEvidenceValue  = 512
	MaxProgressLine   = 200
	MaxEvidenceInFile = 16 << 10
)

// Exclusive is a name that at most one run of a state folder holds.
type Exclusive struct {
	Name  string `json:"name"`
	Since Time   `json:"since,omitzero"` // when this run got it; absent: it has not
	// HeldBy is whose it was when this run asked last, and HeldSince since when.
	HeldBy    ActionID `json:"held_by,omitempty"`
	HeldSince Time     `json:"held_since,omitzero"`
}

// CheckState is how far a preflight or a verify has come.
type CheckState string

const (
	CheckRunning     CheckState = "running"
	CheckPassed      CheckState = "passed"
	CheckNothingToDo CheckState = "nothing_to_do" // of a preflight alone
	CheckFailed      CheckState = "failed"
	CheckUnknown     CheckState = "unknown" // it was ended before it could say, or nobody saw it end
)

// Check is a preflight or a verify: what it said, and when.
type Check struct {
	State     CheckState `json:"state"`
	StartedAt Time       `json:"started_at,omitzero"`
	EndedAt   Time       `json:"ended_at,omitzero"`
	ExitCode  *int       `json:"exit_code,omitempty"`
	Signal    string     `json:"signal,omitempty"`
	Because   string     `json:"because,omitempty"` // of failed and unknown, where the exit does not say it
}

// EffectProof is what a verify showed of the work's effect. It stands beside the result and never
// instead of it.
type EffectProof string

const (
	ProofUnasked EffectProof = "unasked" // as is no proof at all
	ProofPassed  EffectProof = "passed"
	ProofFailed  EffectProof = "failed"
	ProofUnknown EffectProof = "unknown" // asked for, and not to be had: the work failed, or the verify did not end
)

// Progress is the last that the work said of how far it is.
type Progress struct {
	Line    string   `json:"line"`
	Percent *float64 `json:"percent,omitempty"` // where the line says one
	At      Time     `json:"at,omitzero"`       // when it was written
}

// NothingToDo reports whether a preflight found the work done: the run is finished without having run.
func (r *Record) NothingToDo() bool { return r.Preflight.nothing() }

// NothingToDo is Record.NothingToDo of what was seen.
func (w *Workload) NothingToDo() bool { return w.Preflight.nothing() }

func (c *Check) nothing() bool { return c != nil && c.State == CheckNothingToDo }
