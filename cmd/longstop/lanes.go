package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// lanes is an action as its facts, a line each: what it is and the two answers, then who asked, and
// what the launch, the SSH command, the workload and the cancel came to, as far as is known.
func lanes(a *longstop.Action, now time.Time, columns int) string {
	var out strings.Builder
	answers := "alive " + string(a.Alive) + between + "outcome " + words(string(a.Outcome))
	if a.UnknownBecause != "" {
		answers += " (" + words(string(a.UnknownBecause)) + ")"
	}
	head := string(a.ID) + "  " + command(&a.Request) + " on " + plain(a.Host)
	if columns > 0 {
		head = cut(head, max(columns-len(answers)-2, 40))
	}
	fmt.Fprintf(&out, "%s  %s\n", head, answers)
	lane := func(name string, at longstop.Time, parts ...string) {
		when := ""
		if !at.IsZero() {
			when = clock(at, now)
		}
		parts = filled(parts)
		fmt.Fprintf(&out, "  %-10s %-8s  %s\n", name, when, strings.Join(parts, between))
	}
	lane("asked", a.CreatedAt, asked(a)...)
	if reason := a.Request.Reason; reason != "" {
		lane("", longstop.Time{}, "because: "+plain(reason))
	}
	for i := range a.Findings {
		lane(onlyFirst("reads", i), longstop.Time{}, findingLine(&a.Findings[i]))
	}
	if a.Approval.State != longstop.ApprovalNotRequired && a.Approval.State != "" {
		lane("approval", a.Approval.At, approvalWords(&a.Approval, now)...)
		if why := filled([]string{ruleWords(&a.Approval), plain(a.Approval.Because)}); why[0] != "-" {
			lane("", longstop.Time{}, why...)
		}
	}
	lane("launch", a.Launch.At, launchWords(a)...)
	lane("ssh", a.SSHCommand.At, sshWords(&a.SSHCommand)...)
	for _, line := range keyWords(&a.SSHCommand) {
		lane("", longstop.Time{}, line)
	}
	if noise := a.SSHCommand.Noise; noise != "" {
		lane("", longstop.Time{}, "its login shell printed: "+plain(strings.TrimSpace(noise)))
	}
	lane("workload", workloadAt(a), workloadWords(a, now)...)
	for _, anomaly := range a.Workload.Anomalies {
		lane("", longstop.Time{}, "! "+plain(anomaly))
	}
	if u := a.Workload.Unit; u != nil {
		lane("unit", u.ReadAt, unitLine(u)...)
	}
	stageLanes(a, now, lane)
	if out := outputWords(a); len(out) > 0 {
		lane("output", longstop.Time{}, out...)
	}
	if r := a.Removed; r != nil {
		lane("removed", r.At, removedWords(a))
	}
	if a.Cancel.State != longstop.CancelNone && a.Cancel.State != "" {
		lane("cancel", a.Cancel.At, cancelWords(a, now)...)
	}
	lane("seen", seenAt(a), seenWords(a, now)...)
	for _, c := range a.Checks {
		lane("asked of", c.At, string(c.Kind)+" "+words(string(c.State)), string(c.ActionID))
	}
	if a.InquiresOf != "" {
		lane("asks", longstop.Time{}, string(a.Inquires)+" of "+string(a.InquiresOf))
	}
	for _, e := range a.Escalations {
		lane("told", e.At, escalationWords(&e, now)...)
	}
	for _, w := range a.Waits {
		lane("wait", w.GaveUpAt, strings.TrimSpace("given up "+by(w.By)))
	}
	if a.Retry != nil {
		lane("retry", longstop.Time{}, retryWords(a.Retry))
	}
	if r := a.Resolution; r != nil {
		lane("resolved", r.At, resolutionWords(r)...)
	}
	if next := next(a); next != "" {
		lane("next", longstop.Time{}, plain(next))
	}
	return out.String()
}

func filled(parts []string) []string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	if list == nil {
		return []string{"-"}
	}
	return list
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return "by " + plain(who)
}

func asked(a *longstop.Action) []string {
	who := plain(a.RequestedBy.Name)
	if who == "" {
		who = plain(a.RequestedBy.Kind)
	}
	if a.RequestedBy.Via != "" {
		who += " (" + plain(a.RequestedBy.Via) + ")"
	}
	parts := []string{who}
	if a.SessionID != "" {
		parts = append(parts, string(a.SessionID))
	}
	parts = append(parts, "effect "+string(a.Request.Effect))
	if a.IdempotencyKey != "" && !strings.HasPrefix(a.IdempotencyKey, "cli-") {
		parts = append(parts, "key "+plain(a.IdempotencyKey))
	}
	if a.RetryOf != "" {
		parts = append(parts, fmt.Sprintf("attempt %d of %s", a.Attempt, a.RetryOf))
	}
	return append(parts, terms(&a.Request))
}

func launchWords(a *longstop.Action) []string {
	parts := []string{words(string(a.Launch.State))}
	if a.Launch.Message != "" {
		parts = append(parts, plain(a.Launch.Message))
	} else if a.Launch.Because != "" {
		parts = append(parts, words(a.Launch.Because))
	}
	return parts
}

func sshWords(s *longstop.SSHCommand) []string {
	first := words(string(s.State))
	switch {
	case s.State == longstop.SSHExited && s.Status != nil:
		first += fmt.Sprintf(" %d", *s.Status)
	case s.State == longstop.SSHSignaled && s.Signal != "":
		first += " by " + plain(s.Signal)
	}
	if s.Channel != "" {
		first += " on " + string(s.Channel)
	}
	return []string{first}
}

// keyWords are the keys of an SSH command, a line each: with both on one it fits no terminal.
func keyWords(s *longstop.SSHCommand) []string {
	var lines []string
	if s.Auth != "" || s.Key != "" {
		lines = append(lines, "login by "+strings.TrimSpace(plain(s.Auth)+" "+plain(s.Key)))
	}
	if s.HostKey != "" {
		lines = append(lines, "host key "+plain(s.HostKey))
	}
	return lines
}

func workloadAt(a *longstop.Action) longstop.Time {
	if a.Workload.StartedAt.IsZero() {
		return a.Workload.FinishedAt
	}
	return a.Workload.StartedAt
}

func workloadWords(a *longstop.Action, now time.Time) []string {
	w := &a.Workload
	parts := []string{words(string(w.State))}
	if w.State.Final() {
		if d, known := took(w); known {
			parts[0] += " after " + span(d)
		}
		if w.Cause != "" {
			parts = append(parts, "cause "+string(w.Cause))
		}
	}
	if set := clockSet(w); set != 0 {
		parts = append(parts, "its host's clock was set "+off(set)+" meanwhile")
	}
	if w.LostBecause != "" {
		parts = append(parts, words(string(w.LostBecause)))
	}
	if w.LaunchError != nil {
		parts = append(parts, notStarted(a))
	}
	if w.Result != nil {
		parts = append(parts, exited(w.Result.ExitCode, w.Result.Signal))
	} else if m := w.Main; m != nil {
		if how := exited(m.ExitCode, m.Signal); how != "" {
			parts = append(parts, "main process "+how)
		} else if m.PID > 0 {
			parts = append(parts, fmt.Sprintf("pid %d", m.PID))
		}
	}
	parts = append(parts, oomWords(w.OOM), boundaryWords(w))
	if !w.State.Final() && w.State != longstop.WorkloadNone {
		parts = append(parts, leaseWords(a, now))
	} else if w.State.Final() && (len(w.Left) > 0 || len(w.Released) > 0) {
		parts = append(parts, left(a))
	}
	if len(w.Survivors) > 0 {
		parts = append(parts, "! cannot be stopped: "+survivors(w.Survivors))
	}
	if a.CompletionSource != "" {
		parts = append(parts, "said by "+plain(a.CompletionSource))
	}
	if w.Unsigned {
		parts = append(parts, "! not signed")
	}
	return parts
}

func boundaryWords(w *longstop.Workload) string {
	text := string(w.Boundary.Kind)
	if text == "" {
		return ""
	}
	switch {
	case w.Boundary.Empty != nil && *w.Boundary.Empty:
		return "its " + text + " is empty"
	case w.Boundary.Processes != nil:
		return count(*w.Boundary.Processes, "process", "processes") + " in its " + text
	}
	return text
}

func leaseWords(a *longstop.Action, now time.Time) string {
	var parts []string
	if lease := a.Workload.Lease; lease != nil && !lease.ExpiresAt.IsZero() {
		if lease.State == longstop.LeaseExpired || lease.ExpiresAt.Before(now) {
			parts = append(parts, "lease ran out on the host about "+clock(lease.ExpiresAt, now))
		} else {
			parts = append(parts, "lease until "+clock(lease.ExpiresAt, now))
		}
	}
	if !a.Workload.DeadlineAt.IsZero() {
		parts = append(parts, "deadline "+clock(a.Workload.DeadlineAt, now))
	}
	return strings.Join(parts, between)
}

// growth says what released processes did to the output, or may.
func growth(a *longstop.Action) string {
	later := a.Output.StdoutBytes + a.Output.StderrBytes - a.Output.StdoutAtEnd - a.Output.StderrAtEnd
	if a.ReleasedAlive() {
		return "may still grow"
	}
	return number(later) + " of them after the run's end"
}

func outputWords(a *longstop.Action) []string {
	o := &a.Output
	if o.IsZero() {
		return nil
	}
	parts := []string{fmt.Sprintf("stdout %s bytes", number(o.StdoutBytes)), fmt.Sprintf("stderr %s bytes", number(o.StderrBytes))}
	if o.Merged {
		parts = []string{fmt.Sprintf("%s bytes, both streams in one", number(o.StdoutBytes))}
	}
	if o.DroppedBytes > 0 {
		parts = append(parts, fmt.Sprintf("! %s bytes not kept on the host%s", number(o.DroppedBytes), whyDropped(o.DropReason)))
	}
	if o.AfterEnd {
		parts = append(parts, growth(a))
	}
	return append(parts, string(o.Stream))
}

func removedWords(a *longstop.Action) string {
	switch {
	case a.Request.Owner == longstop.OwnerNone:
		return "its output was kept here for as long as was promised"
	case a.Removed.Because == longstop.RemovedHostFull:
		return "the host keeps the record alone: it was short of room, and the output had been read"
	}
	return "the host keeps the record alone: output was kept for as long as was promised"
}

func cancelWords(a *longstop.Action, now time.Time) []string {
	c := &a.Cancel
	parts := []string{words(string(c.State)), by(c.By)}
	if c.Signal != "" {
		parts = append(parts, plain(c.Signal)+" sent")
	}
	if !c.KilledAt.IsZero() {
		parts = append(parts, "KILL at "+clock(c.KilledAt, now))
	}
	if c.Because != "" {
		parts = append(parts, plain(c.Because))
	}
	return parts
}

func seenAt(a *longstop.Action) longstop.Time {
	if a.Observation == nil {
		return longstop.Time{}
	}
	return a.Observation.At
}

func seenWords(a *longstop.Action, now time.Time) []string {
	o := a.Observation
	if o == nil {
		return []string{"never"}
	}
	// What is live is so at this moment; of anything else, and of what has ended, only the time is known.
	first := by(o.By)
	switch {
	case o.At.IsZero():
		first = "never"
	case o.Source == longstop.Live && !a.Settled():
		first = strings.TrimSuffix("live, "+first, ", ")
	}
	if a.Settled() || o.Source == longstop.Live && o.Because == "" {
		return []string{first}
	}
	because := o.Because
	if because == "" {
		because = longstop.Unreachable
	}
	silent := silence(a.Host, because)
	if !o.At.IsZero() {
		silent = "since then " + silent
	}
	if since := unseenSince(a); !since.IsZero() {
		silent += " (" + rough(now.Sub(since.Time)) + ")"
	}
	return filled([]string{first, silent, plain(o.Message)})
}

// next is what to do about an action: of one that was refused, what its refusal says.
func next(a *longstop.Action) string {
	if a.Outcome == longstop.OutcomeNotStarted && a.Launch.Hint != "" {
		return a.Launch.Hint
	}
	if a.Next == "longstop show "+string(a.ID) {
		return "" // which is what is being read
	}
	return a.Next
}

// escalationWords say what was brought to people, and whether it is over.
func escalationWords(e *longstop.Escalation, now time.Time) []string {
	parts := []string{"people were told: " + words(string(e.Because))}
	if !e.Since.IsZero() {
		parts[0] += " since " + clock(e.Since, now)
	}
	if !e.OverAt.IsZero() {
		return append(parts, "over at "+clock(e.OverAt, now))
	}
	return append(parts, plain(e.Message))
}

// resolutionWords are a person's word, and what the host said since.
func resolutionWords(r *longstop.Resolution) []string {
	parts := []string{"by hand: " + words(string(r.Outcome)), by(r.By), plain(r.Reason)}
	if f := r.Attachment; f != nil {
		parts = append(parts, fmt.Sprintf("%s attached, %s bytes", plain(f.Name), number(f.Bytes)))
	}
	if r.Contradicted != "" {
		parts = append(parts, "! the record that came later says "+words(r.Contradicted))
	}
	return parts
}

func retryWords(r *longstop.Retry) string {
	if r.Allowed {
		if r.Because == "" {
			return "allowed"
		}
		return "allowed: " + plain(r.Because)
	}
	return "no: " + plain(r.Because)
}

// unitLine is what the host's service manager says of a run's unit, beside the record.
func unitLine(u *longstop.Unit) []string {
	parts := []string{plain(u.Name) + " of the " + plain(u.Manager) + " manager"}
	if u.ActiveState != "" {
		parts = append(parts, strings.TrimSuffix(plain(u.ActiveState)+" ("+plain(u.SubState)+")", " ()"))
	}
	if u.Result != "" && (u.Ended() || u.Result != "success") {
		parts = append(parts, "result "+plain(u.Result))
	}
	if u.Forgotten {
		parts = append(parts, "forgotten since")
	}
	return parts
}
