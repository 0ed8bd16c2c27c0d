package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// TestLaw9RestartMidRun: a gateway that goes and one that comes know the same run.
func TestLaw9RestartMidRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	gate := filepath.Join(sshtest.ShortDir(t), "go")
	a := b.run(script("echo before; while [ ! -e " + gate + " ]; do sleep 0.05; done; echo after; exit 4"))
	b.stop()
	b.start()
	a = b.until(a.ID, "the new gateway sees it", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	if a.Outcome != longstop.OutcomePending || a.Workload.State != longstop.WorkloadRunning {
		t.Errorf("%s", pretty(a))
	}
	b.stop()
	b.must(os.WriteFile(gate, nil, 0o600))
	b.start()
	a = b.wait(a.ID)
	if a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 || b.output(a.ID, "stdout") != "before\nafter\n" {
		t.Errorf("%s", pretty(a))
	}
}

// TestLaw3Cut: C025. While the link is cut the outcome is unknown, with its reason and the time of
// the last sight, and never failed; afterwards it is what the host recorded.
func TestLaw3Cut(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 2; exit 4"))
	b.tap.refuseDials(&longstop.Error{Code: longstop.CodeUnreachable, Message: "no route to host"})
	b.proxy.Cut()
	a = b.until(a.ID, "the cut is seen", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeUnknown })
	o := a.Observation
	if a.Alive != longstop.AliveUnknown || a.UnknownBecause != longstop.Unreachable || o == nil || o.At.IsZero() || o.Since.IsZero() ||
		o.Source != longstop.Cached || !strings.Contains(o.Message, "no route") {
		t.Errorf("%s", pretty(a))
	}
	time.Sleep(2500 * time.Millisecond) // the work ends meanwhile
	if a, _ = b.Action(t.Context(), string(a.ID)); a.Outcome != longstop.OutcomeUnknown {
		t.Errorf("unseen, it ended for us: %s", pretty(a))
	}
	b.tap.refuseDials(nil)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 {
		t.Errorf("%s", pretty(a))
	}
	entries, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000})
	b.must(err)
	var kinds []string
	for _, e := range entries {
		if e.Kind == "unreachable" || e.Kind == "reachable" {
			kinds = append(kinds, e.Kind)
		}
	}
	if !slices.Equal(kinds, []string{"unreachable", "reachable"}) {
		t.Errorf("journalled %v: want each once", kinds)
	}
}

// TestDayLater: the gateway stops for good. A leased run ends on the host by itself, a detached one
// goes on; a gateway started a day later learns both.
func TestDayLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	leased, detached := script("sleep 60"), script("sleep 60")
	leased.Request.LeaseS, leased.Request.GraceS = 1.5, 1
	detached.Request.Lifetime = longstop.Detached
	l, d := b.run(leased), b.run(detached)
	time.Sleep(3 * time.Second) // renewed meanwhile: it outlives its first lease
	if l, _ = b.Action(t.Context(), string(l.ID)); l.Alive != longstop.AliveYes {
		t.Fatalf("with its lease renewed: %s", pretty(l))
	}
	b.stop()
	time.Sleep(4 * time.Second)
	b.shift = 24 * time.Hour
	b.start()
	if l = b.wait(l.ID); l.Outcome != longstop.OutcomeCancelled || l.Workload.Cause != longstop.CauseLease {
		t.Errorf("leased: %s", pretty(l))
	}
	d = b.until(d.ID, "the detached run is seen", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	b.cancel(d.ID, nil)
}

// TestHostMismatch: the state folder is gone and another in its place. Nothing is launched, and
// what ran before is unknown for that reason.
func TestHostMismatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	state := hosts[0].StateDir
	b.must(os.Rename(state, state+".moved"))
	b.proxy.Cut()
	a = b.until(a.ID, "the mismatch is seen", func(a longstop.Action) bool { return a.UnknownBecause == longstop.HostMismatch })
	if a.Outcome != longstop.OutcomeUnknown || a.Alive != longstop.AliveUnknown {
		t.Errorf("%s", pretty(a))
	}
	req, ran := counting(t)
	other, err := b.Run(t.Context(), req, operator, gateway.Told{})
	if longstop.CodeOf(err) != longstop.CodeHostMismatch || other.Outcome != longstop.OutcomeNotStarted || ran() != 0 {
		t.Errorf("a launch meanwhile: %v\n%s", err, pretty(other))
	}
	if _, err := os.Stat(state); err == nil {
		t.Errorf("a state folder was made anew")
	}
	b.must(os.Rename(state+".moved", state))
	b.until(a.ID, "it is seen again", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	b.cancel(a.ID, nil)
}

// TestUnclaimedRuns of another gateway on the same account are journalled once, and left alone.
func TestUnclaimedRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	other := &bench{t: t, home: sshtest.ShortDir(t), server: b.server, config: b.config, beat: b.beat,
		tap: &tap{Dialer: b.tap.Dialer}}
	other.start()
	_, err := other.Enrol(t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config}, nil)
	b.must(err)
	theirs := other.run(script("sleep 60"))
	ours := b.run(script("sleep 60"))
	count := func() (n int) {
		entries, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1, Limit: 1000})
		b.must(err)
		for _, e := range entries {
			if e.Kind == "unclaimed_run" && e.RunID == theirs.RunID {
				n++
			}
		}
		return n
	}
	sshtest.Eventually(t, "the unclaimed run is journalled", func() bool { return count() == 1 })
	b.proxy.Cut()
	b.until(ours.ID, "seen over a new channel", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	b.cancel(ours.ID, nil)
	if count() != 1 {
		t.Errorf("journalled %d times", count())
	}
	other.until(theirs.ID, "theirs goes on", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	other.cancel(theirs.ID, nil)
}

// TestKeyOfAnotherGateway: one key starts one run, whoever of two gateways on an account asks. The one
// that did not get it says that it started nothing, and does not ask for ever about a run that it
// never had.
func TestKeyOfAnotherGateway(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	other := &bench{t: t, home: sshtest.ShortDir(t), server: b.server, config: b.config, beat: b.beat,
		tap: &tap{Dialer: b.tap.Dialer}}
	other.start()
	_, err := other.Enrol(t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config}, nil)
	b.must(err)
	req := script("sleep 60")
	req.Key = "one-for-both"
	theirs := other.run(req)
	a, _ := b.Run(t.Context(), req, operator, gateway.Told{})
	a = b.until(a.ID, "not started", func(a longstop.Action) bool { return a.Outcome == longstop.OutcomeNotStarted })
	if a.Launch.State != longstop.LaunchRejected || a.Launch.Because != string(longstop.CodeKeyConflict) || a.Alive != longstop.AliveNo {
		t.Errorf("%s", pretty(a))
	}
	other.until(theirs.ID, "theirs goes on", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	other.cancel(theirs.ID, nil)
}

// TestReconcileNeverStartsWork: asking about an action that is running asks, and submits nothing.
func TestReconcileNeverStartsWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	submits := b.tap.count(wire.VerbSubmit)
	for range 3 {
		got, err := b.Reconcile(t.Context(), string(a.ID))
		if err != nil || got.Alive != longstop.AliveYes {
			t.Errorf("reconcile: %v\n%s", err, pretty(got))
		}
	}
	if b.tap.count(wire.VerbSubmit) != submits {
		t.Errorf("reconciling sent a submit")
	}
	b.cancel(a.ID, nil)
}

// TestServeKilled: C025. The runner's serve process dies on the host. The run has another owner: it
// goes on, and is seen again over the next channel.
func TestC025ServeKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	gate := filepath.Join(sshtest.ShortDir(t), "go")
	a := b.run(script("while [ ! -e " + gate + " ]; do sleep 0.05; done; exit 4"))
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	b.must(syscall.Kill(processOf(t, hosts[0].Runner, "serve"), syscall.SIGKILL))
	b.until(a.ID, "seen over a new channel", func(a longstop.Action) bool {
		return a.Alive == longstop.AliveYes && b.tap.count(wire.VerbWatch) > 1
	})
	b.must(os.WriteFile(gate, nil, 0o600))
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 4 || a.SSHCommand.Status != nil {
		t.Errorf("%s", pretty(a))
	}
}

// TestIdle: a channel that nothing needs is closed, and made again when something does.
func TestIdle(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.stop()
	b.idle = 100 * time.Millisecond
	b.start()
	b.wait(b.run(script("true")).ID)
	name := b.home + "/ssh"
	sshtest.Eventually(t, "the connection is closed", func() bool {
		sockets, _ := filepath.Glob(name + "/*")
		return !slices.ContainsFunc(sockets, func(s string) bool {
			info, err := os.Lstat(s)
			return err == nil && info.Mode()&os.ModeSocket != 0
		})
	})
	if a := b.wait(b.run(script("true")).ID); a.Outcome != longstop.OutcomeSucceeded {
		t.Errorf("%s", pretty(a))
	}
}

// processOf finds the one process with exactly these arguments.
func processOf(t *testing.T, argv ...string) int {
	t.Helper()
	want := strings.Join(argv, "\x00") + "\x00"
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if got, _ := os.ReadFile(name); string(got) == want {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			must(t, err)
			return pid
		}
	}
	t.Fatalf("no process %q", argv)
	return 0
}

// TestChannelsThatEndAtOnce: a host whose channels open and end is not dialled without a pause.
func TestChannelsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	b.tap.always(wire.VerbWatch, loseIt)
	before := b.tap.count(wire.VerbWatch)
	b.proxy.Cut()
	sshtest.Eventually(t, "two channels more", func() bool { return b.tap.count(wire.VerbWatch) > before+2 })
	two := b.tap.count(wire.VerbWatch)
	time.Sleep(4 * time.Second)
	if more := b.tap.count(wire.VerbWatch) - two; more > 8 {
		t.Errorf("%d channels more in 4 s", more)
	}
	b.tap.set(nil)
	b.until(a.ID, "it is seen again", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	b.cancel(a.ID, nil)
}

// TestLaw5KeyOfAnotherGateway: the key has a run that another gateway started. Nothing is started, and nobody is
// said to have altered its record.
func TestLaw5KeyOfAnotherGateway(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req := longstop.RunRequest{Host: b.server.Alias, Key: "ours", Request: longstop.Request{Script: "exit 3"}}
	first, err := b.Run(t.Context(), req, operator, gateway.Told{})
	b.must(err)
	other := b.beside()
	a, err := other.Run(t.Context(), req, operator, gateway.Told{})
	b.must(err)
	a, err = other.Wait(t.Context(), string(a.ID))
	if a.Outcome != longstop.OutcomeNotStarted || !strings.Contains(a.Launch.Message, string(first.RunID)) {
		t.Errorf("%v: %s", err, pretty(a))
	}
	entries, err := other.Journal(t.Context(), gateway.JournalFilter{Action: a.ID, After: -1, Limit: 1000})
	b.must(err)
	if said := pretty(entries); strings.Contains(said, "altered") || !strings.Contains(said, "the record is of run "+string(first.RunID)) {
		t.Errorf("%s", said)
	}
}
