package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"golang.org/x/crypto/ssh"
)

// plain runs a command line over plain SSH: with the ssh command, or a client in Go where there is
// none. It returns what was printed and the exit status.
func (s *stage) plain(ctx context.Context, line string) (output string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	path, err := exec.LookPath("ssh")
	if err != nil {
		return s.plainGo(ctx, line)
	}
	cmd := exec.CommandContext(ctx, path, "-F", s.server.SSHConfig, "-o", "BatchMode=yes", s.server.Alias, line)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

func (s *stage) plainGo(ctx context.Context, line string) (output string, status int, err error) {
	key, err := os.ReadFile(s.server.KeyPath)
	if err != nil {
		return "", 0, err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return "", 0, err
	}
	client, err := ssh.Dial("tcp", s.server.Addr, &ssh.ClientConfig{User: s.server.User, Timeout: 10 * time.Second,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(s.server.HostKey)})
	if err != nil {
		return "", 0, err
	}
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	session, err := client.NewSession()
	if err != nil {
		return "", 0, err
	}
	var out, errs bytes.Buffer
	session.Stdout, session.Stderr = &out, &errs
	err = session.Run(line)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return out.String() + errs.String(), exit.ExitStatus(), nil
	}
	return out.String() + errs.String(), 0, err
}
