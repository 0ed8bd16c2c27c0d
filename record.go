package longstop

// Record is what the owner of a run, or its heir named as such, wrote on the host about it. It is
// the only evidence for the workload fact. Absent fields are not known.
type Record struct {
	Version   int       `json:"version"`            // of this format: 1
	RunID     RunID     `json:"run_id"`             //
	ActionID  ActionID  `json:"action_id"`          //
	SessionID SessionID `json:"session_id"`         //
	KeyHash   string    `json:"key_hash"`           // hex SHA-256 of the idempotency key
	Digest    string    `json:"digest"`             // of the request, as the gateway sent it
	Sequence  uint64    `json:"sequence"`           // rises by one with each record of the run
	At        Time      `json:"at"`                 // the host's wall clock, for people
	BootAt    BootTime  `json:"boot_at"`            // the same instant on the host's boot clock
	Writer    Writer    `json:"writer"`             //
	StateID   string    `json:"state_id,omitempty"` // of the state folder it was written in

	State      WorkloadState `json:"state"`
	StartedAt  Time          `json:"started_at,omitzero"`
	FinishedAt Time          `json:"finished_at,omitzero"`
	ClockSetMS int64         `json:"clock_set_ms,omitempty"` // by how much the wall clock was set forward meanwhile: not part of how long it ran
	Lifetime   Lifetime      `json:"lifetime"`
	Leftover   Leftover      `json:"leftover"`
	GraceMS    int64         `json:"grace_ms"`
	Main       *Main         `json:"main,omitempty"`
	Boundary   Boundary      `json:"boundary,omitzero"`
	Released   []Process     `json:"released,omitempty"`
	Survivors  []Process     `json:"survivors,omitempty"`
	Left       []Process     `json:"left,omitempty"` // stopped beside the main process: it outlived that, or went with it; the first of them
	Result     *Result       `json:"result,omitempty"`
	Cause      Cause         `json:"cause,omitempty"`
	OOM        *OOM          `json:"oom,omitempty"` // absent: it killed nothing, or nobody knows
	// LostBecause is Rebooted or OwnerLost, with state lost alone.
	LostBecause UnknownReason `json:"lost_because,omitempty"`
	// EmptyProven says, with state lost, that nothing can be left: another boot, an empty cgroup.
	EmptyProven bool         `json:"empty_proven,omitempty"`
	LaunchError *LaunchError `json:"launch_error,omitempty"`

	LeaseUntil    BootTime   `json:"lease_until,omitempty"`    // leased runs only
	LeaseRenewed  Time       `json:"lease_renewed,omitzero"`   //
	DeadlineUntil BootTime   `json:"deadline_until,omitempty"` //
	Cancel        *CancelLog `json:"cancel,omitempty"`
	Output        Output     `json:"output,omitzero"`
	Anomalies     []string   `json:"anomalies,omitempty"` // plain words: what did not match, what could not be done

	Exclusive   *Exclusive        `json:"exclusive,omitempty"`
	Preflight   *Check            `json:"preflight,omitempty"`
	Verify      *Check            `json:"verify,omitempty"`
	EffectProof EffectProof       `json:"effect_proof,omitempty"` // absent: nothing was asked
	Evidence    map[string]string `json:"evidence,omitempty"`     // the work's own word
	Progress    *Progress         `json:"progress,omitempty"`

	// MAC is the hex HMAC-SHA-256, under the run's secret, of this record's bytes without it.
	// A successor never had the secret and leaves it out.
	MAC string `json:"mac,omitempty"`
}

// Main is the identity and end of the process that the request named.
type Main struct {
	PID       int    `json:"pid"`
	PGID      int    `json:"pgid"`
	SID       int    `json:"sid"`
	StartTime uint64 `json:"start_time"` // clock ticks since boot: field 22 of proc_pid_stat(5)
	PIDNS     string `json:"pid_ns,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"` // without SIG: "SEGV"
	EndedAt   Time   `json:"ended_at,omitzero"`
}

// Result is how the main process ended: exactly one of the two is set.
type Result struct {
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"` // without SIG: "SEGV"
}

// Writer is who wrote a record.
type Writer struct {
	Kind      WriterKind `json:"kind"`
	Version   string     `json:"version"`
	PID       int        `json:"pid"`
	MachineID string     `json:"machine_id"`
	BootID    string     `json:"boot_id"`
}

// Boundary is what encloses the workload, and what its writer last saw inside. Empty is a claim
// with a proof (waitid answered ECHILD, an empty cgroup); it is absent when nobody could prove it.
type Boundary struct {
	Kind      BoundaryKind `json:"kind,omitempty"`
	Path      string       `json:"path,omitempty"`    // of a cgroup
	Number    uint64       `json:"number,omitempty"`  // of its folder: the kernel gives it to no other in this boot
	Top       uint64       `json:"top,omitempty"`     // of the topmost cgroup that its maker could see
	Manager   string       `json:"manager,omitempty"` // with systemd: "system" or "user"
	Unit      string       `json:"unit,omitempty"`    // whose main process the owner is, and in which the cgroup lies
	Processes *int         `json:"processes,omitempty"`
	Empty     *bool        `json:"empty,omitempty"`
}

// Process is one process, by identity and by what a person would recognise.
type Process struct {
	PID       int       `json:"pid"`
	PPID      int       `json:"ppid,omitempty"`
	PGID      int       `json:"pgid,omitempty"`
	SID       int       `json:"sid,omitempty"`
	UID       int       `json:"uid"`
	State     string    `json:"state,omitempty"`      // one letter, as ps(1)
	StartTime uint64    `json:"start_time"`           // clock ticks since boot
	ElapsedMS int64     `json:"elapsed_ms,omitempty"` //
	Command   string    `json:"command,omitempty"`    // arguments joined by spaces, bounded; [name] if it has none
	Files     [3]string `json:"files,omitzero"`       // what descriptors 0 to 2 are open on
	Why       string    `json:"why,omitempty"`        // why it could not be stopped, for survivors
}

// LaunchError is why the work could not be started on the host: a failed exec, chdir or the like.
type LaunchError struct {
	Step    string `json:"step"`            // "exec", "chdir", "stdin", "limits", …
	Path    string `json:"path,omitempty"`  //
	Errno   string `json:"errno,omitempty"` // "ENOENT"
	Message string `json:"message"`         //
}

// CancelLog is what the host did to stop a run.
type CancelLog struct {
	RequestedAt Time   `json:"requested_at,omitzero"` // when the host was asked, or decided by itself
	Signal      string `json:"signal,omitempty"`      // first signal sent: "TERM"
	SignalledAt Time   `json:"signalled_at,omitzero"`
	Signalled   int    `json:"signalled,omitempty"` // processes that got it
	KilledAt    Time   `json:"killed_at,omitzero"`  // when KILL was first needed
	Killed      int    `json:"killed,omitempty"`
	EmptyAt     Time   `json:"empty_at,omitzero"`
}

// Output counts a run's output. Offsets are for ever: byte n of a stream is always the n-th that the
// work wrote, kept or not.
type Output struct {
	StdoutBytes   int64       `json:"stdout_bytes"` // written by the work, as far as was seen
	StderrBytes   int64       `json:"stderr_bytes"`
	DroppedBytes  int64       `json:"dropped_bytes"` // of those, not kept
	DropReason    string      `json:"drop_reason,omitempty"`
	StdoutDropped []Dropped   `json:"stdout_dropped,omitempty"` // which, in order
	StderrDropped []Dropped   `json:"stderr_dropped,omitempty"`
	MaxBytes      int64       `json:"max_bytes,omitempty"`     // of each stream that are kept
	Merged        bool        `json:"merged"`                  // a PTY: one stream
	AfterEnd      bool        `json:"after_end,omitempty"`     // released processes may still write to the files
	StdoutAtEnd   int64       `json:"stdout_at_end,omitempty"` // with AfterEnd: what came before the run's end
	StderrAtEnd   int64       `json:"stderr_at_end,omitempty"`
	Stream        StreamState `json:"stream,omitempty"` //
}

// IsZero reports whether nothing is known of any output.
func (o Output) IsZero() bool {
	return o.StdoutBytes == 0 && o.StderrBytes == 0 && o.DroppedBytes == 0 && o.DropReason == "" && len(o.StdoutDropped) == 0 &&
		len(o.StderrDropped) == 0 && o.MaxBytes == 0 && !o.Merged && !o.AfterEnd && o.Stream == ""
}

// DroppedOf are the ranges of one stream ("stdout" or "stderr") that were not kept.
func (o *Output) DroppedOf(stream string) []Dropped {
	if stream == "stdout" {
		return o.StdoutDropped
	}
	return o.StderrDropped
}

// BytesOf are the bytes of one stream.
func (o *Output) BytesOf(stream string) int64 {
	if stream == "stdout" {
		return o.StdoutBytes
	}
	return o.StderrBytes
}

// Dropped are bytes of a stream that were not kept: those from From on, up to and without To.
type Dropped struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"` // DroppedOverMax, or the errno: "ENOSPC"
}

// Arrival is when the byte at an offset of a stream came, and with it those behind it, up to the next arrival.
type Arrival struct {
	Offset int64 `json:"offset"`
	At     Time  `json:"at"`
}

// OutputTimes are when a stream's bytes came: GET /api/v1/actions/{id}/times. None where the work wrote into
// the files itself. Total is how far they reach.
type OutputTimes struct {
	Arrivals []Arrival `json:"arrivals"`
	Dropped  []Dropped `json:"dropped"` // which never came here
	Total    int64     `json:"total"`
}

// DroppedOverMax is the reason of what lay between the head and the tail of a stream that grew larger
// than was to be kept of it.
const DroppedOverMax = "output_max"

// DefaultOutputMax is what is kept of each stream where a request does not say: enough for any log that
// somebody reads, and no disk is filled by one that nobody does. MinOutputMax is the least.
const (
	DefaultOutputMax = 1 << 30
	MinOutputMax     = 64 << 10
)
