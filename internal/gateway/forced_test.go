package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// bound is a bench and an sshd beside it, whose one key is bound by whatever its authorized_keys says.
type bound struct {
	*bench
	login  *sshtest.Server
	keys   string // authorized_keys
	runner string
	req    longstop.EnrolRequest
}

func newBound(t *testing.T) *bound {
	t.Helper()
	dir := sshtest.ShortDir(t)
	b := &bound{bench: newBench(t, sshtest.Options{}), keys: filepath.Join(dir, "keys"), runner: filepath.Join(dir, "longstop-runner")}
	b.login = sshtest.Start(t, sshtest.Options{Alias: "bound", Extra: []string{"AuthorizedKeysFile " + b.keys}})
	b.req = longstop.EnrolRequest{Name: "bound", SSHConfig: b.login.SSHConfig, StateDir: filepath.Join(dir, "state"), Forced: true, Runner: b.runner}
	return b
}

// Login is the tapped transport's own.
func (t *tap) Login(ctx context.Context, to sshlink.Target) (sshlink.Login, error) {
	return t.Dialer.(*sshlink.OpenSSH).Login(ctx, to)
}

// bind writes the line that the setup says, changed by edit.
func (b *bound) bind(edit func(line string) string) {
	b.t.Helper()
	setup, err := b.ForcedSetup(b.t.Context(), b.req)
	b.must(err)
	b.must(os.WriteFile(b.keys, []byte(edit(setup.Keys[0].Line)+"\n"), 0o600))
}

func asIs(line string) string { return line }

// install puts this gateway's runner there, and more behind it.
func (b *bound) install(more string) {
	b.t.Helper()
	dir, err := theRunner()
	b.must(err)
	binary, err := os.ReadFile(filepath.Join(dir, "longstop-runner"))
	b.must(err)
	os.Remove(b.runner)
	b.must(os.WriteFile(b.runner, append(bytes.Clone(binary), more...), 0o755))
}

// again has the gateway connect anew.
func (b *bound) again() { b.stop(); b.start() }

func (b *bound) refuses(code longstop.Code, words string) {
	b.t.Helper()
	if _, err := b.Enrol(b.t.Context(), b.req, nil); longstop.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		b.t.Errorf("want %s and %q: %v", code, words, err)
	}
}

// TestForcedEnrolment: a host is enrolled as forced when its key can call this very runner, and nothing
// else; each thing that is missing is named.
func TestForcedEnrolment(t *testing.T) {
	t.Parallel()
	b := newBound(t)
	b.must(os.WriteFile(b.keys, nil, 0o600))
	b.refuses(longstop.CodeAccessRefused, "refused")
	b.bind(func(line string) string { return line[strings.Index(line, "ssh-"):] })
	b.refuses(longstop.CodeNoRunner, b.login.KeyFP+" that logs in to bound is not bound to longstop-runner forced: it ran the command")
	b.bind(func(line string) string { return `command="echo hi" ` + line[strings.Index(line, "ssh-"):] })
	b.refuses(longstop.CodeNoRunner, `printed "hi"`)
	b.bind(asIs)
	b.refuses(longstop.CodeNoRunner, "exited 127")
	b.install("other bytes")
	b.refuses(longstop.CodeVersionMismatch, "the runner that is installed on bound")
	b.install("")
	host, err := b.Enrol(t.Context(), b.req, nil)
	b.must(err)
	if !host.Forced || host.Runner != b.runner || host.StateDir != b.req.StateDir || host.RunnerSHA != host.Hello.RunnerSHA256 || len(host.Hello.Allowed) == 0 {
		t.Errorf("%s", pretty(host))
	}
	// Without --forced it is told what it met, and what to do.
	plain := b.req
	plain.Name, plain.Forced, plain.Runner = "bound", false, ""
	var e *longstop.Error
	if _, err := b.Enrol(t.Context(), plain, nil); !errors.As(err, &e) || !strings.Contains(e.Message, "longstop-runner forced") || !strings.Contains(e.Hint, "--forced") {
		t.Errorf("enrolled without it: %v", err)
	}
}

// TestForcedHost: work goes by a bound key as by any; what changes at the host's side is told, and the
// runner there is the operator's.
func TestForcedHost(t *testing.T) {
	t.Parallel()
	b := newBound(t)
	b.bind(asIs)
	b.install("")
	_, err := b.Enrol(t.Context(), b.req, nil)
	b.must(err)
	run := func(own bool) longstop.RunRequest {
		return longstop.RunRequest{Host: "bound", Request: longstop.Request{Script: "exit 3", OwnChannel: own}}
	}
	for _, own := range []bool{false, true} {
		if a := b.wait(b.run(run(own)).ID); a.Workload.Result == nil || *a.Workload.Result.ExitCode != 3 {
			t.Errorf("own channel %t: %s", own, pretty(a))
		}
	}
	notes := func() string {
		var lines []string
		b.again()
		a, err := b.Run(t.Context(), run(false), operator, gateway.Told{Note: func(line string) { lines = append(lines, line) }})
		b.must(err)
		b.wait(a.ID)
		slow := func(line string) bool { return strings.HasPrefix(line, "connecting to ") } // said where it takes a while
		return strings.Join(slices.DeleteFunc(lines, slow), "\n")
	}
	if told := notes(); told != "" {
		t.Errorf("told %q", told)
	}
	b.install("a later version")
	if told := notes(); !strings.Contains(told, "the runner that is installed on bound") || !strings.Contains(told, "longstop host add bound --forced --ssh-config "+b.login.SSHConfig) {
		t.Errorf("of another runner: %q", told)
	}
	b.bind(func(line string) string { return line[strings.Index(line, "ssh-"):] })
	if told := notes(); !strings.Contains(told, "not bound to longstop-runner forced any more") {
		t.Errorf("of a key that is free: %q", told)
	}
	b.bind(asIs)
	b.must(os.Remove(b.runner))
	b.again()
	var e *longstop.Error
	if a, err := b.Run(t.Context(), run(false), operator, gateway.Told{}); !errors.As(err, &e) || e.Code != longstop.CodeNoRunner ||
		!strings.Contains(e.Hint, "longstop host add bound --forced") || a.Launch.State != longstop.LaunchRejected {
		t.Errorf("without a runner: %v\n%s", err, pretty(a))
	}
	if _, err := b.CheckHost(t.Context(), "bound", nil); !errors.As(err, &e) || !strings.Contains(e.Hint, "longstop host add bound --forced") {
		t.Errorf("checked: %v", err)
	}
	if _, err := os.Stat(b.runner); err == nil {
		t.Error("the gateway put a runner there itself")
	}
}

// TestForcedReadOnly: what the key may not do is refused before anything is started, and a cancel that is
// refused has signalled nothing.
func TestForcedReadOnly(t *testing.T) {
	t.Parallel()
	b := newBound(t)
	b.bind(asIs)
	b.install("")
	_, err := b.Enrol(t.Context(), b.req, nil)
	b.must(err)
	going := b.run(longstop.RunRequest{Host: "bound", Request: longstop.Request{Script: "echo said; exec sleep 300"}})
	b.bind(func(line string) string { return strings.Replace(line, " forced ", " forced --read-only ", 1) })
	b.again()
	for _, own := range []bool{false, true} {
		a, err := b.Run(t.Context(), longstop.RunRequest{Host: "bound", Request: longstop.Request{Script: "exit 3", OwnChannel: own}}, operator, gateway.Told{})
		if longstop.CodeOf(err) != longstop.CodeNotAllowed || a.Launch.State != longstop.LaunchRejected || a.Outcome != longstop.OutcomeNotStarted ||
			!strings.Contains(err.Error(), "does not allow submit, only find, status, list, inspect, output") {
			t.Errorf("own channel %t: %v\n%s", own, err, pretty(a))
		}
	}
	out, err := b.Output(t.Context(), string(going.ID), "stdout", 0, 100, 0)
	if err != nil || string(out.Data) != "said\n" {
		t.Errorf("output %q, %v", out.Data, err)
	}
	a, err := b.Cancel(t.Context(), string(going.ID), operator, nil)
	if err != nil || a.Cancel.State != longstop.CancelRefused || !strings.Contains(a.Cancel.Because, "does not allow cancel") || a.Workload.State != longstop.WorkloadRunning {
		t.Errorf("cancel: %v\n%s", err, pretty(a))
	}
	b.bind(asIs)
	b.again()
	if a, err = b.Cancel(t.Context(), string(going.ID), operator, nil); err != nil || a.Outcome != longstop.OutcomeCancelled {
		t.Errorf("cancelled by the key that may: %v\n%s", err, pretty(a))
	}
}
