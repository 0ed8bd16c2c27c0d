//go:build hosts

package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/longstop/longstop/test/rig"
)

// Cases of kind K7: what output goes through, and what gets into it. More is in output_test.go and point13_test.go.

// TestC067EveryByte: whatever bytes a run writes are given back as they were, and none gets into the JSON about it.
func TestC067EveryByte(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	h.Exec(t, "rm", "-f", "/tmp/c067")
	r := g.longstop(t, "run", h.Name, "-c", `{ printf 'a\0b\n'; printf '%s\n' '\u0000'; printf '\377\376\n\033[31m\r'; head -c 65536 /dev/urandom; } | tee /tmp/c067; printf '\0\377' >&2`)
	wrote := string(h.ReadFile(t, "/tmp/c067"))
	if r.status != 0 || r.stdout != wrote || !strings.HasPrefix(wrote, "a\x00b\n\\u0000\n\xff\xfe\n") || len(wrote) < 65536 {
		t.Errorf("exit %d, %d bytes, wrote %d", r.status, len(r.stdout), len(wrote))
	}
	id := string(g.newest(t))
	if logs := g.must(t, "logs", id); logs.stdout != wrote {
		t.Errorf("logs: %d bytes of %d", len(logs.stdout), len(wrote))
	}
	if logs := g.must(t, "logs", "--stderr", id); logs.stdout != "\x00\xff" {
		t.Errorf("logs --stderr: %q", logs.stdout)
	}
	// What processes are called is no more to be trusted.
	run := g.launch(t, h.Name, "-c", "exec /bin/sh -c 'sleep 600; :' \"$(printf 'x\\033[31m\\377')\" '\\u0000'")
	eventually(t, 20*time.Second, "its arguments", func() bool { return strings.Contains(pretty(g.inspect(t, run)), `\\u0000`) })
	for _, args := range [][]string{{"show", "--json", id}, {"inspect", "--json", string(run)}, {"ps", "-a", "--json"}, {"show", "--json", "--raw", id}} {
		if r := g.must(t, args...); !json.Valid([]byte(r.stdout)) || !utf8.ValidString(r.stdout) || strings.ContainsAny(r.stdout, "\x00\x1b") {
			t.Errorf("%v: %q", args, tail([]byte(r.stdout), 2000))
		}
	}
	for _, args := range [][]string{{"inspect", string(run)}, {"ps", "-a"}, {"show", string(run)}} {
		if r := g.must(t, args...); !utf8.ValidString(r.stdout) || strings.ContainsAny(r.stdout+r.stderr, "\x00\x1b\r") {
			t.Errorf("%v: %q", args, r.stdout)
		}
	}
	g.must(t, "cancel", string(run))
}

// TestC070OneLongLine: nobody on the way holds a line of 50 MB whole, or 200,000 that only return the carriage.
func TestC070OneLongLine(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	name := g.enrolAs(t, h, "ash") // whose keeper nobody else has much to do with
	h.Exec(t, "rm", "-f", "/tmp/c070")
	id := g.launch(t, name, "-c", `head -c 50000000 /dev/zero | tr '\0' x; i=0; while [ $i -lt 200000 ]; do printf "\r%d%%" $i; i=$((i+1)); done; echo; touch /tmp/c070; sleep 600`)
	follow := g.command(t.Context(), "logs", "-f", "-t", string(id))
	followed, err := os.Create(filepath.Join(t.TempDir(), "followed"))
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Close()
	follow.Stdout = followed
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	followPeak := watchPeak(follow.Process.Pid)
	eventually(t, time.Minute, "all of it", func() bool { return h.Exists(t, "/tmp/c070") })
	i := g.inspect(t, id)
	peaks := map[string]string{"owner": string(h.ReadFile(t, fmt.Sprintf("/proc/%d/status", i.Owner.PID))),
		"keeper": string(h.ReadFile(t, fmt.Sprintf("/proc/%d/status", i.Keeper.PID)))}
	g.must(t, "cancel", string(id))
	if err := follow.Wait(); err != nil {
		t.Error(err)
	}
	var all bytes.Buffer
	logs := g.command(t.Context(), "logs", "--offset", "1000", string(id))
	logs.Stdout = &all
	if err := logs.Start(); err != nil {
		t.Fatal(err)
	}
	logsPeak := watchPeak(logs.Process.Pid)
	err = logs.Wait()
	out := all.Bytes()
	if want := 50_000_000 - 1000; err != nil || len(out) < want+200_000 || len(bytes.Trim(out[:want], "x")) != 0 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	text, err := os.ReadFile(followed.Name())
	if err != nil || len(text) != len(out)+1000+len("2006-01-02T15:04:05.000Z ") && len(text) != len(out)+1000+len("2006-01-02T15:04:05.000+00:00 ") {
		t.Errorf("followed: %d bytes of %d, with one line's time, %v", len(text), len(out)+1000, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.daemons(t)[0]))
	if err != nil {
		t.Fatal(err)
	}
	peaks["gateway"] = string(status)
	peaks["logs -f -t"], peaks["logs"] = <-followPeak, <-logsPeak
	for name, text := range peaks {
		found := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s: %s", name, text)
		}
		if most, _ := strconv.Atoi(found[1]); most > 60<<10 {
			t.Errorf("%s held up to %d kB", name, most)
		} else {
			t.Logf("%s: at most %d kB", name, most)
		}
	}
}

// watchPeak looks at a process of ours for as long as it lives, and gives what its status was last. What wait4(2)
// tells of a child's memory may be its parent's, as it was before the exec.
func watchPeak(pid int) <-chan string {
	last := make(chan string, 1)
	go func() {
		status := ""
		for {
			now, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil || !bytes.Contains(now, []byte("VmHWM")) { // gone, or a zombie
				break
			}
			status = string(now)
			time.Sleep(time.Millisecond)
		}
		last <- status
	}()
	return last
}

// TestC071StartUpFilesPrint: what a login prints is not the work's, on neither stream, and does not get in the way
// of what is sent; that it printed is told.
func TestC071StartUpFilesPrint(t *testing.T) {
	t.Parallel()
	a := enrolled(t, rig.Up(t, "h1"), "noisy")
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := a.run(t.Context(), []byte("sent\x00\n"), append(append([]string{"run", "--stdin"}, flags...), a.name, "-c", "cat; echo ok; echo err >&2")...)
		if r.status != 0 || r.stdout != "sent\x00\nok\n" || strings.Contains(r.stderr, "mind the step") {
			t.Error(r)
		}
		last := a.last(t)
		if !strings.Contains(last.SSHCommand.Noise, "welcome to h1") {
			t.Errorf("that the login prints is not told: %s", pretty(last.SSHCommand))
		}
		if logs := a.must(t, "logs", "--stderr", string(last.ID)); logs.stdout != "err\n" {
			t.Error(logs)
		}
	}
}

// TestC073LocaleStaysHere: a locale that is set here and unknown there is not sent, whatever ssh_config says.
func TestC073LocaleStaysHere(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t, "LC_ALL=xx_YY.UTF-8", "LANG=xx_YY.UTF-8", "LC_TIME=xx_YY.UTF-8")
	config, _ := ownConfig(t, h)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append([]byte("Host *\n  SendEnv LANG LC_*\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	g.must(t, "host", "add", h.Name, "--ssh-config", config)
	for _, flags := range [][]string{nil, {"--own-channel"}} {
		r := g.longstop(t, append(append([]string{"run"}, flags...), h.Name, "-c", `bash -c "echo hi"; env | grep xx_YY`)...)
		last := g.newest(t)
		if r.status != 1 || r.stdout != "hi\n" {
			t.Error(r)
		}
		if logs := g.must(t, "logs", "--stderr", string(last)); logs.stdout != "" {
			t.Errorf("on its standard error: %q", logs.stdout)
		}
	}
	if r := g.longstop(t, "run", "--env", "LC_ALL", h.Name, "-c", "echo $LC_ALL"); r.stdout != "xx_YY.UTF-8\n" {
		t.Errorf("asked for, it is sent: %s", r)
	}
}

// TestC076LoopKeepsItsInput: a command in a shell's loop leaves the loop's input alone.
func TestC076LoopKeepsItsInput(t *testing.T) {
	t.Parallel()
	h, g := rig.Up(t, "h1"), newGateway(t)
	g.enrol(t, h)
	loop := func(command string) string {
		c := g.command(t.Context(), "unused")
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `while read l; do ` + command + `; done`, filepath.Join(g.bin, "longstop"), h.Name}
		c.Stdin = strings.NewReader("a\nb\nc\n")
		out, err := c.Output()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := loop(`"$0" run "$1" -- echo "got $l"`); got != "got a\ngot b\ngot c\n" {
		t.Errorf("%q", got)
	}
	if got := loop(`"$0" run "$1" -c "echo got $l; cat"`); got != "got a\ngot b\ngot c\n" {
		t.Errorf("%q", got)
	}
	if got := loop(`printf "sent $l;" | "$0" run --stdin "$1" -- cat`); got != "sent a;sent b;sent c;" {
		t.Errorf("%q", got)
	}
}
