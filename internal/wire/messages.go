package wire

import (
	"encoding/json"
	"fmt"

	"github.com/longstop/longstop"
)

// Protocol is the version of the host contract that these messages belong to. 2: output travels as
// data behind the JSON of its frame.
const Protocol = 2

// Verb is one of the host contract's verbs.
type Verb string

const (
	VerbHello   Verb = "hello"
	VerbServe   Verb = "serve"
	VerbSpool   Verb = "spool" // bytes of standard input, laid down before submit
	VerbSubmit  Verb = "submit"
	VerbFind    Verb = "find"
	VerbVoid    Verb = "void"
	VerbStatus  Verb = "status"
	VerbList    Verb = "list"
	VerbInspect Verb = "inspect"
	VerbOutput  Verb = "output"
	VerbCancel  Verb = "cancel"
	VerbRenew   Verb = "renew"
	VerbCollect Verb = "collect"
	VerbGC      Verb = "gc"
	VerbWatch   Verb = "watch" // on serve alone: changed records and heartbeats, pushed
)

// Request is one JSON object: alone on standard input of `longstop-runner VERB`, or the body of a
// frame on a serve channel. Nonce is 32 hexadecimal digits, new for each request.
type Request struct {
	Protocol int             `json:"protocol"`
	Nonce    string          `json:"nonce"`
	Verb     Verb            `json:"verb"`
	Host     Identity        `json:"host,omitzero"`
	StateDir string          `json:"state_dir,omitempty"` // as enrolled; empty: the default
	WithinMS int64           `json:"within_ms,omitempty"` // the asker's deadline, from receipt
	Body     json.RawMessage `json:"body,omitempty"`
}

// Identity is the host as enrolled. Every request but the first hello names it; on a mismatch the
// runner does nothing and answers longstop.CodeHostMismatch. UID is compared whenever MachineID is set.
type Identity struct {
	MachineID string `json:"machine_id,omitempty"`
	UID       int    `json:"uid"`
	StateID   string `json:"state_id,omitempty"`
}

// Answer is the body of an answering frame. A nonce has one answer with Final set; a watch has
// frames before it with Number rising by one from 1, and so has flowing output.
type Answer struct {
	Nonce  string          `json:"nonce"`
	Final  bool            `json:"final"`
	Number uint64          `json:"number,omitempty"`
	Error  *longstop.Error `json:"error,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	// Data is what the frame carries behind its JSON: bytes of output.
	Data []byte `json:"-"`
}

// HelloRequest asks who the host is. With Create the state folder and its id are made if absent
// (enrolment); without it an absent folder is CodeHostMismatch.
type HelloRequest struct {
	Create bool `json:"create,omitempty"`
}

// HelloAnswer is the host.
type HelloAnswer = longstop.HostHello

// SpoolRequest lays down bytes of a run's standard input at an offset, before its submit. A
// spool that no submit took within a day is removed.
type SpoolRequest struct {
	RunID  longstop.RunID `json:"run_id"`
	Offset int64          `json:"offset"`
	Data   []byte         `json:"data"`
}

// SpoolAnswer says how many bytes the spool now has.
type SpoolAnswer struct {
	Bytes int64 `json:"bytes"`
}

// Submit asks for a run. Request.Digest identifies it; the runner compares digests and does not
// make them. EnvValues and Secret are never written to the host's disk.
type Submit struct {
	RunID       longstop.RunID     `json:"run_id"`
	ActionID    longstop.ActionID  `json:"action_id"`
	SessionID   longstop.SessionID `json:"session_id"`
	Key         string             `json:"key"`
	NotAfter    longstop.BootTime  `json:"not_after"`
	Secret      []byte             `json:"secret"` // 32 bytes
	EffectToken string             `json:"effect_token,omitempty"`
	Request     longstop.Request   `json:"request"`
	EnvValues   map[string][]byte  `json:"env_values,omitempty"`
	Terminal    *longstop.Terminal `json:"terminal,omitempty"` // of a request with PTY
	// BootID is the boot that NotAfter belongs to; another boot refuses the submit as expired.
	BootID string `json:"boot_id"`
	// LeaseUntil is the first lease's end on the host's boot clock; leased runs only.
	LeaseUntil longstop.BootTime `json:"lease_until,omitempty"`
}

// SubmitAnswer is the record after exec (or queueing, or a failed launch). Existing says that the
// key had this run already. Raw is the record as its writer signed it.
type SubmitAnswer struct {
	Existing bool            `json:"existing,omitempty"`
	Record   json.RawMessage `json:"record"`
}

// FindRequest asks for the run of a key, never starting it.
type FindRequest struct {
	Key string `json:"key"`
}

// FindAnswer is what a key has: nothing (Found false), a void, or a run. An expired key whose run
// was removed after its retention answers with Expired and its tombstone's record.
type FindAnswer struct {
	Found   bool            `json:"found"`
	Void    bool            `json:"void,omitempty"`
	Expired bool            `json:"expired,omitempty"`
	RunID   longstop.RunID  `json:"run_id,omitempty"`
	Record  json.RawMessage `json:"record,omitempty"` // absent while the run has none yet
}

// VoidRequest burns an unclaimed key for ever; a claimed one is answered as by find.
type VoidRequest struct {
	Key    string `json:"key"`
	Reason string `json:"reason,omitempty"`
}

// VoidAnswer is FindAnswer: Void true if the key is burnt now, whoever burnt it.
type VoidAnswer = FindAnswer

// RunRequest names a run: for status, inspect, collect.
type RunRequest struct {
	RunIDs []longstop.RunID `json:"run_ids"`
}

// StatusAnswer has one entry for each run asked about, in the same order.
type StatusAnswer struct {
	Runs    []RunStatus       `json:"runs"`
	BootNow longstop.BootTime `json:"boot_now"`
	Now     longstop.Time     `json:"now"`
}

// RunStatus is what the host knows of one run. Exactly one of Record and Error is set. Released
// holds the released processes that are alive now.
type RunStatus struct {
	RunID    longstop.RunID     `json:"run_id"`
	Record   json.RawMessage    `json:"record,omitempty"`
	Error    *longstop.Error    `json:"error,omitempty"` // not_found, unreadable_record, expired
	Released []longstop.Process `json:"released,omitempty"`
	// ReleasedUnseen is why it cannot be said of those not in Released whether they are alive.
	ReleasedUnseen string `json:"released_unseen,omitempty"`
	// Orphaned says that nobody holds the run's lock though its record is not final.
	Orphaned bool `json:"orphaned,omitempty"`
	// Output as the files are now; newer than the record's.
	Output longstop.Output `json:"output,omitzero"`
	// Unit is what the service manager said last of the unit that the run is or was in.
	Unit *longstop.Unit `json:"unit,omitempty"`
}

// ListRequest asks for runs by cursor: unresolved ones, and those resolved after the cursor.
type ListRequest struct {
	Cursor string `json:"cursor,omitempty"` // from the last answer; empty: unresolved runs alone
	Max    int    `json:"max,omitempty"`
}

// ListAnswer is a page of runs and where to go on.
type ListAnswer struct {
	Runs   []RunStatus `json:"runs"`
	Cursor string      `json:"cursor"`
	More   bool        `json:"more,omitempty"`
}

// InspectAnswer is every process of each run's boundary. Owner and keeper are theirs, not the work's.
type InspectAnswer struct {
	Processes []longstop.Process `json:"processes"`
	Owner     *longstop.Process  `json:"owner,omitempty"`
	Keeper    *longstop.Process  `json:"keeper,omitempty"`
	Complete  bool               `json:"complete"` // false: an owner was gone, and there may be others
}

// OutputRequest asks for bytes of a stream from an offset; WaitMS > 0 waits that long for some.
//
// Flow, on a channel of its own alone, has numbered answers follow each other, each with the bytes
// behind those of the one before, until the stream is over or WaitMS pass without one more: the
// final answer has no bytes, and the offset that was reached.
type OutputRequest struct {
	RunID  longstop.RunID `json:"run_id"`
	Stream string         `json:"stream"` // "stdout" or "stderr"
	Offset int64          `json:"offset"`
	Max    int            `json:"max,omitempty"` // default and most: 1 MiB
	WaitMS int64          `json:"wait_ms,omitempty"`
	Flow   bool           `json:"flow,omitempty"`
	Times  bool           `json:"times,omitempty"` // instead of bytes, when all of them came
}

// OutputAnswer has the bytes from Offset on: the offset asked for, or in flows the one reached, but where
// the bytes there were not kept. Dropped then names what lies before Offset, all of it. End says that
// the stream is over and these are its last.
type OutputAnswer struct {
	Offset  int64              `json:"offset"`
	Data    []byte             `json:"-"`     // Answer.Data
	Total   int64              `json:"total"` // bytes of the stream so far
	Dropped []longstop.Dropped `json:"dropped,omitempty"`
	End     bool               `json:"end,omitempty"`
	Times   []longstop.Arrival `json:"times,omitempty"`
}

// Next is the offset of the byte behind those of the answer.
func (a OutputAnswer) Next() int64 { return a.Offset + int64(len(a.Data)) }

// More reports whether the host had more of the stream than fitted into the answer.
func (a OutputAnswer) More() bool { return !a.End && a.Next() < a.Total }

// Follows says what is wrong with an answer to somebody who has reached an offset; nil: nothing.
func (a OutputAnswer) Follows(offset int64) error {
	next := offset
	for _, d := range a.Dropped {
		if d.From != next || d.To <= d.From {
			return fmt.Errorf("bytes %d to %d are said not to be kept, after %d", d.From, d.To, next)
		}
		next = d.To
	}
	if a.Offset != next {
		return fmt.Errorf("bytes from %d, where those from %d are next", a.Offset, next)
	}
	return nil
}

// CancelRequest stops a run. GraceMS < 0 takes the run's own. With WaitMS the answer comes when
// the run is final or the wait is over, else once the first signal is sent or refused.
type CancelRequest struct {
	RunID   longstop.RunID `json:"run_id"`
	GraceMS int64          `json:"grace_ms"`
	WaitMS  int64          `json:"wait_ms,omitempty"`
	Cause   longstop.Cause `json:"cause,omitempty"` // default request
}

// CancelAnswer is the record that ended the run, or the current one and what still lives. Refused
// says why nothing was signalled.
type CancelAnswer struct {
	Record    json.RawMessage    `json:"record,omitempty"`
	Survivors []longstop.Process `json:"survivors,omitempty"`
	Refused   string             `json:"refused,omitempty"`
}

// RenewRequest sets leases' ends on the host's boot clock. An instant that has passed, or is
// before the present lease's end, changes nothing.
type RenewRequest struct {
	BootID string     `json:"boot_id"`
	Leases []RunLease `json:"leases"`
}

// RunLease is one run's lease.
type RunLease struct {
	RunID longstop.RunID    `json:"run_id"`
	Until longstop.BootTime `json:"until"`
}

// RenewAnswer names the leases that hold now and those refused.
type RenewAnswer struct {
	Renewed []longstop.RunID          `json:"renewed,omitempty"`
	Refused map[longstop.RunID]string `json:"refused,omitempty"`
	BootNow longstop.BootTime         `json:"boot_now"`
}

// CollectAnswer names the runs now marked collected: final ones, and those removed already.
type CollectAnswer struct {
	Collected []longstop.RunID `json:"collected,omitempty"`
}

// GCRequest names collected runs that may go: how long to keep them is for the gateway that submitted
// them. Any other goes once it ended longer ago than MaxAgeS. Short asks whether the host is short of room.
type GCRequest struct {
	RunIDs  []longstop.RunID `json:"run_ids,omitempty"`
	MaxAgeS float64          `json:"max_age_s,omitempty"` // 0: never
	Short   bool             `json:"short,omitempty"`
}

// GCAnswer names what is gone: of the runs asked about, whoever removed them, and those that were too
// old. Tombstones keep each one's final record and key. More says that more is too old.
type GCAnswer struct {
	Removed []longstop.RunID `json:"removed,omitempty"`
	More    bool             `json:"more,omitempty"`
	Short   bool             `json:"short,omitempty"` // there may be no room for another run
}

// WatchRequest subscribes to changes: pushed frames hold Pushed. A serve channel has one watch.
type WatchRequest struct {
	HeartbeatMS int64 `json:"heartbeat_ms"`
}

// Pushed is one pushed frame: runs whose record changed (all unresolved ones first), or none, as a
// heartbeat.
type Pushed struct {
	Runs    []RunStatus       `json:"runs,omitempty"`
	BootNow longstop.BootTime `json:"boot_now"`
	Now     longstop.Time     `json:"now"`
}
