package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unicode/utf8"
)

// Command tells by running a command with the notice, as JSON, on its standard input. It is given its
// time, and then ended with all that it started.
type Command struct {
	Argv    []string
	Timeout time.Duration
}

// Name names the way.
func (c *Command) Name() string { return "command" }

// Tell runs the command. Nil: it ended with 0 within its time.
func (c *Command) Tell(ctx context.Context, id string, at time.Time, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin = bytes.NewReader(body)
	cmd.Env = append(os.Environ(), "LONGSTOP_NOTICE_ID="+id, "LONGSTOP_NOTICE_TIME="+at.UTC().Format(time.RFC3339))
	said := &tail{most: 300}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the command took longer than %v and was ended%s", c.Timeout, said)
	case errors.As(err, &exit):
		return fmt.Errorf("the command: %v%s", exit.ProcessState, said)
	}
	return fmt.Errorf("the command: %w", err)
}

// tail keeps the end of what is written.
type tail struct {
	most int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	said := bytes.TrimSpace(t.kept)
	if len(said) == 0 {
		return ""
	}
	for len(said) > 0 && !utf8.RuneStart(said[0]) {
		said = said[1:]
	}
	return fmt.Sprintf("; it said %q", said)
}
