// Package gateway is the actor beside the user: it launches, observes, cancels and reconciles runs
// on hosts, and keeps what it did and saw in the store. It owns one serve channel per host. It
// refuses to say anything about work that no record of its host says, and it never starts work but
// on behalf of a caller: reconciling finds a run, or burns its key.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
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
	Store   *sqlite.Store
	Dialers map[string]sshlink.Dialer // by transport: "openssh", "embedded"
	Runners Runners
	Clock   Clock
	Home    string // folder for spooled standard input and the store's salt; made 0700
	Name    string // of this gateway, for "serve@NAME"; default the host name

	Heartbeat time.Duration // of serve channels; default 5 s. Three make an observation stale
	Idle      time.Duration // how long an unused channel is kept; default 10 min
	Reach     time.Duration // how long a host may take from the connection's first byte to the runner's first answer; default 40 s
	Retention Retention
	// Policy answers requests, with its own digest; nil: the policy that the store keeps does (SetPolicy).
	Policy    func(policy.Question) (policy.Verdict, string)
	Redact    *redact.Redactor // what is never kept nor shown; nil: nothing is configured
	Witnesses []string         // keys of witnesses whose cosignatures of the journal's checkpoints are kept
	Ways      []Way            // to tell people of what waiting does not mend

	SessionIdle time.Duration // after which a session ends in which nothing happens; default a day
}

// Told is what a call reports while it goes on, and how. Either function may be nil; neither may block.
type Told struct {
	Note   func(line string)     // one line for people: "copying the runner to h1 (3.4 MB)"
	Action func(longstop.Action) // Run: the action, as soon as its id exists and at each change
}

// Gateway launches, observes, cancels and reconciles. Its methods are safe for concurrent use.
type Gateway struct {
	cfg       Config
	store     *sqlite.Store
	startedAt longstop.Time
	salt      []byte // of this store, for what must be comparable and not readable
	by        string // "gateway@NAME"
	signing   signing
	watchers  watchers
	dials     chan struct{} // bounds connections being made
	proofs    proofs
	refusals  refusals
	ledger    ledger
	approving sync.Mutex // held while an approver is changed

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	policy     atomic.Pointer[policy.Policy] // that holds; nil allows everything
	policyTurn sync.Mutex
	directs    sync.Map // longstop.ActionID to *direct: those whose channel is open
	stdins     sync.Map // by file name: spooled input that a launch may still send

	enrolling sync.Mutex // held while a host is enrolled or removed

	mu    sync.Mutex // guards hosts; never held during an update of the store: changes look hosts up
	hosts map[string]*host

	sessions sessions
}

const (
	defaultHeartbeat = 5 * time.Second
	defaultIdle      = 10 * time.Minute
	defaultReach     = 40 * time.Second
)

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// New starts a gateway: unresolved actions of an earlier one are asked about from now on. The
// store stays the caller's to close, after Close.
func New(cfg Config) (*Gateway, error) {
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	if cfg.Idle <= 0 {
		cfg.Idle = defaultIdle
	}
	if cfg.Reach <= 0 {
		cfg.Reach = defaultReach
	}
	cfg.Retention = cfg.Retention.withDefaults()
	if cfg.SessionIdle <= 0 {
		cfg.SessionIdle = defaultSessionIdle
	}
	if cfg.Name == "" {
		cfg.Name, _ = os.Hostname()
	}
	g := &Gateway{cfg: cfg, store: cfg.Store, by: "gateway@" + cfg.Name,
		dials: make(chan struct{}, dialsAtOnce), hosts: map[string]*host{}}
	rand.Read(g.proofs.key[:])
	g.startedAt = g.now()
	g.ctx, g.stop = context.WithCancel(context.Background())
	if err := g.begin(); err != nil {
		g.stop()
		g.work.Wait()
		return nil, err
	}
	return g, nil
}

// begin takes up what an earlier gateway left.
func (g *Gateway) begin() error {
	var err error
	g.store.Redact(g.cfg.Redact)
	if g.salt, err = storeSalt(g.cfg.Home); err != nil {
		return err
	}
	if g.signing, err = newSigning(g.cfg.Home, g.cfg.Name, g.cfg.Witnesses); err != nil {
		return err
	}
	if err := os.MkdirAll(g.stdinFolder(), 0o700); err != nil {
		return fmt.Errorf("make the folder for standard input: %w", err)
	}
	if err := g.beginTelling(); err != nil {
		return err
	}
	err = g.store.Update(g.ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Append(journal.Entry{At: g.now(), Kind: journal.GatewayStarted, By: g.by, Body: body(map[string]any{
			"version": longstop.Version, "pid": os.Getpid(), "journal_key": g.signing.key, "tells": g.store.Tells()})})
		return err
	})
	if err != nil {
		return fmt.Errorf("journal the start: %w", err)
	}
	if err := g.loadPolicy(); err != nil {
		return err
	}
	g.goes(g.checkpointHourly)
	if err := g.loadSessions(); err != nil {
		return fmt.Errorf("read the sessions: %w", err)
	}
	if err := g.loadHosts(); err != nil {
		return err
	}
	g.goes(g.watchUnknowns)
	g.goes(g.endIdle)
	g.goes(g.tidyDirects)
	g.goes(g.journalRefusals)
	for _, w := range g.cfg.Ways {
		g.goes(func() { g.tellOn(w) })
	}
	return nil
}

// Close ends every channel and goroutine of the gateway and leaves all runs alone.
func (g *Gateway) Close(ctx context.Context) error {
	g.stop()
	g.mu.Lock()
	for _, h := range g.hosts {
		g.goes(h.hangUp)
	}
	g.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		g.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("close the gateway: %w", ctx.Err())
	}
	left := g.refusals.takeOld(g.now(), true)
	err := g.store.Update(ctx, func(tx *sqlite.Tx) error {
		err := g.appendLeftOut(tx, left)
		if err == nil {
			_, err = tx.Append(journal.Entry{At: g.now(), Kind: journal.GatewayStopped, By: g.by})
		}
		return err
	})
	if err == nil {
		_, err = g.Checkpoint(ctx)
	}
	if errors.Is(err, sqlite.ErrClosed) {
		return nil
	}
	return err
}

// Status says what this gateway is and has.
func (g *Gateway) Status(ctx context.Context) (longstop.DaemonStatus, error) {
	hosts, unresolved, err := g.store.Counts(ctx)
	return longstop.DaemonStatus{
		Version: longstop.Version, API: longstop.APIVersion, PID: os.Getpid(), StartedAt: g.startedAt,
		Home: g.cfg.Home, Hosts: hosts, Unresolved: unresolved,
	}, err
}

func (g *Gateway) now() longstop.Time { return longstop.At(g.cfg.Clock.Now()) }

func (g *Gateway) stale() time.Duration { return staleAfter(g.cfg.Heartbeat) }

func (g *Gateway) stdinFolder() string { return filepath.Join(g.cfg.Home, "stdin") }

// goes runs fn as one of the goroutines that Close waits for.
func (g *Gateway) goes(fn func()) { g.work.Go(fn) }
