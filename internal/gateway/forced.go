package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/wire"
)

// A forced host is one whose login's key is bound, in its authorized_keys, to `longstop-runner forced`.
// There is no shell to find a place for the runner or to copy it with: the operator puts it there, and
// everything else is as with any host.

// forcedRunner is where the runner is on a forced host unless its operator says otherwise.
const forcedRunner = "/usr/local/bin/longstop-runner"

// checkForced refuses what cannot stand in a line of authorized_keys, which a login shell reads too.
func checkForced(req *longstop.EnrolRequest, bad func(string, ...any) error) error {
	if !req.Forced {
		return nil
	}
	defaultTo(&req.Runner, forcedRunner)
	for _, p := range []string{req.Runner, req.StateDir} {
		if p != "" && !wire.PlainPath(p) {
			return bad("%q is not an absolute path of letters, digits and /._- alone, which any login shell reads alike", p)
		}
	}
	return nil
}

// forcedLine is a key's line in authorized_keys.
func forcedLine(req longstop.EnrolRequest, key string) string {
	command := req.Runner + " forced"
	if req.StateDir != "" {
		command += " --state-dir " + req.StateDir
	}
	return `command="` + command + `",restrict ` + key
}

// ForcedSetup says what an operator has to do on a host before it is enrolled as a forced one. The host
// is not asked.
func (g *Gateway) ForcedSetup(ctx context.Context, req longstop.EnrolRequest) (longstop.ForcedSetup, error) {
	req.Forced = true
	if err := checkEnrol(&req); err != nil {
		return longstop.ForcedSetup{}, err
	}
	dialer, ok := g.cfg.Dialers[req.Transport].(interface {
		Login(context.Context, sshlink.Target) (sshlink.Login, error)
	})
	if !ok {
		return longstop.ForcedSetup{}, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("no transport %q: there are openssh and embedded", req.Transport)}
	}
	target := sshlink.Target{Name: req.Name, SSHConfig: req.SSHConfig}
	login, err := dialer.Login(ctx, target)
	if err != nil {
		return longstop.ForcedSetup{}, err
	}
	if len(login.Keys) == 0 {
		return longstop.ForcedSetup{}, &longstop.Error{Code: longstop.CodeUsage,
			Message: "ssh has no key to offer to " + req.Name + " whose public half is to be found: in no file NAME.pub beside an IdentityFile, nor in the agent",
			Hint:    "make one (ssh-keygen -t ed25519 -f FILE) and name it as IdentityFile; see: " + target.Command("-G")}
	}
	setup := longstop.ForcedSetup{User: login.User, Runner: req.Runner, Runners: g.runnerBinaries()}
	for _, key := range login.Keys {
		setup.Keys = append(setup.Keys, longstop.ForcedKey{Fingerprint: key.Fingerprint, From: key.From, Line: forcedLine(req, key.Key)})
	}
	return setup, nil
}

// runnerBinaries are the runners that this gateway has.
func (g *Gateway) runnerBinaries() (list []longstop.RunnerBinary) {
	for _, arch := range []string{"amd64", "arm64"} {
		if binary, sum, err := g.cfg.Runners.Runner(arch); err == nil {
			list = append(list, longstop.RunnerBinary{Arch: arch, SHA256: sum, Bytes: int64(len(binary))})
		}
	}
	return list
}

// Runner returns the runner for an architecture, for an operator to install.
func (g *Gateway) Runner(arch string) (binary []byte, sha256 string, err error) {
	if arch != "amd64" && arch != "arm64" {
		return nil, "", &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("there is no runner for %q", arch),
			Hint: "there are amd64 (x86_64) and arm64 (aarch64), for Linux"}
	}
	return g.cfg.Runners.Runner(arch)
}

// isForced has a command refused that any shell would run: proof that the key cannot do more than ask a
// runner.
func (s loginShell) isForced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shellWithin)
	defer cancel()
	got, err := sshlink.Run(ctx, s.link, "true", nil, shellLimit)
	if err != nil {
		return err
	}
	said := bounded(join(got.Stdout, got.Stderr))
	if strings.Contains(said, wire.ForcedRefusal) && got.Exit.State == longstop.SSHExited && got.Exit.Status != 0 {
		return nil
	}
	key := s.link.Facts().Key
	if key != "" {
		key = " " + key
	}
	e := &longstop.Error{Code: longstop.CodeNoRunner, Noise: said,
		Message: fmt.Sprintf("the key%s that logs in to %s is not bound to longstop-runner forced: the command “true” %s%s", key, s.to.Name, exitWords(got.Exit), quoted(said))}
	if got.Exit == (sshlink.Exit{State: longstop.SSHExited}) && said == "" {
		e.Message = fmt.Sprintf("the key%s that logs in to %s is not bound to longstop-runner forced: it ran the command “true”, as a shell does", key, s.to.Name)
	}
	return e
}

// otherRunner is the error for a host whose runner is not this gateway's own.
func (g *Gateway) otherRunner(name string, hello *wire.HelloAnswer) error {
	_, sum, err := g.cfg.Runners.Runner(hello.Arch)
	if err != nil || sum == hello.RunnerSHA256 {
		return err
	}
	return &longstop.Error{Code: longstop.CodeVersionMismatch,
		Message: fmt.Sprintf("the runner that is installed on %s is %s (SHA-256 %.12s…), this gateway's own for %s is %s (%.12s…)",
			name, hello.Version, hello.RunnerSHA256, hello.Arch, longstop.Version, sum)}
}

func (h *host) isForced() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.row.Forced
}

// changed tells of a forced host that works and yet is not as it was enrolled: its key is bound to nothing
// any more, or its runner is of another version, with which this gateway gets along. Empty for any other.
func (h *host) changed(hello *wire.HelloAnswer) string {
	if !h.isForced() {
		return ""
	}
	if len(hello.Allowed) == 0 {
		return "the key that logs in to " + h.name + " is not bound to longstop-runner forced any more: it may do there what the account may; " + h.installs()
	}
	var e *longstop.Error
	if !errors.As(h.g.otherRunner(h.name, hello), &e) || e.Code != longstop.CodeVersionMismatch {
		return ""
	}
	return e.Message + "; they get along, and nobody but you can replace it: " + h.installs()
}

// installs is the command that says what the operator has to install.
func (h *host) installs() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	command := "longstop host add " + h.name + " --forced"
	if h.row.SSHConfig != "" {
		command += " --ssh-config " + h.row.SSHConfig
	}
	if h.row.Runner != forcedRunner {
		command += " --runner " + h.row.Runner
	}
	if !strings.HasSuffix(h.row.StateDir, "/.local/state/longstop") { // not the default one
		command += " --state-dir " + h.row.StateDir
	}
	return command + " says how"
}

// operators is err with the way on that a forced host has: what is wrong with its runner is not for this
// gateway to mend.
func (h *host) operators(err error) error {
	var e *longstop.Error
	if !h.isForced() || !errors.As(err, &e) ||
		!slices.Contains([]longstop.Code{longstop.CodeNoRunner, longstop.CodeVersionMismatch, longstop.CodeBadAnswer, longstop.CodeTimeout}, e.Code) {
		return err
	}
	told := *e
	told.Hint = "its runner and the key's line in authorized_keys are the operator's to install: " + h.installs()
	return &told
}
