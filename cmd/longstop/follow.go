package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/client"
	"github.com/longstop/longstop/internal/fastjson"
)

// How long things may last before a person is told.
const (
	sayAfter       = time.Second            // of a host or gateway that is asked
	lingerPatience = 700 * time.Millisecond // of lingering
	remindAfter    = time.Minute            // of a host's silence, growing fivefold
	progressPause  = 15 * time.Second       // between two words about how far the work is
	askPatience    = 3 * time.Second        // of asking something on the side
)

// follower follows one action to its end for somebody at a terminal or in a script: the run's
// output to stdout and stderr, byte for byte; what happens in notes; signals to what they mean. A
// gateway that goes away is started again, and the output goes on at the byte where it stopped.
type follower struct {
	app            *app
	client         *client.Client
	open           func(context.Context) (*client.Follow, error) // the first connection; later ones follow the id
	stdout, stderr *sink                                         // where the run's output goes; nil: nowhere
	until          func(*longstop.Action) bool                   // nil: until it is settled
	first          func(*longstop.Action)                        // called once, when the id is known
	limit          time.Duration                                 // of the wait; 0: none
	// cancels says that a first interrupt cancels the run; without it one leaves it.
	cancels bool
	// onlooker says that nobody waits for the run here: leaving is not worth a word or a record.
	onlooker bool
	// rest says that what released processes write after the run's end is wanted too.
	rest bool

	action  *longstop.Action
	happens chan happening

	begun       bool // a stream was there: the gateway took the request
	cancelling  bool // asked for; sent as soon as there is an id
	cancelSent  bool
	asking      bool // until the gateway has answered the cancel
	lost        longstop.UnknownReason
	stoppedAt   int64 // of stdout, when host or gateway was lost
	linger      <-chan time.Time
	remind      <-chan time.Time
	remindNext  time.Duration
	retry       <-chan time.Time
	retryNext   time.Duration
	failures    int
	told        string    // the gateway's last line
	saidFar     time.Time // when it was last said how far the work is
	gatewayGone bool
}

// happening is one thing that a goroutine of the follower reports to its loop.
type happening struct {
	action *longstop.Action
	note   string
	opened bool  // the stream is there (again)
	ended  error // the stream ended: io.EOF where it was whole
	broken error // nobody takes the output any more
	cancel *cancelled

	handled chan struct{} // closed once the loop has dealt with it: what is said keeps its order
}

// cancelled is how asking for a cancel ended.
type cancelled struct{ err error }

const gatewayStopped = "the gateway was stopped"

// givenUp says that the follower stopped waiting while the run may go on.
type givenUp struct{ why string }

func (l *givenUp) Error() string { return l.why }

// follow returns the action once it is settled (or as far as until says). A *givenUp error says that
// the wait was given up, which has been recorded and said.
func (f *follower) follow(ctx context.Context) (*longstop.Action, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.happens = make(chan happening)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// They stay caught: one that comes as the end is being said does not leave it unsaid.
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away does not take the run along
	go f.pull(ctx, f.open)         // only now: what has begun is not left by a signal
	var limit <-chan time.Time
	if f.limit > 0 {
		limit = time.After(f.limit)
	}
	over, slow := false, time.After(sayAfter)
	for {
		select {
		case h := <-f.happens:
			done, err := f.handle(ctx, h)
			close(h.handled)
			if err != nil {
				return f.action, err
			}
			if done {
				over = true
				if !f.asking {
					return f.action, nil
				}
				// The cancel that ended it is about to say how it went.
				limit = time.After(time.Second)
			}
			if over && !f.asking {
				return f.action, nil
			}
		case s := <-signals:
			if over {
				return f.action, nil
			}
			if err := f.signalled(ctx, s); err != nil {
				return f.action, err
			}
		case <-limit:
			if over {
				return f.action, nil
			}
			return f.action, f.leave(ctx, "the wait of "+span(f.limit)+" is over")
		case <-slow:
			f.tellSlow()
		case <-f.linger:
			f.linger = nil
			go f.tellLingering(ctx, *f.action)
		case <-f.remind:
			f.note("%s", lostSight(f.action, f.lost, f.app.now()))
			f.remindLater()
		case <-f.retry:
			f.retry = nil
			go f.pull(ctx, f.again())
		}
	}
}

func (f *follower) handle(ctx context.Context, h happening) (done bool, err error) {
	switch {
	case h.opened:
		f.begun = true
		f.failures, f.retryNext = 0, 0
		if f.gatewayGone {
			f.gatewayGone = false
			f.note("the gateway answers again%s", f.resumedAt())
		}
		if f.cancelling && !f.cancelSent && f.action != nil {
			f.cancel(ctx)
		}
	case h.action != nil:
		f.saw(ctx, h.action)
		return f.until != nil && f.until(h.action), nil
	case h.note != "" && h.note != f.told: // trying again is not worth another line
		f.told = h.note
		f.note("%s", plain(h.note))
	case h.broken != nil:
		return f.outputBroken(ctx, h.broken)
	case h.cancel != nil:
		f.asking = false
		if h.cancel.err != nil {
			f.cancelFailed(h.cancel.err)
		}
	case h.ended != nil:
		return f.streamEnded(ctx, h.ended)
	}
	return false, nil
}

// outputBroken is what `| head` leads to: the output has no reader, and the run is none of its
// business. A run that has ended, or is just ending, is told as usual; one that goes on is left.
func (f *follower) outputBroken(ctx context.Context, err error) (done bool, fatal error) {
	if f.action != nil {
		asking, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		if a, waitErr := f.client.Wait(asking, string(f.action.ID), time.Second); waitErr == nil && a.Settled() {
			f.action = &a
			if errors.Is(err, syscall.EPIPE) {
				return true, nil
			}
			f.note("%s", ending(&a))
			return true, &longstop.Error{Code: longstop.CodeInternal, ActionID: a.ID, Message: "the output cannot be written here: " + err.Error(),
				Hint: "all of it is kept: longstop logs " + string(a.ID)}
		}
	}
	if errors.Is(err, syscall.EPIPE) {
		return false, f.leave(ctx, "nobody reads the output any more")
	}
	return false, f.leave(ctx, "the output cannot be written: "+err.Error())
}

// again opens the stream of the action that is known, from the bytes that are next.
func (f *follower) again() func(context.Context) (*client.Follow, error) {
	if f.action == nil {
		return f.open // the same request under the same key: it begins once
	}
	id, from := f.action.ID, client.Offsets{Stdout: f.stdout.offset(), Stderr: f.stderr.offset(), Rest: f.rest}
	return func(ctx context.Context) (*client.Follow, error) { return f.client.Follow(ctx, id, from) }
}

// streamEnded decides what the end of a stream means: the action's end, an error, or a gateway
// that is to be found again.
func (f *follower) streamEnded(ctx context.Context, err error) (done bool, fatal error) {
	if err == io.EOF && f.action != nil && f.action.Settled() {
		return true, nil
	}
	switch code := longstop.CodeOf(err); {
	case code == longstop.CodeStopped && f.action != nil:
		return false, f.leave(ctx, gatewayStopped)
	case code == longstop.CodeTokenRefused && f.begun && !f.onlooker: // it held when this began, and that goes on
		return false, f.leave(ctx, plain(asError(err).Message))
	}
	gone := err == io.EOF || errors.Is(err, client.ErrGone)
	f.failures++
	if !gone && (f.action == nil || !f.gatewayGone || f.failures > 5) {
		return false, err
	}
	if !f.gatewayGone {
		f.gatewayGone, f.stoppedAt = true, f.stdout.offset()
		f.note("the gateway went away or does not answer: looking for it")
	}
	f.retryNext = min(max(2*f.retryNext, 100*time.Millisecond), 2*time.Second)
	f.retry = time.After(f.retryNext)
	return false, nil
}

// saw takes a new sight of the action and says what changed.
func (f *follower) saw(ctx context.Context, next *longstop.Action) {
	prev := f.action
	f.action = next
	if prev == nil {
		if f.first != nil {
			f.first(next)
		}
		if f.cancelling && !f.cancelSent {
			f.cancel(ctx)
		}
		prev = &longstop.Action{}
	}
	for _, line := range changed(prev, next, f.app.now()) {
		f.note("%s", line)
	}
	f.far(prev, next)
	f.sight(next)
	if next.Output.AfterEnd && !prev.Output.AfterEnd {
		f.sawEnd(next)
	}
	switch {
	case next.Workload.State != longstop.WorkloadLingering:
		f.linger = nil
	case prev.Workload.State != longstop.WorkloadLingering:
		f.linger = time.After(lingerPatience)
	}
}

// far says how far the work is by its own word, now and then.
func (f *follower) far(prev, next *longstop.Action) {
	p := next.Workload.Progress
	if p == nil || next.Workload.State.Final() || prev.Workload.Progress != nil && prev.Workload.Progress.Line == p.Line {
		return
	}
	if now := f.app.now(); now.Sub(f.saidFar) >= progressPause {
		f.saidFar = now
		f.note("progress: %s", plain(p.Line))
	}
}

// sight says when the host cannot be seen, and when it can again.
func (f *follower) sight(a *longstop.Action) {
	why := unseen(a)
	switch {
	case why != "" && f.lost == "":
		f.lost, f.stoppedAt = why, f.stdout.offset()
		advice := "keep waiting, or Ctrl-C to leave it"
		if f.cancels && !f.cancelling {
			advice = "keep waiting; Ctrl-C cancels it once it answers, twice leaves it"
		}
		f.note("%s", lostSight(a, why, f.app.now())+between+advice)
		f.remindNext = remindAfter
		f.remindLater()
	case why == "" && f.lost != "":
		f.lost, f.remind = "", nil
		if !a.Settled() {
			f.note("%s answers again%s", plain(a.Host), f.resumedAt())
		}
	}
}

func (f *follower) remindLater() {
	f.remind = time.After(f.remindNext)
	f.remindNext *= 5
}

func (f *follower) resumedAt() string {
	if f.stdout == nil || f.stoppedAt == 0 {
		return ""
	}
	return between + "resumed at byte " + number(f.stoppedAt) + between + "nothing missed"
}

func (f *follower) note(format string, args ...any) {
	f.app.talk.note(format, args...)
}

// tellSlow says what is waited for where nothing has come yet.
func (f *follower) tellSlow() {
	switch {
	case f.gatewayGone:
	case f.action == nil:
		f.note("waiting for the gateway")
	case f.action.Launch.State == longstop.LaunchSent:
		f.note("waiting for %s to answer", plain(f.action.Host))
	}
}

// tellLingering asks who is left, so that the note can name them; without an answer it counts.
func (f *follower) tellLingering(ctx context.Context, a longstop.Action) {
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	seen, _ := f.client.Inspect(asking, string(a.ID))
	advice := ""
	if f.cancels {
		advice = " (Ctrl-C cancels)"
	}
	f.report(ctx, happening{note: lingering(&a, seen.Processes, advice)})
}

// report hands something to the loop and returns once it was dealt with.
func (f *follower) report(ctx context.Context, h happening) {
	h.handled = make(chan struct{})
	select {
	case f.happens <- h:
	case <-ctx.Done():
		return
	}
	select {
	case <-h.handled:
	case <-ctx.Done():
	}
}

// pull reads one follow stream to its end: output goes out as it comes, all else to the loop.
func (f *follower) pull(ctx context.Context, open func(context.Context) (*client.Follow, error)) {
	f.report(ctx, happening{ended: f.stream(ctx, open)})
}

func (f *follower) stream(ctx context.Context, open func(context.Context) (*client.Follow, error)) error {
	stream, err := open(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	f.report(ctx, happening{opened: true})
	for {
		e, err := stream.Next()
		if err != nil {
			return err
		}
		switch e.Kind {
		case longstop.FollowStdout:
			err = f.put(f.stdout, e)
		case longstop.FollowStderr:
			err = f.put(f.stderr, e)
		case longstop.FollowDropped:
			var gap longstop.DroppedOutput
			if err := json.Unmarshal(e.Data, &gap); err != nil {
				return fmt.Errorf("%w: a range that cannot be read: %w", client.ErrGone, err)
			}
			f.skip(ctx, gap)
		case longstop.FollowNote:
			f.report(ctx, happening{note: string(e.Data)})
		case longstop.FollowAction:
			a, err := fastjson.ReadAction(e.Data)
			if err != nil {
				return fmt.Errorf("%w: an action that cannot be read: %w", client.ErrGone, err)
			}
			f.report(ctx, happening{action: a})
		}
		if err != nil {
			f.report(ctx, happening{broken: err})
			<-ctx.Done()
			return ctx.Err()
		}
	}
}

// signalled says what a signal means: the first interrupt cancels (where that is the verb's way),
// every other one stops the waiting and leaves the run to the gateway.
func (f *follower) signalled(ctx context.Context, s os.Signal) error {
	if s != syscall.SIGINT {
		return f.leave(ctx, "ended by "+map[os.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGHUP: "a hangup"}[s])
	}
	if !f.cancels || f.cancelling {
		return f.leave(ctx, "interrupted")
	}
	f.cancelling = true
	if f.action == nil {
		f.note("it is cancelled as soon as it has an id (Ctrl-C again leaves it)")
		return nil
	}
	f.cancel(ctx)
	return nil
}

// cancel asks the gateway to cancel; the run's own stream tells how it ends.
func (f *follower) cancel(ctx context.Context) {
	f.cancelSent, f.asking = true, true
	id := f.action.ID
	f.note("cancelling %s (Ctrl-C again leaves it to the gateway)", id)
	go func() {
		_, err := f.client.Cancel(ctx, string(id), func(line string) { f.report(ctx, happening{note: line}) })
		f.report(ctx, happening{cancel: &cancelled{err}})
	}()
}

func (f *follower) cancelFailed(err error) {
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrAbsent) {
		f.cancelSent = false // once the gateway is back
		return
	}
	f.note("not cancelled yet: %s", plain(asError(err).Message))
}

// leave stops waiting, records it, and says what goes on.
func (f *follower) leave(ctx context.Context, why string) error {
	if f.onlooker {
		return &givenUp{why}
	}
	if f.action == nil {
		f.note("%s · what was asked for may still begin: longstop ps", why)
		return &givenUp{why}
	}
	asking, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	recorder := &client.Client{Home: f.client.Home, Token: f.client.Token} // an absent gateway is left absent
	if err := recorder.GiveUp(asking, f.action.ID, why); err != nil && !errors.Is(err, client.ErrAbsent) && !errors.Is(err, client.ErrGone) &&
		longstop.CodeOf(err) != longstop.CodeTokenRefused {
		f.note("that nobody waits could not be recorded: %s", plain(asError(err).Message))
	}
	rest, stop := ": "+mayGoOn(f.action, f.app.now()), " (longstop cancel stops it)"
	switch {
	case f.cancelling:
		rest, stop = ": the gateway goes on cancelling it", ""
	case f.lost == "" && !f.gatewayGone && why != gatewayStopped:
		rest = kept(f.action, f.app.now())
	}
	f.note("%s · %s is left%s · longstop wait %s%s", why, f.action.ID, rest, f.action.ID, stop)
	return &givenUp{why}
}
