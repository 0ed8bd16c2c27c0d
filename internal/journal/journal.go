// Package journal is the log of everything that Longstop learnt or was about to do: what an entry
// is, its bytes, and the transparency log (RFC 6962, golang.org/x/mod/sumdb/tlog) whose leaves the
// entries are. It is pure. Storage (internal/store/sqlite) keeps what Tree and Encode give it; the
// gateway decides what is an entry.
//
// The rule it keeps: an entry has exactly one form in bytes, and that form is what is hashed.
package journal

import (
	"encoding/json"

	"github.com/longstop/longstop"
)

// Entry is one leaf of the log. Empty fields do not apply to it.
type Entry struct {
	Index     int64 // its place in the log, from 0; given by the store
	At        longstop.Time
	Kind      Kind
	ActionID  longstop.ActionID
	SessionID longstop.SessionID
	RunID     longstop.RunID
	Host      string
	By        string          // who caused it, in the gateway's words: "operator anna", "serve@gateway"
	Raw       []RawDigest     // bytes kept beside the log
	Body      json.RawMessage // what Kind says more, as JSON; kept exactly as given
}

// RawDigest stands in an entry for bytes kept beside the log, which may be deleted one day without
// breaking it. Without the salt, which goes with the bytes, it says nothing about them.
type RawDigest struct {
	Kind   string // what the bytes are, in lower case and underscores: "submit_answer"
	Bytes  int64  // how many came over the wire; the store may have kept fewer
	Digest string // "sha256:" and 64 hexadecimal digits, of the salt and the kept bytes
}

// Kind says what an entry is about.
type Kind string

const (
	HostEnrolled      Kind = "host_enrolled"      // a host was enrolled, or enrolled anew
	HostChanged       Kind = "host_changed"       // a connection showed another key, runner or limit of a host than was known
	HostRemoved       Kind = "host_removed"       // a host was taken out
	HostRefused       Kind = "host_refused"       // enrolment or a connection was refused: key, login, folder, identity
	Requested         Kind = "requested"          // someone asked for an action
	LaunchIntended    Kind = "launch_intended"    // a submit is about to go out
	SubmittedAgain    Kind = "submitted_again"    // a submit that was not answered is about to go out again, under its key
	RequestedAgain    Kind = "requested_again"    // someone asked again under a key that has its action
	KeyConflict       Kind = "key_conflict"       // someone asked for something else under a key that has its action
	LaunchAnswered    Kind = "launch_answered"    // a submit was answered, or refused before it went out
	LaunchUnanswered  Kind = "launch_unanswered"  // a submit may have gone out and no readable answer came
	Observed          Kind = "observed"           // a host's record was applied to an action
	DetachedAccepted  Kind = "detached_accepted"  // a host has a run that needs no word from here to go on: where it is
	UnitSeen          Kind = "unit_seen"          // what a host's service manager said of a run's unit at its end
	Contradiction     Kind = "contradiction"      // a record says other than a final state that stands
	CancelRequested   Kind = "cancel_requested"   // someone asked for an action to be stopped
	CancelDelivered   Kind = "cancel_delivered"   // the host took the cancel and has not finished it
	CancelAnswered    Kind = "cancel_answered"    // the host confirmed the cancel, refused it, or it came too late
	CancelUnconfirmed Kind = "cancel_unconfirmed" // a cancel may have gone out and no readable answer came
	LeaseLost         Kind = "lease_lost"         // the host's lease on a run ran out or could not be renewed
	LeaseRegained     Kind = "lease_regained"     // renewals reach the host again
	Unreachable       Kind = "unreachable"        // a host stopped answering
	Reachable         Kind = "reachable"          // a host answers again
	ReconcileIntended Kind = "reconcile_intended" // a host is about to be asked what became of an action
	KeyFound          Kind = "key_found"          // the run of an unanswered submit was found by its key
	KeyVoided         Kind = "key_voided"         // the key of an unanswered submit was burnt: nothing will start
	UnclaimedRun      Kind = "unclaimed_run"      // a host holds a run that no action claims
	WaitGivenUp       Kind = "wait_given_up"      // someone stopped waiting; the work goes on
	Retried           Kind = "retried"            // an action was asked for that is the next attempt at this one's work
	RetryRefused      Kind = "retry_refused"      // a retry was asked for and is not allowed
	Inquired          Kind = "inquired"           // the application is asked about an action's work, or was
	Resolved          Kind = "resolved"           // a person said what became of work whose outcome is unknown
	Escalated         Kind = "escalated"          // what waiting does not mend was brought to people
	EscalationOver    Kind = "escalation_over"    // what was brought to people is over
	NoticeDelivered   Kind = "notice_delivered"   // a webhook or command took a notice
	NoticeFailed      Kind = "notice_failed"      // a webhook or command did not take a notice; it is tried again
	NoticesDropped    Kind = "notices_dropped"    // notices whose way is configured no more
	ChannelOpened     Kind = "channel_opened"     // an SSH channel was opened
	ChannelClosed     Kind = "channel_closed"     // an SSH channel ended, and how
	RetentionApplied  Kind = "retention_applied"  // runs or raw bytes were removed as retention allows
	PolicyChanged     Kind = "policy_changed"     // another policy holds from here on: its digest and text
	SessionStarted    Kind = "session_started"    // a session began
	SessionEnded      Kind = "session_ended"      // a session ended: by whom, why, and which runs that cancels
	TokenCreated      Kind = "token_created"      // a token was made for an agent
	TokenRevoked      Kind = "token_revoked"      // a token was taken back
	ApprovalAsked     Kind = "approval_asked"     // the policy wants a person to say yes first
	ApprovalGranted   Kind = "approval_granted"   // an approver said yes, and signed what to
	ApprovalDenied    Kind = "approval_denied"    // an approver said no
	ApprovalExpired   Kind = "approval_expired"   // nobody said anything, or nothing was launched, in time, or the action was over before
	ApprovalRevoked   Kind = "approval_revoked"   // an approver took a yes back
	ApprovalConsumed  Kind = "approval_consumed"  // a yes was used up by the one launch that it was for
	ApproverSet       Kind = "approver_set"       // someone can prove who they are from now on, or with another key
	ApproverRemoved   Kind = "approver_removed"   // an approver was taken out
	ProofRefused      Kind = "proof_refused"      // someone did not prove who they are, or may not
	AgentRefused      Kind = "agent_refused"      // an agent asked for what is people's alone
	GatewayStarted    Kind = "gateway_started"    // a gateway began to work on this log
	GatewayStopped    Kind = "gateway_stopped"    // a gateway stopped in good order
)
