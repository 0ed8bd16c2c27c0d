// Package rig gives tests real hosts: systemd as PID 1, sshd, an own address, an own reboot. It
// drives the script beside it (rig), which says what a host is. Hosts are shared by the tests of
// one binary, since a boot costs half a second and two cores are all there is; a test that changes
// a host beyond what cleanup undoes takes one under a name of its own.
//
// Where hosts cannot run (not root, no systemd), Up skips the test and says why; with
// LONGSTOP_HOSTS=require, as `make hosts` sets it for root, it fails instead.
package rig

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed rig
var script []byte

// Host is one real host. Its methods fail the test where the rig does not do what was asked.
type Host struct {
	Name      string // what one types after ssh -F SSHConfig; the account is deploy
	Addr      string // 10.78.N.M
	SSHConfig string // for ssh -F: names every host and account of the rig

	options string
}

// Account is what one types after ssh -F SSHConfig to log in as user: root, other, zsh, fish, tcsh,
// ash, rbash, nologin, noisy, leaving or forced.
func (h *Host) Account(user string) string {
	if user == "deploy" {
		return h.Name
	}
	return h.Name + "-" + user
}

// Option changes how a host is made. A host has the options of its first Up.
type Option []string

// MaxSessions limits the sessions that sshd allows on one connection.
func MaxSessions(n int) Option { return Option{"--max-sessions", strconv.Itoa(n)} }

// KillUserProcesses makes logind kill what a login session leaves behind.
func KillUserProcesses() Option { return Option{"--kill-user-processes"} }

// SmallDisk is a tmpfs of that size (and number of inodes, if not 0) at /srv/small, owned by
// deploy. What is on it survives reboots and crashes.
func SmallDisk(size string, inodes int) Option {
	if inodes > 0 {
		size += ":" + strconv.Itoa(inodes)
	}
	return Option{"--small", size}
}

// machine is this process's rig: one folder, one network, any number of hosts.
var machine struct {
	sync.Mutex
	dir   string
	stop  func()
	hosts map[string]*Host
	fresh int // hosts that New has made
}

// Main runs the tests of a binary that uses hosts and takes the hosts down before it returns. It is
// the whole of TestMain: func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }. A binary that is
// killed leaves its hosts to the rig's guard, which notices.
func Main(m *testing.M) int {
	code := m.Run()
	machine.Lock()
	defer machine.Unlock()
	if machine.stop != nil {
		machine.stop()
	}
	return code
}

// Up returns the host of that name (h1, h2, …): booted, thawed, its link whole.
func Up(t testing.TB, name string, options ...Option) *Host {
	t.Helper()
	machine.Lock()
	defer machine.Unlock()
	if machine.dir == "" {
		start(t)
	}
	args := []string{}
	for _, o := range options {
		args = append(args, o...)
	}
	wanted := strings.Join(args, " ")
	if h := machine.hosts[name]; h != nil {
		if h.options != wanted {
			t.Fatalf("rig: %s was booted with options %q, not %q: take another name", name, h.options, wanted)
		}
		h.mend(t)
		return h
	}
	if out, err := run(context.Background(), append(append([]string{"up"}, args...), name)...); err != nil {
		t.Fatalf("rig up %s: %v\n%s", name, err, out)
	}
	out, err := run(context.Background(), "list")
	if err != nil {
		t.Fatalf("rig list: %v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name {
			h := &Host{Name: name, Addr: f[1], SSHConfig: filepath.Join(machine.dir, "ssh_config"), options: wanted}
			machine.hosts[name] = h
			return h
		}
	}
	t.Fatalf("rig up %s: not in its list:\n%s", name, out)
	return nil
}

// New returns a host of this test alone, which may do to it what it likes: it is taken down with
// its files when the test ends.
func New(t testing.TB, options ...Option) *Host {
	t.Helper()
	machine.Lock()
	machine.fresh++
	name := fmt.Sprintf("n%d", 20+machine.fresh%80) // beside h1, h2, …, whose addresses follow from their numbers
	machine.Unlock()
	h := Up(t, name, options...)
	t.Cleanup(func() { h.Down(t) })
	return h
}

// start makes this process's rig, or skips the test where none can be.
func start(t testing.TB) {
	t.Helper()
	require := os.Getenv("LONGSTOP_HOSTS") == "require"
	refuse := func(why string) {
		if require {
			t.Fatalf("hosts are required here, and cannot run: %s", why)
		}
		t.Skipf("needs real hosts, which cannot run here: %s", why)
	}
	if os.Geteuid() != 0 {
		refuse("not root")
	}
	dir := fmt.Sprintf("/var/tmp/longstop-rig/%s.%d", strings.TrimSuffix(filepath.Base(os.Args[0]), ".test"), os.Getpid())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rig"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	machine.dir, machine.hosts = dir, map[string]*Host{}
	if out, err := run(context.Background(), "check"); err != nil {
		machine.dir = ""
		os.RemoveAll(dir)
		refuse(strings.TrimSpace(out + " " + err.Error()))
	}
	guard(t)
}

// guard starts the process that takes the rig down when this one ends, however it ends: its
// standard input is a pipe whose other end this process alone holds.
func guard(t testing.TB) {
	cmd := command(context.Background(), "guard")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(machine.dir, "guard.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	machine.stop = func() { stdin.Close(); cmd.Wait() }
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	// By its interpreter: a script that was just written may still be open for writing in a child that
	// another test is starting, and cannot be executed by itself until then (ETXTBSY).
	cmd := exec.CommandContext(ctx, "bash", append([]string{filepath.Join(machine.dir, "rig")}, args...)...)
	cmd.Env = append(os.Environ(), "RIG_DIR="+machine.dir, "RIG_OWNER="+strconv.Itoa(os.Getpid()))
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs one command of the rig and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	out, err := command(ctx, args...).CombinedOutput()
	return string(out), err
}

func (h *Host) do(t testing.TB, verb string) {
	t.Helper()
	if out, err := run(context.Background(), verb, h.Name); err != nil {
		t.Fatalf("rig %s %s: %v\n%s", verb, h.Name, err, out)
	}
}

// mend undoes what an earlier test may have left: a frozen host, a cut link, a host that is off.
func (h *Host) mend(t testing.TB) {
	t.Helper()
	h.do(t, "thaw")
	h.do(t, "heal")
	h.do(t, "up")
}

// Reboot reboots the host in order: systemd stops its units first. Returns when sshd answers.
func (h *Host) Reboot(t testing.TB) { t.Helper(); h.do(t, "reboot") }

// Crash takes the power from the host, so that every process dies at once, and boots it again.
func (h *Host) Crash(t testing.TB) { t.Helper(); h.do(t, "crash") }

// Off takes the power from the host; On boots it again, and so does the end of the test.
func (h *Host) Off(t testing.TB) { t.Helper(); h.do(t, "off"); t.Cleanup(func() { h.do(t, "up") }) }

// On boots a host that is off.
func (h *Host) On(t testing.TB) { t.Helper(); h.do(t, "up") }

// Cut drops the host's network link until Heal or the end of the test.
func (h *Host) Cut(t testing.TB) { t.Helper(); h.do(t, "cut"); t.Cleanup(func() { h.do(t, "heal") }) }

// Heal restores the host's network link.
func (h *Host) Heal(t testing.TB) { t.Helper(); h.do(t, "heal") }

// Freeze stops every process of the host until Thaw or the end of the test.
func (h *Host) Freeze(t testing.TB) {
	t.Helper()
	h.do(t, "freeze")
	t.Cleanup(func() { h.do(t, "thaw") })
}

// Thaw lets a frozen host go on.
func (h *Host) Thaw(t testing.TB) { t.Helper(); h.do(t, "thaw") }

// Down forgets the host, its files included; the next Up makes a new one, with another identity.
func (h *Host) Down(t testing.TB) {
	t.Helper()
	machine.Lock()
	defer machine.Unlock()
	h.do(t, "down")
	delete(machine.hosts, h.Name)
}

// PID is the host's PID 1 as this machine numbers it. The host's processes descend from it, and its
// files are under /proc/PID/root.
func (h *Host) PID(t testing.TB) int {
	t.Helper()
	out, err := run(context.Background(), "pid", h.Name)
	pid, notNumber := strconv.Atoi(strings.TrimSpace(out))
	if err = errors.Join(err, notNumber); err != nil {
		t.Fatalf("rig pid %s: %v\n%s", h.Name, err, out)
	}
	return pid
}

// Exec runs a command on the host as root, past SSH, and returns its standard output. It works
// while the link is cut or the host is frozen.
func (h *Host) Exec(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := h.Try(t.Context(), argv...)
	if err != nil {
		t.Fatalf("on %s: %q: %v", h.Name, argv, err)
	}
	return out
}

// Sh is Exec of a script for sh -c.
func (h *Host) Sh(t testing.TB, script string) string {
	t.Helper()
	return h.Exec(t, "sh", "-c", script)
}

// Try is Exec that returns a failure instead of failing the test; the error has the standard error.
func (h *Host) Try(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := command(ctx, append([]string{"exec", h.Name}, argv...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), err
}

// ReadFile reads a file of the host.
func (h *Host) ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	return []byte(h.Exec(t, "cat", "--", path))
}

// Exists reports whether the host has that file.
func (h *Host) Exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := h.Try(t.Context(), "test", "-e", path)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatalf("on %s: test -e %s: %v", h.Name, path, err)
	}
	return err == nil
}

// WriteFile writes a file of the host, as root, readable by all.
func (h *Host) WriteFile(t testing.TB, path string, mode os.FileMode, content []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, "exec", h.Name, "sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"`, "sh", path, fmt.Sprintf("%o", mode.Perm()))
	cmd.Stdin = bytes.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("on %s: write %s: %v\n%s", h.Name, path, err, out)
	}
}

// SSH runs a command line on the host over plain ssh, as the account (deploy if empty), and
// returns its standard output, its status (255 may be ssh's own) and its standard error.
func (h *Host) SSH(ctx context.Context, account, command string) (stdout string, status int, stderr string, err error) {
	name := h.Name
	if account != "" {
		name = h.Account(account)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-F", h.SSHConfig, name, command)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return out.String(), exit.ExitCode(), errs.String(), nil
	}
	return out.String(), 0, errs.String(), err
}
