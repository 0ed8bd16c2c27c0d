package gateway

import (
	"context"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/store/sqlite"
	"github.com/longstop/longstop/internal/wire"
)

// Enrol fixes a host: finds a place for the runner, pushes and verifies it, makes the state folder,
// and keeps who answered. From then on nothing else under this name is spoken to.
//
//  1. Dial, and put the runner there; or see that the key can do nothing but call the one that is there.
//  2. hello with create: the state folder and its id.
//  3. The host and the entry about it, in one transaction.
func (g *Gateway) Enrol(ctx context.Context, req longstop.EnrolRequest, note func(string)) (longstop.Host, error) {
	if err := checkEnrol(&req); err != nil {
		return longstop.Host{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	target := sshlink.Target{Name: req.Name, SSHConfig: req.SSHConfig, Limit: sshlink.NewLimit(0)}
	link, err := g.dial(ctx, target, req.Transport, note)
	if err != nil {
		return longstop.Host{}, g.refusedHost(target, err)
	}
	greet := g.greet
	if req.Direct {
		greet = g.meet
	}
	row, err := greet(ctx, link, req, note)
	if err != nil {
		link.Close()
		return longstop.Host{}, g.refusedHost(target, err)
	}
	if row.Hello != nil {
		row.Hello.Notes = append(row.Hello.Notes, g.overrides(ctx, target, req.Transport)...)
	}
	h, err := g.enrolled(ctx, row, link, target.Limit)
	if err != nil {
		link.Close()
		return longstop.Host{}, err
	}
	return h.shown(), nil
}

// noisy is the note about a login whose start-up files print.
func noisy(noise string) string {
	return fmt.Sprintf("the login's start-up files print to standard output; it is kept apart, as noise: %q", clipped(noise))
}

// tell reports a line of progress, if there is one and somebody listens.
func tell(note func(string), line string) {
	if note != nil && line != "" {
		note(line)
	}
}

func checkEnrol(req *longstop.EnrolRequest) error {
	defaultTo(&req.Transport, "openssh")
	bad := func(format string, args ...any) error {
		return &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: "longstop host add --help"}
	}
	name := req.Name
	switch {
	case name == "" || strings.HasPrefix(name, "-") || len(name) > 253 || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return bad("%q cannot be the name of a host: give what you would type after ssh", name)
	case req.SSHConfig != "" && !path.IsAbs(req.SSHConfig):
		return bad("the SSH configuration %q is not an absolute path", req.SSHConfig)
	case req.StateDir != "" && (!path.IsAbs(req.StateDir) || path.Clean(req.StateDir) != req.StateDir || strings.ContainsRune(req.StateDir, 0)):
		return bad("the state folder %q is not a clean absolute path", req.StateDir)
	case req.Direct && (req.Forced || req.StateDir != ""):
		return bad("a host for direct actions has no runner and no state folder")
	case req.Runner != "" && !req.Forced:
		return bad("where the runner is on the host is Longstop's to choose, but for a forced command")
	}
	return checkForced(req, bad)
}

// greet puts the runner on a host, or finds the one of a forced command, and asks who the host is, making
// the state folder.
func (g *Gateway) greet(ctx context.Context, link sshlink.Link, req longstop.EnrolRequest, note func(string)) (longstop.Host, error) {
	shell := loginShell{link, sshlink.Target{Name: req.Name, SSHConfig: req.SSHConfig}}
	where, sum, noise, err := req.Runner, "", "", error(nil)
	if req.Forced {
		err = shell.isForced(ctx)
	} else {
		where, sum, noise, err = shell.install(ctx, g.cfg.Runners, note)
	}
	if err != nil {
		return longstop.Host{}, err
	}
	ch, err := openChannel(ctx, req.Name, g.cfg.Clock.Now(), link, wire.Command(where, wire.VerbServe), address{stateDir: req.StateDir}, true)
	if err != nil {
		return longstop.Host{}, err
	}
	hello := ch.hello
	if req.Forced {
		sum = hello.RunnerSHA256
		err = g.otherRunner(req.Name, &hello)
	}
	ch.fail(&longstop.Error{Code: longstop.CodeUnreachable, Message: "greeted; closed"})
	if err != nil {
		return longstop.Host{}, err
	}
	if noise != "" {
		hello.Notes = append(hello.Notes, noisy(noise))
	}
	for field, value := range map[string]string{"machine id": hello.MachineID, "state id": hello.StateID, "state folder": hello.StateDir} {
		if value == "" {
			return longstop.Host{}, &longstop.Error{Code: longstop.CodeBadAnswer, Message: fmt.Sprintf("%s gave no %s: it cannot be recognised again", req.Name, field)}
		}
	}
	return longstop.Host{
		Name: req.Name, SSHConfig: req.SSHConfig, Transport: req.Transport, StateDir: hello.StateDir, StateID: hello.StateID,
		MachineID: hello.MachineID, User: hello.User, UID: hello.UID, Runner: where, RunnerSHA: sum, Forced: req.Forced,
		HostKey: ch.facts.HostKey, EnrolledAt: g.now(), Hello: &hello,
	}, nil
}

// overrides says which of the user's ssh settings do not hold for our connections.
func (g *Gateway) overrides(ctx context.Context, target sshlink.Target, transport string) []string {
	d, ok := g.cfg.Dialers[transport].(interface {
		Overrides(context.Context, sshlink.Target) ([]string, error)
	})
	if !ok {
		return nil
	}
	lines, err := d.Overrides(ctx, target)
	if err != nil {
		return []string{"which of the ssh settings do not hold could not be found out: " + err.Error()}
	}
	return lines
}

// refusedHost journals why a host was not enrolled.
func (g *Gateway) refusedHost(to sshlink.Target, cause error) error {
	cause = explained(to, cause)
	err := g.journalRefusal(g.ctx, g.by, string(longstop.CodeOf(cause)), journal.Entry{Kind: journal.HostRefused, Host: to.Name, By: g.by},
		map[string]any{"code": longstop.CodeOf(cause), "message": cause.Error()}, rawNoise(cause)...)
	if err != nil {
		return err
	}
	return cause
}

// enrolled keeps the host and takes it up. One that has unresolved actions keeps its identity:
// they can be asked about nowhere else. What was known of the server's limits is learnt anew.
func (g *Gateway) enrolled(ctx context.Context, row longstop.Host, link sshlink.Link, limit *sshlink.Limit) (*host, error) {
	g.enrolling.Lock()
	defer g.enrolling.Unlock()
	kept := sqlite.Host{Host: row}
	err := g.store.Update(ctx, func(tx *sqlite.Tx) error {
		if old, err := tx.Host(row.Name); err == nil {
			if old.Unresolved > 0 && addressOf(old.Host) != addressOf(row) {
				return otherHost(old, row)
			}
		}
		return tx.PutHost(&kept, journal.Entry{At: g.now(), Kind: journal.HostEnrolled, By: g.by, Body: body(map[string]any{
			"machine_id": row.MachineID, "uid": row.UID, "state_id": row.StateID, "state_dir": row.StateDir,
			"runner": row.Runner, "runner_sha256": row.RunnerSHA, "forced": row.Forced, "direct": row.Direct, "host_key": row.HostKey})})
	})
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, errClosing
	}
	h := g.hosts[row.Name]
	if h == nil {
		h = newHost(g, kept)
		h.link, h.limit = link, limit
		g.hosts[row.Name] = h
		g.goes(h.mind)
		return h, nil
	}
	h.enrolAnew(kept, link, limit)
	return h, nil
}

// otherHost says that a name leads elsewhere than where its unresolved actions are: asked there, they
// would be said not to be, or never to have been started.
func otherHost(old *sqlite.Host, row longstop.Host) error {
	where := fmt.Sprintf("on another machine (%s; this is %s)", old.MachineID, row.MachineID)
	if old.MachineID == row.MachineID {
		where = fmt.Sprintf("in another state folder of this machine (%s, at %s; this is %s, at %s)", old.StateID, old.StateDir, row.StateID, row.StateDir)
		if old.UID != row.UID {
			where = fmt.Sprintf("of another user of this machine (%s; this is %s)", old.User, row.User)
		}
	}
	return &longstop.Error{Code: longstop.CodeHostMismatch,
		Message: fmt.Sprintf("%s has %s %s", row.Name, unresolved(old.Unresolved), where), Hint: underAnotherName}
}

func unresolved(n int) string {
	if n == 1 {
		return "1 unresolved action"
	}
	return fmt.Sprintf("%d unresolved actions", n)
}

// underAnotherName is the way on where what unresolved actions are known to is gone for good.
const underAnotherName = "longstop ps shows them; if what they ran on is gone for good, give the host a second name in ~/.ssh/config and enrol it under that"

// enrolAnew replaces what is known of the host and the way to it.
func (h *host) enrolAnew(row sqlite.Host, link sshlink.Link, limit *sshlink.Limit) {
	h.mu.Lock()
	old, ch := h.link, h.channel
	h.row, h.link, h.limit, h.channel = row, link, limit, nil
	h.mu.Unlock()
	if ch != nil {
		ch.fail(&longstop.Error{Code: longstop.CodeUnreachable, Message: h.name + " was enrolled anew"})
	}
	if old != nil {
		h.g.goes(func() { old.Close() })
	}
	h.g.goes(h.spares.closeAll)
	h.nudge()
}

// Hosts lists the enrolled hosts, by name.
func (g *Gateway) Hosts(ctx context.Context) ([]longstop.Host, error) {
	rows, err := g.store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	hosts := make([]longstop.Host, len(rows))
	for i, row := range rows {
		hosts[i] = row.Host
		if h := g.known(row.Name); h != nil {
			hosts[i] = h.shown()
		}
	}
	return hosts, nil
}

// CheckHost asks the host who and how it is now, and puts the runner back where it is missing or not
// whole. The host is returned beside an error: what was known of it stays known.
func (g *Gateway) CheckHost(ctx context.Context, name string, note func(string)) (longstop.Host, error) {
	h, err := g.host(name)
	if err != nil {
		return longstop.Host{}, err
	}
	if h.isDirect() {
		return h.meetAgain(ctx, note)
	}
	ch, err := h.connect(ctx, note)
	switch longstop.CodeOf(err) {
	case longstop.CodeNoRunner, longstop.CodeBadAnswer:
		if h.isForced() {
			break
		}
		// Somebody is there to be told which it is, the login shell or the runner's file.
		if err = h.mend(ctx, note); err == nil {
			ch, err = h.connect(ctx, note)
		}
	}
	if err != nil {
		return h.shown(), err
	}
	asked := g.cfg.Clock.Now()
	got, err := ch.ask(ctx, wire.VerbHello, wire.HelloRequest{}, answerWithin)
	if err != nil {
		return h.shown(), err
	}
	var hello wire.HelloAnswer
	if err := got.read(&hello); err != nil {
		return h.shown(), err
	}
	hello.ClockAheadMS = ahead(hello.Now.Time, asked, g.cfg.Clock.Now()).Milliseconds()
	h.mu.Lock()
	transport := h.row.Transport
	h.mu.Unlock()
	hello.Notes = append(hello.Notes, g.overrides(ctx, h.target(), transport)...)
	if line := h.changed(&hello); line != "" {
		hello.Notes = append(hello.Notes, line)
	}
	if noise := ch.noiseWords(); noise != "" {
		hello.Notes = append(hello.Notes, noisy(noise))
	}
	h.mu.Lock()
	h.row.Hello = &hello
	h.mu.Unlock()
	h.store(nil)
	return h.shown(), nil
}

// mend looks at the login shell, and puts the runner back where it is missing or not whole.
func (h *host) mend(ctx context.Context, note func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, dialWithin+pushWithin)
	defer cancel()
	link, _, err := h.dialled(ctx, note)
	if err == nil {
		err = h.reinstall(ctx, link, note)
	}
	if err != nil {
		return explained(h.target(), err)
	}
	return nil
}

// RemoveHost forgets a host that has no unresolved action. Nothing is removed on the host.
func (g *Gateway) RemoveHost(ctx context.Context, name string) error {
	h, err := g.host(name)
	if err != nil {
		return err
	}
	g.enrolling.Lock()
	defer g.enrolling.Unlock()
	err = g.store.Update(ctx, func(tx *sqlite.Tx) error {
		row, err := tx.Host(name)
		if err != nil {
			return err
		}
		if row.Unresolved > 0 {
			return &longstop.Error{Code: longstop.CodeUsage,
				Message: fmt.Sprintf("%s has %s: without it nobody would ask what became of that", name, unresolved(row.Unresolved)),
				Hint:    underAnotherName}
		}
		if _, err := tx.Append(journal.Entry{At: g.now(), Kind: journal.HostRemoved, Host: name, By: g.by}); err != nil {
			return err
		}
		return tx.DeleteHost(name)
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.hosts, name)
	g.mu.Unlock()
	g.goes(h.hangUp)
	return nil
}

func defaultTo[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}
