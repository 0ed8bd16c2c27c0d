package main

import (
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

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// TestScripts drives the real commands, the real runner and a real sshd: each script has a server,
// a gateway and a state folder of its own, and the host "loop" enrolled unless it begins with
// bare. SSH_CONFIG and STATE are the flags of its enrolment.
//
//	status N CMD…     CMD ends with exit status N
//	link WHAT         freeze, thaw or cut the link to the server, in a script that begins with link
//	eventually CMD…   CMD succeeds within a generous bound; its output is that of the last time
//	types N FILE CMD… CMD at a terminal, where FILE's lines are typed (tty_test.go)
//	raw FILE TEXT     writes TEXT with Go's escapes, so that it can be any bytes
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs everything")
	}
	programs := build(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup:               func(env *testscript.Env) error { return setUp(env, programs) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":     statusOf,
			"eventually": eventually,
			"raw":        rawFile,
			"link":       link,
			"types":      types,
		},
	})
}

// build makes the three commands, side by side as they are installed.
func build(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var programs string // where they are, to be removed by TestMain

var built = sync.OnceValues(func() (string, error) {
	var err error
	if programs, err = os.MkdirTemp("", "longstop-bin"); err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-buildvcs=false", "-o", programs+"/", "../longstop", "../longstopd", "../longstop-runner")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return programs, nil
})

func setUp(env *testscript.Env, programs string) error {
	t := env.T().(testing.TB)
	server := sshtest.Start(t, sshtest.Options{})
	config, name := server.SSHConfig, strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	if strings.HasPrefix(name, "link") {
		proxy := sshtest.NewProxy(t, server.Addr)
		env.Values[linkKey{}] = proxy
		var err error
		if config, err = server.Via(proxy.Addr); err != nil {
			return err
		}
	}
	home, state := sshtest.ShortDir(t), sshtest.ShortDir(t)
	for name, value := range map[string]string{
		"HOME": home, "LONGSTOP_HOME": filepath.Join(home, "gw"), "TZ": "UTC", "SSH_AUTH_SOCK": "",
		"SSH_CONFIG": config, "STATE": filepath.Join(state, "s"), "KNOWN_HOSTS": server.KnownHosts, "LOGIN_KEY": server.KeyPath,
		"PATH": programs + string(os.PathListSeparator) + os.Getenv("PATH"),
	} {
		env.Setenv(name, value)
	}
	run := func(args ...string) error {
		c := exec.Command(filepath.Join(programs, "longstop"), args...)
		c.Env, c.Dir = env.Vars, env.WorkDir
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("longstop %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	env.Defer(func() {
		if err := run("daemon", "stop"); err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(home, "gw", "longstopd.log")); err == nil && t.Failed() {
			t.Logf("the gateway's log:\n%s", log)
		}
	})
	if strings.HasPrefix(name, "bare") {
		return nil
	}
	return run("host", "add", "loop", "--ssh-config", config, "--state-dir", filepath.Join(state, "s"))
}

func statusOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N CMD…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	const bound = 30 * time.Second
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within %s: %v", bound, err)
		}
	}
}

func rawFile(ts *testscript.TestScript, neg bool, args []string) {
	text, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

type linkKey struct{}

func link(ts *testscript.TestScript, neg bool, args []string) {
	proxy := ts.Value(linkKey{}).(*sshtest.Proxy)
	switch args[0] {
	case "freeze":
		proxy.Freeze()
	case "thaw":
		proxy.Thaw()
	case "cut":
		proxy.Cut()
	default:
		ts.Fatalf("usage: link freeze|thaw|cut")
	}
}
