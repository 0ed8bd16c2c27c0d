package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/sshlink"
	"github.com/longstop/longstop/internal/sshlink/sshtest"
)

// stubRunners gives a binary that any machine can run: enough to be pushed and verified.
type stubRunners struct{ content string }

func (s stubRunners) Runner(string) ([]byte, string, error) {
	sum := sha256.Sum256([]byte(s.content))
	return []byte(s.content), hex.EncodeToString(sum[:]), nil
}

func dialTest(t *testing.T, o sshtest.Options) (sshlink.Link, *sshtest.Server) {
	t.Helper()
	server := sshtest.Start(t, o)
	dialer := &sshlink.OpenSSH{Dir: sshtest.ShortDir(t)}
	link, err := dialer.Dial(t.Context(), sshlink.Target{Name: server.Alias, SSHConfig: server.SSHConfig})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { link.Close() })
	return link, server
}

// TestTextsForAnyShell holds what every login shell reads alike inside single quotes.
func TestTextsForAnyShell(t *testing.T) {
	for name, text := range map[string]string{"probe": probeText, "place": placeText, "push": pushText} {
		if i := strings.IndexAny(text, "'\\!\n\r"); i >= 0 {
			t.Errorf("%s has %q, which some shell reads differently", name, text[i:min(len(text), i+20)])
		}
		if left := regexp.MustCompile(`@[a-z]+`).FindString(fill(text, "@nonce", "0", "@uid", "0", "@base", "b", "@folders", "/f",
			"@folder", "/f", "@size", "1", "@sum", "0", "@aside", "no")); left != "" {
			t.Errorf("%s leaves %s unfilled", name, left)
		}
	}
}

// TestInstallThroughAnyLoginShell pushes a runner where the login shell is another than sh, as C079
// (fish) and C080 (tcsh) had it.
func TestInstallThroughAnyLoginShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "tcsh", "dash", "busybox ash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(shell)
			path, err := exec.LookPath(words[0])
			if err != nil {
				t.Skipf("needs %s", words[0])
			}
			words[0] = path
			link, server := dialTest(t, sshtest.Options{ForceCommand: strings.Join(words, " ") + ` -c "$SSH_ORIGINAL_COMMAND"`})
			login := loginShell{link, sshlink.Target{Name: "loop"}}
			runners := stubRunners{"#!/bin/sh\necho " + shell + "\n"}
			var notes []string
			install := func() string {
				where, _, _, err := login.install(t.Context(), runners, func(line string) { notes = append(notes, line) })
				if err != nil {
					t.Fatalf("install: %v", err)
				}
				return where
			}
			where := install()
			if want := filepath.Join(server.Home, ".local/share/longstop"); filepath.Dir(where) != want {
				t.Errorf("installed in %s, want %s", where, want)
			}
			if got, err := os.ReadFile(where); err != nil || string(got) != runners.content {
				t.Errorf("what was pushed: %q, %v", got, err)
			}
			if again := install(); again != where || len(notes) != 1 {
				t.Errorf("a second install went to %s and said %q: want no second push", again, notes)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(where), ".*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestInstallPlaces tries places that are not fit before those that are, C031.
func TestInstallPlaces(t *testing.T) {
	runners := stubRunners{"#!/bin/sh\n# " + t.Name() + "\n"}
	// Each prepares a home and returns it.
	for name, home := range map[string]func(t *testing.T, dir string) string{
		"a link in its place": func(t *testing.T, dir string) string {
			must(t, os.MkdirAll(dir+"/.local/share", 0o700))
			must(t, os.Symlink("/tmp", dir+"/.local/share/longstop"))
			return dir
		},
		"open to others": func(t *testing.T, dir string) string {
			must(t, os.MkdirAll(dir+"/.local/share/longstop", 0o700))
			must(t, os.Chmod(dir+"/.local/share/longstop", 0o755))
			return dir
		},
		"characters that shells read": func(t *testing.T, dir string) string { return dir + "/it's $HOME" },
		"no home":                     func(t *testing.T, dir string) string { return "/dev/null/none" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sshtest.ShortDir(t)
			link, _ := dialTest(t, sshtest.Options{Env: map[string]string{"HOME": home(t, dir)}})
			where, _, _, err := loginShell{link, sshlink.Target{Name: "loop"}}.install(t.Context(), runners, nil)
			if err != nil {
				t.Fatalf("install: %v", err)
			}
			t.Cleanup(func() { os.Remove(where) })
			if want := fmt.Sprintf("/var/tmp/longstop-%d", os.Getuid()); filepath.Dir(where) != want {
				t.Errorf("installed in %s, want %s", where, want)
			}
		})
	}
}

// TestInstallMovesDamageAside replaces what a crash tore, and leaves it for whoever runs it.
func TestInstallMovesDamageAside(t *testing.T) {
	t.Parallel()
	link, _ := dialTest(t, sshtest.Options{})
	login, runners := loginShell{link, sshlink.Target{Name: "loop"}}, stubRunners{"#!/bin/sh\necho whole\n"}
	where, _, _, err := login.install(t.Context(), runners, nil)
	must(t, err)
	must(t, os.WriteFile(where, []byte("torn"), 0o700))
	again, _, _, err := login.install(t.Context(), runners, nil)
	must(t, err)
	if got, _ := os.ReadFile(again); again != where || string(got) != runners.content {
		t.Errorf("after damage: %s has %q", again, got)
	}
	if aside, _ := filepath.Glob(where + ".damaged-*"); len(aside) != 1 {
		t.Errorf("moved aside: %v", aside)
	}
}

// TestPushAtOnce has several gateways push the same runner: each ends with it in place, whole.
func TestPushAtOnce(t *testing.T) {
	t.Parallel()
	link, _ := dialTest(t, sshtest.Options{})
	runners := stubRunners{"#!/bin/sh\n" + strings.Repeat("# a long runner\n", 100_000)}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, _, _, err := (loginShell{link, sshlink.Target{Name: "loop"}}).install(t.Context(), runners, nil); err != nil {
				t.Errorf("install: %v", err)
			}
		})
	}
	all.Wait()
}

// TestOtherThanTheRunner is what a login shell does that runs something else: never success, and
// its words are kept. C029 C082 C083 C085 C086 C097.
func TestOtherThanTheRunner(t *testing.T) {
	for name, c := range map[string]struct {
		force string
		code  longstop.Code
		says  []string
	}{
		"C083 a forced command succeeds":     {`echo "forced: $SSH_ORIGINAL_COMMAND"`, longstop.CodeNoRunner, []string{"exited 0", "forced: "}},
		"C083 a forced command echoes":       {`cat`, longstop.CodeNoRunner, []string{"exited 0"}},
		"C085 a start-up file fails":         {`echo from-zshenv; nosuchcmd; exit 3`, longstop.CodeNoRunner, []string{"exited 3", "from-zshenv"}},
		"C086 a start-up file exits":         {`exit 0`, longstop.CodeNoRunner, []string{"exited 0", "printed nothing"}},
		"C097 the password has expired":      {`echo "Password change required but no TTY available." >&2; exit 1`, longstop.CodeAccessRefused, []string{"exited 1", "Password change required"}},
		"nologin":                            {`/usr/sbin/nologin`, longstop.CodeAccessRefused, []string{"exited 1", "not available"}},
		"C082 a restricted shell":            {`/bin/rbash -c "$SSH_ORIGINAL_COMMAND"`, longstop.CodeNoRunner, []string{"restricted"}},
		"C029 an answer that looks like one": {`echo; echo "BEGIN 0"; echo "uid=0"; echo "END 0"`, longstop.CodeNoRunner, []string{"BEGIN 0"}},
		"it dies":                            {`kill -KILL $$`, longstop.CodeNoRunner, []string{"SIGKILL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link, _ := dialTest(t, sshtest.Options{ForceCommand: c.force})
			_, err := loginShell{link, sshlink.Target{Name: "loop"}}.probe(t.Context())
			if longstop.CodeOf(err) != c.code {
				t.Fatalf("error %v, want code %s", err, c.code)
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
		})
	}
}

// TestShellThatHangs: C086, a start-up file that execs another shell waits for input for ever.
func TestShellThatHangs(t *testing.T) {
	t.Parallel()
	link, _ := dialTest(t, sshtest.Options{ForceCommand: `echo before; exec sleep 600`})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, _, err := loginShell{link, sshlink.Target{Name: "loop"}}.ask(ctx, 1e9, probeText, nil)
	if longstop.CodeOf(err) != longstop.CodeTimeout || !strings.Contains(err.Error(), "before") {
		t.Errorf("error %v, want a timeout that quotes what was printed", err)
	}
}

// TestNoiseBesideAnswer: what start-up files print is told apart, whatever it is.
func TestNoiseBesideAnswer(t *testing.T) {
	t.Parallel()
	link, _ := dialTest(t, sshtest.Options{ForceCommand: `printf 'no line feed {"ok":true}'; eval "$SSH_ORIGINAL_COMMAND"`})
	p, err := loginShell{link, sshlink.Target{Name: "loop"}}.probe(t.Context())
	if err != nil || p.noise != `no line feed {"ok":true}` || p.uid != os.Getuid() {
		t.Errorf("probe: %+v, %v", p, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
