package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// A direct action is a command on an SSH channel of its own, for hosts without a runner. Nobody there owns
// it, so nobody can be asked about it: the end of the channel is all that is ever known, and it is the SSH
// fact, never a workload's.

// directDrain is how long output is read after the command's end, while something holds it open.
const directDrain = 5 * time.Second

// direct is a direct action whose command was sent.
type direct struct {
	g       *Gateway
	h       *host
	id      longstop.ActionID
	link    sshlink.Link
	session sshlink.Channel
	stdin   *os.File         // nil: none
	streams [2]*directStream // stdout, stderr
	end     context.CancelCauseFunc
	ended   context.Context // with why the channel is to be closed here
}

// Why a channel is closed here. Of the command nothing more is known by it.
var (
	errDirectCancelled = errors.New("cancelled: its channel was closed; whether the command ended, nobody can say")
	errDirectDeadline  = errors.New("its deadline passed: its channel was closed; whether the command ended, nobody can say")
	errDirectStopped   = errors.New("the gateway stopped, and its channel with it")
)

// runDirect takes a direct action as far as its command has been sent:
//
//  1. a connection of its own, to the host key that was enrolled;
//  2. the intent, durable;
//  3. the command. What is not known to have been sent was not started; what may have been is unknown, and
//     stays so.
func (l *launching) runDirect() {
	var link sshlink.Link
	ctx, cancel := l.within(l.g.cfg.Reach) // for all of one attempt
	defer func() { cancel() }()
	err := l.reach(func() (err error) {
		cancel()
		ctx, cancel = l.within(l.g.cfg.Reach)
		if link, err = l.h.dialDirect(ctx, l.note); err != nil {
			return explained(l.h.target(), l.h.late(ctx, err))
		}
		return nil
	})
	if err != nil {
		l.reject(err)
		return
	}
	d := &direct{g: l.g, h: l.h, id: l.id, link: link}
	intended, err := l.intendDirect(ctx, d)
	if err != nil {
		l.reject(err)
	}
	if err != nil || !intended {
		d.letGo()
		return
	}
	if d.session, err = link.Exec(ctx, l.want.command); err != nil {
		d.letGo()
		l.notOpened(l.h.late(ctx, err))
		return
	}
	d.ended, d.end = context.WithCancelCause(l.h.ctx)
	l.g.directs.Store(l.id, d)
	a, err := l.g.change(context.WithoutCancel(l.ctx), l.id, l.g.directOpened)
	if err == nil && cancelPending(&a) {
		d.end(errDirectCancelled)
	}
	l.g.goes(d.attend)
}

// dialDirect makes a connection for one direct action. It leads to the host key that was enrolled, or
// nowhere: that key is all by which a host without a runner can be recognised.
func (h *host) dialDirect(ctx context.Context, note func(string)) (sshlink.Link, error) {
	leave, err := h.dialTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	link, err := h.dial(ctx, note)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	enrolled := h.row.HostKey
	h.mu.Unlock()
	if got := link.Facts().HostKey; enrolled != "" && got != enrolled {
		link.Close()
		return nil, &longstop.Error{Code: longstop.CodeHostMismatch,
			Message: fmt.Sprintf("%s has the host key %s, and was enrolled with %s", h.name, got, enrolled),
			Hint:    "if that is right: longstop host add " + h.name + ", as before"}
	}
	return link, nil
}

// intendDirect notes that the command is about to be sent, with all that it needs in hand. It reports whether it
// still is to be.
func (l *launching) intendDirect(ctx context.Context, d *direct) (intended bool, err error) {
	permit, err := l.grant(ctx)
	if err != nil {
		return false, err
	}
	if l.want.stdin != "" {
		if d.stdin, err = os.Open(l.want.stdin); err != nil {
			return false, fmt.Errorf("read standard input: %w", err)
		}
	}
	if d.streams, err = l.g.directStreams(l.id, &l.made.Request); err != nil {
		return false, err
	}
	facts := sshFacts(d.link.Facts(), longstop.NewChannelID(l.g.cfg.Clock.Now()), "")
	a, err := l.g.change(ctx, l.id, func(d *draft) error {
		if err := expire(d, l.g.by); err != nil {
			return err
		}
		if !d.Unresolved() || d.Launch.State != longstop.LaunchNotAttempted {
			return nil
		}
		if err := l.g.consume(d, permit); err != nil {
			return err
		}
		state, err := lifecycle.Launches.Step(d.Launch.State, longstop.LaunchSent)
		if err != nil {
			return err
		}
		d.Launch, d.SSHCommand = longstop.Launch{State: state, At: d.at}, facts
		d.note(journal.LaunchIntended, l.g.by, map[string]any{"digest": d.Request.Digest, "channel": facts.Channel, "host_key": facts.HostKey})
		return nil
	})
	return err == nil && a.Launch.State == longstop.LaunchSent, err
}

// letGo closes what was in hand for a command that was not sent, or that nobody hears of.
func (d *direct) letGo() {
	d.link.Close()
	closeStreams(d.streams)
	if d.stdin != nil {
		d.stdin.Close()
	}
}

// notOpened notes that the command's channel did not open: nothing was started, or nobody can say.
func (l *launching) notOpened(cause error) {
	if longstop.CodeOf(cause) != longstop.CodeTimeout {
		l.reject(cause)
		return
	}
	l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if err := setUnknown(d, longstop.CodeOf(cause), cause.Error()); err != nil {
			return err
		}
		if err := endDirectCancel(d, cause); err != nil {
			return err
		}
		if err := stepSSH(d, longstop.SSHLost); err != nil {
			return err
		}
		d.note(journal.LaunchUnanswered, l.g.by, map[string]any{"code": d.Launch.Because, "message": d.Launch.Message, "ssh_command": d.SSHCommand.State})
		return nil
	})
}

// directOpened notes that the server has taken a direct action's command.
func (g *Gateway) directOpened(d *draft) error {
	state, err := lifecycle.Launches.Step(d.Launch.State, longstop.LaunchAccepted)
	if err != nil {
		return err
	}
	d.Launch = longstop.Launch{State: state, At: d.at}
	if err := stepSSH(d, longstop.SSHOpen); err != nil {
		return err
	}
	d.note(journal.ChannelOpened, g.by, map[string]any{"channel": d.SSHCommand.Channel, "launch": d.Launch.State, "ssh_command": d.SSHCommand.State})
	return nil
}

// attend is with the channel to its end, and notes how it ended. A channel that is closed here is: by a
// cancel, a deadline, the gateway's own end.
func (d *direct) attend() {
	defer d.g.directs.Delete(d.id)
	defer d.end(nil) // the host's context does not keep what is over
	defer func() { d.g.goes(func() { d.link.Close() }) }()
	if s := d.deadline(); s > 0 {
		timer := time.AfterFunc(s, func() { d.end(errDirectDeadline) })
		defer timer.Stop()
	}
	d.g.goes(d.feed)
	var reading sync.WaitGroup
	for i, from := range []io.Reader{d.session.Stdout(), d.session.Stderr()} {
		reading.Go(func() { d.streams[i].take(from) })
	}
	exited := make(chan sshlink.Exit, 1)
	d.g.goes(func() { exited <- d.session.Wait() })
	var exit sshlink.Exit
	var closedHere error
	select {
	case exit = <-exited:
		held := time.AfterFunc(directDrain, func() { d.session.Close() })
		reading.Wait()
		held.Stop()
	case <-d.ended.Done():
		if closedHere = context.Cause(d.ended); d.h.ctx.Err() != nil {
			closedHere = errDirectStopped
		}
		d.session.Close()
		reading.Wait()
	}
	closeStreams(d.streams)
	d.over(exit, closedHere)
}

func (d *direct) deadline() time.Duration {
	a, _ := d.h.kept(d.id)
	return seconds(a.Request.DeadlineS)
}

// feed gives the command its standard input, and then the end of it.
func (d *direct) feed() {
	in := d.session.Stdin()
	if d.stdin != nil {
		io.Copy(in, d.stdin) // a command that does not read it is left to itself
		d.stdin.Close()
		dropStdin(d.stdin.Name())
	}
	in.Close()
}

// over notes the channel's end, and of a channel that was closed here why. Nobody will ever know it again, so
// what cannot be written now is written once it can; the next gateway says what one that stops has not.
func (d *direct) over(exit sshlink.Exit, closedHere error) {
	switch closedHere {
	case nil:
	case errDirectStopped:
		exit = sshlink.Exit{State: longstop.SSHLost}
	default:
		exit = sshlink.Exit{State: longstop.SSHNoStatus}
	}
	for {
		_, err := d.g.change(context.WithoutCancel(d.h.ctx), d.id, func(dr *draft) error { return d.noteEnd(dr, exit, closedHere) })
		if err == nil {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-d.h.ctx.Done():
			return
		}
	}
}

// noteEnd does what over says, inside a change.
func (d *direct) noteEnd(dr *draft, exit sshlink.Exit, closedHere error) error {
	if dr.SSHCommand.State == longstop.SSHNotOpened { // that it opened could not be written
		if err := d.g.directOpened(dr); err != nil {
			return err
		}
	}
	d.measure(&dr.Action)
	say := map[string]any{"channel": dr.SSHCommand.Channel}
	if closedHere != nil {
		say["closed_here"] = closedHere.Error()
	}
	if err := endDirectCancel(dr, closedHere); err != nil {
		return err
	}
	if err := stepSSH(dr, exit.State); err != nil {
		return err
	}
	detail(&dr.SSHCommand, exit)
	say["ssh_command"], say["status"], say["signal"] = dr.SSHCommand.State, dr.SSHCommand.Status, exit.Signal
	dr.note(journal.ChannelClosed, d.g.by, say)
	return nil
}

// endDirectCancel is what the end of a direct action's channel says about stopping it: nothing, if it was
// closed here; that it had ended before, if not.
func endDirectCancel(d *draft, closedHere error) error {
	if closedHere == errDirectDeadline && d.Cancel.State == longstop.CancelNone {
		state, err := lifecycle.Cancels.Step(d.Cancel.State, longstop.CancelRequested)
		if err != nil {
			return err
		}
		d.Cancel = longstop.Cancel{State: state, By: "deadline", At: d.at}
		d.note(journal.CancelRequested, "deadline", map[string]any{"deadline_s": d.Request.DeadlineS})
	}
	if d.Cancel.State != longstop.CancelRequested {
		return nil
	}
	to := longstop.CancelTooLate
	if closedHere != nil {
		to = longstop.CancelUnconfirmed
		d.Cancel.Because = closedHere.Error()
	}
	for _, state := range lifecycle.Cancels.Path(d.Cancel.State, to) {
		d.Cancel.State = state
	}
	kind := journal.CancelAnswered
	if to == longstop.CancelUnconfirmed {
		kind = journal.CancelUnconfirmed
	}
	d.note(kind, d.Cancel.By, map[string]any{"cancel": d.Cancel.State, "message": d.Cancel.Because})
	return nil
}

// cutDirect closes the channel of a direct action that is to be stopped.
func (g *Gateway) cutDirect(id longstop.ActionID) {
	if d, ok := g.directs.Load(id); ok {
		d.(*direct).end(errDirectCancelled)
	}
}

// loseDirects notes that the channels of an earlier gateway are gone, and with them all that could be known
// of their commands.
func (g *Gateway) loseDirects(pending []sqlite.Pending) error {
	var changes []change
	for _, p := range pending {
		if p.Action.Request.Owner != longstop.OwnerNone || p.Action.Launch.State == longstop.LaunchNotAttempted {
			continue
		}
		changes = append(changes, change{p.Action.ID, func(d *draft) error {
			if d.Launch.State == longstop.LaunchSent {
				if err := setUnknown(d, longstop.CodeTimeout, errDirectStopped.Error()); err != nil {
					return err
				}
			}
			if err := endDirectCancel(d, errDirectStopped); err != nil {
				return err
			}
			g.measureKept(&d.Action)
			if err := stepSSH(d, longstop.SSHLost); err != nil {
				return err
			}
			d.note(journal.ChannelClosed, g.by, map[string]any{"channel": d.SSHCommand.Channel, "ssh_command": d.SSHCommand.State,
				"closed_here": errDirectStopped.Error()})
			return nil
		}})
	}
	if len(changes) == 0 {
		return nil
	}
	_, err := g.changeAll(g.ctx, changes)
	return err
}
