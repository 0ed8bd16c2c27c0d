// Package hostsim is the host contract in memory: hosts with a boot clock, a disk that loses what
// was not flushed, keepers, owners and workloads whose lives are written in their scripts, behind
// the seam through which the gateway reaches hosts (sshlink.Dialer). Everything that can go wrong
// between and on them goes wrong when a Plan says so, and a Witness sees what truly happened: how
// often a workload was executed, who was signalled, which records were written.
//
// It runs in real time, and in a bubble of testing/synctest. TestHostsimAnswersAsTheRunner holds it
// to what internal/runner answers.
package hostsim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// Blow is what befalls a host at a step.
type Blow int

// What befalls.
const (
	Nothing    Blow = iota
	PowerLoss       // with a reboot after it
	KillOwner       // of the run at hand
	KillKeeper      //
)

// Plan decides what goes wrong. Nil functions let everything pass. They are called with a host's lock
// held, and may not call back.
type Plan struct {
	Step    func(host, step string) Blow
	Message func(host string, toHost bool, n int, frame []byte) Fate
	Delay   func(host string, verb wire.Verb) time.Duration // before a request is taken up
	Latency time.Duration                                   // of one message
	Outage  time.Duration                                   // a reboot takes
}

// Witness is told what truly happens. Nil functions are not called. They are called with the host's
// lock held, and may not call back.
type Witness struct {
	Asked     func(host string, r wire.Request)                                          // a request reached the host whole
	Claimed   func(host string, s wire.Submit)                                           // a key got its run
	Executed  func(host string, id longstop.RunID, key string)                           // a gate opened
	Wrote     func(host string, rec longstop.Record, raw []byte)                         // a record was written
	Signalled func(host string, id longstop.RunID, victim longstop.RunID, signal string) // victim is empty for a stranger
	Ended     func(host string, id longstop.RunID, main longstop.Main)                   // a main process ended by itself or by a signal
}

// Broken are rules that a host may be made to break, so that a test can show that this is seen.
type Broken struct {
	ForgetsClaims    bool // a key's claim is not looked at when a submit comes
	EndsWithMain     bool // finished is said though children live
	SignalsByNumber  bool // whoever has a number now is signalled
	RefusesToStop    bool
	CancelsUnproven  bool // cancelled is written after the first signal
	ForgetsOnVoid    bool // void answers void and burns nothing
	RewritesFinished bool // a finished run's record is written anew, as failed
}

// Host is one simulated host and its one account.
type Host struct {
	Name      string
	MachineID string
	StateID   string
	StateDir  string

	plan    *Plan
	witness *Witness
	broken  Broken

	mu      sync.Mutex
	down    bool
	boot    int       // boots so far
	booted  time.Time // when
	shift   time.Duration
	disk    *disk
	keeper  *keeper
	runs    map[longstop.RunID]*run // that somebody answers for, or did, in this boot
	procs   map[int]*proc
	lastPID int
	freed   []int // numbers that are to be given out again
	changed chan struct{}
	links   map[*link]struct{}
}

// keeper is one keeper process.
type keeper struct {
	pid  int
	dead bool
}

// proc is one process of a run, or, with no run, a stranger.
type proc struct {
	pid     int
	start   uint64
	run     *run
	of      longstop.RunID
	ignores bool
	dead    bool
}

// NewHost returns a host that is up. Its name is what it is reached by.
func NewHost(name string, plan *Plan, witness *Witness, broken Broken) *Host {
	if plan == nil {
		plan = &Plan{}
	}
	if witness == nil {
		witness = &Witness{}
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:16])
	return &Host{Name: name, MachineID: id, StateID: "state_" + id, StateDir: "/home/sim/.local/state/longstop",
		plan: plan, witness: witness, broken: broken, boot: 1, booted: time.Now().Add(-time.Hour), disk: newDisk(),
		runs: map[longstop.RunID]*run{}, procs: map[int]*proc{}, lastPID: 1000, changed: make(chan struct{}),
		links: map[*link]struct{}{}}
}

// Row is the host as a gateway has it enrolled.
func (h *Host) Row(transport string) longstop.Host {
	hello := h.hello()
	return longstop.Host{Name: h.Name, Transport: transport, StateDir: h.StateDir, StateID: h.StateID, MachineID: h.MachineID,
		User: "sim", UID: 1000, Runner: "/home/sim/.local/share/longstop/longstop-runner-000000000000", RunnerSHA: hello.RunnerSHA256,
		HostKey: "SHA256:" + h.MachineID, EnrolledAt: longstop.At(time.Now()), Hello: &hello}
}

// bootID, now and wall are called with h.mu held, as is everything below that does not lock it.
func (h *Host) bootID() string { return fmt.Sprintf("%s-boot-%d", h.Name, h.boot) }

func (h *Host) now() longstop.BootTime { return longstop.BootTime(time.Since(h.booted)) }

func (h *Host) wall() longstop.Time { return longstop.At(time.Now().Add(h.shift)) }

// SetClock sets the host's wall clock forward by d, or back.
func (h *Host) SetClock(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shift += d
}

func (h *Host) hello() longstop.HostHello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return longstop.HostHello{
		Protocol: wire.Protocol, Version: longstop.Version, RunnerSHA256: "000000000000", OS: "linux", Arch: "amd64", Kernel: "sim",
		MachineID: h.MachineID, BootID: h.bootID(), User: "sim", UID: 1000, BootNow: h.now(), Now: h.wall(),
		StateDir: h.StateDir, StateID: h.StateID, StateFS: "sim",
		Boundaries: []longstop.BoundaryOffer{{Kind: longstop.BoundaryTree, Can: true}},
	}
}

// tell wakes whoever waits for a change of the host's.
func (h *Host) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// ensureKeeper is what a submit, a serve channel and whoever meets an orphan do.
func (h *Host) ensureKeeper() *keeper {
	if h.keeper == nil || h.keeper.dead {
		h.keeper = &keeper{pid: h.number()}
		h.heal()
	}
	return h.keeper
}

// KillKeeper ends the keeper. What it answered for nobody does now.
func (h *Host) KillKeeper() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killKeeper()
}

func (h *Host) killKeeper() {
	if h.keeper != nil {
		h.keeper.dead = true
	}
	for _, r := range h.runs {
		if r.by != nil && r.by.dead {
			r.abandon()
		}
	}
}

// KillOwner ends the owner of a run.
func (h *Host) KillOwner(id longstop.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[id]; r != nil {
		r.killOwner()
	}
}

// PowerLoss ends everything on the host, and what was not flushed. It is back after the plan's outage.
func (h *Host) PowerLoss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.powerLoss()
}

func (h *Host) powerLoss() {
	if h.down {
		return
	}
	h.down = true
	h.boot++
	for _, p := range h.procs {
		p.dead = true
	}
	h.procs, h.keeper, h.freed = map[int]*proc{}, nil, nil
	for _, r := range h.runs {
		r.gone = true
		r.abandon()
	}
	h.runs = map[longstop.RunID]*run{}
	h.disk.lose()
	h.cutLinks()
	h.tell()
	time.AfterFunc(max(h.plan.Outage, time.Millisecond), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.down, h.booted, h.lastPID = false, time.Now(), 1000
	})
}

// cutLinks ends every connection to the host.
func (h *Host) cutLinks() {
	for l := range h.links {
		go l.cut("the connection was lost")
	}
}

// CutLinks ends every connection to the host.
func (h *Host) CutLinks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutLinks()
}

// step is a place at which something may befall the host. It reports whether whoever passes goes on.
func (h *Host) step(r *run, name string) bool {
	if h.plan.Step == nil {
		return true
	}
	switch h.plan.Step(h.Name, name) {
	case PowerLoss:
		h.powerLoss()
	case KillOwner:
		if r != nil {
			r.killOwner()
		}
	case KillKeeper:
		h.killKeeper()
	}
	return !h.down && (r == nil || !r.gone)
}

// number gives out a process number: used ones first, so that an old number is soon another's.
func (h *Host) number() int {
	if len(h.freed) > 4 {
		n := h.freed[0]
		h.freed = h.freed[1:]
		return n
	}
	h.lastPID++
	return h.lastPID
}

func (h *Host) spawn(r *run, ignores bool) *proc {
	p := &proc{pid: h.number(), start: uint64(h.now() / 1e7), run: r, ignores: ignores}
	if r != nil {
		p.of = r.id
	}
	h.procs[p.pid] = p
	return p
}

// reap forgets a process. Its number goes to a stranger before anybody knows.
func (h *Host) reap(p *proc) {
	p.dead = true
	if h.procs[p.pid] != p {
		return
	}
	delete(h.procs, p.pid)
	if p.run == nil {
		h.freed = append(h.freed, p.pid)
		return
	}
	stranger := &proc{pid: p.pid, start: p.start + 1 + uint64(h.now()/1e7)}
	h.procs[p.pid] = stranger
	time.AfterFunc(time.Minute, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !stranger.dead {
			h.reap(stranger)
		}
	})
}

// signal sends a signal to whoever has a number, if he is still who is meant.
func (h *Host) signal(by *run, pid int, start uint64, sig string) bool {
	p := h.procs[pid]
	if p == nil || p.dead || p.start != start && !h.broken.SignalsByNumber {
		return false
	}
	if h.witness.Signalled != nil {
		h.witness.Signalled(h.Name, by.id, p.of, sig)
	}
	if sig == "TERM" && p.ignores {
		return true
	}
	// It dies a moment later, not within the call.
	time.AfterFunc(time.Millisecond, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.exit(p, nil, sig)
	})
	return true
}

// exit ends a process.
func (h *Host) exit(p *proc, code *int, sig string) {
	if p.dead {
		return
	}
	h.reap(p)
	if p.run != nil && !p.run.gone {
		h.runs[p.of].sawEnd(p, code, sig) // whoever answers for it now
	}
}

// Living counts the processes of a run that live.
func (h *Host) Living(id longstop.RunID) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.living(id))
}

func (h *Host) living(id longstop.RunID) (all []*proc) {
	for _, p := range h.procs {
		if p.run != nil && p.of == id {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *proc) int { return a.pid - b.pid })
	return all
}

func (p *proc) described() longstop.Process {
	return longstop.Process{PID: p.pid, UID: 1000, State: "S", StartTime: p.start, Command: "sim"}
}

func described(all []*proc) (list []longstop.Process) {
	for _, p := range all {
		list = append(list, p.described())
	}
	return list
}
