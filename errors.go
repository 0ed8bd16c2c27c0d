package longstop

import "errors"

// Code names a kind of error, the same in the API, the commands and the host's answers. Which exit
// status and HTTP status each maps to is one table: Codes.
type Code string

const (
	CodeUsage           Code = "usage"             // bad input; nothing was changed
	CodeNotFound        Code = "not_found"         // no such action, host, run or key
	CodeAmbiguous       Code = "ambiguous"         // a shortened id that fits several
	CodeKeyConflict     Code = "key_conflict"      // the key belongs to another request
	CodeKeyVoid         Code = "key_void"          // the key was burnt: nothing will ever start under it
	CodeExpired         Code = "expired"           // past not_after, or a record removed after its retention
	CodeHostUnknown     Code = "host_unknown"      // not enrolled
	CodeHostKeyUnknown  Code = "host_key_unknown"  //
	CodeHostKeyChanged  Code = "host_key_changed"  //
	CodeAccessRefused   Code = "access_refused"    // the login was refused
	CodeUnreachable     Code = "unreachable"       // no connection, or it went away
	CodeSessionRefused  Code = "session_refused"   // the server's session limit
	CodeHostMismatch    Code = "host_mismatch"     // another machine, user or state folder than enrolled
	CodeNoRunner        Code = "no_runner"         // the login shell ran something else, or nothing
	CodeStateFolder     Code = "state_folder"      // wrong mode, a link, not writable, no usable lock
	CodeUnsupported     Code = "unsupported"       // the host or boundary cannot do what was asked
	CodeLaunchFailed    Code = "launch_failed"     // nothing of the work ran: exec, chdir and the like failed
	CodeRefused         Code = "refused"           // identity did not match: nothing was signalled
	CodeNotAllowed      Code = "not_allowed"       // who asks may not: the key of a forced command, an agent's token. Nothing was done
	CodeDenied          Code = "denied"            // the policy, or an approver, does not let it: nothing was sent
	CodeSessionEnded    Code = "session_ended"     // nothing is started in a session that has ended
	CodeTokenRefused    Code = "token_refused"     // the token is revoked, expired or unknown
	CodeNotProven       Code = "not_proven"        // who asks did not prove who they are; nothing was done
	CodeNotRetriable    Code = "not_retriable"     // a retry that is not allowed: nothing was started
	CodeNotPending      Code = "not_pending"       // there is no approval to be given, or taken back
	CodeTimeout         Code = "timeout"           // a deadline of ours passed; the host may still act
	CodeUnreadable      Code = "unreadable_record" // torn, altered, failed its MAC, or not of this format
	CodeBadAnswer       Code = "bad_answer"        // a frame that could be taken for another one
	CodeVersionMismatch Code = "version_mismatch"  //
	CodeStopped         Code = "stopped"           // the gateway was asked to end; runs go on
	CodeJournalChanged  Code = "journal_changed"   // the journal is not what was written, or not the one that was signed
	CodeInternal        Code = "internal"          // our own fault
)

// CodeInfo is what an error code maps to outside.
type CodeInfo struct {
	HTTP int // RFC 9457 problem status
	Exit int // exit status of `longstop run`: 251 nothing was started, 254 Longstop's own error
}

// Codes maps every code. For verbs other than run and wait every error exits 254.
var Codes = map[Code]CodeInfo{
	CodeUsage:           {400, ExitOurs},
	CodeNotFound:        {404, ExitOurs},
	CodeAmbiguous:       {400, ExitOurs},
	CodeKeyConflict:     {409, ExitNotStarted},
	CodeKeyVoid:         {409, ExitNotStarted},
	CodeExpired:         {410, ExitNotStarted},
	CodeHostUnknown:     {404, ExitNotStarted},
	CodeHostKeyUnknown:  {502, ExitNotStarted},
	CodeHostKeyChanged:  {502, ExitNotStarted},
	CodeAccessRefused:   {502, ExitNotStarted},
	CodeUnreachable:     {502, ExitNotStarted},
	CodeSessionRefused:  {503, ExitNotStarted},
	CodeHostMismatch:    {409, ExitNotStarted},
	CodeNoRunner:        {502, ExitNotStarted},
	CodeStateFolder:     {502, ExitNotStarted},
	CodeUnsupported:     {422, ExitNotStarted},
	CodeLaunchFailed:    {422, ExitNotStarted},
	CodeRefused:         {409, ExitUnknown},
	CodeNotAllowed:      {403, ExitNotStarted},
	CodeDenied:          {403, ExitNotStarted},
	CodeSessionEnded:    {409, ExitNotStarted},
	CodeTokenRefused:    {401, ExitNotStarted},
	CodeNotProven:       {403, ExitOurs},
	CodeNotRetriable:    {409, ExitNotStarted},
	CodeNotPending:      {409, ExitOurs},
	CodeTimeout:         {504, ExitUnknown},
	CodeUnreadable:      {502, ExitUnknown},
	CodeBadAnswer:       {502, ExitUnknown},
	CodeVersionMismatch: {409, ExitOurs},
	CodeStopped:         {503, ExitStillRunning},
	CodeJournalChanged:  {409, ExitOurs},
	CodeInternal:        {500, ExitOurs},
}

// Exit statuses of `longstop run` and `wait` that are not the workload's own.
const (
	ExitUnknown      = 250
	ExitNotStarted   = 251
	ExitCancelled    = 252
	ExitStillRunning = 253
	ExitOurs         = 254
)

// OfTheWay reports whether the code is about the way to a host, and not about what was asked of it: it may be mended
// while a run goes on there.
func (c Code) OfTheWay() bool {
	switch c {
	case CodeUnreachable, CodeTimeout, CodeSessionRefused:
		return true
	}
	return c.Refusal()
}

// Refusal reports whether somebody refuses, the host or this side of the host: only somebody's doing mends that, and
// to ask again soon may make it worse.
func (c Code) Refusal() bool {
	switch c {
	case CodeHostKeyUnknown, CodeHostKeyChanged, CodeAccessRefused, CodeHostMismatch, CodeNoRunner, CodeStateFolder, CodeVersionMismatch:
		return true
	}
	return false
}

// Error is an error that a person or agent sees: what and why in Message, the next command in Hint.
type Error struct {
	Code     Code     `json:"code"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
	ActionID ActionID `json:"action_id,omitempty"` // of the action it is about, where there is one
	Noise    string   `json:"noise,omitempty"`     // what the other side printed instead, bounded
	Err      error    `json:"-"`
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code that err carries, or CodeInternal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
