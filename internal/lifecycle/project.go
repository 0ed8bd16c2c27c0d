package lifecycle

import (
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// Project returns the action with everything that is computed filled in: Judge's verdict, whether
// the observation is live, whether a retry is allowed, what can be said of the output, the lease by
// the clock, and who testified. a itself is not touched.
func Project(a longstop.Action, now time.Time, stale time.Duration) longstop.Action {
	v := Judge(&a, now, stale)
	a.Alive, a.Outcome, a.UnknownBecause, a.Next = v.Alive, v.Outcome, v.UnknownBecause, v.Next
	seen := Seen(a.Observation, now, stale)
	if a.Observation != nil && !seen {
		o := *a.Observation
		o.Source = longstop.Cached
		a.Observation = &o
	}
	retry := Retry(&a, false)
	a.Retry = &retry
	a.Output.Stream = streamOf(&a, seen)
	a.CompletionSource = ""
	if w := &a.Workload; w.State.Final() && w.Writer != nil {
		a.CompletionSource = string(w.Writer.Kind) + "@" + a.Host
	}
	// Out of sight, a lease that nobody renews runs out; in sight, the host knows better.
	if l := a.Workload.Lease; l != nil && l.State == longstop.LeaseActive && !seen && !l.ExpiresAt.IsZero() && l.ExpiresAt.Before(now) {
		lease := *l
		lease.State = longstop.LeaseExpired
		a.Workload.Lease = &lease
	}
	return a
}

// streamOf says whether more output may come here: cut while nobody sees the run, or for good where
// its end was not seen.
func streamOf(a *longstop.Action, seen bool) longstop.StreamState {
	switch ssh := a.SSHCommand.State; {
	case a.Launch.State != longstop.LaunchAccepted:
		return ""
	case a.Request.Owner == longstop.OwnerNone && ssh == longstop.SSHOpen:
		return longstop.StreamLive
	case a.Request.Owner == longstop.OwnerNone && (ssh == longstop.SSHExited || ssh == longstop.SSHSignaled):
		return longstop.StreamComplete
	case a.Request.Owner == longstop.OwnerNone:
		return longstop.StreamCut
	case a.Workload.State == longstop.WorkloadLost:
		return longstop.StreamCut
	case a.Workload.State.Final():
		return longstop.StreamComplete
	case seen:
		return longstop.StreamLive
	}
	return longstop.StreamCut
}

// ExitStatus is the exit status of `longstop run` and of `longstop wait` with one action, from a
// projected action: the workload's own (128+n for signal n), or one of 250 to 253. A direct action
// has no workload fact: the SSH command's status stands in for it.
func ExitStatus(a *longstop.Action) int {
	switch a.Outcome {
	case longstop.OutcomeSucceeded, longstop.OutcomeFailed:
		if r := a.Workload.Result; r != nil && r.ExitCode != nil {
			return *r.ExitCode
		} else if r != nil {
			return 128 + signalNumber(r.Signal)
		}
		if a.Workload.NothingToDo() {
			return 0
		}
	case longstop.OutcomeNotStarted:
		return longstop.ExitNotStarted
	case longstop.OutcomeCancelled:
		return longstop.ExitCancelled
	case longstop.OutcomePending:
		return longstop.ExitStillRunning
	}
	if ssh := &a.SSHCommand; a.UnknownBecause == longstop.NoOwner {
		switch {
		case ssh.State == longstop.SSHExited && ssh.Status != nil:
			return *ssh.Status
		case ssh.State == longstop.SSHSignaled:
			return 128 + signalNumber(ssh.Signal)
		}
	}
	return longstop.ExitUnknown
}

// signals are Linux's by their names without SIG, from 1 (signal(7); the numbers of x86 and ARM).
var signals = strings.Fields(`HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT
	CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS`)

// signalNumber knows names as in signals, RTMIN+n, RTMAX-n and numbers; 0 is none of them.
func signalNumber(name string) int {
	name = strings.TrimPrefix(name, "SIG")
	for i, s := range signals {
		if s == name {
			return i + 1
		}
	}
	base, rest := 0, name
	if after, ok := strings.CutPrefix(name, "RTMIN"); ok {
		base, rest = 34, after
	} else if after, ok := strings.CutPrefix(name, "RTMAX"); ok {
		base, rest = 64, after
	}
	n, err := strconv.Atoi(rest)
	if err != nil && rest != "" {
		return 0
	}
	if number := base + n; number > 0 && number <= 64 {
		return number
	}
	return 0
}
