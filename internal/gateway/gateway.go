// Package gateway is the actor beside the user: it launches, observes, cancels and reconciles runs
// on hosts, and keeps what it did and saw in the store. It owns one serve channel per host. It
// refuses to say anything about work that no record of its host says, and it never starts work but
// on behalf of a caller: reconciling finds a run, or burns its key.
package gateway

import (
	"context"
	"io"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// Clock tells the wall-clock time. Tests shift it.
type Clock interface{ Now() time.Time }

// Runners gives the runner binary for a host's architecture.
type Runners interface {
	// Runner returns the static linux binary for goarch ("amd64", "arm64") and its hex SHA-256.
	Runner(goarch string) (binary []byte, sha256 string, err error)
}

// Config is what a gateway needs. Clock may be nil; zero durations take their defaults.
type Config struct {
	Runners Runners
	Clock   Clock
	Home    string // folder for spooled standard input, 0700
	Name    string // of this gateway, for "serve@NAME"; default the host name

	Heartbeat time.Duration // of serve channels; default 5 s. Three make an observation stale
	Idle      time.Duration // how long an unused channel is kept; default 10 min
}

// Told is what a call reports while it goes on. Either function may be nil; neither may block.
type Told struct {
	Note   func(line string)     // one line for people: "copying the runner to h1 (3.4 MB)"
	Action func(longstop.Action) // Run: the action, as soon as its id exists and at each change
}

// ActionFilter chooses actions for a list, newest first. The zero filter is all unresolved ones.
type ActionFilter struct {
	All     bool // resolved ones too
	Host    string
	Session longstop.SessionID
	Limit   int               // default 100
	Before  longstop.ActionID // page: older than this one
}

// JournalFilter chooses journal entries, oldest first.
type JournalFilter struct {
	Action longstop.ActionID
	After  int64 // entries with a larger index; -1 from the first
	Limit  int   // default 100
}

// RawAnswer is what came over the wire about an action, as it came.
type RawAnswer struct {
	Kind  string        `json:"kind"` // "submit_answer", "record", …
	At    longstop.Time `json:"at"`
	Bytes []byte        `json:"bytes"`
}

// Gateway launches, observes, cancels and reconciles. Its methods are safe for concurrent use.
type Gateway struct {
	cfg Config
}

// New starts a gateway: unresolved actions of an earlier one are asked about from now on.
func New(cfg Config) (*Gateway, error) { return &Gateway{cfg: cfg}, nil }

// Close ends every channel and goroutine of the gateway and leaves all runs alone.
func (g *Gateway) Close(ctx context.Context) error { return nil }

// Status says what this gateway is and has.
func (g *Gateway) Status(ctx context.Context) (longstop.DaemonStatus, error) {
	return longstop.DaemonStatus{}, nil
}

// Enrol fixes a host: finds a place for the runner, pushes and verifies it, makes the state folder.
func (g *Gateway) Enrol(ctx context.Context, req longstop.EnrolRequest, note func(string)) (longstop.Host, error) {
	return longstop.Host{}, nil
}

// Hosts lists the enrolled hosts, by name.
func (g *Gateway) Hosts(ctx context.Context) ([]longstop.Host, error) { return nil, nil }

// CheckHost asks the host who and how it is now, and puts the runner back where it is missing.
func (g *Gateway) CheckHost(ctx context.Context, name string, note func(string)) (longstop.Host, error) {
	return longstop.Host{}, nil
}

// RemoveHost forgets a host that has no unresolved action. Nothing is removed on the host.
func (g *Gateway) RemoveHost(ctx context.Context, name string) error { return nil }

// SpoolStdin takes the bytes of a run's standard input ahead of its request.
func (g *Gateway) SpoolStdin(ctx context.Context, r io.Reader) (longstop.Stdin, error) {
	return longstop.Stdin{}, nil
}

// Run launches, and returns once the launch is accepted, rejected or unknown. peer.Kind is who the
// socket says is asking; name and via are taken from req.By where it has them. When an action was
// made, it is returned beside any error and the error names it. If ctx ends first the launch goes
// on without its caller: it is not sent again, and the action is returned as it is.
func (g *Gateway) Run(ctx context.Context, req longstop.RunRequest, peer longstop.Requester, told Told) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// Action returns the action of an id, or of an unambiguous start or end of one.
func (g *Gateway) Action(ctx context.Context, id string) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// Actions lists actions, newest first.
func (g *Gateway) Actions(ctx context.Context, f ActionFilter) ([]longstop.Action, error) {
	return nil, nil
}

// Wait returns once nothing that the host may still say would change the action, or when ctx ends,
// then with the action as it is and ctx's error.
func (g *Gateway) Wait(ctx context.Context, id string) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// RecordWait keeps that somebody stopped waiting. It changes nothing about the work.
func (g *Gateway) RecordWait(ctx context.Context, id, by string) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// Watch sends the action as it is, then at each change, the last after it is final, and closes the
// channel then or when ctx ends. A slow reader gets the newest and misses the ones between.
func (g *Gateway) Watch(ctx context.Context, id string) (<-chan longstop.Action, error) {
	return nil, nil
}

// Output reads bytes of a stream ("stdout", "stderr") from an offset, waiting at most wait for some.
// Max 0 is 1 MiB, the most. A lost connection is made again within wait, and told through note; when
// the host still does not answer then, the error is CodeUnreachable and the same offset may be asked again.
func (g *Gateway) Output(ctx context.Context, id, stream string, offset int64, max int, wait time.Duration, note func(string)) (wire.OutputAnswer, error) {
	return wire.OutputAnswer{}, nil
}

// Inspect lists every process of the run's boundary, as the host sees them now.
func (g *Gateway) Inspect(ctx context.Context, id string) (wire.InspectAnswer, error) {
	return wire.InspectAnswer{}, nil
}

// Cancel stops the run and waits until nothing is left, the host refused, or ctx ends; the
// cancellation itself goes on without its caller. The action is returned beside any error.
func (g *Gateway) Cancel(ctx context.Context, id string, by longstop.Requester, note func(string)) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// Reconcile asks the host about the action now, and returns what is then known. It never starts work.
func (g *Gateway) Reconcile(ctx context.Context, id string) (longstop.Action, error) {
	return longstop.Action{}, nil
}

// Journal returns entries, oldest first.
func (g *Gateway) Journal(ctx context.Context, f JournalFilter) ([]longstop.JournalEntry, error) {
	return nil, nil
}

// Raw returns what came over the wire about an action, oldest first.
func (g *Gateway) Raw(ctx context.Context, id string) ([]RawAnswer, error) { return nil, nil }
