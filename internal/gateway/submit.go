package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// send sends the submit, and again under the same key while its caller waits and the host would
// still take it. It reports whether the host answered. A channel that turned out to be dead before
// anything was sent is replaced once.
func (l *launching) send(ch *channel) bool {
	sent := false
	for tries := 0; ; tries++ {
		c := l.carry(ch, sent)
		if c.err == nil {
			l.settle(c, !sent)
			return true
		}
		if !sent && !maySent(c.err) {
			next, err := l.afresh(c.err, tries)
			if next == nil {
				l.reject(err)
				return false
			}
			ch = next
			continue
		}
		sent = true
		l.unanswered(c)
		if somebodyElse(c) || tries > 0 && !l.pause(tries-1) {
			return false
		}
		if ch = l.again(); ch == nil {
			return false
		}
	}
}

// afresh is the channel for a first sending whose channel was dead, or why there is none.
func (l *launching) afresh(cause error, tries int) (*channel, error) {
	if tries > 0 || !goneQuiet(cause) {
		return nil, cause
	}
	ch, err := l.h.connect(l.ctx, l.note)
	if err != nil {
		return nil, err
	}
	if clock := ch.clock(); clock.bootID != l.submit.BootID || clock.now() > l.submit.NotAfter || !l.wanted() {
		return nil, cause
	}
	return ch, nil
}

// errNobodyWaits is why a submit is not sent once more.
var errNobodyWaits = &longstop.Error{Code: longstop.CodeTimeout, Message: "nobody is waiting for the submit's answer any more"}

// somebodyElse reports whether what came on a channel of the submit's own is not a runner's. Whatever
// ran there instead has run, and would run once more: nobody asks it again. The shared channel, where
// there is a runner, finds out what became of the submit.
func somebodyElse(c carried) bool {
	switch longstop.CodeOf(c.err) {
	case longstop.CodeNoRunner, longstop.CodeBadAnswer, longstop.CodeAccessRefused:
		return c.own
	}
	return false
}

// pause waits before another sending, and reports whether there is still somebody to send it for.
func (l *launching) pause(tries int) bool {
	select {
	case <-l.ctx.Done():
		return false
	case <-l.h.ctx.Done():
		return false
	case <-time.After(min(reconcile.Backoff(tries, l.h.seed()), 2*time.Second)):
		return true
	}
}

// carried is one sending of a submit: its answer or why there is none, and the SSH fact.
type carried struct {
	reply reply
	err   error
	ssh   longstop.SSHCommand
	own   bool   // the channel was the submit's own
	side  *aside // of an own channel that is open still
}

// carry sends the submit, once more if it was sent, over the shared channel or one of its own.
func (l *launching) carry(ch *channel, again bool) carried {
	c := carried{ssh: sshFacts(ch.facts, ch.id, ch.noiseWords())}
	if l.submit.Request.OwnChannel {
		return l.carryAside(again)
	}
	c.ssh.State = longstop.SSHCarried
	if sent := l.answered; sent != nil {
		l.answered = nil
		c.reply, c.err = ch.await(l.h.ctx, wire.VerbSubmit, sent, submitWithin)
	} else {
		c.reply, c.err = ch.ask(l.h.ctx, wire.VerbSubmit, l.submit, submitWithin)
	}
	if c.err == nil {
		return c
	}
	switch {
	case !maySent(c.err):
		c.ssh.State = longstop.SSHNotOpened
	case !ch.live():
		c.ssh.State = longstop.SSHLost
	}
	return c
}

func sshFacts(f sshlink.Facts, id longstop.ChannelID, noise string) longstop.SSHCommand {
	return longstop.SSHCommand{State: longstop.SSHNotOpened, Channel: id, Auth: f.Auth, Key: f.Key, HostKey: f.HostKey, Noise: noise}
}

func (l *launching) carryAside(again bool) carried {
	side, err := l.h.openAside(l.h.ctx, wire.VerbSubmit)
	if err == nil && again && !l.wanted() { // who waited for it has left while the channel was opened
		side.close()
		err = errNobodyWaits
	}
	if err != nil {
		// CodeTimeout: the command was sent. But the request is on its standard input, and was not.
		return carried{own: true, err: &unanswered{Err: err}, ssh: longstop.SSHCommand{State: longstop.SSHNotOpened}}
	}
	c := carried{own: true, side: side}
	c.reply, c.err = side.ask(l.h.ctx, l.submit, submitWithin)
	c.ssh = sshFacts(side.facts, side.id, bounded(side.noise))
	c.ssh.State = longstop.SSHOpen
	if exit, ended := side.exit(exitWithin); ended {
		c.exited(exit)
		side.close()
		c.side = nil
	}
	return c
}

func (c *carried) exited(exit sshlink.Exit) {
	c.ssh.State = exit.State
	detail(&c.ssh, exit)
}

// detail adds to an SSH fact what the channel said at its end.
func detail(s *longstop.SSHCommand, exit sshlink.Exit) {
	s.Signal = exit.Signal
	if exit.State == longstop.SSHExited {
		s.Status = &exit.Status
	}
}

// noteSSH notes a sending's SSH fact inside a change, from its channel's beginning on: what stands there is of an
// earlier sending.
func noteSSH(d *draft, c carried) error {
	to := c.ssh.State
	if to == longstop.SSHNotOpened {
		return nil
	}
	d.SSHCommand = c.ssh
	d.SSHCommand.State = longstop.SSHNotOpened
	for _, state := range lifecycle.SSHCommands.Path(longstop.SSHNotOpened, to) {
		if err := stepSSH(d, state); err != nil {
			return err
		}
	}
	return nil
}

// stepSSH moves the SSH fact on.
func stepSSH(d *draft, to longstop.SSHState) error {
	state, err := lifecycle.SSHCommands.Step(d.SSHCommand.State, to)
	if err == nil {
		d.SSHCommand.State, d.SSHCommand.At = state, d.at
	}
	return err
}

// settle notes the host's answer: one transaction for what the launch, the channel and the record say,
// and for the run's end where that follows at once.
func (l *launching) settle(c carried, first bool) {
	raw := sqlite.Raw{Kind: "submit_answer", Bytes: c.reply.raw}
	var answer wire.SubmitAnswer
	err := c.reply.read(&answer)
	var seen examined
	var bad error
	if err == nil {
		seen, bad = examine(&l.made, l.secret, answer.Record)
	}
	var applied wire.RunStatus // what the facts rest on now: a record, and who it says lives on
	_, lost := l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if err := noteSSH(d, c); err != nil {
			return err
		}
		if err != nil {
			return l.refused(d, err, first, raw)
		}
		if bad != nil {
			return l.unreadable(d, answer, bad, raw)
		}
		sighting := lifecycle.Sighting{At: d.at, By: l.h.by(), Signed: seen.signed}
		launched := d.Launch.State
		changed, contradiction := lifecycle.Observe(&d.Action, seen.record, sighting)
		d.note(journal.LaunchAnswered, l.g.by, map[string]any{"launch": d.Launch.State, "ssh_command": d.SSHCommand.State,
			"state": d.Workload.State, "existing": answer.Existing, "changed": changed}, raw)
		noteDetached(d, launched, l.g.by)
		if contradiction != "" {
			d.note(journal.Contradiction, l.g.by, map[string]any{"says": contradiction})
		}
		if applied.Record = l.early(d); applied.Record == nil {
			applied.Record = seen.raw
		}
		applied.Released = d.Workload.Released
		return nil
	})
	if lost == nil && applied.Record != nil {
		l.h.hasLooked(l.id, fingerprintOf(applied))
	}
	if c.side != nil {
		l.g.goes(func() { l.awaitExit(c) })
	}
}

// early applies, inside a change, what was pushed about the run before its submit's answer was applied,
// and returns that record, nil if there is none.
func (l *launching) early(d *draft) []byte {
	early := l.h.takeEarly(l.id)
	if early == nil {
		return nil
	}
	sight, raw := l.h.sightOf(&d.Action, l.secret, early.status, early.now, l.h.by())
	seen, ok := sight.(reconcile.Seen)
	if !ok {
		return nil
	}
	observe(d, seen, raw)
	return raw
}

// refused notes an answer that is an error. The first sending of a submit that the host refused
// started nothing. Of a later one that says nothing about the first.
func (l *launching) refused(d *draft, cause error, first bool, raw sqlite.Raw) error {
	code := longstop.CodeOf(cause)
	say := map[string]any{"code": code, "message": cause.Error()}
	if d.Launch.State != longstop.LaunchAccepted && (code == longstop.CodeKeyVoid || first && saysNothingStarted(code)) {
		if err := lifecycle.Reject(&d.Action, code, cause.Error(), d.at); err != nil {
			return err
		}
		d.Launch.Hint = hintOf(cause)
		d.note(journal.LaunchAnswered, l.g.by, say, raw)
		return nil
	}
	if err := setUnknown(d, code, cause.Error()); err != nil {
		return err
	}
	d.note(journal.LaunchUnanswered, l.g.by, say, raw)
	return nil
}

// saysNothingStarted reports whether a host that answers a submit with this code has started, and
// will start, nothing for it.
func saysNothingStarted(code longstop.Code) bool {
	switch code {
	case longstop.CodeUsage, longstop.CodeKeyConflict, longstop.CodeKeyVoid, longstop.CodeExpired, longstop.CodeHostMismatch,
		longstop.CodeStateFolder, longstop.CodeUnsupported, longstop.CodeLaunchFailed, longstop.CodeRefused, longstop.CodeNotAllowed, longstop.CodeVersionMismatch:
		return true
	}
	return false
}

// unreadable notes an answer whose record is no evidence for this action.
func (l *launching) unreadable(d *draft, answer wire.SubmitAnswer, cause error, raw sqlite.Raw) error {
	if err := setUnknown(d, longstop.CodeOf(cause), cause.Error()); err != nil {
		return err
	}
	d.note(journal.LaunchUnanswered, l.g.by, map[string]any{
		"code": longstop.CodeOf(cause), "message": cause.Error(), "existing": answer.Existing}, raw)
	cannotSee(d, longstop.UnreadableRecord, cause.Error(), l.g.by, nil)
	return nil
}

// setUnknown notes inside a change that no readable answer came. A launch that was accepted by other
// evidence meanwhile, a pushed record, stays so.
func setUnknown(d *draft, code longstop.Code, message string) error {
	if d.Launch.State == longstop.LaunchAccepted {
		return nil
	}
	if d.Launch.State != longstop.LaunchUnknown {
		state, err := lifecycle.Launches.Step(d.Launch.State, longstop.LaunchUnknown)
		if err != nil {
			return err
		}
		d.Launch = longstop.Launch{State: state, At: d.at}
	}
	d.Launch.Because, d.Launch.Message = string(code), message
	return nil
}

// unanswered notes that a submit may have gone out and no readable answer came.
func (l *launching) unanswered(c carried) {
	if c.side != nil {
		l.g.goes(func() { l.awaitExit(c) })
	}
	var raws []sqlite.Raw
	var u *unanswered
	if errors.As(c.err, &u) && len(u.Raw) > 0 {
		raws = append(raws, sqlite.Raw{Kind: "submit_answer", Bytes: u.Raw})
	}
	l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if d.Launch.State == longstop.LaunchUnknown && !maySent(c.err) {
			return nil // another sending, which did not go out
		}
		if err := noteSSH(d, c); err != nil {
			return err
		}
		if err := setUnknown(d, longstop.CodeOf(c.err), c.err.Error()); err != nil {
			return err
		}
		d.note(journal.LaunchUnanswered, l.g.by, map[string]any{
			"code": d.Launch.Because, "message": d.Launch.Message, "ssh_command": d.SSHCommand.State}, raws...)
		return nil
	})
}

// again returns a channel for sending the same submit once more, or nil: nobody waits, it was
// cancelled, or the host would not take it any more.
func (l *launching) again() *channel {
	for tries := 0; l.wanted(); tries++ {
		ch, err := l.h.connect(l.ctx, l.note)
		if err == nil {
			clock := ch.clock()
			if clock.bootID != l.submit.BootID || clock.now() > l.submit.NotAfter || !l.wanted() {
				return nil
			}
			if !l.noteAgain() {
				return nil
			}
			return ch
		}
		if !goneQuiet(err) || l.pastNotAfter() || !l.pause(tries) {
			return nil
		}
	}
	return nil
}

// noteAgain journals that the submit is about to go out again.
func (l *launching) noteAgain() bool {
	_, err := l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		d.note(journal.SubmittedAgain, l.g.by, nil)
		return nil
	})
	return err == nil
}

// wanted reports whether the submit may be sent again: its caller is there, and nobody cancelled.
func (l *launching) wanted() bool {
	if l.ctx.Err() != nil || l.h.ctx.Err() != nil {
		return false
	}
	a, ok := l.h.kept(l.id)
	return ok && a.Cancel.State == longstop.CancelNone
}

// pastNotAfter judges by the host's clock as it was last heard, and is only ever late.
func (l *launching) pastNotAfter() bool {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot.bootID == l.submit.BootID && h.boot.now() > l.submit.NotAfter
}

// reject notes that nothing was sent, and why. What was approved and could not be sent because the gateway
// closes is left to the next one.
func (l *launching) reject(cause error) {
	if errors.Is(cause, errOver) || l.h.ctx.Err() != nil && l.made.Approval.State != longstop.ApprovalNotRequired {
		return
	}
	l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if d.Launch.State == longstop.LaunchRejected {
			return nil
		}
		d.SSHCommand.Noise = printed(cause)
		reject := rejectDraft
		if errors.Is(cause, errUnsigned) {
			reject = notSent // a yes that only the store has stays there, for who compares it with the journal
		}
		if err := reject(d, l.g.by, longstop.CodeOf(cause), cause.Error()); err != nil {
			return err
		}
		d.Launch.Hint = hintOf(cause)
		return nil
	})
}

// printed is what the login shell printed instead of starting a runner. What ssh said of a way that
// did not lead to one is not its word.
func printed(cause error) string {
	switch longstop.CodeOf(cause) {
	case longstop.CodeNoRunner, longstop.CodeTimeout, longstop.CodeBadAnswer:
		return noiseOf(cause)
	case longstop.CodeAccessRefused:
		if said := noiseOf(cause); accountClosed(said) {
			return said
		}
	}
	return ""
}

// rejectDraft notes inside a change that nothing was sent, and nothing will be: an approval for it is none any more.
func rejectDraft(d *draft, by string, code longstop.Code, message string) error {
	if err := endApproval(d, by, message); err != nil {
		return err
	}
	return notSent(d, by, code, message)
}

func notSent(d *draft, by string, code longstop.Code, message string) error {
	if err := lifecycle.Reject(&d.Action, code, message, d.at); err != nil {
		return err
	}
	d.note(journal.LaunchAnswered, by, map[string]any{"launch": d.Launch.State, "code": code, "message": message, "sent": false})
	return nil
}

// awaitExit notes how an own channel ended that ended after its answer.
func (l *launching) awaitExit(c carried) {
	defer c.side.close()
	ended := make(chan sshlink.Exit, 1)
	l.g.goes(func() { ended <- c.side.session.Wait() })
	var exit sshlink.Exit
	select {
	case exit = <-ended:
	case <-time.After(answerWithin):
		exit.State = longstop.SSHNoStatus // given up here: the answer was all that was wanted
	case <-l.h.ctx.Done():
		return
	}
	l.g.change(context.WithoutCancel(l.ctx), l.id, func(d *draft) error {
		if d.SSHCommand.Channel != c.side.id || d.SSHCommand.State != longstop.SSHOpen {
			return nil
		}
		if err := stepSSH(d, exit.State); err != nil {
			return err
		}
		detail(&d.SSHCommand, exit)
		d.note(journal.ChannelClosed, l.g.by, map[string]any{"channel": c.side.id, "ssh_command": d.SSHCommand.State, "status": d.SSHCommand.Status})
		return nil
	})
}
