package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Retry launches the next attempt at an action's work, as Run would: a new action under a new key, with
// the earlier one's request and effect token. It is refused where lifecycle.Retry does not allow it, and
// the refusal is journalled. Of several who ask at once, one gets it.
func (g *Gateway) Retry(ctx context.Context, id string, req longstop.RetryRequest, peer longstop.Requester, told Told) (longstop.Action, error) {
	earlier, err := g.Action(ctx, id)
	if err != nil {
		return longstop.Action{}, err
	}
	if err := theirs(&earlier, peer); err != nil {
		return longstop.Action{}, err
	}
	// An agent's own preflight says nothing that its retry does not say already.
	asked := req.Preflight != "" && peer.Kind != longstop.RequesterAgent
	next := &nextAttempt{g: g, earlier: earlier, preflight: asked, by: words(requester(req.By, peer)), asker: words(peer)}
	if err := next.allowed(ctx, &earlier, req.Key); err != nil {
		next.refuse(ctx, err)
		return longstop.Action{}, err
	}
	run, err := next.request(req)
	if err != nil {
		return longstop.Action{}, err
	}
	a, err := g.launch(ctx, run, next, peer, told)
	if a.ID == "" && longstop.CodeOf(err) == longstop.CodeNotRetriable {
		next.refuse(ctx, err)
	}
	return a, err
}

// theirs refuses an agent whose action it is not: what another asked for is not asked again on its behalf.
func theirs(a *longstop.Action, peer longstop.Requester) error {
	if peer.Kind != longstop.RequesterAgent || a.RequestedBy.Kind == peer.Kind && a.RequestedBy.Name == peer.Name {
		return nil
	}
	return &longstop.Error{Code: longstop.CodeNotAllowed, ActionID: a.ID,
		Message: fmt.Sprintf("%s was asked for by %s: an agent asks again for what it asked for itself", a.ID, words(a.RequestedBy)),
		Hint:    "longstop show " + string(a.ID)}
}

// nextAttempt is a launch of work that an earlier action was for. Nil is new work: its methods do nothing.
type nextAttempt struct {
	g         *Gateway
	earlier   longstop.Action // as shown when it was asked for
	preflight bool            // one is given with the retry
	by        string
	asker     string               // by, as the socket or the token says
	inquires  longstop.InquiryKind // not the work again, but the application about it
	given     bool                 // an agent gave the script for that
	differs   []string             // what is asked otherwise than by the earlier one

	marked longstop.Action // the earlier one, once it names this one
}

// allowed reports why the earlier action may not be retried. Whoever asks again under the key of the
// attempt that follows it is asking for that one.
func (n *nextAttempt) allowed(ctx context.Context, earlier *longstop.Action, key string) error {
	if by := earlier.RetriedBy; by != "" && key != "" {
		if a, err := n.g.find(ctx, string(by)); err == nil && a.IdempotencyKey == key {
			return nil
		}
	}
	if verdict := lifecycle.Retry(earlier, n.preflight); !verdict.Allowed {
		return &longstop.Error{Code: longstop.CodeNotRetriable, ActionID: earlier.ID,
			Message: fmt.Sprintf("%s is not retried: %s", earlier.ID, verdict.Because), Hint: lifecycle.BeforeRetry(earlier)}
	}
	return nil
}

// refuse journals a refusal.
func (n *nextAttempt) refuse(ctx context.Context, why error) {
	n.g.journalRefusal(ctx, n.asker, "", entryOf(&n.earlier, journal.RetryRefused, n.by), map[string]any{"message": why.Error()})
}

// request is what the earlier action asked. What was not kept of it has to be given again.
func (n *nextAttempt) request(req longstop.RetryRequest) (longstop.RunRequest, error) {
	if n.earlier.Request.Redacted {
		return longstop.RunRequest{}, redactedRequest(&n.earlier)
	}
	run := longstop.RunRequest{Host: n.earlier.Host, Request: n.earlier.Request, EnvValues: req.EnvValues, StdinID: req.StdinID,
		Terminal: req.Terminal, Key: req.Key, SessionID: req.SessionID, By: req.By}
	if req.Preflight != "" {
		run.Request.Preflight = req.Preflight
	}
	if req.Reason != "" {
		run.Request.Reason = req.Reason
	}
	var missing []string
	for _, name := range n.earlier.Request.Env {
		if _, given := req.EnvValues[name]; !given {
			missing = append(missing, "-e "+name)
		}
	}
	if n.earlier.Request.StdinBytes > 0 && req.StdinID == "" {
		missing = append(missing, "--stdin")
	}
	if len(missing) > 0 {
		return run, &longstop.Error{Code: longstop.CodeUsage,
			Message: "values of an environment and standard input are not kept: give them again, as " + string(n.earlier.ID) + " had them",
			Hint:    "longstop retry " + string(n.earlier.ID) + " " + strings.Join(missing, " ")}
	}
	for _, name := range slices.Sorted(maps.Keys(req.EnvValues)) {
		if !slices.Contains(n.earlier.Request.Env, name) {
			return run, usage("%s had no %s in its environment: a retry asks what it asked; longstop run is for other work", n.earlier.ID, name)
		}
	}
	if n.earlier.Request.StdinBytes == 0 && req.StdinID != "" {
		return run, usage("%s had no standard input: a retry asks what it asked; longstop run is for other work", n.earlier.ID)
	}
	return run, nil
}

// redactedRequest is why an action's request cannot be asked again from what was kept of it.
func redactedRequest(a *longstop.Action) error {
	return &longstop.Error{Code: longstop.CodeUsage, ActionID: a.ID,
		Message: fmt.Sprintf("what longstopd.json says is secret was taken out of the request of %s: it cannot be asked again from what was kept", a.ID),
		Hint:    "longstop run, with all of the command"}
}

// compare says what is asked otherwise than by the earlier action: the digests tell whether anything is.
func (n *nextAttempt) compare(ctx context.Context, want *asked, note func(string)) error {
	if n == nil || n.inquires != "" || n.earlier.Request.Digest == want.request.Digest {
		return nil
	}
	says, err := n.g.requestedAs(ctx, n.earlier.ID)
	if err != nil {
		return err
	}
	n.differs = differences(&n.earlier, says.Env, n.earlier.Host, want)
	tell(note, fmt.Sprintf("other than in %s: %s", n.earlier.ID, strings.Join(n.differs, ", ")))
	return nil
}

// make makes a new action the next attempt.
func (n *nextAttempt) make(a *longstop.Action) {
	if n == nil {
		return
	}
	if n.inquires != "" {
		a.InquiresOf, a.Inquires = n.earlier.ID, n.inquires
		return
	}
	a.Attempt, a.RetryOf = n.earlier.Attempt+1, n.earlier.ID
	if token := n.earlier.EffectToken; token != "" {
		a.EffectToken = token
	}
}

// follow notes, in the transaction that makes the next attempt, on the earlier action that it has one. What
// allows it is looked at once more there: since it was asked for somebody may have been quicker, or the
// host have spoken.
func (n *nextAttempt) follow(tx *sqlite.Tx, made *draft) error {
	if n == nil {
		return nil
	}
	stored, err := tx.Action(n.earlier.ID)
	if err != nil {
		return err
	}
	d := &draft{Action: *stored, at: made.at}
	if n.inquires != "" {
		n.beginInquiry(d, made)
		err = n.g.write(tx, d)
		n.marked = d.Action
		return err
	}
	seen := n.g.shown(*stored)
	if err := n.allowed(n.g.ctx, &seen, ""); err != nil {
		return err
	}
	d.RetriedBy = made.ID
	d.note(journal.Retried, n.by, map[string]any{"retried_by": made.ID, "attempt": made.Attempt, "because": lifecycle.Retry(&seen, n.preflight).Because,
		"preflight": n.preflight, "differs": n.differs})
	if err := n.g.write(tx, d); err != nil {
		return err
	}
	n.marked = d.Action
	return nil
}

func (n *nextAttempt) publish() {
	if n != nil {
		n.g.publish(n.marked)
	}
}
