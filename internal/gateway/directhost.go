package gateway

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
)

// meet enrols a host without a runner: that a connection could be made, and to which host key, is all that is
// to be known of it.
func (g *Gateway) meet(_ context.Context, link sshlink.Link, req longstop.EnrolRequest, _ func(string)) (longstop.Host, error) {
	f := link.Facts()
	if f.HostKey == "" {
		return longstop.Host{}, &longstop.Error{Code: longstop.CodeBadAnswer, Message: req.Name + " showed no host key: it cannot be recognised again"}
	}
	return longstop.Host{Name: req.Name, SSHConfig: req.SSHConfig, Transport: req.Transport, Direct: true, HostKey: f.HostKey, EnrolledAt: g.now()}, nil
}

// meetAgain is CheckHost of a host without a runner: whether a connection can be made, to the same host key.
func (h *host) meetAgain(ctx context.Context, note func(string)) (longstop.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, h.g.cfg.Reach)
	defer cancel()
	link, err := h.dialDirect(ctx, note)
	if err != nil {
		err = explained(h.target(), h.late(ctx, err))
		h.cannotSee(err)
		return h.shown(), err
	}
	h.g.goes(func() { link.Close() })
	h.mu.Lock()
	h.sight = sight{at: h.g.now(), by: h.g.by}
	h.mu.Unlock()
	h.store(nil)
	return h.shown(), nil
}

func (h *host) isDirect() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.row.Direct
}

func noRunnerThere(name string) error {
	return &longstop.Error{Code: longstop.CodeUnsupported, Message: name + " has no runner: it was enrolled for direct actions alone",
		Hint: "longstop run --direct " + name + ", or enrol it with a runner: longstop host add " + name}
}

// checkDirect looks through what is asked of a direct action: nobody is there to do more than run a command.
func checkDirect(a *asked, host longstop.Host) error {
	r := &a.request
	if r.Owner != longstop.OwnerNone {
		if host.Direct {
			return noRunnerThere(host.Name)
		}
		return nil
	}
	for what, wanted := range map[string]bool{
		"be detached: it ends with its connection": r.Lifetime == longstop.Detached,
		"have a lease":                              r.LeaseS != 0,
		"have a boundary":                           r.BoundaryMin != "" && r.BoundaryMin != longstop.BoundaryTree || r.Leftover != longstop.LeftoverWait,
		"have limits":                               r.Limits != nil && *r.Limits != longstop.Limits{},
		"be asked a preflight or a verify":          r.Preflight != "" || r.Verify != "",
		"hold a name alone":                         r.Exclusive != "",
		"have a terminal":                           r.PTY,
		"have a directory: put it into the command": r.Cwd != "",
		"have a strict shell":                       r.StrictShell,
	} {
		if wanted {
			return usage("a direct action cannot %s. Nobody on the host owns it", what)
		}
	}
	var err error
	a.command, err = directCommand(r, a.env)
	return err
}

// What every shell, and what is none, reads as it stands.
var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$`)
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// directCommand is what the host is given to read. A script goes as it is. Arguments are joined, as long as
// nothing has to be quoted: who reads them there is not known, nor how it reads quotes. So it is with env.
func directCommand(r *longstop.Request, env map[string][]byte) (string, error) {
	const how = "give the command as the host is to read it, with -c"
	if len(r.ArgvB64) > 0 {
		return "", usage("an argument of a direct action is not UTF-8: %s", how)
	}
	if r.Script != "" {
		if len(env) > 0 {
			return "", usage("the environment of a direct action goes before arguments alone: put it into the script")
		}
		return r.Script, nil
	}
	var words []string
	if len(env) > 0 {
		words = append(words, "env")
	}
	for _, name := range r.Env {
		if !plainName.MatchString(name) || !plainWord.MatchString(string(env[name])) {
			return "", usage("the value of %s would have to be quoted, and how the host reads quotes is not known: %s", name, how)
		}
		words = append(words, name+"="+string(env[name]))
	}
	for i, arg := range r.Argv {
		if !plainWord.MatchString(arg) || i == 0 && strings.Contains(arg, "=") {
			return "", usage("argument %d would have to be quoted, and how the host reads quotes is not known: %s", i, how)
		}
		words = append(words, arg)
	}
	return strings.Join(slices.Clip(words), " "), nil
}
