package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
)

// Every way that led nowhere is said with a code, a host and a command that shows why.
func TestExplained(t *testing.T) {
	t.Parallel()
	to := sshlink.Target{Name: "web-1", SSHConfig: "/etc/lab"}
	refused := &longstop.Error{Code: longstop.CodeUnsupported, Message: "web-1: the server refuses to run commands"}
	for _, c := range []struct {
		err     error
		code    longstop.Code
		message string
		hint    string
	}{
		{&unanswered{Err: fmt.Errorf("open a serve channel on web-1: %w", refused)}, longstop.CodeUnsupported,
			"open a serve channel on web-1: web-1: the server refuses to run commands", "see: ssh -v -F /etc/lab web-1 true"},
		{noRunner("web-1", sshlink.Exit{State: longstop.SSHExited, Status: 3}, "go away"), longstop.CodeNoRunner,
			`the login shell of web-1 ran something else than the runner: it exited 3 and printed "go away"`, "see what it prints: ssh -F /etc/lab web-1 true"},
		{context.DeadlineExceeded, longstop.CodeUnreachable, "connect to web-1: context deadline exceeded", "see: ssh -v -F /etc/lab web-1 true"},
		{errors.New("odd"), longstop.CodeInternal, "connect to web-1: odd", "see: ssh -v -F /etc/lab web-1 true"},
		{&longstop.Error{Code: longstop.CodeAccessRefused, Message: "no", Hint: "theirs"}, longstop.CodeAccessRefused, "no", "theirs"},
		{saidBy("web-1", &longstop.Error{Code: longstop.CodeStateFolder, Message: "/s is a symbolic link", Hint: "theirs"}), longstop.CodeStateFolder, "web-1: /s is a symbolic link", "theirs"},
	} {
		err := explained(to, c.err)
		if longstop.CodeOf(err) != c.code || err.Error() != c.message || hintOf(err) != c.hint {
			t.Errorf("%v: %s, %q, %q", c.err, longstop.CodeOf(err), err, hintOf(err))
		}
	}
}
