package gosshd

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/crypto/ssh"
)

// peer is one connection and its count of sessions.
type peer struct {
	server   *Server
	conn     *ssh.ServerConn
	sessions atomic.Int32
}

func (p *peer) open(ch ssh.NewChannel) {
	if ch.ChannelType() != "session" {
		ch.Reject(ssh.UnknownChannelType, "only sessions are served")
		return
	}
	if int(p.sessions.Add(1)) > p.server.config.MaxSessions {
		p.sessions.Add(-1)
		ch.Reject(ssh.ConnectionFailed, "open failed") // sshd's own words
		return
	}
	channel, requests, err := ch.Accept()
	if err != nil {
		p.sessions.Add(-1)
		return
	}
	s := &session{peer: p, channel: channel}
	go s.serve(requests)
}

// session is one channel. Its slot is given back when its command has ended and its output is
// over, or when it closed without a command.
type session struct {
	peer    *peer
	channel ssh.Channel
	env     []string
	started bool
}

func (s *session) serve(requests <-chan *ssh.Request) {
	for r := range requests {
		ok := false
		switch r.Type {
		case "env":
			ok = s.setenv(r.Payload)
		case "exec":
			var exec struct{ Command string }
			if !s.started && ssh.Unmarshal(r.Payload, &exec) == nil {
				s.start(exec.Command, r)
				continue // start has answered
			}
		}
		r.Reply(ok, nil)
	}
	if !s.started {
		s.end()
	}
}

// setenv takes what sshd's stock configuration takes: the locale.
func (s *session) setenv(payload []byte) bool {
	var env struct{ Name, Value string }
	if ssh.Unmarshal(payload, &env) != nil || s.started {
		return false
	}
	if env.Name != "LANG" && !strings.HasPrefix(env.Name, "LC_") {
		return false
	}
	s.env = append(s.env, env.Name+"="+env.Value)
	return true
}

// start runs the command and answers the request before any output can be sent.
func (s *session) start(command string, r *ssh.Request) bool {
	cmd, pipes, err := s.command(command)
	if err == nil {
		err = s.peer.server.run(cmd)
		pipes.closeRemote()
	}
	if err != nil {
		pipes.closeLocal()
		s.peer.server.config.Log("exec: %v", err)
		r.Reply(false, nil)
		return false
	}
	s.started = true
	r.Reply(true, nil)
	go s.feed(pipes.stdin)
	go s.run(cmd, pipes)
	return true
}

// run tells the command's end when it comes, and closes the session when its output is over too.
func (s *session) run(cmd *exec.Cmd, p *pipes) {
	var output sync.WaitGroup
	output.Go(func() { s.drain(s.channel, p.stdout) })
	output.Go(func() { s.drain(s.channel.Stderr(), p.stderr) })
	err := s.peer.server.wait(cmd)
	s.tell(cmd.ProcessState, err)
	output.Wait()
	s.end()
}

// run starts a command where Kill finds it.
func (s *Server) run(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		s.commands[cmd.Process] = struct{}{}
	}
	return err
}

func (s *Server) wait(cmd *exec.Cmd) error {
	awaitDeath(cmd.Process.Pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.commands, cmd.Process)
	return cmd.Wait()
}

// drain copies until the last holder of the pipe closes it, or the client takes no more; then the
// command's next write fails, as under sshd.
func (s *session) drain(to io.Writer, from *os.File) {
	io.Copy(struct{ io.Writer }{to}, from)
	from.Close()
}

func (s *session) feed(to *os.File) {
	io.Copy(struct{ io.Writer }{to}, s.channel)
	to.Close()
}

func (s *session) tell(state *os.ProcessState, err error) {
	if state == nil {
		s.peer.server.config.Log("wait: %v", err) // no status is known, and none is told
		return
	}
	status := state.Sys().(syscall.WaitStatus)
	if !status.Signaled() {
		s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status.ExitStatus())}))
		return
	}
	s.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
		Signal     string
		CoreDumped bool
		Message    string
		Lang       string
	}{signalName(status.Signal()), status.CoreDump(), "", ""}))
}

func (s *session) end() {
	s.channel.Close()
	s.peer.sessions.Add(-1)
}

// pipes are the command's streams: sshd gives a command without a terminal pipes as well.
type pipes struct {
	stdin, stdout, stderr *os.File
	remote                []*os.File
}

func (p *pipes) closeRemote() {
	for _, f := range p.remote {
		f.Close()
	}
}

func (p *pipes) closeLocal() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

func (s *session) command(command string) (*exec.Cmd, *pipes, error) {
	server := s.peer.server
	cmd := exec.Command(server.config.Shell, "-c", command)
	cmd.Args[0] = filepath.Base(server.config.Shell)
	cmd.Dir = server.account.HomeDir
	cmd.Env = append(s.environment(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &pipes{}
	var errs [3]error
	var in, out, errw *os.File
	in, p.stdin, errs[0] = os.Pipe()
	p.stdout, out, errs[1] = os.Pipe()
	p.stderr, errw, errs[2] = os.Pipe()
	for _, f := range []*os.File{in, out, errw} {
		if f != nil {
			p.remote = append(p.remote, f)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		p.closeRemote()
		return nil, p, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errw
	return cmd, p, nil
}

// environment is what sshd sets for a login, and nothing of this process's own.
func (s *session) environment() []string {
	server := s.peer.server
	env := []string{
		"HOME=" + server.account.HomeDir,
		"USER=" + server.account.Username,
		"LOGNAME=" + server.account.Username,
		"SHELL=" + server.config.Shell,
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
		"SSH_CONNECTION=" + connection(s.peer.conn),
	}
	if server.account.Uid == "0" {
		env[4] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return append(env, server.config.Env...)
}
