package runner

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// C023, C032: a workload's own codes, one and all, and nothing made up.
func TestC032ExitCodesAndSignals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for script, want := range map[string]longstop.Result{
		"exit 0":          {ExitCode: new(0)},
		"exit 1":          {ExitCode: new(1)},
		"exit 7":          {ExitCode: new(7)},
		"exit 126":        {ExitCode: new(126)},
		"exit 127":        {ExitCode: new(127)},
		"nosuchcommand":   {ExitCode: new(127)},
		"/etc/passwd":     {ExitCode: new(126)},
		"exit 255":        {ExitCode: new(255)},
		"exit 300":        {ExitCode: new(44)},
		"kill -SEGV $$":   {Signal: "SEGV"},
		"kill -KILL $$":   {Signal: "KILL"},
		"kill -TERM $$":   {Signal: "TERM"},
		"kill -XFSZ $$":   {Signal: "XFSZ"},
		"if then; done (": {ExitCode: new(2)},
	} {
		sub := l.script(script)
		l.submit(sub)
		rec := l.final(sub.RunID)
		if rec.State != longstop.WorkloadFinished || rec.Result == nil || fmt.Sprint(words(rec.Result)) != fmt.Sprint(words(&want)) {
			t.Errorf("%q: %s", script, show(rec))
		}
		if rec.Writer.Kind != longstop.WriterOwner || rec.Boundary.Empty == nil || !*rec.Boundary.Empty || *rec.Boundary.Processes != 0 {
			t.Errorf("%q: %s", script, show(rec))
		}
		if rec.Main == nil || rec.Main.SID != rec.Main.PID || rec.Main.PGID != rec.Main.PID || rec.Main.PIDNS != boundary.PIDNamespace() || rec.Main.EndedAt.IsZero() {
			t.Errorf("%q: main is %+v", script, rec.Main)
		}
	}
}

func words(r *longstop.Result) string {
	if r.ExitCode != nil {
		return fmt.Sprint(*r.ExitCode)
	}
	return r.Signal
}

func TestLaunchFailures(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	os.WriteFile(l.path("data"), []byte("no program"), 0644)
	for name, c := range map[string]struct {
		req               longstop.Request
		cwd               string
		step, errno, path string
	}{
		"no such path":       {longstop.Request{Argv: []string{"/no/such/binary"}}, l.dir, "exec", "ENOENT", "/no/such/binary"},
		"no such command":    {longstop.Request{Argv: []string{"nosuchcommand"}}, l.dir, "exec", "ENOENT", "nosuchcommand"},
		"not executable":     {longstop.Request{Argv: []string{"./data"}}, l.dir, "exec", "EACCES", "./data"},
		"a folder":           {longstop.Request{Argv: []string{"/tmp"}}, l.dir, "exec", "EACCES", "/tmp"},
		"C031: no such home": {longstop.Request{Argv: []string{"true"}}, "/nonexistent", "chdir", "ENOENT", "/nonexistent"},
		"a NUL":              {longstop.Request{ArgvB64: [][]byte{[]byte("true"), []byte("a\x00b")}}, l.dir, "exec", "EINVAL", ""},
	} {
		sub := l.request(c.req)
		sub.Request.Cwd = c.cwd
		rec := l.submit(sub)
		e := rec.LaunchError
		if rec.State != longstop.WorkloadLaunchFailed || e == nil || e.Step != c.step || e.Errno != c.errno || c.path != "" && e.Path != c.path || e.Message == "" {
			t.Errorf("%s: %s", name, show(rec))
		}
		if rec.Main != nil || rec.Result != nil {
			t.Errorf("%s: %s", name, show(rec))
		}
		if again := l.record(sub.RunID); again.State != longstop.WorkloadLaunchFailed {
			t.Errorf("%s: on disk: %s", name, show(again))
		}
	}
}

// C089: arguments arrive byte for byte.
func TestC089Arguments(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	args := []string{"a  b", "it's", "$HOME", "*", "", "new\nline", "-n", "!x", "é", "`id`", "\\", "%n", strings.Repeat("x", 100<<10)}
	sub := l.argv(append([]string{"printf", `[%s]\n`}, args...)...)
	l.submit(sub)
	l.final(sub.RunID)
	want := ""
	for _, a := range args {
		want += "[" + a + "]\n"
	}
	if got := l.stdout(sub.RunID); got != want {
		t.Errorf("got %.300q", got)
	}
	raw := []byte("\xff\xfe latin \xe9")
	sub = l.request(longstop.Request{ArgvB64: [][]byte{[]byte("printf"), []byte("%s"), raw}})
	l.submit(sub)
	l.final(sub.RunID)
	if got := l.stdout(sub.RunID); got != string(raw) {
		t.Errorf("not UTF-8: got %q", got)
	}
}

// C091: long scripts, past what one argument can hold.
func TestC091LongScripts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, n := range []int{100, 100_000, 131_000, 140_000, 300_000, 5_000_000} {
		sub := l.script("true " + strings.Repeat("x", n) + "; echo \"$LONGSTOP_RUN_ID\"; exit 3")
		rec := l.submit(sub)
		if rec.LaunchError != nil {
			t.Fatalf("%d: %s", n, show(rec))
		}
		if rec := l.final(sub.RunID); !exited(rec, 3) || l.stdout(sub.RunID) != string(sub.RunID)+"\n" {
			t.Errorf("%d: %s, %.100q", n, show(rec), l.stdout(sub.RunID))
		}
	}
	sub := l.argv("true", strings.Repeat("x", 200_000))
	if rec := l.submit(sub); rec.State != longstop.WorkloadLaunchFailed || rec.LaunchError.Errno != "E2BIG" {
		t.Errorf("an argument that the kernel refuses: %s", show(rec))
	}
}

// C092: values arrive exactly, and are nowhere on disk.
func TestC092Environment(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`printf '%s|' "$FOO" "$WEIRD" "$NL" "$LONGSTOP_RUN_ID" "$LONGSTOP_ACTION_ID" "$LONGSTOP_EFFECT_TOKEN" "$LONGSTOP_EVIDENCE" "$LONGSTOP_PROGRESS" "$PATH"; echo k=v > "$LONGSTOP_EVIDENCE"`)
	sub.EnvValues = map[string][]byte{"FOO": []byte("bar-hidden-value"), "WEIRD": []byte(`a b$c"d'` + "\xff"), "NL": []byte("1\n2"), "LONGSTOP_RUN_ID": []byte("forged")}
	l.submit(sub)
	l.final(sub.RunID)
	run := l.f.Path("runs", string(sub.RunID))
	want := "bar-hidden-value|a b$c\"d'\xff|1\n2|" + string(sub.RunID) + "|" + string(sub.ActionID) + "|" + sub.EffectToken + "|" + run + "/evidence|" + run + "/progress|" + os.Getenv("PATH") + "|"
	if got := l.stdout(sub.RunID); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	os.Remove(run + "/stdout")
	for _, dir := range []string{"runs/" + string(sub.RunID), "claims"} {
		entries, _ := os.ReadDir(l.f.Path(dir))
		for _, e := range entries {
			data, _ := os.ReadFile(l.f.Path(dir, e.Name()))
			if strings.Contains(string(data), "bar-hidden-value") || strings.Contains(string(data), string(sub.Secret)) {
				t.Errorf("%s/%s holds a secret", dir, e.Name())
			}
		}
	}
}

// The workload starts as under a login of its own: nothing ignored, nothing blocked, no descriptor
// but its three, the login's limits and umask.
func TestWorkloadStartsClean(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script(`ls -l /proc/self/fd | sed 's/.* \([0-9]* ->\)/\1/'; grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -Sn; umask; pwd; ps -o ppid=,pid=,pgid=,sid=,tty= -p $$`)
	rec := l.submit(sub)
	l.final(sub.RunID)
	out := l.stdout(sub.RunID)
	for _, want := range []string{"0 -> /dev/null", "1 -> pipe:", "2 -> pipe:", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "\n" + l.dir + "\n", "\n" + fmt.Sprintf("%04o", LoginUmask()) + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if fd, _, ok := strings.Cut(line, " -> "); ok && fd != "0" && fd != "1" && fd != "2" && !strings.Contains(line, "/proc/") {
			t.Errorf("descriptor %s", line)
		}
	}
	if rec.Main.PID == 0 {
		t.Error("no pid")
	}
}

// C076: stdin is empty unless it was given, whole then.
func TestC076Stdin(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.argv("cat")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 0) || l.stdout(sub.RunID) != "" {
		t.Errorf("%s %q", show(rec), l.stdout(sub.RunID))
	}
	sub = l.argv("cat")
	data := strings.Repeat("line of input\n", 100_000)
	if _, err := l.f.Spool(sub.RunID, 0, []byte(data)); err != nil {
		t.Fatal(err)
	}
	sub.Request.StdinBytes = int64(len(data))
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 0) || l.stdout(sub.RunID) != data {
		t.Errorf("%s, %d bytes", show(rec), len(l.stdout(sub.RunID)))
	}
}

// Law 5: one key, one launch.
func TestLaw5OneKeyOneLaunch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("echo ran >> ran; sleep 0.2")
	answers := make(chan error, 20)
	for range cap(answers) {
		go func() {
			_, err := l.trySubmit(sub)
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	l.final(sub.RunID)
	// Another run of the same request under the same key is answered with the first one.
	other := l.script("echo ran >> ran; sleep 0.2")
	other.Key, other.Request = sub.Key, sub.Request
	answer, err := Submit(context.Background(), l.f, other)
	if err != nil || !answer.Existing || l.verify(sub.RunID, answer.Record).RunID != sub.RunID {
		t.Errorf("%+v, %v", answer, err)
	}
	// C130: same key, other request.
	other = l.script("echo other >> ran")
	other.Key = sub.Key
	if _, err := Submit(context.Background(), l.f, other); longstop.CodeOf(err) != longstop.CodeKeyConflict {
		t.Errorf("another request: %v", err)
	}
	if n := len(l.lines("ran")); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

func TestSubmitRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, c := range map[string]struct {
		change func(*wire.Submit)
		code   longstop.Code
	}{
		"after not_after":   {func(s *wire.Submit) { s.NotAfter = boundary.BootNow() - 1 }, longstop.CodeExpired},
		"of another boot":   {func(s *wire.Submit) { s.BootID = "11111111-2222-3333-4444-555555555555" }, longstop.CodeExpired},
		"with a dead lease": {func(s *wire.Submit) { s.Request.Lifetime = longstop.Leased; s.LeaseUntil = 1 }, longstop.CodeExpired},
		"a lost terminal":   {func(s *wire.Submit) { s.Request.PTY, s.Request.Leftover = true, longstop.LeftoverRelease }, longstop.CodeUnsupported},
		"slurm at least":    {func(s *wire.Submit) { s.Request.BoundaryMin = longstop.BoundarySlurm }, longstop.CodeUnsupported},
		"systemd":           {func(s *wire.Submit) { s.Request.Owner = longstop.OwnerSystemd }, longstop.CodeUnsupported},
		"nothing":           {func(s *wire.Submit) { s.Request.Script = "" }, longstop.CodeUsage},
		"a relative folder": {func(s *wire.Submit) { s.Request.Cwd = "x" }, longstop.CodeUsage},
	} {
		sub := l.script("echo ran >> ran")
		c.change(&sub)
		if _, err := l.trySubmit(sub); longstop.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if claim, err := l.f.Find(sub.Key); err != nil || claim.Found {
			t.Errorf("%s: the key has %+v, %v", name, claim, err)
		}
	}
	sub := l.script("echo ran >> ran")
	if _, err := l.f.Void(sub.Key, "given up"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.trySubmit(sub); longstop.CodeOf(err) != longstop.CodeKeyVoid {
		t.Errorf("a void key: %v", err)
	}
	if len(l.lines("ran")) != 0 {
		t.Error("something ran")
	}
}

func TestStrictShell(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("false | true; echo went on")
	sub.Request.StrictShell = true
	_, err := l.trySubmit(sub)
	if !shellHasPipefail() {
		if longstop.CodeOf(err) != longstop.CodeUnsupported {
			t.Errorf("dash has no pipefail: %v", err)
		}
		return
	}
	if rec := l.final(sub.RunID); err != nil || !exited(rec, 1) || l.stdout(sub.RunID) != "" {
		t.Errorf("%v, %s", err, show(rec))
	}
}

// The keeper is there while a run or a visitor is, and no longer; who comes as it goes finds another.
func TestKeeperGoesAndComes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.argv("true")
	l.submit(sub)
	first := l.mustKeeper()
	l.final(sub.RunID)
	eventually(t, "the keeper goes", func() bool { return !boundary.Is(first) })
	sub = l.script("exit 3")
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 3) {
		t.Error(show(rec))
	}
	if second := l.mustKeeper(); second == first {
		t.Error("it is the same keeper")
	}
	if err := EnsureKeeper(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	held := l.mustKeeper()
	time.Sleep(keeperLingers + 500*time.Millisecond)
	if !boundary.Is(held) {
		t.Error("it went though it was held")
	}
}

func TestManyStartAKeeperAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var subs []wire.Submit
	for range 12 {
		subs = append(subs, l.script("echo ran >> ran"))
	}
	done := make(chan error, len(subs))
	for _, sub := range subs {
		go func() {
			f, err := record.Open(l.f.Dir())
			if err == nil {
				_, err = Submit(context.Background(), f, sub)
			}
			done <- err
		}()
	}
	for range subs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, sub := range subs {
		if rec := l.final(sub.RunID); !exited(rec, 0) {
			t.Error(show(rec))
		}
	}
	if n := len(l.lines("ran")); n != len(subs) {
		t.Errorf("%d of %d ran", n, len(subs))
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Script: "ulimit -Sn; ulimit -Hn; ulimit -f; head -c 9000 /dev/zero > big", Limits: &longstop.Limits{OpenFiles: 77, FileBytes: 8192}})
	l.submit(sub)
	rec := l.final(sub.RunID)
	if got := l.stdout(sub.RunID); !strings.HasPrefix(got, "77\n77\n16\n") {
		t.Errorf("%q, %s", got, show(rec))
	}
	if rec.Result == nil || rec.Result.ExitCode == nil || *rec.Result.ExitCode == 0 {
		t.Errorf("the limit on files did not bind: %s", show(rec))
	}
}

// C095: a limit on CPU time names itself as what the work died of.
func TestC095CPULimitIsNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.request(longstop.Request{Script: "ulimit -t; while :; do :; done", Limits: &longstop.Limits{CPUS: 1}})
	if _, err := l.trySubmit(sub); err != nil {
		t.Fatal(err)
	}
	if rec := l.final(sub.RunID); rec.Result == nil || rec.Result.Signal != "XCPU" || l.stdout(sub.RunID) != "1\n" {
		t.Errorf("%s", show(rec))
	}
}
