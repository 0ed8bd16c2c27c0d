package gateway

import (
	"context"
	"fmt"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Inquire asks the application about the work of an action whose end is not known, or that has ended: it runs
// the action's own preflight or verify, or a script given instead, as a new action that only reads, and what
// that came to is kept with the earlier one. It is work, so somebody asks for it; reconciling never does.
func (g *Gateway) Inquire(ctx context.Context, id string, req longstop.InquireRequest, peer longstop.Requester, told Told) (longstop.Action, error) {
	earlier, err := g.Action(ctx, id)
	if err != nil {
		return longstop.Action{}, err
	}
	if err := theirs(&earlier, peer); err != nil {
		return longstop.Action{}, err
	}
	script := req.Script
	switch {
	case req.Kind != longstop.InquiryPreflight && req.Kind != longstop.InquiryVerify:
		return longstop.Action{}, usage("to ask %.20q: there are preflight and verify", req.Kind)
	case script == "" && req.Kind == longstop.InquiryPreflight:
		script = earlier.Request.Preflight
	case script == "":
		script = earlier.Request.Verify
	}
	switch {
	case req.Script == "" && script != "" && earlier.Request.Redacted:
		return longstop.Action{}, redactedRequest(&earlier)
	case script == "":
		return longstop.Action{}, &longstop.Error{Code: longstop.CodeUsage, ActionID: earlier.ID,
			Message: fmt.Sprintf("%s has no %s of its own", earlier.ID, req.Kind), Hint: "--with-script gives one"}
	case earlier.Outcome == longstop.OutcomePending:
		return longstop.Action{}, &longstop.Error{Code: longstop.CodeRefused, ActionID: earlier.ID,
			Message: fmt.Sprintf("%s has not ended: what the application says now may be otherwise in a moment", earlier.ID), Hint: earlier.Next}
	}
	within := earlier.Request.CheckS
	if within == 0 {
		within = longstop.DefaultCheckS
	}
	run := longstop.RunRequest{Host: earlier.Host, Key: req.Key, By: req.By, Request: longstop.Request{Script: script, Cwd: earlier.Request.Cwd,
		Effect: longstop.EffectRead, Leftover: longstop.LeftoverKill, DeadlineS: within, Reason: fmt.Sprintf("%s of %s", req.Kind, earlier.ID)}}
	next := &nextAttempt{g: g, earlier: earlier, inquires: req.Kind,
		given: req.Script != "" && peer.Kind == longstop.RequesterAgent, by: words(requester(req.By, peer))}
	return g.launch(ctx, run, next, peer, told)
}

// beginInquiry notes on the earlier action, in the transaction that makes the new one, that it is asked about.
func (n *nextAttempt) beginInquiry(d *draft, made *draft) {
	d.Checks = append(append([]longstop.Inquiry(nil), d.Checks...),
		longstop.Inquiry{ActionID: made.ID, Kind: n.inquires, State: longstop.CheckRunning, At: made.at, Given: n.given})
	d.note(journal.Inquired, n.by, map[string]any{"kind": n.inquires, "inquiry": made.ID})
}

// endInquiry keeps with the earlier action what an inquiry of it came to, in the transaction that notes its end.
func (g *Gateway) endInquiry(tx *sqlite.Tx, inquiry *draft) error {
	stored, err := tx.Action(inquiry.InquiresOf)
	if err != nil {
		return err
	}
	d := &draft{Action: *stored, at: inquiry.at}
	d.Checks = append([]longstop.Inquiry(nil), d.Checks...)
	for i := range d.Checks {
		if c := &d.Checks[i]; c.ActionID == inquiry.ID && c.State == longstop.CheckRunning {
			c.State, c.At = answerOf(&inquiry.Action), inquiry.at
			d.note(journal.Inquired, g.by, map[string]any{"kind": c.Kind, "inquiry": c.ActionID, "state": c.State})
			return g.write(tx, d)
		}
	}
	return nil
}

// answerOf is what an inquiry that is over came to, as of a preflight or verify on its host.
func answerOf(a *longstop.Action) longstop.CheckState {
	r := a.Workload.Result
	switch {
	case r == nil || r.ExitCode == nil || a.Outcome != longstop.OutcomeSucceeded && a.Outcome != longstop.OutcomeFailed:
		return longstop.CheckUnknown
	case *r.ExitCode == 0:
		return longstop.CheckPassed
	case *r.ExitCode == longstop.PreflightDone && a.Inquires == longstop.InquiryPreflight:
		return longstop.CheckNothingToDo
	}
	return longstop.CheckFailed
}
