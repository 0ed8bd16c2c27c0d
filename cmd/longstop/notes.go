package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// opening is the first line about an action: its id comes first, because it is what remains if all
// else fails.
func opening(a *longstop.Action) string {
	parts := []string{fmt.Sprintf("%s on %s", a.ID, plain(a.Host))}
	if effect := a.Request.Effect; effect != longstop.EffectOnce {
		parts = append(parts, string(effect))
	}
	return strings.Join(filled(append(parts, terms(&a.Request))), between)
}

// changed says what happened to an action from one sight to the next, a line each: what a person who
// waits would want to know, and nothing about what goes as it should. Lingering and a host's
// silence are said by the follower, which knows for how long they last.
func changed(prev, next *longstop.Action, now time.Time) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	host := plain(next.Host)

	if line := approvalNote(prev.Approval.State, next, now); line != "" {
		say("%s", line)
	}
	if next.Launch.State == longstop.LaunchUnknown && prev.Launch.State != longstop.LaunchUnknown {
		say("whether %s began is not known: %s is asked, and nothing is started twice", next.ID, host)
	}
	if prev.Launch.State == longstop.LaunchUnknown && next.Launch.State == longstop.LaunchAccepted {
		say("found on %s: it began once", host)
	}
	lines = append(lines, stageChanges(&prev.Workload, &next.Workload, now)...)
	if next.Workload.State == longstop.WorkloadOrphaned && prev.Workload.State != longstop.WorkloadOrphaned {
		say("the owner on %s is gone, the work may not be: its heir finishes the record", host)
	}
	if next.Workload.State == longstop.WorkloadCancelling && prev.Workload.State != longstop.WorkloadCancelling {
		switch next.Workload.Cause {
		case longstop.CauseLease, longstop.CauseDeadline:
			say("its %s is over: %s stops it", next.Workload.Cause, host)
		case longstop.CauseSignal, longstop.CauseShutdown:
			say("%s stops it (%s)", host, next.Workload.Cause)
		}
	}
	if n := len(next.Workload.Survivors); n > 0 && n != len(prev.Workload.Survivors) && !next.Workload.State.Final() {
		say("%s cannot be stopped: %s", count(n, "process", "processes"), survivors(next.Workload.Survivors))
	}
	if c := next.Cancel; c.State != prev.Cancel.State {
		switch c.State {
		case longstop.CancelRefused:
			say("%s refused to cancel: %s", host, because(c.Because))
		case longstop.CancelUnconfirmed:
			if next.Request.Owner == longstop.OwnerNone {
				say("the cancel is not confirmed (%s)", because(c.Because))
				break
			}
			say("%s does not confirm the cancel (%s): it is asked until it answers", host, because(c.Because))
		}
	}
	for i := len(prev.Workload.Anomalies); i < len(next.Workload.Anomalies); i++ {
		say("%s: %s", host, plain(next.Workload.Anomalies[i]))
	}
	return lines
}

func because(s string) string {
	if s == "" {
		return "it did not say why"
	}
	return plain(s)
}

// unseen says why the host of an unresolved action cannot be seen now, or "". Of what nobody owns no host ever
// says anything: that is no news.
func unseen(a *longstop.Action) longstop.UnknownReason {
	if a.Request.Owner == longstop.OwnerNone {
		return ""
	}
	asked := a.Launch.State == longstop.LaunchUnknown && a.Observation != nil && a.Observation.Because != ""
	if a.Settled() || a.Alive != longstop.AliveUnknown || a.Launch.State != longstop.LaunchAccepted && !asked {
		return ""
	}
	if a.Observation != nil && a.Observation.Because != "" {
		return a.Observation.Because
	}
	if a.UnknownBecause != "" {
		return a.UnknownBecause
	}
	return longstop.Unreachable
}

// lostSight says that a host cannot be seen, since when, and how long the work may go on.
func lostSight(a *longstop.Action, why longstop.UnknownReason, now time.Time) string {
	line := silence(a.Host, why)
	if since := unseenSince(a); !since.IsZero() {
		line += " (" + rough(now.Sub(since.Time)) + ")"
	}
	if o := a.Observation; o != nil && o.Message != "" && why != longstop.Unreachable {
		line += between + plain(o.Message)
	}
	return line + between + mayGoOn(a, now)
}

// silence says how a host is of no help.
func silence(host string, why longstop.UnknownReason) string {
	switch why {
	case longstop.Unreachable, longstop.UnansweredCancel:
		return plain(host) + " does not answer"
	case longstop.UnreadableRecord:
		return "what " + plain(host) + " says of it is not believed"
	}
	return plain(host) + " cannot be asked: " + words(string(why))
}

func unseenSince(a *longstop.Action) longstop.Time {
	if a.Observation == nil {
		return longstop.Time{}
	}
	if !a.Observation.Since.IsZero() {
		return a.Observation.Since
	}
	return a.Observation.At
}

// mayGoOn says how long a run may go on without word from here.
func mayGoOn(a *longstop.Action, now time.Time) string {
	switch {
	case a.Launch.State == longstop.LaunchNotAttempted:
		return "nothing of it was sent yet"
	case a.Launch.State == longstop.LaunchSent, a.Launch.State == longstop.LaunchUnknown:
		return "whether it began is not known"
	case a.Request.Owner == longstop.OwnerNone:
		return "whether it goes on is not known: nobody there owns it"
	}
	if lease := a.Workload.Lease; a.Request.Lifetime != longstop.Detached && lease != nil && !lease.ExpiresAt.IsZero() {
		if lease.ExpiresAt.Before(now) {
			return "its lease ran out there about " + clock(lease.ExpiresAt, now)
		}
		return "the run may go on until " + clock(lease.ExpiresAt, now)
	}
	if !a.Workload.DeadlineAt.IsZero() {
		return "the run may go on until " + clock(a.Workload.DeadlineAt, now)
	}
	if a.Request.Lifetime != longstop.Detached && a.Request.LeaseS > 0 {
		return "the run may go on for its lease of " + seconds(a.Request.LeaseS)
	}
	return "the run goes on there"
}

// kept says how a run goes on of which only this waiting has ended: the gateway sees its host, and
// renews its lease.
func kept(a *longstop.Action, now time.Time) string {
	switch {
	case a.Launch.State != longstop.LaunchAccepted:
		return ": the gateway goes on with its launch"
	case a.Request.Owner == longstop.OwnerNone:
		return ": the gateway keeps its channel open"
	case !a.Workload.DeadlineAt.IsZero():
		return " running, until " + clock(a.Workload.DeadlineAt, now) + " at most"
	case a.Request.Lifetime == longstop.Detached:
		return " running"
	}
	return " running, and the gateway keeps its lease"
}

// lingering says that the main process is done and others of the run are not.
func lingering(a *longstop.Action, left []longstop.Process, advice string) string {
	w := &a.Workload
	line := "main process ended"
	if w.Main != nil {
		if how := exited(w.Main.ExitCode, w.Main.Signal); how != "" {
			line += " (" + how + ")"
		}
		if !w.StartedAt.IsZero() && !w.Main.EndedAt.IsZero() {
			line += " after " + span(w.Main.EndedAt.Sub(w.StartedAt.Time))
		}
	}
	switch {
	case len(left) > 0:
		line += between + count(len(left), "process", "processes") + " left: " + names(left)
	case w.Boundary.Processes != nil && *w.Boundary.Processes > 0:
		line += between + count(*w.Boundary.Processes, "process", "processes") + " left"
	default:
		line += between + "others of the run are not done"
	}
	return line + between + "waiting" + advice
}

// accepted is the line of `run -d`: what was accepted, where, on which terms, and what to do next.
func accepted(a *longstop.Action, now time.Time) string {
	at := a.Launch.At
	if at.IsZero() {
		at = a.CreatedAt
	}
	line := "accepted by " + plain(a.Host) + " at " + clock(at, now)
	if a.Request.Lifetime == longstop.Detached {
		line += between + "detached"
		if !a.Workload.DeadlineAt.IsZero() {
			line += between + "may run until " + clock(a.Workload.DeadlineAt, now)
		}
	} else if a.Request.LeaseS > 0 {
		line += between + "stopped there if the gateway is silent for " + seconds(a.Request.LeaseS)
	}
	return line + between + "longstop wait " + string(a.ID)
}
