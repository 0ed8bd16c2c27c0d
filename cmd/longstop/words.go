package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// What is said about actions, in pieces; nothing here looks at a clock or a terminal.

const between = " · "

// command is what an action runs, on one line.
func command(r *longstop.Request) string {
	switch {
	case r.Script != "":
		return plain(r.Script)
	case r.ArgvB64 != nil:
		words := make([]string, len(r.ArgvB64))
		for i, arg := range r.ArgvB64 {
			words[i] = word(string(arg))
		}
		return strings.Join(words, " ")
	}
	words := make([]string, len(r.Argv))
	for i, arg := range r.Argv {
		words[i] = word(arg)
	}
	return strings.Join(words, " ")
}

// word is one argument as a shell would be told it.
func word(arg string) string {
	if arg == "" {
		return "''"
	}
	if strings.IndexFunc(arg, func(r rune) bool {
		return !(r == '-' || r == '_' || r == '.' || r == '/' || r == ':' || r == '=' || r == '+' || r == ',' || r == '@' || r == '%' ||
			'0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r > 0x7f)
	}) < 0 {
		return plain(arg)
	}
	return plain("'" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
}

// span is a length of time, as exact as people want it: 38.2s, 2m10s, 3h12m, 5d3h.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < 100*time.Millisecond:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
	case d < 100*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Hour:
		return pair(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return pair(d, time.Hour, "h", time.Minute, "m")
	}
	return pair(d, 24*time.Hour, "d", time.Hour, "h")
}

func pair(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/big), 10) + bigName
	if rest := d % big / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + smallName
	}
	return text
}

// rough is a length of time for a table: whole seconds under a minute.
func rough(d time.Duration) string {
	if d < time.Minute {
		return strconv.FormatInt(int64(max(d, 0)/time.Second), 10) + "s"
	}
	return span(d.Truncate(time.Second))
}

// seconds is span for a number of seconds.
func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// clock is a time of day in the reader's zone, with the date where it is not today's.
func clock(t longstop.Time, now time.Time) string {
	local, today := t.In(now.Location()), now
	if y, m, d := local.Date(); y == today.Year() && m == today.Month() && d == today.Day() {
		return local.Format("15:04:05")
	}
	return local.Format("2006-01-02 15:04:05")
}

// number is an integer with its thousands apart.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// count is "1 process", "2 processes".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// names are the programs of processes, at most a few.
func names(processes []longstop.Process) string {
	const most = 5
	var list []string
	for i, p := range processes {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", len(processes)-most))
			break
		}
		list = append(list, program(p))
	}
	return strings.Join(list, ", ")
}

// program is what a person would call a process: the last part of its program's path.
func program(p longstop.Process) string {
	first, _, _ := strings.Cut(p.Command, " ")
	if first == "" {
		return "pid " + strconv.Itoa(p.PID)
	}
	return plain(strings.TrimSuffix(path.Base(first), ":"))
}

// exited says how the main process ended: "exit 2", "killed by SEGV".
func exited(code *int, signal string) string {
	switch {
	case signal != "":
		return "killed by " + plain(signal)
	case code != nil:
		return "exit " + strconv.Itoa(*code)
	}
	return ""
}

// terms are the conditions of a run, as its first line says them.
func terms(r *longstop.Request) string {
	var parts []string
	if r.Lifetime == longstop.Detached {
		parts = append(parts, "detached")
	} else if r.LeaseS > 0 {
		parts = append(parts, "lease "+seconds(r.LeaseS))
	}
	if r.DeadlineS > 0 {
		parts = append(parts, "deadline "+seconds(r.DeadlineS))
	}
	switch r.Leftover {
	case longstop.LeftoverKill:
		parts = append(parts, "what is left over is stopped")
	case longstop.LeftoverRelease:
		parts = append(parts, "what is left over lives on")
	}
	if r.Owner == longstop.OwnerNone {
		parts = append(parts, "direct")
	}
	if r.OwnChannel {
		parts = append(parts, "own channel")
	}
	parts = append(parts, stageTerms(r)...)
	if limits := limitTerms(r.Limits); limits != "" {
		parts = append(parts, limits)
	}
	return strings.Join(parts, between)
}

// clockSet is by how much the host's clock was set while the work ran.
func clockSet(w *longstop.Workload) time.Duration {
	return time.Duration(w.ClockSetMS) * time.Millisecond
}

// took is how long the work ran, as its host's records say. Of a run that is lost they have no end: their
// last time is the heir's.
func took(w *longstop.Workload) (time.Duration, bool) {
	if w.StartedAt.IsZero() || w.FinishedAt.IsZero() || w.State == longstop.WorkloadLost {
		return 0, false
	}
	return w.FinishedAt.Sub(w.StartedAt.Time) - clockSet(w), true
}

// ending is the last line about an action: what came of it, whether something is left, who says so.
func ending(a *longstop.Action) string {
	w := &a.Workload
	parts := []string{verdict(a)}
	if d, known := took(w); known {
		parts[0] += " in " + span(d)
	}
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	switch {
	case w.Result != nil:
		add(exited(w.Result.ExitCode, w.Result.Signal))
	case w.Main != nil:
		add(exited(w.Main.ExitCode, w.Main.Signal))
	}
	if a.Outcome == longstop.OutcomeNotStarted {
		add(notStarted(a))
		return strings.Join(parts, between)
	}
	if a.UnknownBecause == longstop.NoOwner {
		add(sshEnding(a))
	}
	if r := a.Resolution; r != nil && a.Outcome == longstop.OutcomeUnknown {
		add("resolved by hand: " + words(string(r.Outcome)))
	}
	add(stageEnding(a))
	add(oomWords(w.OOM))
	if a.Cancel.State == longstop.CancelTooLate {
		add("the cancel came too late")
	}
	if a.Cancel.State == longstop.CancelConfirmed && !a.Cancel.KilledAt.IsZero() {
		add("KILL was needed")
	}
	add(left(a))
	add(dropped(a.Output))
	if w.Unsigned {
		add("its record is not signed")
	}
	if a.CompletionSource != "" {
		add("said by " + plain(a.CompletionSource))
	}
	return strings.Join(parts, between)
}

// sshEnding is all that is known of the end of a direct action: how its channel ended.
func sshEnding(a *longstop.Action) string {
	alone := "; that is the SSH command's word alone: nobody on " + plain(a.Host) + " owns what it started"
	switch s := &a.SSHCommand; s.State {
	case longstop.SSHExited:
		return exited(s.Status, "") + alone
	case longstop.SSHSignaled:
		return exited(nil, s.Signal) + alone
	case longstop.SSHLost:
		return "its connection was lost: whether the command ended, nobody can say"
	case longstop.SSHNoStatus:
		if a.Cancel.Because != "" {
			return plain(a.Cancel.Because)
		}
		return "its channel was closed without a status: whether the command ended, nobody can say"
	}
	return ""
}

// dropped says how much output the host did not keep, and why.
func dropped(out longstop.Output) string {
	if out.DroppedBytes == 0 {
		return ""
	}
	return number(out.DroppedBytes) + " bytes of output were not kept on the host" + whyDropped(out.DropReason)
}

// notKept says which bytes of a stream the host did not keep, and why.
func notKept(stream string, d longstop.Dropped) string {
	return plain(stream) + ": bytes " + number(d.From) + " to " + number(d.To) + " were not kept on the host" + whyDropped(d.Reason)
}

// writtenAfter is the mark between a run's own output and what came after its end.
func writtenAfter(stream string, at int64) string {
	return stream + ": the run ended at byte " + number(at) + "; what follows was written later, by processes that it released"
}

func whyDropped(reason string) string {
	switch reason {
	case "":
		return ""
	case longstop.DroppedOverMax:
		return " (there were more than --output-max)"
	case "ENOSPC", "EDQUOT":
		return " (its disk was full: " + reason + ")"
	}
	return " (" + plain(reason) + ")"
}

// verdict is the outcome in a word or two.
func verdict(a *longstop.Action) string {
	switch a.Outcome {
	case longstop.OutcomeCancelled:
		if a.Workload.Cause != "" {
			return "cancelled (" + string(a.Workload.Cause) + ")"
		}
	case longstop.OutcomeNotStarted:
		return "not started"
	case longstop.OutcomeUnknown:
		if a.UnknownBecause != "" {
			return "unknown: " + words(string(a.UnknownBecause))
		}
	}
	return words(string(a.Outcome))
}

// words is a name of the vocabulary as people would say it.
func words(name string) string { return plain(strings.ReplaceAll(name, "_", " ")) }

// left says whether something of the work is left on the host.
func left(a *longstop.Action) string {
	w := &a.Workload
	switch {
	case len(w.Released) > 0 && a.Alive != longstop.AliveNo:
		return fmt.Sprintf("%s released: %s", count(len(w.Released), "process", "processes"), names(w.Released))
	case len(w.Left) > 0 && w.State == longstop.WorkloadCancelled && a.Alive == longstop.AliveNo:
		return "stopped with it: " + names(w.Left) + between + "nothing left running"
	case len(w.Left) > 0:
		return fmt.Sprintf("%s left over and stopped: %s", count(len(w.Left), "process", "processes"), names(w.Left))
	case len(w.Survivors) > 0:
		return fmt.Sprintf("%s cannot be stopped: %s", count(len(w.Survivors), "process", "processes"), survivors(w.Survivors))
	case a.Alive == longstop.AliveNo:
		return "nothing left running"
	case a.Alive == longstop.AliveYes:
		return "still running"
	}
	return "whether something still runs is not known"
}

// survivors are names with the reason why they live.
func survivors(processes []longstop.Process) string {
	var list []string
	for _, p := range processes {
		text := fmt.Sprintf("%s (pid %d", program(p), p.PID)
		if p.Why != "" {
			text += ", " + plain(p.Why)
		}
		list = append(list, text+")")
	}
	return strings.Join(list, ", ")
}

// notStarted says why, with the word of advice that a common mistake deserves.
func notStarted(a *longstop.Action) string {
	if e := a.Workload.LaunchError; e != nil {
		why := plain(e.Message)
		if why == "" {
			why = strings.TrimSpace(plain(e.Step + " " + e.Path + " " + e.Errno))
		} else if e.Errno != "" && !strings.Contains(why, e.Errno) {
			why += " (" + plain(e.Errno) + ")"
		}
		if argv := a.Request.Argv; len(argv) == 1 && e.Errno == "ENOENT" && strings.ContainsAny(argv[0], " \t|;&<>") {
			why += between + "a line for the shell goes after -c"
		} else if len(argv) > 0 && e.Path == argv[0] && e.Errno == "ENOENT" && !strings.Contains(argv[0], "/") {
			switch argv[0] {
			case ".", "alias", "cd", "eval", "exec", "exit", "export", "set", "source", "ulimit", "umask", "unset":
				why += between + "a word of the shell goes after -c"
			default:
				why += between + "not on the PATH there (or its interpreter is missing)"
			}
		}
		if e.Step == "exclusive" && a.Request.ExclusiveWaitS == 0 {
			why += between + "--exclusive-wait has it queued"
		}
		if e.Step == "chdir" && a.Request.Cwd == "" {
			why += between + "the login's home; --cwd names another directory"
		}
		return why
	}
	if a.Launch.Message != "" {
		return plain(a.Launch.Message)
	}
	if a.Launch.Because != "" {
		return words(a.Launch.Because)
	}
	switch a.Approval.State {
	case longstop.ApprovalDenied, longstop.ApprovalExpired, longstop.ApprovalRevoked:
		return strings.Join(filled([]string{"approval " + words(string(a.Approval.State)), plain(a.Approval.Reason)}), between)
	}
	return ""
}
