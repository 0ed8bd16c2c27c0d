package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/longstop/longstop"
)

// stageFlags ask for more than the command: see longstop.Check and longstop.Exclusive.
type stageFlags struct {
	preflight, verify, exclusive string
	checkTimeout, exclusiveWait  time.Duration
}

func (f *stageFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.preflight, "preflight", "", fmt.Sprintf("a script asked first, on the host: exit 0 runs the command, %d says that nothing is left to do, all else refuses", longstop.PreflightDone))
	flags.StringVar(&f.verify, "verify", "", "a script asked once the command has succeeded: exit 0 proves its effect, beside its result")
	flags.DurationVar(&f.checkTimeout, "check-timeout", 0, "how long a preflight, and a verify, may take (default 1m)")
	flags.StringVar(&f.exclusive, "exclusive", "", "a name that one run of this login holds at a time: another is refused")
	flags.DurationVar(&f.exclusiveWait, "exclusive-wait", 0, "be queued for the name this long, rather than refused")
}

// ask puts what the flags say into the request.
func (f *stageFlags) ask(flags *pflag.FlagSet, r *longstop.Request) error {
	for name, text := range map[string]string{"preflight": f.preflight, "verify": f.verify, "exclusive": f.exclusive} {
		if flags.Changed(name) && strings.TrimSpace(text) == "" {
			return usage("", "--%s is empty", name)
		}
	}
	for name, d := range map[string]time.Duration{"check-timeout": f.checkTimeout, "exclusive-wait": f.exclusiveWait} {
		if flags.Changed(name) && d <= 0 {
			return usage("write it as 90s, 10m or 6h", "--%s %s is no length of time", name, d)
		}
	}
	if f.exclusive != plain(f.exclusive) {
		return usage("", "--exclusive has characters that cannot be printed: %s", plain(f.exclusive))
	}
	r.Preflight, r.Verify, r.CheckS = f.preflight, f.verify, f.checkTimeout.Seconds()
	r.Exclusive, r.ExclusiveWaitS = f.exclusive, f.exclusiveWait.Seconds()
	return nil
}

// stageTerms are the conditions that a run has by them.
func stageTerms(r *longstop.Request) (parts []string) {
	if r.Exclusive != "" {
		part := "alone as " + plain(r.Exclusive)
		if r.ExclusiveWaitS > 0 {
			part += ", queued for up to " + seconds(r.ExclusiveWaitS)
		}
		parts = append(parts, part)
	}
	if r.Preflight != "" {
		parts = append(parts, "preflight")
	}
	if r.Verify != "" {
		parts = append(parts, "verify")
	}
	return parts
}

// stageChanges are lines about stages, for somebody who waits.
func stageChanges(prev, next *longstop.Workload, now time.Time) (lines []string) {
	if e := next.Exclusive; next.State == longstop.WorkloadQueued && e != nil && e.HeldBy != "" && (prev.Exclusive == nil || prev.Exclusive.HeldBy != e.HeldBy) {
		lines = append(lines, "queued: "+holderWords(e, now))
	}
	if begun(prev.Preflight, next.Preflight) && next.State == longstop.WorkloadStarting {
		lines = append(lines, "the preflight is asked")
	}
	if begun(prev.Verify, next.Verify) && !next.State.Final() {
		lines = append(lines, "the command has succeeded"+between+"its verify is asked")
	}
	return lines
}

func begun(before, now *longstop.Check) bool {
	return before == nil && now != nil && now.State == longstop.CheckRunning
}

func holderWords(e *longstop.Exclusive, now time.Time) string {
	if e.HeldBy == "" {
		return "the name " + plain(e.Name) + " is held"
	}
	return fmt.Sprintf("%s has held the name %s since %s", e.HeldBy, plain(e.Name), clock(e.HeldSince, now))
}

// stageEnding is what the last line about a run says of them.
func stageEnding(a *longstop.Action) string {
	w := &a.Workload
	switch {
	case w.NothingToDo():
		return "nothing to do, says its preflight: the command was not run"
	case w.EffectProof == longstop.ProofPassed:
		return "effect verified"
	case w.EffectProof == longstop.ProofFailed:
		return "! effect not proven: its verify says " + checkWords(w.Verify)
	case w.EffectProof == longstop.ProofUnknown && w.Verify != nil:
		return "effect not known: its verify says " + checkWords(w.Verify)
	}
	return ""
}

// checkWords are what a check came to: "exit 1", "unknown: it took longer than it may".
func checkWords(c *longstop.Check) string {
	if c == nil {
		return "nothing"
	}
	how := exited(c.ExitCode, c.Signal)
	if c.State == longstop.CheckUnknown || how == "" {
		how = words(string(c.State))
	}
	if c.Because != "" {
		how += ": " + plain(c.Because)
	}
	return how
}

// stageLanes are the lines of show about them and about what the work says of itself.
func stageLanes(a *longstop.Action, now time.Time, lane func(string, longstop.Time, ...string)) {
	w := &a.Workload
	if e := w.Exclusive; e != nil {
		switch {
		case !e.Since.IsZero() && w.State.Final():
			lane("exclusive", e.Since, plain(e.Name), "held until the end")
		case !e.Since.IsZero():
			lane("exclusive", e.Since, plain(e.Name), "held")
		default:
			lane("exclusive", longstop.Time{}, plain(e.Name), "not had", holderWords(e, now))
		}
	}
	check := func(name string, c *longstop.Check, script string) {
		if c != nil {
			took := ""
			if !c.EndedAt.IsZero() {
				took = "after " + span(c.EndedAt.Sub(c.StartedAt.Time))
			}
			lane(name, c.StartedAt, words(string(c.State)), checkHow(c), took, cut(plain(script), 60))
		}
	}
	check("preflight", w.Preflight, a.Request.Preflight)
	check("verify", w.Verify, a.Request.Verify)
	if w.Verify == nil && a.Request.Verify != "" && w.Main != nil && w.State.Final() {
		lane("verify", longstop.Time{}, "not asked", "the command did not succeed by itself, or was not seen to")
	}
	if p := w.Progress; p != nil {
		lane("progress", p.At, plain(p.Line))
	}
	for i, key := range slices.Sorted(maps.Keys(w.Evidence)) {
		name := "evidence"
		if i > 0 {
			name = ""
		}
		lane(name, longstop.Time{}, plain(key+"="+w.Evidence[key]))
	}
}

func checkHow(c *longstop.Check) string {
	return strings.Join(filledOr(exited(c.ExitCode, c.Signal), plain(c.Because)), ": ")
}

func filledOr(parts ...string) (list []string) {
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return list
}

// percent is how far a run is by its own word: " 42%".
func percent(w *longstop.Workload) string {
	if w.State.Final() || w.Progress == nil || w.Progress.Percent == nil {
		return ""
	}
	return " " + strconv.FormatFloat(*w.Progress.Percent, 'f', -1, 64) + "%"
}
