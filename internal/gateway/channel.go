package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// Bounds of what goes over a channel. Every open, write and answer has one.
const (
	openWithin   = 10 * time.Second
	writeWithin  = 10 * time.Second
	answerWithin = 15 * time.Second
)

// channel is one serve channel: requests and their answers in any order, and pushes. Once it has
// failed it stays so, and everyone who waits on it is told why.
type channel struct {
	id      longstop.ChannelID
	host    string
	to      address
	link    sshlink.Link
	facts   sshlink.Facts
	session sshlink.Channel
	ledger  *wire.Ledger
	watcher func(wire.Pushed)

	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]chan<- reply
	heard   time.Time // when the last frame came, on this process's own clock
	boot    bootClock
	hello   wire.HelloAnswer
	noise   []byte
	err     error
	broken  []byte // the bytes that were no frame
	done    chan struct{}
	read    chan struct{} // closed when nothing more is read
}

// bootClock is the host's boot clock as last heard, and when.
type bootClock struct {
	bootID string
	at     longstop.BootTime
	heard  time.Time
}

// now is no later than the host's present instant: the answer was on its way when it was heard.
func (b bootClock) now() longstop.BootTime { return b.at.Add(time.Since(b.heard)) }

// openChannel starts serving over an opened session and asks who is there. The channel ends with
// an error if nobody answers, or somebody else than was enrolled.
func openChannel(ctx context.Context, host string, at time.Time, link sshlink.Link, command string, to address, create bool) (*channel, error) {
	begun := time.Now()
	opening, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	session, err := link.ExecKept(opening, command)
	if err != nil {
		return nil, &unanswered{Err: fmt.Errorf("open a serve channel on %s: %w", host, err)}
	}
	c := &channel{
		id: longstop.NewChannelID(at), host: host, to: to, link: link, facts: link.Facts(), session: session,
		ledger: wire.NewLedger(), waiting: map[string]chan<- reply{}, heard: time.Now(), done: make(chan struct{}), read: make(chan struct{}),
	}
	stderr := drain(session.Stderr())
	nonce := wire.NewNonce()
	go c.receive(nonce, stderr)
	asked := time.Now()
	got, err := c.request(ctx, nonce, wire.VerbHello, wire.HelloRequest{Create: create}, answerWithin)
	if err == nil {
		err = got.read(&c.hello)
	}
	if err == nil {
		err = c.recognise()
	}
	if err != nil {
		c.fail(err)
		return nil, c.unheard(err, asked)
	}
	c.tell(c.hello.BootID, c.hello.BootNow)
	c.hello.ClockAheadMS = ahead(c.hello.Now.Time, at, at.Add(time.Since(begun))).Milliseconds()
	return c, nil
}

// unheard adds to a hello that nobody answered in time what the login shell printed meanwhile.
func (c *channel) unheard(err error, asked time.Time) error {
	var u *unanswered
	if !errors.As(err, &u) || longstop.CodeOf(err) != longstop.CodeTimeout && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	waited := time.Since(asked).Round(time.Second / 10)
	select {
	case <-c.read:
	case <-time.After(time.Second):
	}
	said := c.noiseWords()
	return &longstop.Error{Code: longstop.CodeTimeout, Noise: said,
		Message: fmt.Sprintf("the login shell of %s did not start the runner within %v%s", c.host, waited, quoted(said))}
}

// recognise compares who answered with who was enrolled, as the runner did itself.
func (c *channel) recognise() error {
	h := &c.hello
	if h.Protocol != wire.Protocol {
		return &longstop.Error{Code: longstop.CodeVersionMismatch,
			Message: fmt.Sprintf("the runner on %s speaks protocol %d, this gateway %d", c.host, h.Protocol, wire.Protocol),
			Hint:    "longstop host check " + c.host}
	}
	want := c.to.identity
	if want.MachineID == "" {
		return nil
	}
	if h.MachineID != want.MachineID || h.UID != want.UID || h.StateID != want.StateID {
		return &longstop.Error{Code: longstop.CodeHostMismatch,
			Message: fmt.Sprintf("%s is not the host that was enrolled: machine %s uid %d state %s, enrolled were %s %d %s",
				c.host, h.MachineID, h.UID, h.StateID, want.MachineID, want.UID, want.StateID),
			Hint: "check where the name leads. If the host was set up anew: longstop host remove " + c.host + ", longstop host add " + c.host}
	}
	return nil
}

// receive reads frames until the channel ends.
func (c *channel) receive(first string, stderr *drained) {
	defer close(c.read)
	frames := wire.NewReader(heeded{c.session.Stdout(), c.heed}, wire.Options{Nonce: first, Data: true})
	begun := false
	for {
		nonce, body, err := frames.Next()
		if err == nil {
			if !begun {
				begun = true
				c.keepNoise(frames.Noise())
			}
			err = c.dispatch(nonce, body, frames)
		}
		if err != nil {
			c.mu.Lock()
			c.broken = frames.Raw()
			c.mu.Unlock()
			if !begun {
				c.keepNoise(join(frames.Noise(), stderr.bytes()))
			}
			c.fail(c.ended(err, begun, frames, stderr))
			return
		}
	}
}

// ended says in words why no further frame comes.
func (c *channel) ended(err error, begun bool, frames *wire.Reader, stderr *drained) error {
	var bad *wire.BadFrame
	if errors.As(err, &bad) && !bad.Cut {
		return &longstop.Error{Code: longstop.CodeBadAnswer, Err: err, Noise: bounded(frames.Noise()),
			Message: "what came from " + c.host + " is no answer, nothing more is read from this channel"}
	}
	select {
	case <-c.link.Done():
		if e := c.link.Err(); e != nil {
			return e
		}
	case <-c.done:
		return c.err
	default:
	}
	exit := c.session.Wait()
	if exit.State == longstop.SSHLost || err != io.EOF && bad == nil {
		return &longstop.Error{Code: longstop.CodeUnreachable, Message: "the connection to " + c.host + " was lost", Err: err}
	}
	said := bounded(join(frames.Noise(), stderr.bytes()))
	if !begun && bad == nil {
		return noRunner(c.host, exit, said)
	}
	died := &longstop.Error{Code: longstop.CodeUnreachable, Noise: said,
		Message: fmt.Sprintf("the runner's serve process on %s %s%s", c.host, exitWords(exit), quoted(said))}
	if bad != nil {
		died.Err = bad
	}
	return died
}

func (c *channel) dispatch(nonce string, body []byte, frames *wire.Reader) error {
	answer, err := wire.DecodeAnswer(nonce, body)
	if err != nil {
		return err
	}
	if answer.Data = frames.Data(); len(answer.Data) > 0 && !answer.Final {
		return &wire.BadFrame{Why: "a push with data"}
	}
	answer.Error = saidBy(c.host, answer.Error)
	if err := c.ledger.Accept(answer); err != nil {
		return err
	}
	c.mu.Lock()
	waiter := c.waiting[nonce]
	if answer.Final {
		delete(c.waiting, nonce)
	}
	c.mu.Unlock()
	if answer.Final {
		if waiter != nil {
			waiter <- reply{answer, frames.Raw()} // has room for the one final answer
		}
		return nil
	}
	var pushed wire.Pushed
	if err := wire.Tolerant(answer.Body, &pushed); err != nil {
		return &wire.BadFrame{Why: "a push that cannot be read: " + err.Error()}
	}
	c.tell(c.hello.BootID, pushed.BootNow)
	c.watcher(pushed)
	return nil
}

// brokeOff ends the channel after a write that failed. Whoever reads may know better why: a command
// that ended at once closes its standard input as well.
func (c *channel) brokeOff(err error) {
	select {
	case <-c.done:
	case <-time.After(time.Second):
		c.fail(&longstop.Error{Code: longstop.CodeUnreachable, Message: "the connection to " + c.host + " was lost", Err: err})
	}
}

// watch subscribes to changes and heartbeats. The channel fails when heartbeats stay out.
func (c *channel) watch(every time.Duration, watcher func(wire.Pushed)) error {
	c.watcher = watcher
	nonce := wire.NewNonce()
	frame, err := encodeRequest(nonce, wire.VerbWatch, c.to, wire.WatchRequest{HeartbeatMS: every.Milliseconds()}, 0)
	if err != nil {
		return err
	}
	ended := make(chan reply, 1)
	if err := c.send(nonce, true, frame, ended); err != nil {
		return err
	}
	go c.listen(every, ended)
	return nil
}

func (c *channel) listen(every time.Duration, ended <-chan reply) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case r := <-ended:
			err := error(&longstop.Error{Code: longstop.CodeUnreachable, Message: "the runner on " + c.host + " ended its watch"})
			if r.Error != nil {
				err = r.Error
			}
			c.fail(err)
			return
		case <-tick.C:
			if silent := c.silence(); silent > staleAfter(every) {
				c.fail(&longstop.Error{Code: longstop.CodeUnreachable,
					Message: fmt.Sprintf("%s has sent nothing for %v", c.host, silent.Round(time.Second))})
				return
			}
		}
	}
}

// staleAfter is how long after it was made an observation counts as live.
func staleAfter(heartbeat time.Duration) time.Duration { return 3 * heartbeat }

func (c *channel) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.heard)
}

func (c *channel) tell(bootID string, now longstop.BootTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot = bootClock{bootID, now, time.Now()}
}

func (c *channel) clock() bootClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *channel) keepNoise(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noise = b
}

func (c *channel) noiseWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bounded(c.noise)
}

// fail ends the channel with the first reason given.
func (c *channel) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.done)
	}
	c.mu.Unlock()
	if first {
		c.session.Close()
	}
}

// live reports whether requests may be sent.
func (c *channel) live() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// errAbsent is the cause within an error that says that the shell found no runner to run.
var errAbsent = errors.New("the runner is not where it was put")

func isAbsent(err error) bool { return errors.Is(err, errAbsent) }

// noRunner is the error for a command that ended without any frame. 126 and 127 are a shell's for a
// command that it could not run or find (POSIX, 2.8.2): that alone is mended by putting it there. One
// that a signal ended is nothing that asking again would not mend.
func noRunner(host string, exit sshlink.Exit, said string) error {
	if exit.State == longstop.SSHSignaled {
		return &longstop.Error{Code: longstop.CodeUnreachable, Noise: said,
			Message: fmt.Sprintf("the runner on %s %s%s", host, exitWords(exit), quoted(said))}
	}
	if accountClosed(said) {
		return &longstop.Error{Code: longstop.CodeAccessRefused, Noise: said,
			Message: fmt.Sprintf("the login of %s runs no command: it %s%s", host, exitWords(exit), quoted(said))}
	}
	var cause error
	if exit.State == longstop.SSHExited && (exit.Status == 126 || exit.Status == 127) {
		cause = errAbsent
	}
	e := &longstop.Error{Code: longstop.CodeNoRunner, Noise: said, Err: cause,
		Message: fmt.Sprintf("the login shell of %s ran something else than the runner: it %s%s", host, exitWords(exit), quoted(said))}
	// The Go runtime's own words for what it needs before anything of ours runs.
	lack := ""
	switch {
	case strings.Contains(said, "failed to create new OS thread"):
		lack = "may have no more processes or threads (ulimit -u)"
	case strings.Contains(said, "failed to reserve"), strings.Contains(said, "runtime: out of memory"):
		lack = "may not have the address space that it needs, about 1 GB (ulimit -v)"
	default:
		return e
	}
	e.Message = fmt.Sprintf("the runner cannot run on %s: the account %s; it %s%s", host, lack, exitWords(exit), quoted(said))
	return e
}

// accountClosed reports whether what was printed are the words for an account that nobody may use: those of
// nologin(8), and sshd's for a password that must be changed first.
func accountClosed(said string) bool {
	return strings.Contains(said, "This account is currently not available") || strings.Contains(said, "Password change required")
}

// saidBy has an error of a host's runner, which does not know what it is called here, name the host.
func saidBy(host string, e *longstop.Error) *longstop.Error {
	if e == nil || strings.Contains(e.Message, host) {
		return e
	}
	named := *e
	named.Message = host + ": " + e.Message
	return &named
}
