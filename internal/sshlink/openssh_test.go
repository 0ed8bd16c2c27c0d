package sshlink

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// What only the transport with a master has: its process, its files, the user's ssh_config.

func opensshDialer(t *testing.T) *OpenSSH {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("needs ssh: apt-get install openssh-client")
	}
	return transports["openssh"](t).(*OpenSSH)
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestC007Master: it is a session leader without a terminal, so that an interrupt does not reach it;
// it holds none of our descriptors (C007); closing the link leaves nothing of it.
func TestC007Master(t *testing.T) {
	t.Parallel()
	d := opensshDialer(t)
	s := sshtest.Start(t, sshtest.Options{})
	l := dial(t, d, s)
	pid := l.(*link).carrier.(*master).cmd.Process.Pid
	if sid, err := unixGetsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, not its own %d: %v", sid, pid, err)
	}
	for fd := range 3 {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err != nil || name != "/dev/null" && !strings.HasPrefix(name, d.Dir) {
			t.Errorf("its descriptor %d is %s, %v", fd, name, err)
		}
	}
	if got := files(t, d.Dir); len(got) != 2 {
		t.Errorf("its files: %v", got)
	}
	l.Close()
	if got := files(t, d.Dir); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("it is still there: %v", err)
	}
}

// TestOverridden: settings that collide with ours do not hold, run nothing on this machine, and are
// named when an operator asks (C088).
func TestOverridden(t *testing.T) {
	t.Parallel()
	d := opensshDialer(t)
	s := sshtest.Start(t, sshtest.Options{})
	trace := filepath.Join(sshtest.ShortDir(t), "trace")
	path := filepath.Join(sshtest.ShortDir(t), "control")
	to := configure(t, s, "RemoteCommand echo not ours", "RequestTTY force", "SessionType none",
		"PermitLocalCommand yes", "LocalCommand touch "+trace, "ControlMaster auto", "ControlPath "+path,
		"ControlPersist 60", "ForwardAgent yes", "ForwardX11 yes", "StrictHostKeyChecking no",
		"LocalForward 127.0.0.1:1 127.0.0.1:2", "ForkAfterAuthentication yes", "LogLevel QUIET", "BatchMode no")
	l, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := Run(t.Context(), l, "test -t 0; echo ours $?", nil, 100)
	if err != nil || string(r.Stdout) != "ours 1\n" {
		t.Errorf("%q, %v", r.Stdout, err)
	}
	for _, name := range []string{trace, path} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	notes, err := d.Overrides(t.Context(), to)
	all := strings.Join(notes, "\n")
	for _, want := range []string{"remotecommand echo not ours", "requesttty force", "sessiontype none", "localcommand touch",
		"forwardagent yes", "forwardx11 yes", "localforward", "forkafterauthentication yes", "stricthostkeychecking"} {
		if !strings.Contains(all, want) {
			t.Errorf("the notes lack %q: %v\n%s", want, err, all)
		}
	}
	if notes, err := d.Overrides(t.Context(), target(s)); err != nil || len(notes) > 0 {
		t.Errorf("a plain configuration has notes: %v %q", err, notes)
	}
}

// TestDir: a folder for sockets that others reach, or whose path is too long, is refused in words.
func TestDir(t *testing.T) {
	t.Parallel()
	d := opensshDialer(t)
	to := Target{Name: "nowhere"}
	d.Dir = filepath.Join(d.Dir, strings.Repeat("x", 80))
	_, err := d.Dial(t.Context(), to)
	wantCode(t, err, longstop.CodeUsage, "too long", d.Dir)
	d.Dir = sshtest.ShortDir(t)
	os.Chmod(d.Dir, 0o755)
	_, err = d.Dial(t.Context(), to)
	wantCode(t, err, longstop.CodeUsage, "0700")
	d.Dir, d.Path = filepath.Join(sshtest.ShortDir(t), "new"), "no-such-ssh"
	_, err = d.Dial(t.Context(), to)
	wantCode(t, err, longstop.CodeUnsupported, "no ssh")
	if err := d.Sweep(t.Context()); err != nil {
		t.Errorf("sweeping an empty folder: %v", err)
	}
}

// TestLongestDir: a path that is just allowed has room for ssh's socket.
func TestLongestDir(t *testing.T) {
	t.Parallel()
	d := opensshDialer(t)
	s := sshtest.Start(t, sshtest.Options{Go: true})
	d.Dir = filepath.Join(d.Dir, strings.Repeat("x", longestDir-len(d.Dir)-1))
	if r, err := Run(t.Context(), dial(t, d, s), "exit 4", nil, 1); err != nil || r.Exit.Status != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSweep: whatever a killed gateway left is ended and removed: a master, one that is stopped,
// one that is still dialling.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	hole, err := s.Via(listen(t, func(c net.Conn) { <-hold; c.Close() }))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config  string
		stopped bool
	}{
		"idle":     {s.SSHConfig, false},
		"stopped":  {s.SSHConfig, true},
		"dialling": {hole, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opensshDialer(t)
			pid := leaveBehind(t, d.Dir, Target{Name: s.Alias, SSHConfig: c.config})
			if c.stopped {
				syscall.Kill(pid, syscall.SIGSTOP)
			}
			other := filepath.Join(d.Dir, "daemon.log")
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			within(t, 6*time.Second, "sweeping", func() {
				if err := d.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if got := files(t, d.Dir); len(got) != 1 || got[0] != "daemon.log" {
				t.Errorf("left: %v", got)
			}
			sshtest.Eventually(t, "the master is gone", func() bool { return isGone(pid) })
		})
	}
}

// predecessor is a gateway of its own process: it dials, says which ssh it started, and waits to
// be killed.
func predecessor(arg string) {
	dir, rest, _ := strings.Cut(arg, "|")
	name, config, _ := strings.Cut(rest, "|")
	go (&OpenSSH{Dir: dir}).Dial(context.Background(), Target{Name: name, SSHConfig: config})
	fmt.Println("dialling")
	select {}
}

// leaveBehind runs a predecessor until its master is where it should be, kills it, and returns the
// master's process id.
func leaveBehind(t *testing.T, dir string, to Target) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SSHLINK_TEST_PREDECESSOR="+dir+"|"+to.Name+"|"+to.SSHConfig)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n')
	sshtest.Eventually(t, "the predecessor's ssh has connected", func() bool {
		logs, _ := filepath.Glob(dir + "/*.log")
		if len(logs) != 1 {
			return false
		}
		text, _ := os.ReadFile(logs[0])
		return strings.Contains(string(text), "Entering interactive session") ||
			strings.Contains(to.SSHConfig, "ssh_config.") && strings.Contains(string(text), "Connection established")
	})
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	pids := strings.Fields(string(children))
	if tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid)); len(pids) == 0 {
		for _, task := range tasks {
			data, _ := os.ReadFile(task)
			pids = append(pids, strings.Fields(string(data))...)
		}
	}
	if len(pids) != 1 {
		t.Fatalf("the predecessor's children: %q, %v", pids, err)
	}
	var pid int
	fmt.Sscan(pids[0], &pid)
	cmd.Process.Kill()
	cmd.Wait()
	return pid
}

// isGone counts a zombie as gone: who inherited it may be slow to reap.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func unixGetsid(pid int) (int, error) {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sid), nil
}
