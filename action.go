package longstop

import "cmp"

// Action is the one shape that the command's --json, the HTTP API and every page show. What nobody
// knows is absent: never null, never a zero that could be read as a value.
type Action struct {
	ID          ActionID  `json:"action_id"`
	Revision    int64     `json:"revision"`
	SessionID   SessionID `json:"session_id"`
	RunID       RunID     `json:"run_id,omitempty"`
	Host        string    `json:"host"`
	CreatedAt   Time      `json:"created_at"`
	RequestedBy Requester `json:"requested_by"`
	Request     Request   `json:"request"`

	IdempotencyKey string   `json:"idempotency_key"`
	Attempt        int      `json:"attempt"`
	RetryOf        ActionID `json:"retry_of,omitempty"`
	RetriedBy      ActionID `json:"retried_by,omitempty"` // the next attempt at the same work; there is one at most

	// InquiresOf is the action whose work this one asks the application about, and Inquires how.
	InquiresOf  ActionID    `json:"inquires_of,omitempty"`
	Inquires    InquiryKind `json:"inquires,omitempty"`
	EffectToken string      `json:"effect_token,omitempty"`

	// Alive, Outcome, UnknownBecause and Next are computed by lifecycle.Judge from the facts below.
	Alive          Alive         `json:"alive"`
	Outcome        Outcome       `json:"outcome"`
	UnknownBecause UnknownReason `json:"unknown_because,omitempty"`
	Next           string        `json:"next,omitempty"`

	Findings    []Finding    `json:"findings,omitempty"` // of reading the request, before anything was sent
	Approval    Approval     `json:"approval"`
	Launch      Launch       `json:"launch"`
	SSHCommand  SSHCommand   `json:"ssh_command"`
	Workload    Workload     `json:"workload"`
	Cancel      Cancel       `json:"cancel"`
	Observation *Observation `json:"observation,omitempty"`
	Waits       []Wait       `json:"waits,omitempty"`
	Retry       *Retry       `json:"retry,omitempty"`
	Resolution  *Resolution  `json:"resolution,omitempty"`
	Checks      []Inquiry    `json:"checks,omitempty"`
	Escalations []Escalation `json:"escalations,omitempty"`
	Output      Output       `json:"output,omitzero"`
	Removed     *Removal     `json:"removed,omitempty"`

	CompletionSource string `json:"completion_source,omitempty"` // "owner@web-1", with a final workload
}

// Requester is who asked.
type Requester struct {
	Kind string `json:"kind"` // RequesterOperator or RequesterAgent
	Name string `json:"name"`
	Via  string `json:"via"` // "cli", "http", "mcp"
}

// The kinds of requesters. Who holds a token is an agent, whatever it says of itself; who connects to
// the socket without one is the operator whose user the gateway runs as.
const (
	RequesterOperator = "operator"
	RequesterAgent    = "agent"
)

// Request says what to run and how. Exactly one of Argv, ArgvB64 and Script is set. Env holds
// names alone wherever a request is kept or shown; values travel beside it and are never kept.
type Request struct {
	Argv        []string     `json:"argv,omitempty"`
	ArgvB64     [][]byte     `json:"argv_b64,omitempty"` // instead of Argv, where an argument is not UTF-8
	Script      string       `json:"script,omitempty"`   // for sh -c
	StrictShell bool         `json:"strict_shell,omitempty"`
	Cwd         string       `json:"cwd,omitempty"` // absolute; default the login's home
	Env         []string     `json:"env,omitempty"`
	StdinBytes  int64        `json:"stdin_bytes"`
	StdinSHA256 string       `json:"stdin_sha256,omitempty"`
	Lifetime    Lifetime     `json:"lifetime"`
	Owner       OwnerKind    `json:"owner"`
	BoundaryMin BoundaryKind `json:"boundary_min,omitempty"`
	Leftover    Leftover     `json:"leftover"`
	Effect      Effect       `json:"effect"`
	PTY         bool         `json:"pty"`
	OutputMax   *int64       `json:"output_max_bytes,omitempty"` // kept of each stream; 0: all; absent: DefaultOutputMax
	OwnChannel  bool         `json:"own_channel,omitempty"`
	Limits      *Limits      `json:"limits,omitempty"`
	LeaseS      float64      `json:"lease_s,omitempty"`
	DeadlineS   float64      `json:"deadline_s,omitempty"`
	GraceS      float64      `json:"grace_s"`
	Preflight   string       `json:"preflight,omitempty"` // for sh -c, before the work: see PreflightDone
	Verify      string       `json:"verify,omitempty"`    // for sh -c, once the work has succeeded
	CheckS      float64      `json:"check_s,omitempty"`   // how long either may take
	Exclusive   string       `json:"exclusive,omitempty"` // a name that one run holds at a time
	// ExclusiveWaitS is how long the run may be queued for it; 0: it is refused at once.
	ExclusiveWaitS float64 `json:"exclusive_wait_s,omitempty"`
	Reason         string  `json:"reason,omitempty"`
	Digest         string  `json:"digest,omitempty"` // "sha256:…", made by the gateway
	// Redacted says that what is configured as secret was taken out of what is kept of the request, which the
	// digest is not of: it cannot be asked again from here.
	Redacted bool `json:"redacted,omitempty"`
}

// Defaults of a request.
const (
	DefaultLeaseS = 120
	DefaultGraceS = 10
)

// TakeDefaults fills in what a request leaves open.
func (r *Request) TakeDefaults() {
	r.Lifetime = cmp.Or(r.Lifetime, Leased)
	r.Owner = cmp.Or(r.Owner, OwnerAuto)
	r.Leftover = cmp.Or(r.Leftover, LeftoverWait)
	r.Effect = cmp.Or(r.Effect, EffectOnce)
	r.GraceS = cmp.Or(r.GraceS, DefaultGraceS)
	if r.Lifetime == Leased && r.Owner != OwnerNone {
		r.LeaseS = cmp.Or(r.LeaseS, DefaultLeaseS)
	}
}

// Limits are resource limits that the boundary must be able to hold. Zero asks for none. The first four
// bind each process by itself (Processes: the account's), the others all of a run's work together.
type Limits struct {
	OpenFiles int64 `json:"open_files,omitempty"`
	Processes int64 `json:"processes,omitempty"`
	CPUS      int64 `json:"cpu_s,omitempty"`
	FileBytes int64 `json:"file_bytes,omitempty"`

	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	CPUPercent  int64 `json:"cpu_percent,omitempty"` // of one processor: 150 is one and a half
	Tasks       int64 `json:"tasks,omitempty"`       // processes and threads
}

// OfRun are the names of the limits on all of a run's work together that are asked for. A cgroup holds
// them, or nothing does.
func (l *Limits) OfRun() (names []string) {
	if l == nil {
		return nil
	}
	for i, asked := range []int64{l.MemoryBytes, l.CPUPercent, l.Tasks} {
		if asked != 0 {
			names = append(names, LimitsOfRun[i])
		}
	}
	return names
}

// LimitsOfRun are the names of the limits on all of a run's work together.
var LimitsOfRun = [...]string{"memory_bytes", "cpu_percent", "tasks"}

// OOM is what the host's memory killer did to a run's work, where its cgroup knows.
type OOM struct {
	Kills   int64 `json:"kills"`              // as the kernel counts: a process that goes with its group may count twice
	AtLimit bool  `json:"at_limit,omitempty"` // a limit on its memory was reached; else the host's, or that of what it is in
}

// Approval is permission to launch.
type Approval struct {
	State     ApprovalState `json:"state"`
	By        string        `json:"by,omitempty"`
	At        Time          `json:"at,omitzero"`
	Binds     string        `json:"binds,omitempty"`
	ExpiresAt Time          `json:"expires_at,omitzero"` // of the permission to launch; what runs is not bound by it
	Policy    string        `json:"policy,omitempty"`    // "sha256:…" of the policy that asked
	Rule      string        `json:"rule,omitempty"`      // of it, that asked
	Because   string        `json:"because,omitempty"`   // why it asked, by that rule
	Reason    string        `json:"reason,omitempty"`    // of who denied it, or took it back
}

// Launch is the fact about the submit.
type Launch struct {
	State   LaunchState `json:"state"`
	At      Time        `json:"at,omitzero"`
	Because string      `json:"because,omitempty"` // with rejected or unknown: an error code of the host or the link
	Message string      `json:"message,omitempty"` // the same in words
	Hint    string      `json:"hint,omitempty"`    // what to do about it: the next command
}

// SSHCommand is the fact about the channel that carried the submit. Status only with exited.
type SSHCommand struct {
	State   SSHState  `json:"state"`
	Channel ChannelID `json:"channel,omitempty"`
	Status  *int      `json:"status,omitempty"`
	Signal  string    `json:"signal,omitempty"`
	At      Time      `json:"at,omitzero"`
	Auth    string    `json:"auth,omitempty"`
	Key     string    `json:"key,omitempty"`      // "SHA256:…" of the key that authenticated
	HostKey string    `json:"host_key,omitempty"` // "SHA256:…"
	Noise   string    `json:"noise,omitempty"`    // what the login shell printed before the first frame, bounded
}

// Workload is the fact about the work, taken from the host's record and nowhere else.
type Workload struct {
	State       WorkloadState `json:"state"`
	StartedAt   Time          `json:"started_at,omitzero"`
	FinishedAt  Time          `json:"finished_at,omitzero"`
	ClockSetMS  int64         `json:"clock_set_ms,omitempty"` // as in Record
	Main        *Main         `json:"main,omitempty"`
	Writer      *Writer       `json:"writer,omitempty"`
	Boundary    Boundary      `json:"boundary,omitzero"`
	Released    []Process     `json:"released,omitempty"`
	Survivors   []Process     `json:"survivors,omitempty"`
	Left        []Process     `json:"left,omitempty"`
	Result      *Result       `json:"result,omitempty"`
	Cause       Cause         `json:"cause,omitempty"`
	OOM         *OOM          `json:"oom,omitempty"` // absent: it killed nothing, or nobody knows
	LostBecause UnknownReason `json:"lost_because,omitempty"`
	EmptyProven bool          `json:"empty_proven,omitempty"`
	LaunchError *LaunchError  `json:"launch_error,omitempty"`
	Lease       *Lease        `json:"lease,omitempty"`
	DeadlineAt  Time          `json:"deadline_at,omitzero"`
	Anomalies   []string      `json:"anomalies,omitempty"`

	Exclusive   *Exclusive        `json:"exclusive,omitempty"`
	Preflight   *Check            `json:"preflight,omitempty"`
	Verify      *Check            `json:"verify,omitempty"`
	EffectProof EffectProof       `json:"effect_proof,omitempty"` // absent: nothing was asked
	Evidence    map[string]string `json:"evidence,omitempty"`     // the work's own word
	Progress    *Progress         `json:"progress,omitempty"`

	// Unsigned says that the record bears no MAC of the run's secret: a successor wrote it.
	Unsigned bool `json:"unsigned,omitempty"`
	// Unit is what the host's service manager says of the unit that the run was in, beside the record.
	Unit *Unit `json:"unit,omitempty"`
	// Sequence is the record's own, so that an older record never replaces a newer one.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Lease is how long a run may go on without word from the gateway.
type Lease struct {
	State     LeaseState `json:"state"`
	RenewedAt Time       `json:"renewed_at,omitzero"`
	ExpiresAt Time       `json:"expires_at,omitzero"`
}

// Cancel is the fact about stopping.
type Cancel struct {
	State    CancelState `json:"state"`
	By       string      `json:"by,omitempty"`
	At       Time        `json:"at,omitzero"`
	Signal   string      `json:"signal,omitempty"`
	KilledAt Time        `json:"killed_at,omitzero"`
	Because  string      `json:"because,omitempty"` // with refused or unconfirmed: why, in words
}

// Observation is what the gateway last saw of the record, or why it cannot see.
type Observation struct {
	At      Time              `json:"at,omitzero"`
	By      string            `json:"by,omitempty"` // "serve@gateway", "reconcile@gateway"
	Source  ObservationSource `json:"source"`
	Because UnknownReason     `json:"because,omitempty"` // why it cannot see now
	Message string            `json:"message,omitempty"` // the same in words
	Since   Time              `json:"since,omitzero"`    // since when it cannot
}

// Wait is a recorded decision to stop waiting. It changes nothing about the work.
type Wait struct {
	By       string `json:"by"`
	GaveUpAt Time   `json:"gave_up_at"`
}

// Retry says whether a new attempt is allowed, and why not.
type Retry struct {
	Allowed bool   `json:"allowed"`
	Because string `json:"because"`
}

// Removal is when and why the host was seen to keep nothing more of a run but its record and its key:
// its output is gone.
type Removal struct {
	At      Time          `json:"at"`
	Because RemovalReason `json:"because"`
}

// Inquiry is a preflight or verify that somebody ran after the work, as an action of its own, to learn
// what the application itself can tell.
type Inquiry struct {
	ActionID ActionID    `json:"action_id"`
	Kind     InquiryKind `json:"kind"`
	State    CheckState  `json:"state"`
	At       Time        `json:"at"` // of the state
	// Given says that an agent gave the script: its answer is shown, and no retry rests on it.
	Given bool `json:"given,omitempty"`
}

// Escalation is an unknown, or another trouble that waiting does not mend, that was brought to people.
// Each reason is there once: what comes back is brought to them anew.
type Escalation struct {
	Because EscalationReason `json:"because"`
	Message string           `json:"message,omitempty"` // the same in words
	Since   Time             `json:"since,omitzero"`    // of the trouble
	At      Time             `json:"at"`                // when it was brought to people
	OverAt  Time             `json:"over_at,omitzero"`
}

// Resolution is a reviewer's word about an unknown, beside the facts.
type Resolution struct {
	By         string      `json:"by"`
	At         Time        `json:"at"`
	Outcome    Outcome     `json:"outcome"`
	Reason     string      `json:"reason"`
	Attachment *Attachment `json:"attachment,omitempty"`
	// Contradicted is what a record that came later says instead.
	Contradicted string `json:"contradicted,omitempty"`
}

// Attachment is a file that goes with a reviewer's word. Its bytes are kept beside the journal.
type Attachment struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Unresolved reports whether new evidence from the host could still change the action.
func (a *Action) Unresolved() bool {
	switch a.Launch.State {
	case LaunchNotAttempted:
		return a.Approval.State != ApprovalDenied && a.Approval.State != ApprovalExpired && a.Approval.State != ApprovalRevoked
	case LaunchRejected:
		return false
	}
	switch {
	case a.Request.Owner == OwnerNone: // the end of its channel is all that will ever be known
		return a.SSHCommand.State == SSHNotOpened || a.SSHCommand.State == SSHOpen
	case a.Launch.State != LaunchAccepted:
		return true
	}
	return !a.Workload.State.Final() || a.ReleasedAlive()
}

// NeedsPeople reports whether the outcome is unknown and nobody has said what it is. That a direct action's
// is, whose channel brought the end of its command, is no news.
func (a *Action) NeedsPeople() bool {
	if a.Outcome != OutcomeUnknown || a.Resolution != nil {
		return false
	}
	s := a.SSHCommand.State
	return a.Request.Owner != OwnerNone || s == SSHLost || s == SSHNoStatus
}

// ReleasedAlive reports whether released processes were alive when last seen.
func (a *Action) ReleasedAlive() bool { return len(a.Workload.Released) > 0 }

// Settled reports whether a follower has seen the last of the work itself: it never began and
// never will, or its workload is final. Released processes may live on.
func (a *Action) Settled() bool { return !a.Unresolved() || a.Workload.State.Final() }
