package longstop

// The states of the five facts, and the small vocabularies around them. Which state may follow
// which is decided in internal/lifecycle alone; nothing else sets one.

// ApprovalState is how far permission to launch has come.
type ApprovalState string

const (
	ApprovalNotRequired ApprovalState = "not_required"
	ApprovalPending     ApprovalState = "pending"
	ApprovalGranted     ApprovalState = "granted"
	ApprovalDenied      ApprovalState = "denied"
	ApprovalExpired     ApprovalState = "expired"
	ApprovalConsumed    ApprovalState = "consumed"
	ApprovalRevoked     ApprovalState = "revoked"
)

// LaunchState says whether an owner on the host accepted the work.
type LaunchState string

const (
	LaunchNotAttempted LaunchState = "not_attempted"
	LaunchSent         LaunchState = "sent"
	LaunchAccepted     LaunchState = "accepted"
	LaunchRejected     LaunchState = "rejected"
	LaunchUnknown      LaunchState = "unknown"
)

// SSHState says what the channel that carried the submit did. Carried and lost belong to the
// shared serve channel; open, exited, signaled, no_status and lost to an action's own.
type SSHState string

const (
	SSHNotOpened SSHState = "not_opened"
	SSHCarried   SSHState = "carried"
	SSHOpen      SSHState = "open"
	SSHExited    SSHState = "exited"
	SSHSignaled  SSHState = "signaled"
	SSHNoStatus  SSHState = "no_status"
	SSHLost      SSHState = "lost"
)

// WorkloadState says what the work itself did, as its owner or heir recorded it.
type WorkloadState string

const (
	WorkloadNone         WorkloadState = "none"
	WorkloadQueued       WorkloadState = "queued"
	WorkloadStarting     WorkloadState = "starting"
	WorkloadRunning      WorkloadState = "running"
	WorkloadLingering    WorkloadState = "lingering"
	WorkloadCancelling   WorkloadState = "cancelling"
	WorkloadOrphaned     WorkloadState = "orphaned"
	WorkloadFinished     WorkloadState = "finished"
	WorkloadCancelled    WorkloadState = "cancelled"
	WorkloadLaunchFailed WorkloadState = "launch_failed"
	WorkloadLost         WorkloadState = "lost"
)

// Final reports whether the state never changes again.
func (s WorkloadState) Final() bool {
	switch s {
	case WorkloadFinished, WorkloadCancelled, WorkloadLaunchFailed, WorkloadLost:
		return true
	}
	return false
}

// CancelState says how far a cancellation has come. A delivered signal is an attempt; only
// confirmed says that nothing is left.
type CancelState string

const (
	CancelNone        CancelState = "none"
	CancelRequested   CancelState = "requested"
	CancelDelivered   CancelState = "delivered"
	CancelConfirmed   CancelState = "confirmed"
	CancelRefused     CancelState = "refused"
	CancelTooLate     CancelState = "too_late"
	CancelUnconfirmed CancelState = "unconfirmed"
)

// Alive answers: is it still running?
type Alive string

const (
	AliveYes     Alive = "yes"
	AliveNo      Alive = "no"
	AliveUnknown Alive = "unknown"
)

// Outcome answers: what came of it?
type Outcome string

const (
	OutcomePending    Outcome = "pending"
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"
	OutcomeCancelled  Outcome = "cancelled"
	OutcomeNotStarted Outcome = "not_started"
	OutcomeUnknown    Outcome = "unknown"
)

// UnknownReason says why an outcome is unknown.
type UnknownReason string

const (
	UnansweredSubmit UnknownReason = "unanswered_submit"
	UnansweredCancel UnknownReason = "unanswered_cancel"
	Unreachable      UnknownReason = "unreachable"
	AccessRefused    UnknownReason = "access_refused"
	OwnerLost        UnknownReason = "owner_lost"
	Rebooted         UnknownReason = "rebooted"
	HostMismatch     UnknownReason = "host_mismatch"
	UnreadableRecord UnknownReason = "unreadable_record"
	RecordExpired    UnknownReason = "record_expired"
	NoOwner          UnknownReason = "no_owner"
)

// EscalationReason is an UnknownReason, or one of those below.
type EscalationReason string

// SurvivorsLeft: processes of a run that is to end cannot be killed.
const SurvivorsLeft EscalationReason = "survivors"

// InquiryKind is what an application is asked about work that it was asked to do.
type InquiryKind string

const (
	InquiryPreflight InquiryKind = "preflight" // is it still to be done?
	InquiryVerify    InquiryKind = "verify"    // has it had its effect?
)

// Lifetime says whether a run needs word from the gateway to go on.
type Lifetime string

const (
	Leased   Lifetime = "leased"
	Detached Lifetime = "detached"
)

// OwnerKind is who was asked to own the run.
type OwnerKind string

const (
	OwnerAuto    OwnerKind = "auto"
	OwnerRunner  OwnerKind = "runner"
	OwnerSystemd OwnerKind = "systemd"
	OwnerSlurm   OwnerKind = "slurm"
	OwnerNone    OwnerKind = "none" // a direct action: no runner, no workload fact
)

// BoundaryKind is what encloses the workload, weakest first.
type BoundaryKind string

const (
	BoundaryTree    BoundaryKind = "tree"
	BoundaryCgroup  BoundaryKind = "cgroup"
	BoundarySystemd BoundaryKind = "systemd"
	BoundarySlurm   BoundaryKind = "slurm"
)

// Leftover says what becomes of processes that outlive the main one.
type Leftover string

const (
	LeftoverWait    Leftover = "wait"    // lingering until the boundary is empty
	LeftoverKill    Leftover = "kill"    // stopped, and named in left
	LeftoverRelease Leftover = "release" // live on, named in released, stoppable later
)

// Effect says what a second execution of the same work would mean.
type Effect string

const (
	EffectRead       Effect = "read"
	EffectIdempotent Effect = "idempotent"
	EffectOnce       Effect = "once"
)

// Cause says what ended a cancelled run.
type Cause string

const (
	CauseRequest  Cause = "request"
	CauseLease    Cause = "lease"
	CauseDeadline Cause = "deadline"
	CauseSignal   Cause = "signal"
	CauseShutdown Cause = "shutdown"
)

// WriterKind is who wrote a record: the owner, or its heir named as such.
type WriterKind string

const (
	WriterOwner     WriterKind = "owner"
	WriterKeeper    WriterKind = "keeper"
	WriterSuccessor WriterKind = "successor"
)

// LeaseState says whether a lease holds.
type LeaseState string

const (
	LeaseActive  LeaseState = "active"
	LeaseExpired LeaseState = "expired"
	LeaseNone    LeaseState = "none"
)

// RemovalReason is why a host keeps no more of a run than its record and its key.
type RemovalReason string

const (
	RemovedRetention RemovalReason = "retention" // it was kept for as long as configured, or longer
	RemovedHostFull  RemovalReason = "host_full" // its output had been read, and the host was short of room
)

// ObservationSource says whether a sight of the host is fresh.
type ObservationSource string

const (
	Live   ObservationSource = "live"
	Cached ObservationSource = "cached"
)

// StreamState says whether an output stream may still grow here.
type StreamState string

const (
	StreamLive     StreamState = "live"
	StreamComplete StreamState = "complete"
	StreamCut      StreamState = "cut"
)
