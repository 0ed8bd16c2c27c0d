package longstop

import "time"

// What the HTTP API takes and gives beside actions; client and api share it.

// APIVersion is the version of the HTTP API that a client and a gateway must agree on.
const APIVersion = 1

// APIHeader is the header in which both sides of every exchange name their APIVersion.
const APIHeader = "Longstop-Api"

// RunRequest is the body of POST /api/v1/actions. Zero fields of Request take their defaults.
type RunRequest struct {
	Host      string            `json:"host"`
	Request   Request           `json:"request"`
	EnvValues map[string][]byte `json:"env_values,omitempty"` // never kept; Request.Env is made from its keys
	StdinID   string            `json:"stdin_id,omitempty"`   // from POST /api/v1/stdin
	Terminal  *Terminal         `json:"terminal,omitempty"`   // what a PTY is to be like; never kept
	Key       string            `json:"idempotency_key,omitempty"`
	SessionID SessionID         `json:"session_id,omitempty"`
	By        Requester         `json:"requested_by,omitzero"` // name and via; the kind is decided by the gateway
}

// RetryRequest is the body of POST /api/v1/actions/{id}/retry. What an action asks is kept, but for the
// values of its environment and its standard input, which are to be given again.
type RetryRequest struct {
	EnvValues map[string][]byte `json:"env_values,omitempty"`
	StdinID   string            `json:"stdin_id,omitempty"`
	Terminal  *Terminal         `json:"terminal,omitempty"`
	Preflight string            `json:"preflight,omitempty"` // instead of the action's own
	Key       string            `json:"idempotency_key,omitempty"`
	SessionID SessionID         `json:"session_id,omitempty"` // default the action's
	Reason    string            `json:"reason,omitempty"`     // default the action's
	By        Requester         `json:"requested_by,omitzero"`
}

// InquireRequest is the body of POST /api/v1/actions/{id}/inquire: the application is asked about the work of an
// action, by an action of its own.
type InquireRequest struct {
	Kind   InquiryKind `json:"kind"`
	Script string      `json:"script,omitempty"` // for sh -c; default the action's own preflight or verify
	Key    string      `json:"idempotency_key,omitempty"`
	By     Requester   `json:"requested_by,omitzero"`
}

// Terminal is what a run's PTY is like. Zero: 80 columns and 24 rows, and a TERM of "dumb".
type Terminal struct {
	Rows    int    `json:"rows,omitempty"`
	Columns int    `json:"columns,omitempty"`
	Term    string `json:"term,omitempty"` // TERM of the work's environment
}

// Stdin is the answer of POST /api/v1/stdin, whose body is the bytes.
type Stdin struct {
	ID     string `json:"stdin_id"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// EnrolRequest is the body of POST /api/v1/hosts.
type EnrolRequest struct {
	Name      string `json:"name"`                 // what the user would type after ssh
	SSHConfig string `json:"ssh_config,omitempty"` // absolute path, for ssh -F
	StateDir  string `json:"state_dir,omitempty"`  // absolute path on the host
	Transport string `json:"transport,omitempty"`  // "openssh" (default) or "embedded"
	// Forced: the login's key is bound to the runner by a forced command, and an operator has put the
	// runner there, at Runner. Nothing is copied.
	Forced bool   `json:"forced,omitempty"`
	Runner string `json:"runner,omitempty"` // absolute path on the host; with Forced alone
	// Direct: no runner is put there. Direct actions alone can be run.
	Direct bool `json:"direct,omitempty"`
}

// ForcedSetup is what an operator has to do on a host for a forced enrolment: the answer of
// POST /api/v1/forced, whose body is the EnrolRequest to come.
type ForcedSetup struct {
	User    string         `json:"user"`   // the account there
	Runner  string         `json:"runner"` // where the runner has to be
	Runners []RunnerBinary `json:"runners"`
	Keys    []ForcedKey    `json:"keys"` // in the order in which ssh offers them
}

// ForcedKey is a public key and its line for the account's authorized_keys.
type ForcedKey struct {
	Fingerprint string `json:"fingerprint"` // "SHA256:…"
	From        string `json:"from"`        // the file here, or "the agent"
	Line        string `json:"line"`
}

// RunnerBinary is a runner that this gateway has: GET /api/v1/runners/{arch} has its bytes.
type RunnerBinary struct {
	Arch   string `json:"arch"` // "amd64" or "arm64", on Linux
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Host is an enrolled host as the API shows it.
type Host struct {
	Name       string       `json:"name"`
	SSHConfig  string       `json:"ssh_config,omitempty"`
	Transport  string       `json:"transport"`
	StateDir   string       `json:"state_dir"`
	StateID    string       `json:"state_id"`
	MachineID  string       `json:"machine_id"`
	User       string       `json:"user"`
	UID        int          `json:"uid"`
	Runner     string       `json:"runner"` // absolute path on the host
	RunnerSHA  string       `json:"runner_sha256"`
	Forced     bool         `json:"forced,omitempty"`   // the runner is a forced command, and the operator's to install
	Direct     bool         `json:"direct,omitempty"`   // there is no runner: direct actions alone
	HostKey    string       `json:"host_key,omitempty"` // "SHA256:…" of the last connection
	EnrolledAt Time         `json:"enrolled_at"`
	Hello      *HostHello   `json:"hello,omitempty"`
	Seen       *Observation `json:"seen,omitempty"`
	Unresolved int          `json:"unresolved"`
}

// HostHello is what a host says of itself.
type HostHello struct {
	Protocol        int               `json:"protocol"`
	Version         string            `json:"version"`
	RunnerSHA256    string            `json:"runner_sha256"`
	OS              string            `json:"os"`
	Arch            string            `json:"arch"`
	Kernel          string            `json:"kernel"`
	MachineID       string            `json:"machine_id"`
	BootID          string            `json:"boot_id"`
	User            string            `json:"user"`
	UID             int               `json:"uid"`
	BootNow         BootTime          `json:"boot_now"`
	Now             Time              `json:"now"`
	ClockAheadMS    int64             `json:"clock_ahead_ms,omitempty"` // Now, of the gateway's clock; as seen by the gateway
	StateDir        string            `json:"state_dir"`
	StateID         string            `json:"state_id"`
	StateFS         string            `json:"state_fs"` // "ext4", "tmpfs", "nfs", or its magic number in hex
	Boundaries      []BoundaryOffer   `json:"boundaries"`
	Systemd         bool              `json:"systemd"`
	Linger          bool              `json:"linger"`
	KillUserProcess bool              `json:"kill_user_processes"`
	Root            bool              `json:"root"`              // a workload that is root can read the owner's memory
	Allowed         []string          `json:"allowed,omitempty"` // verbs that the key may ask for, where a forced command bounds them
	Notes           []string          `json:"notes,omitempty"`
	Limits          map[string]string `json:"limits,omitempty"`
}

// BoundaryOffer is one kind of boundary, best first, and why the host lacks it if it does.
type BoundaryOffer struct {
	Kind    BoundaryKind `json:"kind"`
	Can     bool         `json:"can"`
	Because string       `json:"because,omitempty"`
	Remedy  string       `json:"remedy,omitempty"`  // a command that lets it have it
	Manager string       `json:"manager,omitempty"` // whose units they are: "system" or "user"
	Limits  []LimitOffer `json:"limits,omitempty"`  // that it can hold or not, where it can be had
}

// LimitOffer is one limit, by its name in Limits, and why a boundary cannot hold it if it cannot.
type LimitOffer struct {
	Name    string `json:"name"`
	Can     bool   `json:"can"`
	Because string `json:"because,omitempty"`
	Remedy  string `json:"remedy,omitempty"` // what lets the host hold it
}

// Policy is the policy that holds: GET /api/v1/policy.
type Policy struct {
	Digest string `json:"digest,omitempty"` // "sha256:…" of the text; absent: there is none, and everything is allowed
	Text   string `json:"text,omitempty"`
}

// PolicyChange is the body of PUT /api/v1/policy. Its proof is of a challenge of the kind policy, whose
// content is the text's digest.
type PolicyChange struct {
	Text  string `json:"text"`
	Proof Proof  `json:"proof"`
}

// MaxPolicy is how many bytes a policy has at most.
const MaxPolicy = 1 << 20

// PolicyText is the body of POST /api/v1/policy/check.
type PolicyText struct {
	Text string `json:"text"`
}

// PolicyCheck is its answer: what a text is as a policy, or all that is wrong with it, in its order.
type PolicyCheck struct {
	Digest   string          `json:"digest,omitempty"`
	Summary  string          `json:"summary,omitempty"` // "5 rules, default deny"
	Problems []PolicyProblem `json:"problems,omitempty"`
	Warnings []PolicyProblem `json:"warnings,omitempty"` // of a policy: rules that decide nothing, or rest on what callers say of themselves
}

// PolicyProblem is one thing that is wrong with a policy's text, and where.
type PolicyProblem struct {
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1, in characters
	Message string `json:"message"`
}

// PolicyQuestion is the body of POST /api/v1/policy/explain: what the policy that holds would say to a request of
// whoever asks, on a host as enrolled. With a text that is a policy, or somebody else as who asks, the host is
// its name alone.
type PolicyQuestion struct {
	Run  RunRequest `json:"run"`
	Text *string    `json:"text,omitempty"`
	As   *Requester `json:"as,omitempty"`
}

// PolicyVerdict is what a policy says to a request: the answer of POST /api/v1/policy/explain, and what an
// action's first journal entry has.
type PolicyVerdict struct {
	Policy   string `json:"policy,omitempty"` // its digest
	Decision string `json:"decision"`         // "allow", "ask" or "deny"
	Rule     string `json:"rule,omitempty"`   // "rule 3", a name, or "default"
	Line     int    `json:"line,omitempty"`   // of the rule
	Reason   string `json:"reason,omitempty"`
	// Because says which of the request's commands the rule is about, and where.
	Because      string       `json:"because,omitempty"`
	Exceeds      string       `json:"exceeds,omitempty"` // what is asked beyond the rule's limits: it is denied
	Limits       PolicyLimits `json:"limits,omitzero"`
	ApprovalTTLS float64      `json:"approval_ttl_s,omitempty"`
	Given        []string     `json:"given,omitempty"` // fields of the request that the limits gave
	Findings     []Finding    `json:"findings,omitempty"`
}

// PolicyLimits are a rule's limits; 0 bounds nothing.
type PolicyLimits struct {
	DeadlineS      float64 `json:"deadline_s,omitempty"`
	PerHost        int     `json:"per_host,omitempty"`
	PerRequester   int     `json:"per_requester,omitempty"`
	OutputMaxBytes int64   `json:"output_max_bytes,omitempty"`
}

// DaemonStatus is the answer of GET /api/v1/status.
type DaemonStatus struct {
	Version    string `json:"version"`
	API        int    `json:"api"`
	PID        int    `json:"pid"`
	StartedAt  Time   `json:"started_at"`
	Home       string `json:"home"`
	Hosts      int    `json:"hosts"`
	Unresolved int    `json:"unresolved"`
}

// Follow events: GET /api/v1/actions/{id}/follow and POST /api/v1/actions?follow=1 answer with
// Content-Type FollowType, a sequence of
//
//	<kind> <offset> <length>\n<length bytes>
//
// where kind is "stdout" or "stderr" (bytes of that stream from that offset), "dropped" (a DroppedOutput
// as JSON: bytes that the host did not keep; the stream goes on behind them), "action" (the action
// as JSON, at every revision), "note" (a line of progress for people), "beat" (nothing: the other
// side lives; at least one event each FollowBeatEvery) or "error" (an Error as JSON, the last
// event). The last event of a followed action is its final "action", after all output that can
// still be read. Exchanges that end with something else (enrolling, cancelling, …) end with a
// "result", its JSON. A stream that ends without its last event was cut.
const FollowType = "application/vnd.longstop.follow"

// FollowBeatEvery is the longest silence of a follow stream whose other side lives.
const FollowBeatEvery = 3 * time.Second

// FollowKind is the kind of one follow event.
type FollowKind string

const (
	FollowStdout  FollowKind = "stdout"
	FollowStderr  FollowKind = "stderr"
	FollowDropped FollowKind = "dropped"
	FollowAction  FollowKind = "action"
	FollowNote    FollowKind = "note"
	FollowError   FollowKind = "error"
	FollowResult  FollowKind = "result"
	FollowBeat    FollowKind = "beat"
)

// DroppedOutput are bytes of a stream that a follower gets to hear of instead.
type DroppedOutput struct {
	Stream string `json:"stream"` // "stdout" or "stderr"
	Dropped
}

// Problem is an error answer (RFC 9457), with Content-Type ProblemType.
type Problem struct {
	Type     string   `json:"type"` // "urn:longstop:" and the code
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"` // what and why
	Code     Code     `json:"code"`
	Hint     string   `json:"hint,omitempty"` // the next command
	ActionID ActionID `json:"action_id,omitempty"`
	Noise    string   `json:"noise,omitempty"`
}

// ProblemType is the Content-Type of a Problem.
const ProblemType = "application/problem+json"

// GiveUp is the body of POST /api/v1/actions/{id}/waits: somebody stopped waiting.
type GiveUp struct {
	By string `json:"by"`
}

// RawAnswer is what came over the wire about an action, as it came: GET /api/v1/actions/{id}/raw.
type RawAnswer struct {
	Kind  string `json:"kind"` // "submit_answer", "record", …
	At    Time   `json:"at"`
	Bytes []byte `json:"bytes"`
}

// JournalEntry is one entry of the journal as shown: GET /api/v1/journal.
type JournalEntry struct {
	Index     int64     `json:"index"`
	At        Time      `json:"at"`
	Kind      string    `json:"kind"` // "requested", "launch_intended", "launch_answered", "observed", …
	ActionID  ActionID  `json:"action_id,omitempty"`
	SessionID SessionID `json:"session_id,omitempty"`
	RunID     RunID     `json:"run_id,omitempty"`
	Host      string    `json:"host,omitempty"`
	By        string    `json:"by,omitempty"`
	Body      any       `json:"body,omitempty"`
}

// CosignedRequest is the body of POST /api/v1/journal/checkpoints that brings a checkpoint which a witness has signed
// too; without one a checkpoint of the journal as it now is is made.
type CosignedRequest struct {
	Cosigned string `json:"cosigned,omitempty"`
}

// Checkpoint is a signed head of the journal: whoever keeps it elsewhere can tell later that nothing before it was
// changed.
type Checkpoint struct {
	Size        int64    `json:"size"` // entries
	Hash        string   `json:"hash"` // base64
	At          Time     `json:"at"`   // when it was kept
	Note        string   `json:"checkpoint"`
	Key         string   `json:"key"` // the journal's public key
	Fingerprint string   `json:"fingerprint"`
	Witnesses   []string `json:"witnesses,omitempty"` // who signed it too
}

// MaxAttachment is how many bytes of a file go with a person's word at most.
const MaxAttachment = 1 << 20

// ResolveRequest is the body of POST /api/v1/actions/{id}/resolve: a person's word about an outcome that is
// unknown. The proof is of a challenge of the kind "resolve", with the outcome, the reason, and as content
// "sha256:…" of the attachment where there is one.
type ResolveRequest struct {
	Outcome    Outcome       `json:"outcome"` // succeeded, failed, not_started or cancelled
	Reason     string        `json:"reason"`
	Attachment *AttachedFile `json:"attachment,omitempty"`
	Proof      Proof         `json:"proof"`
}

// AttachedFile is a file that goes with a person's word.
type AttachedFile struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// Notice is what people are told by a webhook or a command: an entry of the journal.
type Notice struct {
	ID      string `json:"notice_id"` // the same each time that it is told
	Gateway string `json:"gateway"`
	JournalEntry
}
