package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/lifecycle"
	"github.com/longstop/longstop/internal/reconcile"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// Resolve puts a person's word beside an outcome that is unknown. The facts stay as they are; whoever proves
// to be an approver signs the outcome, the reason and what is attached.
func (g *Gateway) Resolve(ctx context.Context, id string, req longstop.ResolveRequest, by longstop.Requester) (longstop.Action, error) {
	seen, err := g.Action(ctx, id)
	if err != nil {
		return seen, err
	}
	if err := checkResolve(&req); err != nil {
		return seen, err
	}
	about := longstop.ChallengeRequest{Kind: longstop.ChallengeResolve, ActionID: seen.ID, Outcome: req.Outcome, Reason: req.Reason}
	var attached *longstop.Attachment
	var raws []sqlite.Raw
	if f := req.Attachment; f != nil {
		sum := sha256.Sum256(f.Data)
		attached = &longstop.Attachment{Name: f.Name, Bytes: int64(len(f.Data)), SHA256: hex.EncodeToString(sum[:])}
		about.Content = "sha256:" + attached.SHA256
		raws = []sqlite.Raw{{Kind: sqlite.AttachmentKind, Bytes: f.Data}}
	}
	evidence, err := g.proven(ctx, req.Proof, about, by)
	if err != nil {
		return seen, err
	}
	who := "approver " + evidence.Approver
	a, err := g.change(ctx, seen.ID, func(d *draft) error {
		now := g.shown(d.Action)
		if err := mayResolve(&now, d.at); err != nil {
			return err
		}
		say := map[string]any{"outcome": req.Outcome, "reason": req.Reason, "proof": evidence}
		if attached != nil {
			say["attachment"] = attached
		}
		if d.Resolution != nil {
			say["replaces"] = d.Resolution
		}
		d.Resolution = &longstop.Resolution{By: who, At: d.at, Outcome: req.Outcome, Reason: req.Reason, Attachment: attached}
		d.note(journal.Resolved, who, say, raws...)
		now.Resolution = d.Resolution
		g.weigh(d, &now)
		return nil
	})
	if err != nil {
		return seen, g.refuseProof(ctx, about, who, asRefusal(err))
	}
	return g.shown(a), nil
}

func checkResolve(req *longstop.ResolveRequest) error {
	outcomes := []longstop.Outcome{longstop.OutcomeSucceeded, longstop.OutcomeFailed, longstop.OutcomeNotStarted, longstop.OutcomeCancelled}
	bad := func(format string, args ...any) error {
		return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: "longstop resolve --help"}
	}
	switch f := req.Attachment; {
	case !slices.Contains(outcomes, req.Outcome):
		return bad("outcome %q: there are succeeded, failed, not_started and cancelled", req.Outcome)
	case strings.TrimSpace(req.Reason) == "" || len(req.Reason) > 4096 || !utf8.ValidString(req.Reason):
		return bad("the reason: want 1 to 4096 bytes of UTF-8")
	case f == nil:
	case len(f.Data) == 0 || len(f.Data) > longstop.MaxAttachment:
		return bad("the attachment has %d bytes: want 1 to %d", len(f.Data), longstop.MaxAttachment)
	case f.Name == "" || len(f.Name) > 255 || !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, func(c rune) bool { return c < ' ' || c == '/' || c == 0x7f }):
		return bad("the attachment's name is none")
	}
	return nil
}

// mayResolve says why a person's word is not wanted: the outcome is known, or its host is to be asked a while
// longer.
func mayResolve(a *longstop.Action, now longstop.Time) error {
	no := func(hint, format string, args ...any) error {
		return &longstop.Error{Code: longstop.CodeRefused, ActionID: a.ID, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	unresolved := *a
	unresolved.Resolution = nil
	switch {
	case a.Outcome != longstop.OutcomeUnknown:
		return no("longstop show "+string(a.ID), "%s is not unknown: %s, says its host", a.ID, a.Outcome)
	case !a.Unresolved():
		return nil
	case a.Request.Owner == longstop.OwnerNone:
		return no("longstop wait "+string(a.ID), "the channel of %s is open still", a.ID)
	case len(reconcile.Pressing(&unresolved, now.Time)) == 0:
		return no(a.Next, "%s is unknown (%s) since a moment ago: its host is being asked, and people are told when that has lasted", a.ID, a.UnknownBecause)
	}
	return nil
}

// contradict notes in a draft that its facts say other than a person had said when they were unknown. The
// person's word stays, and beside it what the host says.
func (g *Gateway) contradict(d *draft) {
	r := d.Resolution
	if r == nil {
		return
	}
	v := lifecycle.Judge(&d.Action, d.at.Time, g.stale())
	says := ""
	switch v.Outcome {
	case longstop.OutcomeUnknown, r.Outcome:
	case longstop.OutcomePending:
		says = "that it has not ended"
	default:
		says = string(v.Outcome)
	}
	if says == "" || says == r.Contradicted {
		return
	}
	told := *r
	told.Contradicted = says
	d.Resolution = &told
	d.note(journal.Contradiction, g.by, map[string]any{"says": fmt.Sprintf("%s said %s; the record that came later says %s", r.By, r.Outcome, says)})
}
