package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FindSSHD is the path of OpenSSH's server, which is not on every user's PATH and must be run by
// its absolute path.
func FindSSHD() (string, bool) {
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"} {
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// startSSHD picks a free port by opening and closing it; somebody may take it meanwhile, so a
// server that ends over it is tried again elsewhere.
func (s *Server) startSSHD(ctx context.Context, sshd string, o Options) error {
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd's empty chroot
			return err
		}
	}
	const tries = 5
	for try := 1; ; try++ {
		err := s.trySSHD(ctx, sshd, o)
		if err == nil || try == tries || !strings.Contains(s.Log(), "Address already in use") {
			return err
		}
	}
}

func (s *Server) trySSHD(ctx context.Context, sshd string, o Options) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Addr = listener.Addr().String()
	listener.Close()
	config := filepath.Join(s.Dir, "sshd_config")
	if err := os.WriteFile(config, []byte(s.sshdConfig(o)), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(sshd, "-D", "-e", "-f", config)
	cmd.Stdout, cmd.Stderr = log, log // a file: sessions inherit it, and must hold up nobody
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	dieWithUs(cmd.SysProcAttr)
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // whose end would be taken for ours
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	s.stop = sync.OnceValue(func() error { return endTree(cmd.Process, exited) })
	s.Software, err = awaitBanner(ctx, s.Addr, exited)
	if err != nil {
		return errors.Join(fmt.Errorf("sshd did not come up: %w: %s", err, s.Log()), s.stop())
	}
	return nil
}

func (s *Server) sshdConfig(o Options) string {
	_, port, _ := net.SplitHostPort(s.Addr)
	lines := append([]string(nil), o.Extra...)
	if o.MaxSessions > 0 {
		lines = append(lines, fmt.Sprintf("MaxSessions %d", o.MaxSessions))
	}
	if o.ForceCommand != "" {
		lines = append(lines, "ForceCommand "+o.ForceCommand)
	}
	if len(o.Env) > 0 {
		pairs := environ(o.Env)
		for i, pair := range pairs {
			pairs[i] = quote(pair)
		}
		lines = append(lines, "SetEnv "+strings.Join(pairs, " "))
	}
	lines = append(lines,
		"ListenAddress 127.0.0.1", "Port "+port, "PidFile none", "LogLevel VERBOSE",
		"HostKey "+quote(s.hostKeyPath()), "AuthorizedKeysFile "+quote(s.authorizedPath()),
		"PermitRootLogin yes", "PubkeyAuthentication yes", "PasswordAuthentication no",
		"KbdInteractiveAuthentication no", "UsePAM no", "StrictModes no", "UseDNS no",
		"PrintMotd no", "PrintLastLog no", "AcceptEnv LANG LC_*")
	if !slices.ContainsFunc(o.Extra, func(line string) bool { return strings.HasPrefix(line, "MaxStartups ") }) {
		lines = append(lines, "MaxStartups 200") // the last one counts in some versions, the first in others
	}
	if hasPenalties() {
		lines = append(lines, "PerSourcePenalties no") // refused logins are part of the tests
	}
	return strings.Join(lines, "\n") + "\n"
}

// hasPenalties asks sshd whether it knows the option (OpenSSH 9.8 on); others refuse to start with it.
var hasPenalties = sync.OnceValue(func() bool {
	sshd, _ := FindSSHD()
	out, _ := exec.Command(sshd, "-T", "-f", "/dev/null", "-o", "PerSourcePenalties=no").CombinedOutput()
	return !strings.Contains(string(out), "Bad configuration option")
})

// awaitBanner returns the server's software version once it answers.
func awaitBanner(ctx context.Context, addr string, exited <-chan struct{}) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		software, err := banner(ctx, addr)
		if err == nil {
			return software, nil
		}
		select {
		case <-tick.C:
		case <-exited:
			return "", errors.New("it ended")
		case <-ctx.Done():
			return "", err
		}
	}
}

func banner(ctx context.Context, addr string) (string, error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	line := make([]byte, 0, 256)
	for one := make([]byte, 1); len(line) < cap(line); {
		if _, err := io.ReadFull(c, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	software, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "SSH-2.0-")
	if !ok {
		return "", fmt.Errorf("it said %q", line)
	}
	return software, nil
}

// endTree kills a process of ours and all that descend from it: sshd gives each connection a
// session of its own, so a group would not reach them.
func endTree(root *os.Process, exited <-chan struct{}) error {
	for {
		below := descendants(root.Pid)
		if len(below) == 0 {
			break
		}
		for _, pid := range below {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-exited: // its children were handed to somebody else
			return nil
		case <-time.After(time.Millisecond):
		}
	}
	root.Kill()
	<-exited
	return nil
}

// descendants lists live processes below pid, deepest last. Zombies are their parent's business.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for word := range strings.FieldsSeq(string(data)) {
			child, err := strconv.Atoi(word)
			if err != nil || isZombie(child) {
				continue
			}
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return strings.HasPrefix(rest, "Z")
}
