package lifecycle

import (
	"slices"

	"github.com/longstop/longstop"
)

// The tables. docs/states.md is generated from them.

// Approvals is permission to launch.
var Approvals = &Table[longstop.ApprovalState]{
	Name:    "approval",
	About:   "Permission to launch; written by policy or an approver.",
	Initial: []longstop.ApprovalState{longstop.ApprovalNotRequired, longstop.ApprovalPending},
	States: []longstop.ApprovalState{longstop.ApprovalNotRequired, longstop.ApprovalPending, longstop.ApprovalGranted,
		longstop.ApprovalDenied, longstop.ApprovalExpired, longstop.ApprovalConsumed, longstop.ApprovalRevoked},
	Edges: []Edge[longstop.ApprovalState]{
		{longstop.ApprovalPending, longstop.ApprovalGranted, "an approver said yes"},
		{longstop.ApprovalPending, longstop.ApprovalDenied, "an approver said no"},
		{longstop.ApprovalPending, longstop.ApprovalExpired, "nobody answered in time, or the action was over before: not a no"},
		{longstop.ApprovalGranted, longstop.ApprovalConsumed, "the one launch it was for"},
		{longstop.ApprovalGranted, longstop.ApprovalExpired, "not launched in time, or given up before anything was sent"},
		{longstop.ApprovalGranted, longstop.ApprovalRevoked, "taken back before the launch"},
		{longstop.ApprovalConsumed, longstop.ApprovalRevoked, "taken back while the work runs: its lease ends"},
	},
}

// Launches is whether an owner on the host accepted the work.
var Launches = &Table[longstop.LaunchState]{
	Name:    "launch",
	About:   "Whether an owner on the host accepted the work; written by the gateway, from the host's answer.",
	Initial: []longstop.LaunchState{longstop.LaunchNotAttempted},
	States: []longstop.LaunchState{longstop.LaunchNotAttempted, longstop.LaunchSent, longstop.LaunchAccepted,
		longstop.LaunchRejected, longstop.LaunchUnknown},
	Edges: []Edge[longstop.LaunchState]{
		{longstop.LaunchNotAttempted, longstop.LaunchSent, "about to be sent: durable before the first byte"},
		{longstop.LaunchNotAttempted, longstop.LaunchRejected, "given up before anything was sent: no connection, no login, not the host that was enrolled"},
		{longstop.LaunchSent, longstop.LaunchAccepted, "the host answered with the run's record"},
		{longstop.LaunchSent, longstop.LaunchRejected, "the host refused, or the key is void"},
		{longstop.LaunchSent, longstop.LaunchUnknown, "no readable answer came"},
		{longstop.LaunchUnknown, longstop.LaunchAccepted, "the run was found"},
		{longstop.LaunchUnknown, longstop.LaunchRejected, "the key is void: nothing will ever start under it"},
	},
}

// SSHCommands is what the channel that carried the submit did.
var SSHCommands = &Table[longstop.SSHState]{
	Name:    "ssh_command",
	About:   "What the channel that carried the submit did; written by the gateway, from that channel.",
	Initial: []longstop.SSHState{longstop.SSHNotOpened},
	States: []longstop.SSHState{longstop.SSHNotOpened, longstop.SSHCarried, longstop.SSHOpen, longstop.SSHExited,
		longstop.SSHSignaled, longstop.SSHNoStatus, longstop.SSHLost},
	Edges: []Edge[longstop.SSHState]{
		{longstop.SSHNotOpened, longstop.SSHCarried, "the shared channel carried the submit and its answer"},
		{longstop.SSHNotOpened, longstop.SSHLost, "the shared channel went with the submit under way"},
		{longstop.SSHNotOpened, longstop.SSHOpen, "an own channel was opened"},
		{longstop.SSHOpen, longstop.SSHExited, "exit-status (RFC 4254 §6.10)"},
		{longstop.SSHOpen, longstop.SSHSignaled, "exit-signal (RFC 4254 §6.10)"},
		{longstop.SSHOpen, longstop.SSHNoStatus, "the channel closed without either"},
		{longstop.SSHOpen, longstop.SSHLost, "the connection went"},
	},
}

// Workloads is what the work itself did, as its owner or heir recorded it.
var Workloads = &Table[longstop.WorkloadState]{
	Name:    "workload",
	About:   "What the work itself did; written by the gateway, from the host's record and nothing else.",
	Initial: []longstop.WorkloadState{longstop.WorkloadNone},
	States: []longstop.WorkloadState{longstop.WorkloadNone, longstop.WorkloadQueued, longstop.WorkloadStarting,
		longstop.WorkloadRunning, longstop.WorkloadLingering, longstop.WorkloadCancelling, longstop.WorkloadOrphaned,
		longstop.WorkloadFinished, longstop.WorkloadCancelled, longstop.WorkloadLaunchFailed, longstop.WorkloadLost},
	Along: along,
	Edges: slices.Concat(forwards(), []Edge[longstop.WorkloadState]{
		{longstop.WorkloadStarting, longstop.WorkloadLaunchFailed, "boundary, directory or exec failed: nothing of the work ran"},
		{longstop.WorkloadRunning, longstop.WorkloadLaunchFailed, "the gate opened and exec failed: nothing of the work ran"},
		{longstop.WorkloadRunning, longstop.WorkloadFinished, "the main process ended and nothing is left, or what is left is named"},
		{longstop.WorkloadLingering, longstop.WorkloadFinished, "the last of its boundary ended"},
		{longstop.WorkloadCancelling, longstop.WorkloadCancelled, "stopped, and the boundary is empty"},
		{longstop.WorkloadStarting, longstop.WorkloadFinished, "a preflight found nothing to do: the command was not run"},
		{longstop.WorkloadStarting, longstop.WorkloadOrphaned, "the owner is gone"},
		{longstop.WorkloadRunning, longstop.WorkloadOrphaned, "the owner is gone, the work may not be"},
		{longstop.WorkloadLingering, longstop.WorkloadOrphaned, "the owner is gone, the work may not be"},
		{longstop.WorkloadCancelling, longstop.WorkloadOrphaned, "the owner is gone, the work may not be"},
		{longstop.WorkloadOrphaned, longstop.WorkloadFinished, "an heir reaped the true exit status"},
		{longstop.WorkloadOrphaned, longstop.WorkloadCancelled, "an heir stopped it, and the boundary is empty"},
		{longstop.WorkloadOrphaned, longstop.WorkloadLost, "nothing is seen alive and the status can no longer be known"},
	}),
}

// along is the life of a run until something ends it.
var along = []longstop.WorkloadState{longstop.WorkloadNone, longstop.WorkloadQueued, longstop.WorkloadStarting,
	longstop.WorkloadRunning, longstop.WorkloadLingering, longstop.WorkloadCancelling}

// forwards is every step along it: any state may be skipped.
func forwards() []Edge[longstop.WorkloadState] {
	why := map[longstop.WorkloadState]string{
		longstop.WorkloadQueued:     "accepted, waiting for its turn",
		longstop.WorkloadStarting:   "its owner has the run's lock and makes the boundary",
		longstop.WorkloadRunning:    "the main process is behind the gate, or through it",
		longstop.WorkloadLingering:  "the main process ended, others of its boundary have not",
		longstop.WorkloadCancelling: "being stopped",
	}
	var edges []Edge[longstop.WorkloadState]
	for i, from := range along {
		for _, to := range along[i+1:] {
			edges = append(edges, Edge[longstop.WorkloadState]{from, to, why[to]})
		}
	}
	return edges
}

// Cancels is how far a cancellation has come.
var Cancels = &Table[longstop.CancelState]{
	Name:    "cancel",
	About:   "How far stopping has come; written by the gateway, from the host's answer.",
	Initial: []longstop.CancelState{longstop.CancelNone},
	States: []longstop.CancelState{longstop.CancelNone, longstop.CancelRequested, longstop.CancelDelivered,
		longstop.CancelUnconfirmed, longstop.CancelConfirmed, longstop.CancelRefused, longstop.CancelTooLate},
	Edges: []Edge[longstop.CancelState]{
		{longstop.CancelNone, longstop.CancelRequested, "somebody asked: durable before anything is sent"},
		{longstop.CancelRequested, longstop.CancelDelivered, "the host has it"},
		{longstop.CancelRequested, longstop.CancelUnconfirmed, "no readable answer came"},
		{longstop.CancelDelivered, longstop.CancelConfirmed, "nothing is left"},
		{longstop.CancelDelivered, longstop.CancelRefused, "an identity did not match: nothing was signalled"},
		{longstop.CancelDelivered, longstop.CancelTooLate, "it had ended by itself before the first signal"},
		{longstop.CancelDelivered, longstop.CancelUnconfirmed, "the host fell silent before it was over"},
		{longstop.CancelUnconfirmed, longstop.CancelDelivered, "asked again, and the host has it"},
		{longstop.CancelUnconfirmed, longstop.CancelConfirmed, "nothing is left"},
		{longstop.CancelUnconfirmed, longstop.CancelRefused, "an identity did not match: nothing was signalled"},
		{longstop.CancelUnconfirmed, longstop.CancelTooLate, "it had ended by itself before the first signal"},
		{longstop.CancelRefused, longstop.CancelRequested, "asked again: stopping always has a way through"},
		{longstop.CancelTooLate, longstop.CancelRequested, "asked again, for the processes it had released"},
	},
}
