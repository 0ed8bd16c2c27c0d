package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/loopback"
)

// tagEnv is set, with a random value, for everything that a login on the demo's server starts, so
// that what it started can be told from everything else on this machine.
const tagEnv = "LONGSTOP_DEMO"

// stage is what the story needs: a server, a link to it that can be cut, a folder for all files.
type stage struct {
	options
	page   page
	dir    string
	host   string
	tag    string
	server *loopback.Server
	link   *loopback.Proxy
	config string // ssh_config that goes through the link
	why    string // why the server is the one in Go, if that is not by choice

	actions []longstop.ActionID
}

// newStage makes the folder; set does the rest, and clear undoes both.
func newStage(o options) (*stage, error) {
	if _, err := os.Stat(o.longstop); err != nil {
		return nil, fmt.Errorf("the longstop command: %w", err)
	}
	dir, err := os.MkdirTemp("", "longstop-demo-")
	if err != nil {
		return nil, err
	}
	return &stage{options: o, page: page{w: os.Stdout}, dir: dir, host: "demo", tag: rand.Text()}, nil
}

func (s *stage) set(ctx context.Context) (err error) {
	for _, name := range []string{"ssh", "home", "work"} {
		if err := os.Mkdir(s.path(name), 0o700); err != nil {
			return err
		}
	}
	if err := s.startServer(ctx); err != nil {
		return err
	}
	if s.link, err = loopback.NewProxy(s.server.Addr); err != nil {
		return err
	}
	if s.config, err = s.server.Via(s.link.Addr); err != nil {
		return err
	}
	enrol := []string{"host", "add", s.host, "--ssh-config", s.config, "--state-dir", s.path("state")}
	if _, err := exec.LookPath("ssh"); err != nil {
		enrol = append(enrol, "--transport", "embedded")
	}
	add := s.quiet(ctx, enrol...)
	if add.status != 0 {
		return fmt.Errorf("longstop host add: exit %d: %s", add.status, add.output.text())
	}
	return nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// startServer starts OpenSSH's server, or the one in Go where there is none or it lets nobody in.
func (s *stage) startServer(ctx context.Context) error {
	o := loopback.Options{Alias: s.host, Go: s.goServer, Env: map[string]string{
		tagEnv: s.tag, "XDG_DATA_HOME": s.path("data"), "XDG_STATE_HOME": s.path("state-home")}}
	if _, found := loopback.FindSSHD(); !found && !o.Go {
		o.Go, s.why = true, "OpenSSH's sshd is not installed"
	}
	if !o.Go {
		err := s.startOne(ctx, o)
		if err == nil || ctx.Err() != nil {
			return err
		}
		o.Go, s.why = true, "OpenSSH's sshd does not let this user in: "+firstLine(err.Error())
	}
	return s.startOne(ctx, o)
}

// startOne starts a server and logs in once.
func (s *stage) startOne(ctx context.Context, o loopback.Options) error {
	server, err := loopback.Start(ctx, s.path("ssh"), o)
	if err != nil {
		return err
	}
	s.server = server
	out, status, err := s.plain(ctx, "echo $"+tagEnv)
	if err == nil && (status != 0 || !strings.Contains(out, s.tag)) {
		err = fmt.Errorf("a login answers %q, status %d", out, status)
	}
	if err != nil {
		return errors.Join(err, server.Stop())
	}
	return nil
}

// clientName says how the commands of this page reach the host.
func (s *stage) clientName() string {
	if path, err := exec.LookPath("ssh"); err == nil {
		return path
	}
	return "an SSH client in Go (ssh is not installed)"
}

func (s *stage) serverName() string {
	if s.server.Software != "Go" {
		return s.server.Software
	}
	if s.why == "" {
		return "an SSH server in Go"
	}
	return "an SSH server in Go (" + s.why + ")"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// command is one longstop command that ran or runs.
type command struct {
	output *lines // both streams, as they came
	stdout *lines
	status int
	took   time.Duration
	cmd    *exec.Cmd
	began  time.Time
}

// start starts a longstop command with this stage's daemon; shown says whether the page shows it.
func (s *stage) start(ctx context.Context, shown bool, args ...string) (*command, error) {
	c := &command{output: &lines{}, stdout: &lines{}, began: time.Now()}
	if shown {
		s.page.typed(append([]string{"longstop"}, args...)...)
		c.output = s.page.printed()
	}
	c.cmd = exec.CommandContext(ctx, s.longstop, args...)
	c.cmd.Env = append(os.Environ(), "LONGSTOP_HOME="+s.path("home"))
	c.cmd.Dir = s.path("work")
	c.cmd.Stdout, c.cmd.Stderr = both{c.stdout, c.output}, c.output
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(os.Interrupt) } // it cancels its run
	c.cmd.WaitDelay = 15 * time.Second
	return c, c.cmd.Start()
}

// both writes to two.
type both struct{ a, b *lines }

func (w both) Write(p []byte) (int, error) {
	w.a.Write(p)
	return w.b.Write(p)
}

// wait waits for the command's end. A status is not an error.
func (c *command) wait() error {
	err := c.cmd.Wait()
	c.took = time.Since(c.began)
	c.status = c.cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return nil
	}
	return err
}

// run runs a longstop command on the page.
func (s *stage) run(ctx context.Context, args ...string) (*command, error) {
	c, err := s.start(ctx, true, args...)
	if err != nil {
		return nil, err
	}
	return c, c.wait()
}

// quiet runs one beside the page.
func (s *stage) quiet(ctx context.Context, args ...string) *command {
	c, err := s.start(ctx, false, args...)
	if err == nil {
		err = c.wait()
	}
	if err != nil {
		c.status = 254
		fmt.Fprintln(c.output, err)
	}
	return c
}

// ask reads what a command prints with --json.
func (s *stage) ask(ctx context.Context, into any, args ...string) error {
	c := s.quiet(ctx, append(args, "--json")...)
	if c.status != 0 {
		return fmt.Errorf("longstop %s: exit %d: %s", strings.Join(args, " "), c.status, c.output.text())
	}
	if err := json.Unmarshal([]byte(c.stdout.text()), into); err != nil {
		return fmt.Errorf("longstop %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (s *stage) show(ctx context.Context, id longstop.ActionID) (a longstop.Action, err error) {
	err = s.ask(ctx, &a, "show", string(id))
	return a, err
}

// newest is the action that was asked for last.
func (s *stage) newest(ctx context.Context) (longstop.Action, error) {
	var all []longstop.Action
	if err := s.ask(ctx, &all, "ps", "-a"); err != nil {
		return longstop.Action{}, err
	}
	if len(all) == 0 {
		return longstop.Action{}, errors.New("longstop ps -a shows no action")
	}
	s.actions = append(s.actions, all[0].ID)
	return all[0], nil
}

// until polls for something that nothing announces to us, with a bound.
func until(ctx context.Context, what string, bound time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not within %s: %s", bound, what))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// clear ends everything, in an order in which each can still answer: runs, daemon, link, server,
// and at last what carries our tag and outlived them; then the files.
func (s *stage) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var errs []error
	if s.link != nil {
		s.link.Thaw()
		for _, id := range s.actions {
			if a, err := s.show(ctx, id); err == nil && a.Unresolved() {
				s.quiet(ctx, "cancel", string(id))
			}
		}
		s.quiet(ctx, "daemon", "stop")
		s.link.Close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Stop())
	}
	left := func() []process { return append(tagged(tagEnv, s.tag), naming(s.dir)...) }
	if err := until(ctx, "the end of its processes", 10*time.Second, func() (bool, error) { return len(left()) == 0, nil }); err != nil {
		for _, p := range left() {
			errs = append(errs, fmt.Errorf("still alive at the end: %d %s", p.pid, p.command))
		}
		for _, p := range tagged(tagEnv, s.tag) {
			p.kill()
		}
	}
	if errors.Join(errs...) == nil {
		s.page.say("ended: the daemon, the SSH server and every process of the runs; removed: %s", s.dir)
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// kill9 is what a power cut, the OOM killer or an impatient person does to the daemon.
func (s *stage) kill9(ctx context.Context) error {
	var status longstop.DaemonStatus
	if err := s.ask(ctx, &status, "daemon", "status"); err != nil {
		return err
	}
	if real, _ := filepath.EvalSymlinks(s.path("home")); status.Home != s.path("home") && status.Home != real {
		return fmt.Errorf("the daemon that answers is of %s, not ours", status.Home)
	}
	if err := syscall.Kill(status.PID, syscall.SIGKILL); err != nil {
		return err
	}
	return until(ctx, "the daemon's end", 5*time.Second, func() (bool, error) { return !alive(status.PID), nil })
}
