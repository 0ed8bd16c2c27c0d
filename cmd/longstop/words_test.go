package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/longstop/longstop"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n%s", name, got)
	}
}

// moments are actions at the moments that matter, with what is said of each.
func moments() []struct {
	name string
	a    *longstop.Action
} {
	exit := func(n int) *int { return &n }
	no, three := false, 3
	type edit = func(*longstop.Action)
	running := func(a *longstop.Action) {
		a.Workload.Main = &longstop.Main{PID: 24182}
		a.Workload.Boundary = longstop.Boundary{Kind: longstop.BoundaryTree, Processes: &three, Empty: &no}
		a.Workload.Lease = &longstop.Lease{State: longstop.LeaseActive, ExpiresAt: later(a.CreatedAt, 5*time.Minute)}
		a.SSHCommand.Channel, a.SSHCommand.Auth, a.SSHCommand.Key, a.SSHCommand.HostKey = "chn_01KB6Y3T0000088", "publickey", "SHA256:mfxN", "SHA256:2Y0d"
		a.Retry = &longstop.Retry{Because: "effect once, outcome pending"}
		a.Next = "longstop wait act_01KB6Y3T0000Q2M"
	}
	unreachable := func(a *longstop.Action) {
		running(a)
		a.Alive, a.Outcome, a.UnknownBecause = longstop.AliveUnknown, longstop.OutcomeUnknown, longstop.Unreachable
		a.Observation.Source, a.Observation.Because, a.Observation.Since = longstop.Cached, longstop.Unreachable, later(a.CreatedAt, 3*time.Minute)
		a.Next = "longstop reconcile act_01KB6Y3T0000Q2M"
	}
	cancelled := func(cause longstop.Cause) edit {
		return func(a *longstop.Action) {
			ended(0)(a)
			a.Outcome, a.Workload.State, a.Workload.Cause, a.Workload.Result = longstop.OutcomeCancelled, longstop.WorkloadCancelled, cause, nil
			a.Cancel = longstop.Cancel{State: longstop.CancelConfirmed, By: "ann", At: later(a.CreatedAt, 30*time.Second), Signal: "TERM"}
		}
	}
	lost := func(why longstop.UnknownReason, alive longstop.Alive) edit {
		return func(a *longstop.Action) {
			running(a)
			a.Alive, a.Outcome, a.UnknownBecause = alive, longstop.OutcomeUnknown, why
			a.Workload.State, a.Workload.LostBecause, a.Workload.Unsigned = longstop.WorkloadLost, why, true
			a.Workload.FinishedAt = a.Observation.At // the heir's record, not the work's end
			a.CompletionSource, a.Workload.Lease = "successor@web-1", nil
			a.Next = "longstop logs act_01KB6Y3T0000Q2M"
		}
	}
	list := []struct {
		name  string
		edits []edit
	}{
		{"running", []edit{running}},
		{"succeeded", []edit{ended(0)}},
		{"failed", []edit{ended(2), func(a *longstop.Action) {
			a.Output = longstop.Output{StdoutBytes: 10321, StderrBytes: 4, DroppedBytes: 2000000, DropReason: "ENOSPC", StdoutDropped: []longstop.Dropped{{From: 10000, To: 2010000, Reason: "ENOSPC"}}, Stream: longstop.StreamComplete}
		}}},
		{"killed by a signal", []edit{ended(1), func(a *longstop.Action) { a.Workload.Result = &longstop.Result{Signal: "SEGV"} }}},
		{"lingering", []edit{running, func(a *longstop.Action) {
			a.Workload.State = longstop.WorkloadLingering
			a.Workload.Main.ExitCode, a.Workload.Main.EndedAt = exit(0), later(a.Workload.StartedAt, 100*time.Millisecond)
		}}},
		{"unreachable", []edit{unreachable}},
		{"unreachable, lease over", []edit{unreachable, func(a *longstop.Action) { a.Workload.Lease.ExpiresAt = later(a.CreatedAt, 4*time.Minute) }}},
		{"cancelled", []edit{cancelled(longstop.CauseRequest)}},
		{"cancelled with KILL", []edit{cancelled(longstop.CauseRequest), func(a *longstop.Action) { a.Cancel.KilledAt = later(a.CreatedAt, 40*time.Second) }}},
		{"deadline", []edit{cancelled(longstop.CauseDeadline), func(a *longstop.Action) { a.Cancel = longstop.Cancel{State: longstop.CancelNone} }}},
		{"cancel too late", []edit{ended(0), func(a *longstop.Action) { a.Cancel = longstop.Cancel{State: longstop.CancelTooLate, By: "ann"} }}},
		{"survivors", []edit{running, func(a *longstop.Action) {
			a.Workload.State, a.Cancel = longstop.WorkloadCancelling, longstop.Cancel{State: longstop.CancelDelivered, By: "ann", Signal: "TERM", KilledAt: later(a.CreatedAt, 40*time.Second)}
			a.Workload.Survivors = []longstop.Process{{PID: 31, Command: "sleep 94", Why: "belongs to uid 0"}}
		}}},
		{"left over and stopped", []edit{ended(0), func(a *longstop.Action) {
			a.Request.Leftover = longstop.LeftoverKill
			a.Workload.Left = []longstop.Process{{PID: 8, Command: "/usr/bin/rsync -a"}}
		}}},
		{"released", []edit{ended(0), func(a *longstop.Action) {
			a.Request.Leftover, a.Alive = longstop.LeftoverRelease, longstop.AliveYes
			a.Workload.Released = []longstop.Process{{PID: 8, Command: "nginx: master"}, {PID: 9, Command: ""}}
		}}},
		{"no such program", []edit{func(a *longstop.Action) {
			a.Request.Argv = []string{"ls | wc"}
			a.Alive, a.Outcome = longstop.AliveNo, longstop.OutcomeNotStarted
			a.Workload = longstop.Workload{State: longstop.WorkloadLaunchFailed,
				LaunchError: &longstop.LaunchError{Step: "exec", Path: "ls | wc", Errno: "ENOENT", Message: "exec ls | wc: no such file or directory"}}
			a.CompletionSource = "owner@web-1"
		}}},
		{"rejected", []edit{func(a *longstop.Action) {
			a.Alive, a.Outcome, a.Workload, a.Observation = longstop.AliveNo, longstop.OutcomeNotStarted, longstop.Workload{State: longstop.WorkloadNone}, nil
			a.Launch = longstop.Launch{State: longstop.LaunchRejected, At: a.Launch.At, Because: "access_refused", Message: "web-1 refused the login of deploy", Hint: "is the account open? See: ssh -v web-1 true"}
			a.Next = "longstop show act_01KB6Y3T0000Q2M"
			a.SSHCommand = longstop.SSHCommand{State: longstop.SSHNotOpened}
		}}},
		{"launch unknown", []edit{func(a *longstop.Action) {
			a.Alive, a.Outcome, a.UnknownBecause = longstop.AliveUnknown, longstop.OutcomeUnknown, longstop.UnansweredSubmit
			a.Workload, a.Observation = longstop.Workload{State: longstop.WorkloadNone}, nil
			a.Launch = longstop.Launch{State: longstop.LaunchUnknown, At: a.Launch.At, Because: "unreachable", Message: "the connection was lost before an answer"}
			a.SSHCommand.State = longstop.SSHLost
		}}},
		{"launch unknown, unreachable", []edit{func(a *longstop.Action) {
			a.Alive, a.Outcome, a.UnknownBecause = longstop.AliveUnknown, longstop.OutcomeUnknown, longstop.UnansweredSubmit
			a.Workload = longstop.Workload{State: longstop.WorkloadNone}
			a.Observation = &longstop.Observation{Source: longstop.Cached, Because: longstop.Unreachable, Since: later(a.CreatedAt, 3*time.Minute), Message: "web-1: no connection to 192.0.2.7 port 22 in 20s"}
			a.Launch = longstop.Launch{State: longstop.LaunchUnknown, At: a.Launch.At, Because: "unreachable", Message: "the connection was lost before an answer"}
			a.SSHCommand.State = longstop.SSHLost
			a.Next = "longstop reconcile act_01KB6Y3T0000Q2M"
		}}},
		{"altered", []edit{func(a *longstop.Action) {
			unreachable(a)
			a.UnknownBecause, a.Observation.Because = longstop.UnreadableRecord, longstop.UnreadableRecord
			a.Observation.Message = "the record's MAC is not that of its run: it was altered after its owner wrote it"
		}}},
		{"no home", []edit{func(a *longstop.Action) {
			a.Alive, a.Outcome = longstop.AliveNo, longstop.OutcomeNotStarted
			a.Workload = longstop.Workload{State: longstop.WorkloadLaunchFailed, LaunchError: &longstop.LaunchError{Step: "chdir", Path: "/home/ann", Errno: "ENOENT", Message: "/home/ann: no such file or directory"}}
		}}},
		{"rebooted", []edit{lost(longstop.Rebooted, longstop.AliveNo)}},
		{"owner lost", []edit{lost(longstop.OwnerLost, longstop.AliveUnknown)}},
		{"queued", []edit{func(a *longstop.Action) {
			a.Request.Exclusive, a.Request.ExclusiveWaitS, a.Alive = "db", 600, longstop.AliveNo
			a.Workload = longstop.Workload{State: longstop.WorkloadQueued, Exclusive: &longstop.Exclusive{Name: "db", HeldBy: "act_01KB6Y3T0000AAA", HeldSince: later(a.CreatedAt, -time.Hour)}}
		}}},
		{"far on", []edit{running, func(a *longstop.Action) {
			far := 42.5
			a.Workload.Progress = &longstop.Progress{Line: "copied 17 of 40 (42.5%)", Percent: &far, At: later(a.CreatedAt, time.Minute)}
			a.Workload.Evidence = map[string]string{"revision": "4f2c", "schema": "\x1b[31m42"}
		}}},
		{"nothing to do", []edit{ended(0), func(a *longstop.Action) {
			a.Request.Preflight, a.Request.Verify = "exit 204", "true"
			a.Workload.Main, a.Workload.Result, a.Workload.StartedAt = nil, nil, longstop.Time{}
			a.Workload.Preflight = &longstop.Check{State: longstop.CheckNothingToDo, ExitCode: exit(longstop.PreflightDone), StartedAt: a.CreatedAt, EndedAt: later(a.CreatedAt, time.Second)}
		}}},
		{"effect not proven", []edit{ended(0), func(a *longstop.Action) {
			a.Request.Verify, a.Workload.EffectProof = "test -e made", longstop.ProofFailed
			a.Workload.Verify = &longstop.Check{State: longstop.CheckFailed, ExitCode: exit(1), StartedAt: a.CreatedAt, EndedAt: later(a.CreatedAt, time.Second)}
		}}},
		{"hostile words", []edit{func(a *longstop.Action) {
			a.Host, a.Request.Argv = "web\x1b]0;x\a", []string{"echo", "\x1b[31mred", "a\u202eb", "line\nline", "\xff", "it's"}
			a.Request.Reason, a.RequestedBy.Name = "because\r\nof", "an\x00n"
			a.SSHCommand.Noise = "WELCOME\n\x1b[2J"
			a.Workload.Anomalies = []string{"\x1b[1mbold"}
		}}},
		{"everything else", []edit{running, func(a *longstop.Action) {
			a.Request = longstop.Request{Script: "make test 2>&1 | tail", Lifetime: longstop.Detached, Leftover: longstop.LeftoverWait, Effect: longstop.EffectIdempotent, DeadlineS: 21600, OwnChannel: true}
			a.IdempotencyKey, a.RetryOf, a.Attempt = "rot-2026-11", "act_01KB6Y3T0000AAA", 2
			a.SSHCommand.State, a.SSHCommand.Status = longstop.SSHExited, exit(0)
			a.Workload.Lease, a.Workload.DeadlineAt = nil, later(a.CreatedAt, 6*time.Hour)
			a.Waits = []longstop.Wait{{By: "ann (interrupted)", GaveUpAt: later(a.CreatedAt, time.Minute)}}
			a.Escalations = []longstop.Escalation{{Because: "unreachable", Since: a.CreatedAt, At: later(a.CreatedAt, 15*time.Minute), Message: "no route"},
				{Because: longstop.SurvivorsLeft, At: later(a.CreatedAt, time.Minute), OverAt: later(a.CreatedAt, 2*time.Minute)}}
			a.Resolution = &longstop.Resolution{By: "bob", At: later(a.CreatedAt, time.Hour), Outcome: longstop.OutcomeSucceeded, Reason: "seen in the table"}
			a.Cancel = longstop.Cancel{State: longstop.CancelUnconfirmed, By: "ann", At: later(a.CreatedAt, time.Minute), Because: "no answer"}
		}}},
		{"stopped with it", []edit{cancelled(longstop.CauseRequest), func(a *longstop.Action) {
			a.Workload.Left = []longstop.Process{{PID: 8, Command: "/usr/bin/redis-server *:7998"}, {PID: 9, Command: "sleep 60"}}
		}}},
		{"clock set", []edit{ended(0), func(a *longstop.Action) {
			a.Workload.ClockSetMS = 24 * 3600 * 1000
			a.Workload.FinishedAt = later(a.Workload.FinishedAt, 24*time.Hour)
		}}},
	}
	all := make([]struct {
		name string
		a    *longstop.Action
	}, len(list))
	for i, m := range list {
		all[i].name, all[i].a = m.name, anAction(m.edits...)
	}
	return all
}

// moment is when the golden files are looked at: five minutes after the action was made.
var moment = time.Date(2026, 11, 29, 13, 25, 34, 0, time.UTC)

func TestGoldenShow(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, m := range moments() {
		fmt.Fprintf(&out, "-- %s --\n%s", m.name, lanes(m.a, moment, 0))
	}
	golden(t, "show.golden", out.String())
}

func TestGoldenNotes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, m := range moments() {
		fmt.Fprintf(&out, "-- %s --\n%s\n", m.name, opening(m.a))
		for _, line := range changed(&longstop.Action{}, m.a, moment) {
			out.WriteString(line + "\n")
		}
		if why := unseen(m.a); why != "" {
			out.WriteString(lostSight(m.a, why, moment) + "\n")
		}
		if m.a.Workload.State == longstop.WorkloadLingering {
			out.WriteString(lingering(m.a, nil, " (Ctrl-C cancels)") + "\n")
			out.WriteString(lingering(m.a, []longstop.Process{{Command: "/srv/deploy.sh -x"}, {Command: "rsync -a"}}, "") + "\n")
		}
		if m.a.Settled() {
			out.WriteString(ending(m.a) + "\n")
		} else {
			out.WriteString(accepted(m.a, moment) + "\n")
		}
	}
	golden(t, "notes.golden", out.String())
}

func TestGoldenPS(t *testing.T) {
	t.Parallel()
	var list []longstop.Action
	for i, m := range moments() {
		m.a.ID = longstop.ActionID(fmt.Sprintf("act_01KB6Y3T000%04d", i))
		list = append(list, *m.a)
	}
	golden(t, "ps.golden", psTable(list, moment, 0).render(0)+psSummary(list)+"\n\n"+psTable(list, moment, 100).render(100))
}

// Nothing that we print ourselves can make a terminal do something.
func TestNothingFromOutsideIsObeyed(t *testing.T) {
	t.Parallel()
	check := func(what, text string) {
		for _, r := range strings.ReplaceAll(text, "\n", "") {
			if !unicode.IsPrint(r) || r == utf8.RuneError {
				t.Errorf("%s: %q in %q", what, r, text)
			}
		}
	}
	for _, m := range moments() {
		check(m.name, lanes(m.a, moment, 0))
		check(m.name, opening(m.a)+ending(m.a)+accepted(m.a, moment)+command(&m.a.Request))
		check(m.name, psTable([]longstop.Action{*m.a}, moment, 0).render(0))
	}
	bad := "\x1b[31m\x00\u202e\xff\u0085\r"
	check("an error", errorText(&longstop.Error{Message: bad, Hint: bad, Noise: bad}, ""))
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", time.Microsecond: "1ms", 43 * time.Millisecond: "43ms", 38200 * time.Millisecond: "38.2s",
		99 * time.Second: "99s", 130 * time.Second: "2m10s", 10 * time.Minute: "10m", 3*time.Hour + 12*time.Minute: "3h12m",
		6 * time.Hour: "6h", 77 * time.Hour: "3d5h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"plain-1.2/x": "plain-1.2/x", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "*": "'*'", "é": "é", "a\nb": `'a\nb'`,
	} {
		if got := word(arg); got != want {
			t.Errorf("%q: %s, want %s", arg, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 4312: "4,312", 1234567: "1,234,567", -4312: "-4,312", -123: "-123"} {
		if got := number(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	for want, exits := range map[int][]int{
		0: {0, 0}, 1: {0, 7}, 252: {7, 252}, 251: {252, 251, 3}, 253: {251, 253}, 250: {253, 250, 252}, 254: {250, 254},
	} {
		if got := worst(exits); got != want {
			t.Errorf("%v: %d, want %d", exits, got, want)
		}
	}
}

// Every error code has an exit status and a fate that do not contradict each other.
// A verb is made by its name alone, and is the only one then.
func TestVerbsAreMadeByName(t *testing.T) {
	t.Parallel()
	for _, v := range verbs {
		a := &app{args: []string{v.name}, talk: new(talk)}
		if made := a.root().Commands(); len(made) != 1 || made[0].Name() != v.name {
			t.Errorf("%s: %v", v.name, made)
		}
	}
}

func TestErrorStatuses(t *testing.T) {
	t.Parallel()
	for code := range longstop.Codes {
		e := &longstop.Error{Code: code, Message: "it is so"}
		run := &app{verb: "run", begun: true}
		if status := run.errorStatus(e); status == longstop.ExitNotStarted && run.fate(e, status) != "Nothing was started." {
			t.Errorf("%s: %d, %s", code, status, run.fate(e, status))
		}
		rejected := &app{verb: "run", begun: true, rejected: true}
		if status := rejected.errorStatus(e); code == longstop.CodeVersionMismatch && (status != longstop.ExitNotStarted || rejected.fate(e, status) != "Nothing was started.") {
			t.Errorf("%s, with the launch rejected: %d, %s", code, status, rejected.fate(e, status))
		}
		if status := (&app{verb: "show"}).errorStatus(e); status != longstop.ExitOurs {
			t.Errorf("%s of show: %d", code, status)
		}
		if status := (&app{verb: "wait"}).errorStatus(e); status == longstop.ExitNotStarted {
			t.Errorf("%s of wait: nothing started, says a wait", code)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    longstop.Error
		want string
	}{
		{longstop.Error{Code: longstop.CodeNoRunner, Message: `it exited 3 and printed "go away\nnow"`, Noise: "go away\nnow\n", Hint: "see what it prints: ssh web-1 true"},
			"longstop: it exited 3 and printed \"go away\\nnow\".\n  see what it prints: ssh web-1 true\n  F\n"},
		{longstop.Error{Code: longstop.CodeBadAnswer, Message: "what web-1 sent is no answer", Noise: "go away\nnow"},
			"longstop: what web-1 sent is no answer.\n  It printed: go away\n    now\n  F\n"},
		{longstop.Error{Code: longstop.CodeUnreachable, Message: "web-1: no route to host", Noise: "a jump host is down"},
			"longstop: web-1: no route to host.\n  ssh said: a jump host is down\n  F\n"},
		{longstop.Error{Code: longstop.CodeUnreachable, Message: "web-1: connect to host 192.0.2.7: no", Noise: "ssh: connect to host 192.0.2.7: no"},
			"longstop: web-1: connect to host 192.0.2.7: no.\n  F\n"},
		{longstop.Error{Code: longstop.CodeHostKeyChanged, Message: "web-1: the host key has changed (x)", Noise: "@@@@\nIT IS POSSIBLE"},
			"longstop: web-1: the host key has changed (x).\n  F\n"},
	} {
		if got := errorText(&c.e, "F"); got != c.want {
			t.Errorf("%q\nwant %q", got, c.want)
		}
	}
}

// What a terminal shows nothing of is shown by number: two arguments that differ do not look alike.
func TestNothingHides(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"ls\u3164": `ls\u3164`, "ls\u2800": `ls\u2800`, "ls\u115f": `ls\u115f`, "a\ufe0fb": `a\ufe0fb`, "a\u00a0b": `a\u00a0b`, "naïve 日本": "naïve 日本"} {
		if got := plain(text); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}
