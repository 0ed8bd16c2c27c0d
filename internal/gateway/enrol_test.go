package gateway_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// TestRunnerComesBack: a runner that was removed from the host is put back when it is needed.
func TestRunnerComesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	b.must(os.Remove(hosts[0].Runner))
	b.stop()
	b.start()
	var notes []string
	a, err := b.Run(t.Context(), script("true"), operator, gateway.Told{Note: func(line string) { notes = append(notes, line) }})
	b.must(err)
	if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded || !strings.Contains(strings.Join(notes, "\n"), "copying the runner to loop") {
		t.Errorf("told %q\n%s", notes, pretty(a))
	}
}

// TestRunnerIsMended: a runner whose file was torn (a crash after it was copied) or replaced does not
// run, which alone does not tell it from a login shell that runs something else. Checking the host does,
// and puts it back; one that may only not be executed is put right by the launch itself.
func TestRunnerIsMended(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	for _, content := range []string{"", "#!/bin/sh\nexec cat\n", "\x7fELF"} {
		b.stop()
		b.must(os.Remove(hosts[0].Runner)) // a keeper may still run it
		b.must(os.WriteFile(hosts[0].Runner, []byte(content), 0o700))
		b.start()
		if _, err := b.Run(t.Context(), script("true"), operator, gateway.Told{}); err == nil {
			if content != "\x7fELF" { // 126: known to be no runner's
				t.Errorf("%q ran", content)
			}
		} else if e := (*longstop.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Hint, "longstop host check loop") {
			t.Errorf("%q: %v, %+v", content, err, e)
		}
		if _, err := b.CheckHost(t.Context(), "loop", nil); err != nil {
			t.Errorf("%q: %v", content, err)
		}
		a := b.run(script("true"))
		if a = b.wait(a.ID); a.Outcome != longstop.OutcomeSucceeded {
			t.Errorf("%q: %s", content, pretty(a))
		}
	}
	b.stop()
	b.must(os.Chmod(hosts[0].Runner, 0o600))
	b.start()
	if a := b.run(script("true")); b.wait(a.ID).Outcome != longstop.OutcomeSucceeded {
		t.Errorf("%s", pretty(a))
	}
}

// TestEnrolRefuses a host key that nobody has checked, with the command that shows it, and journals it.
func TestEnrolRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	b.must(os.WriteFile(b.server.KnownHosts, nil, 0o600))
	_, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: "loop", SSHConfig: b.server.SSHConfig}, nil)
	if longstop.CodeOf(err) != longstop.CodeHostKeyUnknown {
		t.Errorf("error %v", err)
	}
	entries, err := b.Journal(t.Context(), gateway.JournalFilter{After: -1})
	b.must(err)
	if !slices.ContainsFunc(entries, func(e longstop.JournalEntry) bool { return e.Kind == "host_refused" }) {
		t.Errorf("not journalled")
	}
	for _, bad := range []longstop.EnrolRequest{{}, {Name: "-oProxyCommand=x"}, {Name: "a b"}, {Name: "x", SSHConfig: "rel"}, {Name: "x", StateDir: "/a/../b"}, {Name: "x", Transport: "telnet"}} {
		if _, err := b.Enrol(t.Context(), bad, nil); longstop.CodeOf(err) != longstop.CodeUsage {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}

// TestNoisyLogin: C029. What start-up files print is kept apart, named at enrolment and with each
// action, and never part of anything else.
func TestC029NoisyLogin(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{ForceCommand: `echo '{"ok":true,"job":"x"}'; printf 'LONGSTOP/1 '; eval "$SSH_ORIGINAL_COMMAND"`})
	hosts, err := b.Hosts(t.Context())
	b.must(err)
	if notes := strings.Join(hosts[0].Hello.Notes, "\n"); !strings.Contains(notes, "job") {
		t.Errorf("the host's notes do not name the noise: %q", notes)
	}
	a := b.wait(b.run(script(`printf '{"state":"done","exit":0}\n'; printf '\n__EXIT__:0\n'; exit 9`)).ID)
	if *a.Workload.Result.ExitCode != 9 || !strings.Contains(a.SSHCommand.Noise, `"job":"x"`) {
		t.Errorf("%s", pretty(a))
	}
	if out := b.output(a.ID, "stdout"); out != "{\"state\":\"done\",\"exit\":0}\n\n__EXIT__:0\n" {
		t.Errorf("stdout %q", out)
	}
}

// TestLoginTurnsForeign: C083 C086. A host whose login runs something else from now on refuses a
// launch by name, quoting what was printed; nothing is accepted.
func TestC083LoginTurnsForeign(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(sshtest.ShortDir(t), "foreign")
	b := newBench(t, sshtest.Options{ForceCommand: `[ -e ` + flag + ` ] && { echo "backup only"; exit 0; }; exec sh -c "$SSH_ORIGINAL_COMMAND"`})
	b.stop()
	b.must(os.WriteFile(flag, nil, 0o600))
	b.start()
	req, ran := counting(t)
	a, err := b.Run(t.Context(), req, operator, gateway.Told{})
	if longstop.CodeOf(err) != longstop.CodeNoRunner || !strings.Contains(err.Error(), "backup only") || !strings.Contains(err.Error(), "exited 0") {
		t.Errorf("error %v", err)
	}
	if a.Launch.State != longstop.LaunchRejected || a.Outcome != longstop.OutcomeNotStarted || ran() != 0 || !strings.Contains(a.SSHCommand.Noise, "backup only") {
		t.Errorf("%s", pretty(a))
	}
}

// TestEnrolAnotherStateFolder: while actions are unresolved their host keeps its identity, and whoever
// tries otherwise is told what differs, and the way on.
func TestEnrolAnotherStateFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	_, err := b.Enrol(t.Context(), longstop.EnrolRequest{Name: "loop", SSHConfig: b.config, StateDir: filepath.Join(sshtest.ShortDir(t), "other")}, nil)
	var e *longstop.Error
	if !errors.As(err, &e) || e.Code != longstop.CodeHostMismatch || !strings.Contains(e.Message, "in another state folder of this machine") || !strings.Contains(e.Hint, "second name") {
		t.Errorf("%v", err)
	}
	b.until(a.ID, "the run is seen as before", func(a longstop.Action) bool { return a.Alive == longstop.AliveYes })
	b.cancel(a.ID, nil)
}

// TestRemoveHost leaves a host that somebody still has to ask.
func TestRemoveHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	if err := b.RemoveHost(t.Context(), "loop"); longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("with an unresolved action: %v", err)
	}
	b.cancel(a.ID, nil)
	b.must(b.RemoveHost(t.Context(), "loop"))
	if _, err := b.Run(t.Context(), script("true"), operator, gateway.Told{}); longstop.CodeOf(err) != longstop.CodeHostUnknown {
		t.Errorf("after removal: %v", err)
	}
	if got, err := b.Action(t.Context(), string(a.ID)); err != nil || got.Outcome != longstop.OutcomeCancelled {
		t.Errorf("its actions stay: %v\n%s", err, pretty(got))
	}
}

// TestRemoveHostHoldsNobodyUp: while a removal waits for its turn to write, whoever has the turn can look a host up.
func TestRemoveHostHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	a := b.run(script("sleep 60"))
	removed := make(chan error, 1)
	b.must(b.store.Update(t.Context(), func(*sqlite.Tx) error {
		go func() { removed <- b.RemoveHost(t.Context(), "loop") }()
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			for range 1000 {
				runtime.Gosched()
				b.Action(t.Context(), string(a.ID))
			}
		}()
		select {
		case <-looked:
		case <-time.After(30 * time.Second):
			t.Error("nobody can look at an action")
		}
		return nil
	}))
	if err := <-removed; longstop.CodeOf(err) != longstop.CodeUsage {
		t.Errorf("%v", err)
	}
	b.cancel(a.ID, nil)
}

// TestHostRemovedDuringLaunch: no action is made for a host that was removed just before: nobody would
// ask what became of it.
func TestHostRemovedDuringLaunch(t *testing.T) {
	t.Parallel()
	b := newBench(t, sshtest.Options{})
	req, ran := counting(t)
	launched := make(chan error, 1)
	b.must(b.store.Update(t.Context(), func(tx *sqlite.Tx) error {
		go func() {
			_, err := b.Run(t.Context(), req, operator, gateway.Told{})
			launched <- err
		}()
		_, err := tx.Append(journal.Entry{Kind: journal.HostRemoved, Host: "loop"})
		return errors.Join(err, tx.DeleteHost("loop"))
	}))
	if err := <-launched; longstop.CodeOf(err) != longstop.CodeHostUnknown {
		t.Errorf("%v", err)
	}
	if all, err := b.Actions(t.Context(), gateway.ActionFilter{All: true}); err != nil || len(all) != 0 || ran() != 0 {
		t.Errorf("%v: %s", err, pretty(all))
	}
}
