package sshlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/longstop/longstop"
)

// dialTimeout bounds a Dial whose caller sets no nearer deadline.
const dialTimeout = 30 * time.Second

// OpenSSH dials with the user's ssh: one master connection per Link, in a session of its own, so
// that an interrupt typed at a terminal does not reach it.
type OpenSSH struct {
	Dir  string // holds control sockets and logs; made 0700. At most 72 bytes: a socket's path is short
	Path string // the ssh to run; empty: "ssh"

	// MaxSessions bounds the sessions on one Link; 0: 8. An OpenSSH server allows 10 unless told
	// otherwise, and a refused session spoils the master.
	MaxSessions int
	// AliveInterval and AliveCountMax are ssh's ServerAliveInterval and ServerAliveCountMax, and
	// the same for ourselves and the master; 0: 2 s and 3. Whole seconds.
	AliveInterval time.Duration
	AliveCountMax int

	version sync.Once
	modern  bool // knows the options that OpenSSH 8.7 brought
}

// Dial starts a master and waits until it is logged in.
func (d *OpenSSH) Dial(ctx context.Context, to Target) (Link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := checkName(to.Name); err != nil {
		return nil, err
	}
	if err := checkDir(d.Dir); err != nil {
		return nil, err
	}
	path, err := d.find()
	if err != nil {
		return nil, err
	}
	destination, err := destination(to.Name)
	if err != nil {
		return nil, err
	}
	return persist(ctx, func() (Link, error) { return d.dial(ctx, path, to, destination) })
}

func (d *OpenSSH) dial(ctx context.Context, path string, to Target, destination []string) (Link, error) {
	start := time.Now()
	m, err := startMaster(d.Dir, path, append(d.args(ctx, path, to), destination...), to)
	if err != nil {
		return nil, &longstop.Error{Code: longstop.CodeInternal, Message: to.Name + ": start ssh", Err: err}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	look := time.AfterFunc(circleAfter, func() {
		if m.circular(ctx, to) {
			stop(errCircle)
		}
	})
	defer look.Stop()
	l, err := d.join(ctx, m, to)
	if err == nil {
		return l, nil
	}
	m.end(!errors.Is(err, errMasterExited)) // nobody has used it yet: no need to ask
	if errors.Is(context.Cause(ctx), errCircle) {
		return nil, circle(to)
	}
	return nil, explainDial(to, parseLog(m.final), err, time.Since(start))
}

// join waits for the master's login and opens a connection through it.
func (d *OpenSSH) join(ctx context.Context, m *master, to Target) (Link, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	wire, conn, channels, requests, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	text := m.text()
	m.loggedIn.Store(int64(len(text)))
	login := parseLog(text)
	l := &link{name: to.Name, conn: conn, wire: wire, carrier: m, facts: login.facts(), places: newPlaces(d.MaxSessions, to.Limit),
		pulse: newPulse(d.AliveInterval, d.AliveCountMax, m.alive)}
	l.begin(channels, requests)
	return l, nil
}

func (d *OpenSSH) find() (string, error) {
	name := d.Path
	if name == "" {
		name = "ssh"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &longstop.Error{Code: longstop.CodeUnsupported, Message: "there is no ssh here",
			Hint: "install OpenSSH's client, or enrol the host with --transport embedded", Err: err}
	}
	return path, nil
}

// args are the options of a master. ssh takes the first value it meets, so these hold against any
// configuration: nothing is asked, nothing is learnt, nothing but sessions passes, nothing else runs.
func (d *OpenSSH) args(ctx context.Context, path string, to Target) []string {
	p := newPulse(d.AliveInterval, d.AliveCountMax, nil)
	options := []string{
		"BatchMode=yes", "NumberOfPasswordPrompts=0", "StrictHostKeyChecking=yes", "UpdateHostKeys=no",
		"ConnectTimeout=" + seconds(remaining(ctx)),
		"ServerAliveInterval=" + seconds(p.interval), "ServerAliveCountMax=" + strconv.Itoa(p.misses),
		"ControlPersist=no", "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "Tunnel=no",
		"RemoteCommand=none", "RequestTTY=no", "PermitLocalCommand=no", "VisualHostKey=no",
		// Not -v: that would be handed on to a jump host's ssh, whose log could be taken for ours.
		"LogLevel=DEBUG1",
	}
	if d.isModern(path) {
		options = append(options, "ForkAfterAuthentication=no")
	}
	args := []string{"-N", "-T"} // -N is SessionType=none for the master itself
	if to.SSHConfig != "" {
		args = append(args, "-F", to.SSHConfig)
	}
	for _, o := range options {
		args = append(args, "-o", o)
	}
	return args
}

// isModern asks ssh for its version, once.
func (d *OpenSSH) isModern(path string) bool {
	d.version.Do(func() {
		out, _ := exec.Command(path, "-V").CombinedOutput()
		var major, minor int
		_, rest, _ := strings.Cut(string(out), "OpenSSH_")
		fmt.Sscanf(rest, "%d.%d", &major, &minor)
		d.modern = major > 8 || major == 8 && minor >= 7
	})
	return d.modern
}

func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return dialTimeout
	}
	return time.Until(deadline)
}

// seconds rounds up: ssh takes whole ones, and 0 means for ever.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}

// Overrides lists, in words for people, the settings of the user's ssh_config for a target that
// do not hold for Longstop's connections (RemoteCommand, LocalCommand, forwardings, …). It runs
// ssh -G, which runs commands of Match exec: for an operator's request alone.
func (d *OpenSSH) Overrides(ctx context.Context, to Target) ([]string, error) {
	if err := checkName(to.Name); err != nil {
		return nil, err
	}
	path, err := d.find()
	if err != nil {
		return nil, err
	}
	settings, err := resolveBySSH(ctx, path, to)
	if err != nil {
		return nil, err
	}
	return settings.overridden(), nil
}

// Sweep ends the masters that a killed predecessor left in Dir, by asking them, and removes what
// they left. To be called once, before the first Dial, by the only process that uses Dir.
func (d *OpenSSH) Sweep(ctx context.Context) error {
	if err := checkDir(d.Dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), logSuffix); ok && isMasterName(name) {
			names = append(names, filepath.Join(d.Dir, name))
		}
	}
	return sweep(ctx, names)
}
