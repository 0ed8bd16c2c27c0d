package lifecycle_test

import (
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/lifecycle"
)

func TestExitStatus(t *testing.T) {
	t.Parallel()
	ssh := func(c longstop.SSHCommand) func(*longstop.Action) {
		return func(a *longstop.Action) { a.SSHCommand = c }
	}
	for _, c := range []struct {
		name    string
		changes []func(*longstop.Action)
		want    int
	}{
		{"0", on(exited(0)), 0},
		{"1", on(exited(1)), 1},
		{"127", on(exited(127)), 127},
		{"255", on(exited(255)), 255},
		{"SEGV", on(killed("SEGV")), 139},
		{"KILL", on(killed("KILL")), 137},
		{"TERM", on(killed("TERM")), 143},
		{"SYS", on(killed("SYS")), 159},
		{"STKFLT", on(killed("STKFLT")), 144},
		{"a name with SIG", on(killed("SIGINT")), 130},
		{"a real-time signal", on(killed("RTMIN+3")), 165},
		{"the first of them", on(killed("RTMIN")), 162},
		{"the last of them", on(killed("RTMAX")), 192},
		{"counted from the last", on(killed("RTMAX-14")), 178},
		{"a number", on(killed("33")), 161},
		{"no signal", on(killed("BANG")), 128},
		{"a number too large", on(killed("65")), 128},
		{"released", on(exited(0, released), cached), 0},
		{"not started", on(launch(longstop.LaunchRejected)), 251},
		{"launch failed", on(work(longstop.WorkloadLaunchFailed)), 251},
		{"cancelled", on(work(longstop.WorkloadCancelled)), 252},
		{"still running", on(work(longstop.WorkloadRunning)), 253},
		{"lost", on(work(longstop.WorkloadLost)), 250},
		{"unreachable", on(work(longstop.WorkloadRunning), cached), 250},
		{"launch unknown", on(launch(longstop.LaunchUnknown)), 250},
		{"unknown, its channel said 0", on(work(longstop.WorkloadRunning), cached, ssh(longstop.SSHCommand{State: longstop.SSHExited, Status: ptr(0)})), 250},
		{"direct, 5", on(direct, ssh(longstop.SSHCommand{State: longstop.SSHExited, Status: ptr(5)})), 5},
		{"direct, HUP", on(direct, ssh(longstop.SSHCommand{State: longstop.SSHSignaled, Signal: "HUP"})), 129},
		{"direct, no status", on(direct, ssh(longstop.SSHCommand{State: longstop.SSHNoStatus})), 250},
		{"direct, connection lost", on(direct, ssh(longstop.SSHCommand{State: longstop.SSHLost})), 250},
	} {
		p := lifecycle.Project(*action(c.changes...), now, stale)
		if got := lifecycle.ExitStatus(&p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestProject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		changes []func(*longstop.Action)
		stream  longstop.StreamState
		source  longstop.ObservationSource
	}{
		{"before launch", on(approval(longstop.ApprovalNotRequired)), "", longstop.Live},
		{"running", on(work(longstop.WorkloadRunning)), longstop.StreamLive, longstop.Live},
		{"running, not seen", on(work(longstop.WorkloadRunning), cached), longstop.StreamCut, longstop.Cached},
		{"finished", on(exited(0), cached), longstop.StreamComplete, longstop.Cached},
		{"lost", on(work(longstop.WorkloadLost)), longstop.StreamCut, longstop.Live},
		{"direct", on(direct), longstop.StreamCut, longstop.Live},
		{"direct, open", on(direct, over(longstop.SSHOpen)), longstop.StreamLive, longstop.Live},
		{"direct, ended", on(direct, over(longstop.SSHExited)), longstop.StreamComplete, longstop.Live},
	} {
		p := lifecycle.Project(*action(c.changes...), now, stale)
		if p.Output.Stream != c.stream || p.Observation.Source != c.source {
			t.Errorf("%s: stream %q, source %s; want %q, %s", c.name, p.Output.Stream, p.Observation.Source, c.stream, c.source)
		}
	}
	a := action()
	lifecycle.Observe(a, record(3, longstop.WorkloadRunning), live())
	if p := lifecycle.Project(*a, now, stale); p.CompletionSource != "" {
		t.Errorf("running, completed by %q", p.CompletionSource)
	}
	lifecycle.Observe(a, record(4, longstop.WorkloadFinished), live())
	if p := lifecycle.Project(*a, now.Add(time.Hour), stale); p.CompletionSource != "owner@web-1" {
		t.Errorf("completed by %q", p.CompletionSource)
	}
}

func BenchmarkProject(b *testing.B) {
	a := action(work(longstop.WorkloadRunning))
	b.ReportAllocs()
	for b.Loop() {
		lifecycle.Project(*a, now, stale)
	}
}
