package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/wire"
)

// days is a shift of the clock by days.
func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// state is the host's state folder.
func (b *bench) state() longstop.Host {
	b.t.Helper()
	hosts, err := b.Hosts(b.t.Context())
	b.must(err)
	return hosts[0]
}

// collected waits until the host has answered that every result that is here may go.
func (b *bench) collected() {
	b.t.Helper()
	id := b.state().StateID
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, err := b.store.Uncollected(b.t.Context(), id, 10)
		b.must(err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not collected within a minute: %v", left)
		}
	}
}

// later starts another gateway some days later.
func (b *bench) later(n int) {
	b.t.Helper()
	b.stop()
	b.shift = days(n)
	b.start()
}

func (b *bench) onHost(a longstop.Action, sub string) bool {
	_, err := os.Stat(filepath.Join(b.state().StateDir, sub, string(a.RunID)))
	return err == nil
}

func isRemoved(a longstop.Action) bool { return a.Removed != nil }

// TestRetention: what was read is kept for a week, what was not for a month, record and key for ever.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	keyed := script("echo read; exit 3")
	keyed.Key = "k"
	read, unread, silent := b.run(keyed), b.run(script("echo unread >&2")), b.run(script("true"))
	for _, a := range []longstop.Action{read, unread, silent} {
		b.wait(a.ID)
	}
	if out := b.output(read.ID, "stdout"); out != "read\n" {
		t.Errorf("output %q", out)
	}
	b.collected()
	for _, a := range []longstop.Action{read, unread, silent} {
		if !b.onHost(a, "runs") {
			t.Errorf("%s is gone at once", a.RunID)
		}
	}
	b.later(8)
	read = b.until(read.ID, "what was read is gone after a week", isRemoved)
	silent = b.until(silent.ID, "what wrote nothing is gone after a week", isRemoved)
	if out := b.output(unread.ID, "stderr"); out != "unread\n" {
		t.Errorf("what nobody had read: %q", out)
	}
	b.checkRemoved(read, keyed)
	if got, err := b.Output(t.Context(), string(silent.ID), "stdout", 0, 0, 0); err != nil || !got.End {
		t.Errorf("the output of what wrote nothing: %+v, %v", got, err)
	}
	b.later(365)
	b.until(unread.ID, "what is a year old is gone", isRemoved)
	b.checkRemoved(b.until(read.ID, "", isRemoved), keyed)
}

// checkRemoved checks what is left of a run that was removed: its record here and there, and its key.
func (b *bench) checkRemoved(a longstop.Action, req longstop.RunRequest) {
	b.t.Helper()
	if a.Outcome != longstop.OutcomeFailed || *a.Workload.Result.ExitCode != 3 || a.Removed.Because != longstop.RemovedRetention ||
		a.Next != "longstop show "+string(a.ID) {
		b.t.Errorf("removed: %s", pretty(a))
	}
	if b.onHost(a, "runs") || !b.onHost(a, "tombs") {
		b.t.Error("the host has the run's folder still, or not its record")
	}
	if !slices.Contains(b.kinds(a.ID), string(journal.RetentionApplied)) {
		b.t.Errorf("journal: %v", b.kinds(a.ID))
	}
	_, err := b.Output(b.t.Context(), string(a.ID), "stdout", 0, 0, 0)
	if longstop.CodeOf(err) != longstop.CodeExpired || !strings.Contains(err.Error(), a.Removed.At.Format(time.RFC3339)) {
		b.t.Errorf("output: %v", err)
	}
	again, err := b.Run(b.t.Context(), req, operator, gateway.Told{})
	if err != nil || again.ID != a.ID {
		b.t.Errorf("the key once more: %s, %v", again.ID, err)
	}
	other := b.beside()
	refused, err := other.Run(b.t.Context(), req, operator, gateway.Told{})
	if longstop.CodeOf(err) != longstop.CodeExpired && refused.Launch.Because != string(longstop.CodeExpired) ||
		refused.Outcome != longstop.OutcomeNotStarted {
		b.t.Errorf("the key in another gateway: %v\n%s", err, pretty(refused))
	}
}

// beside is another gateway's home, which has enrolled the same host.
func (b *bench) beside() *bench {
	b.t.Helper()
	other := &bench{t: b.t, home: sshtest.ShortDir(b.t), server: b.server, proxy: b.proxy, config: b.config, beat: b.beat, shift: b.shift}
	other.tap = &tap{Dialer: &sshlink.OpenSSH{Dir: filepath.Join(other.home, "ssh")}}
	other.start()
	_, err := other.Enrol(b.t.Context(), longstop.EnrolRequest{Name: b.server.Alias, SSHConfig: b.config}, nil)
	b.must(err)
	return other
}

// asked waits until a verb was sent more often than before.
func (b *bench) asked(verb wire.Verb, before int) {
	b.t.Helper()
	for end := time.Now().Add(60 * time.Second); b.tap.count(verb) <= before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s was not sent within a minute", verb)
		}
	}
}

// TestCollectGoesOn: answers are lost and the gateway stops between a result and its collection, and
// between its removal and the word of that.
func TestCollectGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.tap.once(wire.VerbCollect, loseAns)
	a := b.run(script("exit 3"))
	b.wait(a.ID)
	b.asked(wire.VerbCollect, 0)
	b.stop()
	b.start()
	b.collected()
	b.tap.once(wire.VerbGC, loseAns)
	gcs := b.tap.count(wire.VerbGC)
	b.later(8)
	b.asked(wire.VerbGC, gcs)
	b.later(8)
	a = b.until(a.ID, "the removal is known", isRemoved)
	if b.onHost(a, "runs") || !b.onHost(a, "tombs") {
		t.Errorf("on the host: %s", pretty(a))
	}
}

// TestTwoGatewaysOneHost: how long a run is kept is for the gateway that submitted it alone.
func TestTwoGatewaysOneHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	other := b.beside()
	mine, theirs := b.run(script("exit 1")), other.run(script("echo theirs"))
	b.wait(mine.ID)
	other.wait(theirs.ID)
	b.collected()
	other.collected()
	b.later(365)
	b.until(mine.ID, "the own run is gone", isRemoved)
	if !b.onHost(theirs, "runs") || other.output(theirs.ID, "stdout") != "theirs\n" {
		t.Error("the other gateway's run is gone")
	}
}
