package longstop

// What the HTTP API takes and gives beside actions; client and api share it.

// APIVersion is the version of the HTTP API that a client and a gateway must agree on.
const APIVersion = 1

// RunRequest is the body of POST /api/v1/actions. Zero fields of Request take their defaults.
type RunRequest struct {
	Host      string            `json:"host"`
	Request   Request           `json:"request"`
	EnvValues map[string][]byte `json:"env_values,omitempty"` // never kept; Request.Env is made from its keys
	StdinID   string            `json:"stdin_id,omitempty"`   // from POST /api/v1/stdin
	Key       string            `json:"idempotency_key,omitempty"`
	SessionID SessionID         `json:"session_id,omitempty"`
	By        Requester         `json:"requested_by,omitzero"` // name and via; the kind is decided by the gateway
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
	StateDir        string            `json:"state_dir"`
	StateID         string            `json:"state_id"`
	StateFS         string            `json:"state_fs"` // "ext4", "tmpfs", "nfs", or its magic number in hex
	Boundaries      []BoundaryOffer   `json:"boundaries"`
	Systemd         bool              `json:"systemd"`
	Linger          bool              `json:"linger"`
	KillUserProcess bool              `json:"kill_user_processes"`
	Root            bool              `json:"root"` // a workload that is root can read the owner's memory
	Notes           []string          `json:"notes,omitempty"`
	Limits          map[string]string `json:"limits,omitempty"`
}

// BoundaryOffer is one kind of boundary, best first, and why the host lacks it if it does.
type BoundaryOffer struct {
	Kind    BoundaryKind `json:"kind"`
	Can     bool         `json:"can"`
	Because string       `json:"because,omitempty"`
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
// where kind is "stdout" or "stderr" (bytes of that stream from that offset), "action" (the action
// as JSON, at every revision), "note" (a line of progress for people) or "error" (an Error as
// JSON, the last event). The last event of a followed action is its final "action", after all
// output that can still be read.
const FollowType = "application/vnd.longstop.follow"

// FollowKind is the kind of one follow event.
type FollowKind string

const (
	FollowStdout FollowKind = "stdout"
	FollowStderr FollowKind = "stderr"
	FollowAction FollowKind = "action"
	FollowNote   FollowKind = "note"
	FollowError  FollowKind = "error"
)

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
