package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/internal/wire"
)

// assignment is what a keeper gives an owner: the run's folder, built and claimed, and what is
// nowhere on disk. Five descriptors come with it: the reading and writing ends of stdout's and
// stderr's pipes, and the gate's report.
type assignment struct {
	StateDir string       `json:"state_dir"`
	Home     string       `json:"home,omitempty"`    // where the run's cgroup is to be made
	Manager  systemd.Kind `json:"manager,omitempty"` // the owner is the main process of a unit of its
	Submit   wire.Submit  `json:"submit"`
	Login    login        `json:"login"`
}

// login is what a workload has from the login that submitted it.
type login struct {
	Environ [][]byte `json:"environ"`
	Dir     string   `json:"dir"`
	Umask   int      `json:"umask"`
	OOM     string   `json:"oom,omitempty"` // its oom_score_adj
}

// verdict is an owner's answer to its keeper, and a keeper's to whoever submitted: the record once
// the work was exec'd or could not be, or why nothing was begun.
type verdict struct {
	Record []byte          `json:"record,omitempty"`
	Over   bool            `json:"over,omitempty"` // the record is final
	Error  *longstop.Error `json:"error,omitempty"`
}

// ownerStream is the descriptor of an owner's end of the pair that it has with its keeper.
const ownerStream = 3

// RunOwner is an owner's main function: it starts one run's work and answers for it until its final
// record is durable. Its keeper may die meanwhile. One that a keeper started has the stream to it, one
// that a service manager did asks for it.
func RunOwner(args []string) int {
	inUnit := len(args) == 3 && args[1] == ownerInUnit
	inherited := ownerStream
	if inUnit {
		inherited = 2
	}
	children, signals := make(chan os.Signal, 1), make(chan os.Signal, 4)
	signal.Notify(children, unix.SIGCHLD)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT) // who is called an owner hears them
	if err := becomeServant("longstop-owner", inherited); err != nil {
		return exitNoAnswer
	}
	o := &owner{reaper: &boundary.Reaper{}}
	if len(args) > 0 {
		o.ahead, _ = record.Open(args[0])
	}
	var keeper *link
	var err error
	if inUnit {
		keeper, err = o.askFor(longstop.RunID(args[2]))
	} else if keeper, err = inheritedLink(ownerStream); err == nil {
		o.warm()
	}
	if err == nil {
		err = o.receive(keeper)
	}
	if err != nil || inUnit && o.given.Submit.RunID != longstop.RunID(args[2]) {
		return exitNoAnswer // the keeper went, or needs no owner
	}
	for !inUnit && len(signals) > 0 {
		<-signals // came before there was a run to be cancelled
	}
	fault.At("owner.assigned")
	custody, answer := o.launch()
	if custody == nil {
		keeper.send(answer)
		fault.At("owner.answered")
		return exitAnswered
	}
	rec := o.rec
	custody.accepted = sync.OnceFunc(func() { logAccepted(rec) })
	if custody.stages == nil {
		o.given = assignment{} // the script, the environment's values
	}
	var answering sync.WaitGroup
	answering.Go(func() { custody.answerKeeper(keeper) })
	fault.At("owner.attending")
	o.attend(custody, children, signals)
	answering.Wait()
	return exitAnswered
}

// answerSoon is how long the answer to a submit waits for the run's end: what is over at once, a slow
// flush included, is told once, and not as running first.
const answerSoon = 5 * time.Millisecond

// answerKeeper tells the keeper what became of the launch: that the work runs, or how it ended.
func (c *custody) answerKeeper(keeper *link) {
	over := false
	if c.stages == nil {
		c.awaited.Store(true)
		soon := time.NewTimer(answerSoon)
		defer soon.Stop()
		select {
		case <-c.done:
			over = true
		case <-soon.C:
			c.awaited.Store(false)
		}
	}
	keeper.send(verdict{Record: c.newest(), Over: over})
	keeper.close()
	fault.At("owner.answered")
	c.accepted()
}

// ownerInUnit is the argument of an owner that a service manager starts, between folder and run.
const ownerInUnit = "unit"

// askFor asks the keeper for a run. One that knows nothing of it closes the connection.
func (o *owner) askFor(id longstop.RunID) (*link, error) {
	if o.ahead == nil {
		return nil, errNobody
	}
	if err := systemd.Notify("READY=1"); err != nil {
		return nil, err
	}
	l, err := dial(o.ahead.FD(), keeperSocket())
	if err != nil {
		return nil, err
	}
	return l, l.send(ask{Verb: askOwn, RunID: id})
}

// warm pays, while no run waits, what the first use of each kind of message costs.
func (o *owner) warm() {
	environ := []byte("PATH=/usr/local/bin:/usr/bin:/bin")
	sample, _ := json.Marshal(assignment{StateDir: "/", Submit: wire.Submit{Secret: environ, Request: longstop.Request{Argv: []string{"true"}, Limits: &longstop.Limits{}}},
		Login: login{Environ: [][]byte{environ, environ, environ, environ}, Dir: "/"}})
	var given assignment
	wire.Tolerant(sample, &given)
	rec := firstRecord(given.Submit, writerOf(longstop.WriterOwner))
	rec.Main, rec.Result = &longstop.Main{}, &longstop.Result{}
	wire.Tolerant(wire.Sign(rec, given.Submit.Secret), &longstop.Record{})
	json.Marshal(verdict{})
	ownOOM()
	makeThreads(2)
}

// makeThreads has as many calls block at once, so that the runtime has threads for it when a run does.
func makeThreads(n int) {
	var ends [2]int
	if unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return
	}
	var blocked sync.WaitGroup
	for range n {
		blocked.Go(func() { unix.Read(ends[0], make([]byte, 1)) })
	}
	runtime.Gosched() // until each has blocked and let the next one run
	unix.Close(ends[1])
	blocked.Wait()
	unix.Close(ends[0])
}

// folder is the run's state folder, opened ahead if it is still the same.
func (o *owner) folder() (*record.Folder, error) {
	if o.ahead != nil && o.ahead.Dir() == o.given.StateDir && o.ahead.Check() == nil {
		return o.ahead, nil
	}
	return record.Open(o.given.StateDir)
}

// receive waits for a run.
func (o *owner) receive(keeper *link) error {
	fds, err := keeper.receiveWith(&o.given, 5)
	if err != nil {
		return err
	}
	o.report, o.outputs, o.inputs = fds[4], [2]int{fds[0], fds[2]}, [2]int{fds[1], fds[3]}
	return nil
}

// becomeServant makes this process one of those that outlive whoever started them and see secrets:
// in no folder, without foreign descriptors, not to be looked into, the last to be killed for want of
// memory where that is allowed, heir of its orphans. HUP is
// heard and does nothing; to ignore it would be inherited by every workload.
func becomeServant(name string, lastInherited int) error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	if lastInherited > 2 {
		unix.CloseOnExec(lastInherited)
	}
	if err := boundary.CloseInherited(lastInherited); err != nil {
		return err
	}
	boundary.Rename(name)
	boundary.ProtectFromOOM()
	unix.Umask(0077)
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return errors.Join(boundary.Conceal(), boundary.Subreap())
}

// owner is the process that owns one run.
type owner struct {
	reaper  *boundary.Reaper
	given   assignment
	outputs [2]int // reading ends of stdout's and stderr's pipes
	inputs  [2]int // writing ends
	report  int

	ahead *record.Folder // opened while no run waited
	gate  *birth
	// notAfter is when the work may start at the latest; 0: whenever its turn comes, for it was answered for.
	notAfter longstop.BootTime
	group    *boundary.Cgroup // nil: the boundary is the tree alone

	run    *record.Run
	rec    longstop.Record
	socket *listener
}

// launch starts the work and answers with its record.
//
//  1. The lock. The folder is read again under it: whoever had it before may have begun.
//  2. "starting" is written.
//  3. The gate is put, and seen to stand, where the workload will be (start).
//  4. "running" is written with the gate's identity, and both records are made durable by one flush.
//     Before it, nothing of the work can have run; a power failure then leaves a claim whose run
//     never started, with or without "starting". Beside it the socket is made by which the run can be
//     stopped.
//  5. The byte that opens the gate; exec, or the reason why not.
func (o *owner) launch() (*custody, verdict) {
	folder, err := o.folder()
	if err != nil {
		return nil, verdict{Error: told(err)}
	}
	if o.run, err = folder.Run(o.given.Submit.RunID); err != nil {
		return nil, verdict{Error: told(err)}
	}
	if err := lockSoon(o.run); err != nil && !errors.Is(err, record.ErrFinal) {
		return nil, verdict{Error: told(fmt.Errorf("take the run's lock: %w", err))}
	}
	fault.At("owner.locked")
	if !o.run.Fresh() {
		raw, _, err := o.run.Read()
		if err != nil {
			return nil, verdict{Error: told(err)}
		}
		return nil, verdict{Record: raw} // it was begun before
	}
	o.rec = firstRecord(o.given.Submit, writerOf(longstop.WriterOwner))
	if _, err := o.run.Write(&o.rec, o.given.Submit.Secret, false); err != nil {
		return nil, o.fail(launchError("record", "", err))
	}
	fault.At("owner.starting")
	if staged(&o.given.Submit.Request) {
		if failure := o.listen(); failure != nil {
			return nil, o.fail(failure)
		}
		return o.stage(folder)
	}
	return o.start()
}

const ownerSocket = "owner.sock"

// listen makes the socket by which the run can be stopped, if there is none.
func (o *owner) listen() *longstop.LaunchError {
	if o.socket != nil {
		return nil
	}
	var err error
	if o.socket, err = listen(o.run.DirFD(), ownerSocket); err != nil {
		return launchError("socket", ownerSocket, err)
	}
	return nil
}

// firstRecord is a run's record before anything of it is there.
func firstRecord(sub wire.Submit, by longstop.Writer) longstop.Record {
	now, boot := longstop.At(time.Now()), boundary.BootNow()
	rec := longstop.Record{
		ActionID: sub.ActionID, SessionID: sub.SessionID, KeyHash: record.KeyHash(sub.Key), Digest: sub.Request.Digest,
		At: now, BootAt: boot, Writer: by, State: longstop.WorkloadStarting,
		Lifetime: sub.Request.Lifetime, Leftover: sub.Request.Leftover, GraceMS: int64(sub.Request.GraceS * 1000),
		Boundary: longstop.Boundary{Kind: longstop.BoundaryTree}, Output: outputOf(sub.Request),
	}
	if rec.Leftover == "" {
		rec.Leftover = longstop.LeftoverWait
	}
	if sub.Request.Exclusive != "" {
		rec.State = longstop.WorkloadQueued // until it has the name
	}
	if sub.Request.Verify != "" {
		rec.EffectProof = longstop.ProofUnknown // until it is shown
	}
	if sub.Request.Lifetime == longstop.Leased {
		rec.LeaseUntil, rec.LeaseRenewed = sub.LeaseUntil, now
	}
	if sub.Request.DeadlineS > 0 {
		rec.DeadlineUntil = boot.Add(time.Duration(sub.Request.DeadlineS * float64(time.Second)))
	}
	return rec
}

// start does steps 3 to 5 of launch.
func (o *owner) start() (*custody, verdict) {
	if failure := o.enclose(); failure != nil {
		return nil, o.fail(failure)
	}
	o.notAfter = o.given.Submit.NotAfter
	raw, failure := o.begin()
	if failure != nil {
		return nil, o.fail(failure)
	}
	o.run.Settle() // beside the work: its end needs it, and not its beginning
	runtime.Gosched()
	custody, err := o.custody(raw)
	if err != nil {
		// Without a clock of its own the run cannot be answered for: the keeper inherits it.
		return nil, verdict{Error: told(err)}
	}
	return custody, verdict{Record: raw}
}

// begin starts the work in the boundary that is made, and returns the record that says so.
func (o *owner) begin() (raw []byte, failure *longstop.LaunchError) {
	if failure := o.placeGate(); failure != nil {
		return nil, failure
	}
	if o.notAfter > 0 && boundary.BootNow() > o.notAfter {
		o.gate.stream.close()
		return nil, &longstop.LaunchError{Step: "not_after", Message: "the time in which it might start has passed"}
	}
	enter(&o.rec, longstop.WorkloadRunning)
	o.rec.StartedAt, o.rec.Main = longstop.At(time.Now()), o.gate.identity()
	one, empty := 1, false
	o.rec.Boundary.Processes, o.rec.Boundary.Empty = &one, &empty
	o.rec.At, o.rec.BootAt = longstop.At(time.Now()), boundary.BootNow()
	listening := make(chan *longstop.LaunchError, 1)
	go func() { listening <- o.listen() }() // while the disk is waited for
	raw, err := o.run.Write(&o.rec, o.given.Submit.Secret, true)
	failure = <-listening
	if err != nil {
		failure = launchError("record", "", err)
	}
	if failure != nil {
		o.gate.stream.close()
		return nil, failure
	}
	fault.At("owner.running")
	if failure := o.gate.open(o.report); failure != nil {
		return nil, failure
	}
	unix.Close(o.report)
	return raw, nil
}

// enclose makes the run's cgroup where it can have one. That one could be made a while ago and cannot
// be now is said; the tree encloses the work all the same, unless more was asked for.
func (o *owner) enclose() *longstop.LaunchError {
	limits := o.given.Submit.Request.Limits
	var err error
	switch {
	case o.given.Manager != "":
		o.group, o.rec.Boundary, err = encloseInUnit(o.given.Submit.RunID, o.given.Manager, limits.OfRun() != nil)
		if err != nil {
			return launchError("boundary", "", err)
		}
	case o.given.Home != "":
		if o.group, o.rec.Boundary, err = enclose(o.given.Submit.RunID, boundary.Home{Dir: o.given.Home}); err != nil {
			o.rec.Anomalies = append(o.rec.Anomalies, "the run has no cgroup of its own: "+err.Error())
		}
	}
	if least := least(o.given.Submit.Request); strength[o.rec.Boundary.Kind] < strength[least] {
		return &longstop.LaunchError{Step: "boundary", Message: fmt.Sprintf("the run's boundary would be %s, and at least %s was asked for", o.rec.Boundary.Kind, least)}
	}
	if limits.OfRun() != nil {
		if err := o.group.Limit(limits); err != nil {
			return launchError("limits", "", err)
		}
	}
	return nil
}

// custody begins to answer for the run.
func (o *owner) custody(raw []byte) (*custody, error) {
	tree := &ownTree{reaper: o.reaper}
	c, err := newCustody(o.run, o.rec, o.given.Submit.Secret, &enclosure{tree: tree, group: o.group})
	if err != nil {
		return nil, err
	}
	tree.concerns = c.concerns
	c.publish(raw)
	if o.rec.Leftover == longstop.LeftoverRelease {
		for _, fd := range []int{o.outputs[0], o.outputs[1], o.inputs[0], o.inputs[1]} {
			unix.Close(fd)
		}
	} else {
		c.output = newCapture(o.run, o.outputs, o.rec.Output)
		c.output.start()
	}
	return c, nil
}

// fail ends a run of which nothing ran.
func (o *owner) fail(failure *longstop.LaunchError) verdict {
	for empty := false; !empty; empty = o.reaper.Reap(nil) { // the gate, on its way out
		for _, child := range o.reaper.Children() {
			o.reaper.Signal(child.Identity, unix.SIGKILL)
		}
		time.Sleep(100 * time.Microsecond)
	}
	if o.socket != nil {
		o.socket.close()
	}
	(&enclosure{group: o.group}).close()
	enter(&o.rec, longstop.WorkloadLaunchFailed)
	o.rec.LaunchError, o.rec.Main, o.rec.EffectProof = failure, nil, ""
	o.rec.StartedAt, o.rec.FinishedAt = longstop.Time{}, longstop.At(time.Now())
	none, empty := 0, true
	o.rec.Boundary.Processes, o.rec.Boundary.Empty = &none, &empty
	o.rec.Output.Stream = longstop.StreamComplete
	o.rec.At, o.rec.BootAt = longstop.At(time.Now()), boundary.BootNow()
	fault.At("owner.failed")
	raw, err := o.run.Finish(&o.rec, o.given.Submit.Secret)
	if err != nil {
		e := told(fmt.Errorf("%s; nothing of the work ran, and that could not be written down: %w", failure.Message, err))
		return verdict{Error: e}
	}
	logEnd(o.rec)
	return verdict{Record: raw}
}

// attend answers for the run, for whoever asks, until it is over and they have their answers.
func (o *owner) attend(c *custody, children, signals <-chan os.Signal) {
	var asking sync.WaitGroup
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for l, err := o.socket.accept(); err == nil; l, err = o.socket.accept() {
			asking.Go(func() { c.serve(l) })
		}
	}()
	go func() {
		for {
			select {
			case <-children:
				c.nudge()
			case <-signals:
				c.heard()
			case <-c.done:
				return
			}
		}
	}()
	c.attend()
	o.socket.close() // who comes now finds the final record by way of the keeper
	<-accepting
	waitAtMost(&asking, 2*time.Second)
}

// heard is a TERM or INT to whoever answers for the run: a cancel, whose cause is settled when it is
// over.
func (c *custody) heard() {
	c.do(func() { c.ask(longstop.CauseSignal, c.grace()) })
	go func() {
		if goingDown(c.boundaryNow()) {
			c.do(func() {
				if c.rec.Cause == longstop.CauseSignal {
					c.rec.Cause = longstop.CauseShutdown
				}
			})
		}
	}()
}

func waitAtMost(group *sync.WaitGroup, most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	go func() { group.Wait(); cancel() }()
	<-ctx.Done()
}

// ownTree is an owner's boundary: whatever descends from it.
type ownTree struct {
	reaper   *boundary.Reaper
	concerns func(pid int) bool // whose end is told with all that is known of them
}

func (t *ownTree) settle(ended func(boundary.Exit)) (empty, proven bool) {
	return t.reaper.ReapMany(t.concerns, ended), true
}

func (t *ownTree) walk(visit func(boundary.Stat) bool) {
	t.reaper.Walk(t.reaper.ChildNumbers(), visit)
}

func (t *ownTree) signal(id boundary.Identity, sig unix.Signal, following ...unix.Signal) error {
	return t.reaper.Signal(id, sig, following...)
}

func (t *ownTree) kill(before func(boundary.Stat), after func(struck)) { killEach(t, before, after) }

func (t *ownTree) doubts() []longstop.Process { return nil }

func (t *ownTree) pace() time.Duration { return recount }

func (t *ownTree) rest() { boundary.Forget() }

// workEnv is the environment of the workload: the login's, then the request's, then ours.
func workEnv(given assignment, run *record.Run) []string {
	sub := given.Submit
	ours := []struct{ name, value string }{
		{boundary.RunMark, string(sub.RunID)},
		{"LONGSTOP_ACTION_ID", string(sub.ActionID)},
		{"LONGSTOP_EFFECT_TOKEN", sub.EffectToken},
		{"LONGSTOP_EVIDENCE", run.Path("evidence")},
		{"LONGSTOP_PROGRESS", run.Path("progress")},
	}
	set := map[string]bool{}
	var env []string
	add := func(name, value string) {
		if !set[name] {
			set[name] = true
			env = append(env, name+"="+value)
		}
	}
	for _, v := range ours {
		add(v.name, v.value)
	}
	for name, value := range sub.EnvValues {
		add(name, string(value))
	}
	if t := sub.Terminal; t != nil && t.Term != "" {
		add("TERM", t.Term)
	} else if sub.Request.PTY {
		add("TERM", defaultTerm)
	}
	for _, entry := range given.Login.Environ {
		if name, value, ok := strings.Cut(string(entry), "="); ok && name != "" {
			add(name, value)
		}
	}
	return env
}
