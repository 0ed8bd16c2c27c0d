package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/policy"
	"github.com/longstop/longstop/internal/redact"
	"github.com/longstop/longstop/internal/wire"
)

// The bounds of what is taken at all.
const (
	maxRequest = 12 << 20    // bytes of arguments or script and environment together, as JSON: one frame carries them
	maxArg     = 128<<10 - 1 // of one argument or one variable: MAX_ARG_STRLEN of Linux with 4 KiB pages
	maxKey     = 200
	maxSeconds = 100 * 365 * 24 * 3600
)

// asked is a request that was looked through, complete with defaults.
type asked struct {
	request longstop.Request
	kept    longstop.Request  // the request, without what is configured as secret
	env     map[string][]byte // the values, never kept
	envMACs map[string]string // what is kept of them: equal for equal values of this store, no more
	key     string
	session longstop.SessionID
	pty     *longstop.Terminal
	stdin   string // path of the spooled bytes, or empty
	command string // of a direct action: what its host is given to read
	verdict policy.Verdict
	policy  string // "sha256:…" of the policy that gave the verdict; empty without one
}

func usage(format string, args ...any) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: "longstop run --help"}
}

// accept looks a request through and completes it, for a host as enrolled. It changes nothing.
func (g *Gateway) accept(req longstop.RunRequest, host longstop.Host) (*asked, error) {
	a := &asked{request: req.Request, env: req.EnvValues, key: req.Key, session: req.SessionID, pty: req.Terminal, envMACs: map[string]string{}}
	r := &a.request
	r.Env = slices.Sorted(maps.Keys(req.EnvValues))
	r.StdinBytes, r.StdinSHA256, r.Digest, r.Redacted = 0, "", "", false
	r.TakeDefaults()
	checks := []func() error{
		func() error { return checkCommand(r) },
		func() error { return checkEnv(a.env) },
		func() error { return checkKinds(r) },
		func() error { return checkTerminal(r, req.Terminal) },
		func() error { return checkTimes(r) },
		func() error { return checkDirect(a, host) },
		func() error { return checkStages(r) },
		func() error { return checkNames(a) },
		func() error { return checkAsker(req.By) },
		func() error { return g.checkNoSecret(a) },
		func() error { return checkSize(r, a.env) },
		func() error { return g.takeStdin(a, req.StdinID) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	if a.key == "" {
		a.key = "key_" + rand.Text()
	}
	for name, mac := range g.seal(a.env) {
		a.envMACs[name] = hex.EncodeToString(mac)
	}
	g.complete(a, host)
	return a, nil
}

// complete makes of a request that is as it will be sent its digest, and what is kept of it.
func (g *Gateway) complete(a *asked, host longstop.Host) {
	a.request.Digest = g.digest(host, &a.request, a.env)
	kept, redacted := redact.Value(g.cfg.Redact, a.request)
	a.kept, a.kept.Redacted = kept, redacted
}

// digest is that of a request for a host as enrolled.
func (g *Gateway) digest(host longstop.Host, r *longstop.Request, env map[string][]byte) string {
	return wire.CanonicalDigest(host.Name, host.HostKey, *r, g.seal(env))
}

// seal makes of an environment's values what may be kept: equal for equal values of this store, no more.
func (g *Gateway) seal(env map[string][]byte) map[string][]byte {
	sealed := make(map[string][]byte, len(env))
	for name, value := range env {
		mac := hmac.New(sha256.New, g.salt)
		mac.Write([]byte(name + "="))
		mac.Write(value)
		sealed[name] = mac.Sum(nil)
	}
	return sealed
}

func checkCommand(r *longstop.Request) error {
	given := 0
	for _, there := range []bool{len(r.Argv) > 0, len(r.ArgvB64) > 0, r.Script != ""} {
		if there {
			given++
		}
	}
	if given != 1 {
		return usage("give either arguments after -- or one script with -c")
	}
	argv := r.ArgvB64
	for _, arg := range r.Argv {
		if !utf8.ValidString(arg) {
			return usage("an argument is not UTF-8: send it as argv_b64")
		}
		argv = append(argv, []byte(arg))
	}
	if len(argv) > 0 && len(argv[0]) == 0 {
		return usage("the command's name is empty")
	}
	for i, arg := range argv {
		if bytes.IndexByte(arg, 0) >= 0 {
			return usage("argument %d has a NUL byte, which no program can be given", i)
		}
		if len(arg) > maxArg {
			return usage("argument %d has %d bytes; Linux gives a program at most %d in one: send it as a script or on standard input", i, len(arg), maxArg)
		}
	}
	switch {
	case strings.IndexByte(r.Script, 0) >= 0:
		return usage("the script has a NUL byte, at which a shell would end it")
	case !utf8.ValidString(r.Script):
		return usage("the script is not UTF-8")
	case r.StrictShell && r.Script == "":
		return usage("strict shell is for a script (-c) alone")
	case r.Cwd != "" && (!path.IsAbs(r.Cwd) || strings.IndexByte(r.Cwd, 0) >= 0):
		return usage("the directory %q is not an absolute path", r.Cwd)
	}
	return nil
}

func checkTerminal(r *longstop.Request, t *longstop.Terminal) error {
	switch {
	case r.PTY && r.Leftover == longstop.LeftoverRelease:
		return usage("what is released would lose its terminal when the main process ends: release runs without one")
	case t == nil:
		return nil
	case !r.PTY:
		return usage("a terminal is described, and none is asked for")
	case t.Rows < 0 || t.Columns < 0 || t.Rows > math.MaxInt16 || t.Columns > math.MaxInt16:
		return usage("a terminal of %d rows and %d columns", t.Rows, t.Columns)
	case len(t.Term) > 100 || !printable(t.Term):
		return usage("a TERM of %q", t.Term)
	}
	return nil
}

func checkEnv(env map[string][]byte) error {
	for name, value := range env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name):
			return usage("%q cannot be the name of an environment variable", name)
		case strings.HasPrefix(name, "LONGSTOP_"):
			return usage("%s is set by the runner; names that begin with LONGSTOP_ are its own", name)
		case bytes.IndexByte(value, 0) >= 0:
			return usage("the value of %s has a NUL byte", name)
		case len(name)+1+len(value) > maxArg:
			return usage("%s has %d bytes; Linux gives a program at most %d in one variable", name, len(value), maxArg)
		}
	}
	return nil
}

func checkKinds(r *longstop.Request) error {
	switch {
	case !slices.Contains([]longstop.Lifetime{longstop.Leased, longstop.Detached}, r.Lifetime):
		return usage("lifetime %q: there are leased and detached", r.Lifetime)
	case !slices.Contains([]longstop.Leftover{longstop.LeftoverWait, longstop.LeftoverKill, longstop.LeftoverRelease}, r.Leftover):
		return usage("leftover %q: there are wait, kill and release", r.Leftover)
	case !slices.Contains([]longstop.Effect{longstop.EffectRead, longstop.EffectIdempotent, longstop.EffectOnce}, r.Effect):
		return usage("effect %q: there are read, idempotent and once", r.Effect)
	}
	switch r.Owner {
	case longstop.OwnerAuto, longstop.OwnerRunner, longstop.OwnerSystemd, longstop.OwnerNone:
	case longstop.OwnerSlurm:
		return &longstop.Error{Code: longstop.CodeUnsupported,
			Message: fmt.Sprintf("owner %s is not supported yet; nothing was started", r.Owner), Hint: "leave --owner out"}
	default:
		return usage("owner %q: there are auto, runner, systemd, slurm and none", r.Owner)
	}
	switch r.BoundaryMin {
	case "", longstop.BoundaryTree, longstop.BoundaryCgroup, longstop.BoundarySystemd, longstop.BoundarySlurm:
	default:
		return usage("boundary %q: there are tree, cgroup, systemd and slurm", r.BoundaryMin)
	}
	return nil
}

func checkTimes(r *longstop.Request) error {
	if r.Lifetime == longstop.Detached && r.LeaseS != 0 {
		return usage("a detached run has no lease: give --lease or --detached")
	}
	for name, s := range map[string]float64{"lease": r.LeaseS, "deadline": r.DeadlineS, "grace": r.GraceS} {
		if math.IsNaN(s) || s < 0 || s > maxSeconds {
			return usage("%s of %g s: want a time from 0 to 100 years", name, s)
		}
	}
	if r.Lifetime == longstop.Leased && r.LeaseS < 1 && r.Owner != longstop.OwnerNone {
		return usage("a lease of %g s cannot be renewed in time: want at least 1", r.LeaseS)
	}
	if most := r.OutputMax; most != nil && *most != 0 && *most < longstop.MinOutputMax {
		return usage("to keep %d bytes of a stream: want 0 (all) or at least %d", *most, longstop.MinOutputMax)
	}
	if r.OutputMax != nil && *r.OutputMax != 0 && r.Leftover == longstop.LeftoverRelease {
		return usage("what is released writes into its files itself: how much cannot be bounded")
	}
	if l := r.Limits; l != nil && min(l.OpenFiles, l.Processes, l.CPUS, l.FileBytes, l.MemoryBytes, l.CPUPercent, l.Tasks) < 0 {
		return usage("a limit is negative")
	}
	return nil
}

func checkNames(a *asked) error {
	if len(a.key) > maxKey || !printable(a.key) {
		return usage("the idempotency key: want at most %d ASCII letters, digits and signs, no spaces", maxKey)
	}
	if s := string(a.session); s != "" && (len(s) > 64 || !printable(s)) {
		return usage("the session id %q is none", s)
	}
	if len(a.request.Reason) > 4096 || !utf8.ValidString(a.request.Reason) {
		return usage("the reason: want at most 4096 bytes of UTF-8")
	}
	return nil
}

// checkAsker looks through what somebody says of themselves.
func checkAsker(by longstop.Requester) error {
	for _, s := range []string{by.Name, by.Via} {
		if len(s) > 200 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return usage("who asks, and by way of what: want at most 200 bytes of UTF-8 each, without control characters")
		}
	}
	return nil
}

// checkNoSecret refuses what is configured as secret where it must be kept as it is.
func (g *Gateway) checkNoSecret(a *asked) error {
	for _, name := range append([]string{a.key, string(a.session)}, a.request.Env...) {
		if g.cfg.Redact.Has(name) {
			return usage("an idempotency key, a session's id or a variable's name has something in it that longstopd.json says is secret, and it would be kept and shown")
		}
	}
	return nil
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

func checkSize(r *longstop.Request, env map[string][]byte) error {
	size := 0
	for _, part := range []any{r, env} {
		b, err := json.Marshal(part)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		size += len(b)
	}
	if size > maxRequest {
		return usage("the command and its environment have %d bytes as they are sent; at most %d are taken: send the rest on standard input", size, maxRequest)
	}
	return nil
}

// differences names what a request asks other than the action that has its key, C130.
func differences(a *longstop.Action, envMACs map[string]string, host string, now *asked) []string {
	old, new := a.Request, now.kept
	var names []string
	say := func(name string, differs bool) {
		if differs {
			names = append(names, name)
		}
	}
	say("host", a.Host != host)
	say("argv", !slices.Equal(old.Argv, new.Argv) || !slices.EqualFunc(old.ArgvB64, new.ArgvB64, bytes.Equal))
	say("script", old.Script != new.Script || old.StrictShell != new.StrictShell)
	say("cwd", old.Cwd != new.Cwd)
	for _, name := range envNames(envMACs, now.envMACs) {
		say("env "+name, envMACs[name] != now.envMACs[name])
	}
	say("stdin", old.StdinSHA256 != new.StdinSHA256 || old.StdinBytes != new.StdinBytes)
	say("lifetime", old.Lifetime != new.Lifetime)
	say("owner", old.Owner != new.Owner)
	say("boundary_min", old.BoundaryMin != new.BoundaryMin)
	say("leftover", old.Leftover != new.Leftover)
	say("effect", old.Effect != new.Effect)
	say("pty", old.PTY != new.PTY)
	say("own_channel", old.OwnChannel != new.OwnChannel)
	say("output_max", outputMaxOf(old) != outputMaxOf(new))
	say("limits", limitsOf(old) != limitsOf(new))
	say("lease", old.LeaseS != new.LeaseS)
	say("deadline", old.DeadlineS != new.DeadlineS)
	say("grace", old.GraceS != new.GraceS)
	say("preflight", old.Preflight != new.Preflight)
	say("verify", old.Verify != new.Verify)
	say("check_s", old.CheckS != new.CheckS)
	say("exclusive", old.Exclusive != new.Exclusive)
	say("exclusive_wait", old.ExclusiveWaitS != new.ExclusiveWaitS)
	if len(names) == 0 && old.Redacted {
		names = append(names, "what was taken out of it as secret, or the host's key")
	}
	if len(names) == 0 {
		names = append(names, "the host's key")
	}
	return names
}

// outputMaxOf is -1 for a request that leaves it to the host.
func outputMaxOf(r longstop.Request) int64 {
	if r.OutputMax == nil {
		return -1
	}
	return *r.OutputMax
}

func limitsOf(r longstop.Request) longstop.Limits {
	if r.Limits == nil {
		return longstop.Limits{}
	}
	return *r.Limits
}

func envNames(a, b map[string]string) []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, m := range []map[string]string{a, b} {
			for name := range m {
				if !yield(name) {
					return
				}
			}
		}
	}))
}

// storeSalt is 32 random bytes beside the store, made once.
func storeSalt(home string) ([]byte, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, fmt.Errorf("make the gateway's folder: %w", err)
	}
	name := filepath.Join(home, "salt")
	salt, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		salt = make([]byte, 32)
		rand.Read(salt)
		err = writeNew(name, salt)
	}
	if err != nil {
		return nil, fmt.Errorf("the store's salt: %w", err)
	}
	if len(salt) != 32 {
		return nil, &longstop.Error{Code: longstop.CodeInternal,
			Message: fmt.Sprintf("%s has %d bytes, not 32: with another salt no earlier key is recognised", name, len(salt)),
			Hint:    "restore it from a backup"}
	}
	return salt, nil
}

// writeNew makes a file that was not there, complete or not at all.
func writeNew(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), name)
}
