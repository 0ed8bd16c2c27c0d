package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// approvalPage is all that an approver is to know of an action: what runs, where, as whom, for how long,
// what may outlive it, and why they are asked. Whatever came from outside is shown with its control
// characters by number, so that no terminal obeys it and nothing hides.
func approvalPage(a *longstop.Action, host *longstop.Host, now time.Time) string {
	var out strings.Builder
	line := func(name string, parts ...string) {
		if parts = filled(parts); parts[0] != "-" {
			fmt.Fprintf(&out, "  %-9s %s\n", name, strings.Join(parts, between))
		}
	}
	r := &a.Request
	fmt.Fprintf(&out, "%s on %s\n", a.ID, plain(a.Host))
	line("where", whereWords(a, host)...)
	line("asked", clock(a.CreatedAt, now), of(a.RequestedBy)+via(a), string(a.SessionID))
	line("because", plain(r.Reason))
	if a.RetryOf != "" {
		line("attempt", fmt.Sprintf("%d, of what %s was to do", a.Attempt, a.RetryOf))
	}
	if r.Redacted {
		line("! hidden", "what is configured as secret is not shown here; it is part of what you sign")
	}
	out.WriteString(commandLines(r))
	line("in", directory(r))
	line("env", envWords(r)...)
	line("stdin", stdinWords(r))
	line("how long", howLong(r)...)
	line("leftover", leftoverWords(r.Leftover))
	line("effect", effectWords(r.Effect))
	line("limits", limitWords(r))
	line("also", alsoWords(r)...)
	for _, part := range [][2]string{{"preflight", r.Preflight}, {"verify", r.Verify}} {
		if part[1] != "" {
			fmt.Fprintf(&out, "  %s, a script for sh -c on the host, at most %s:\n%s", part[0], seconds(r.CheckS), numbered(part[1]))
		}
	}
	for i := range a.Findings {
		line("! reads", findingLine(&a.Findings[i]))
	}
	if ap := &a.Approval; ap.State != longstop.ApprovalNotRequired {
		line("policy", ruleWords(ap), plain(ap.Because), plain(ap.Policy))
		line("approval", approvalWords(ap, now)...)
	}
	line("signed as", plain(r.Digest))
	return out.String()
}

func via(a *longstop.Action) string {
	if a.RequestedBy.Via == "" {
		return ""
	}
	return " (" + plain(a.RequestedBy.Via) + ")"
}

func whereWords(a *longstop.Action, host *longstop.Host) []string {
	if host == nil {
		return []string{plain(a.Host) + ", of which nothing more is known here"}
	}
	parts := []string{"as " + plain(host.User)}
	if host.UID == 0 {
		parts = append(parts, "which is root there")
	}
	return append(parts, "host key "+plain(host.HostKey), "machine "+plain(host.MachineID))
}

// commandLines are the arguments, a line each, or the script with line numbers.
func commandLines(r *longstop.Request) string {
	var out strings.Builder
	if r.Script != "" {
		how := "sh -c"
		if r.StrictShell {
			how = "sh -e, with pipefail where the host's shell has it"
		}
		fmt.Fprintf(&out, "  runs this script by %s:\n%s", how, numbered(r.Script))
		return out.String()
	}
	argv := r.ArgvB64
	for _, arg := range r.Argv {
		argv = append(argv, []byte(arg))
	}
	out.WriteString("  runs, each argument as it is:\n")
	for i, arg := range argv {
		fmt.Fprintf(&out, "    %4d  %s\n", i, plain(string(arg)))
	}
	return out.String()
}

func numbered(script string) string {
	var out strings.Builder
	n := 0
	for text := range strings.Lines(script) {
		n++
		fmt.Fprintf(&out, "    %4d  %s\n", n, plain(strings.TrimSuffix(text, "\n")))
	}
	return out.String()
}

func directory(r *longstop.Request) string {
	if r.Cwd == "" {
		return "the login's home"
	}
	return plain(r.Cwd)
}

func envWords(r *longstop.Request) []string {
	if len(r.Env) == 0 {
		return nil
	}
	names := make([]string, len(r.Env))
	for i, name := range r.Env {
		names[i] = plain(name)
	}
	return []string{strings.Join(names, ", "), "the values are bound too, and shown to nobody"}
}

func stdinWords(r *longstop.Request) string {
	if r.StdinBytes == 0 {
		return ""
	}
	return number(r.StdinBytes) + " bytes" + between + "sha256:" + plain(r.StdinSHA256)
}

func howLong(r *longstop.Request) []string {
	if r.Owner == longstop.OwnerNone {
		return []string{"direct: nobody there owns it, and nobody can say what becomes of it once its connection ends"}
	}
	parts := []string{"detached: it needs no word from here to go on"}
	if r.Lifetime == longstop.Leased {
		parts[0] = "leased: stopped there if the gateway is silent for " + seconds(r.LeaseS)
	}
	if r.DeadlineS > 0 {
		return append(parts, "stopped after "+seconds(r.DeadlineS)+" at the latest")
	}
	return append(parts, "no deadline: it may go on for as long as it likes")
}

func leftoverWords(l longstop.Leftover) string {
	switch l {
	case longstop.LeftoverKill:
		return "kill: what outlives its main process is stopped"
	case longstop.LeftoverRelease:
		return "release: what outlives its main process lives on, and is not waited for"
	}
	return "wait: it is over when nothing of it is left"
}

func effectWords(e longstop.Effect) string {
	switch e {
	case longstop.EffectRead:
		return "read: a second execution would change nothing"
	case longstop.EffectIdempotent:
		return "idempotent: a second execution would do no more than the first"
	}
	return "once: it is not to be executed twice"
}

func limitWords(r *longstop.Request) string {
	if r.Limits == nil {
		return ""
	}
	text, _ := json.Marshal(r.Limits)
	return plain(string(text))
}

// alsoWords is what is rarely asked for and part of what is approved.
func alsoWords(r *longstop.Request) (parts []string) {
	say := func(is bool, words string) {
		if is {
			parts = append(parts, words)
		}
	}
	say(r.Owner != longstop.OwnerAuto, "owner "+plain(string(r.Owner)))
	say(r.BoundaryMin != "", "boundary at least "+plain(string(r.BoundaryMin)))
	say(r.PTY, "a terminal")
	say(r.OwnChannel, "an SSH channel of its own")
	say(r.Exclusive != "", "holds the name "+plain(r.Exclusive))
	say(r.OutputMax != nil && *r.OutputMax == 0, "all of its output is kept on the host")
	return parts
}

func ruleWords(a *longstop.Approval) string {
	if a.Rule == "" {
		return ""
	}
	return ruleName(a.Rule)
}

// approvalWords say how far permission has come.
func approvalWords(a *longstop.Approval, now time.Time) []string {
	parts := []string{words(string(a.State)), by(a.By)}
	switch a.State {
	case longstop.ApprovalPending:
		parts = append(parts, "nobody may launch it after "+clock(a.ExpiresAt, now))
	case longstop.ApprovalDenied, longstop.ApprovalRevoked:
		parts = append(parts, plain(a.Reason))
	}
	return parts
}

// awaitsApproval reports whether nothing was sent of an action, for a person is to say yes first.
func awaitsApproval(a *longstop.Action) bool {
	return a.Approval.State == longstop.ApprovalPending && !a.Settled()
}

// approvalNote tells whoever waits for an action how far permission has come since it was was.
func approvalNote(was longstop.ApprovalState, a *longstop.Action, now time.Time) string {
	ap := &a.Approval
	switch {
	case ap.State == was:
	case ap.State == longstop.ApprovalPending:
		return strings.Join(filled([]string{"waiting for approval until " + clock(ap.ExpiresAt, now), ruleWords(ap), plain(ap.Because),
			"a person types: longstop approve " + string(a.ID)}), between)
	case ap.State == longstop.ApprovalGranted, ap.State == longstop.ApprovalConsumed && was != longstop.ApprovalGranted:
		return "approved " + by(ap.By)
	case ap.State == longstop.ApprovalRevoked:
		return "the approval was taken back: " + plain(ap.Reason)
	}
	return "" // a denied or expired one is the end, and told as such
}
