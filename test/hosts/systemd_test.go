//go:build hosts

package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/systemd"
	"github.com/longstop/longstop/test/rig"
)

// The tests of internal/systemd run on hosts, as root with the system's manager and as a plain user
// with the user's: the binary is built here and put there. It is also a program that starts and reads
// units by that package, for what must be seen from outside: logins that end, hosts that go down.

const liveTests = "/var/tmp/systemd.test"

var buildLive = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "longstop-systemd-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "systemd.test")
	build := exec.Command("go", "test", "-c", "-tags", "hosts", "-o", path, "../../internal/systemd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// withLive puts the binary on a host.
func withLive(t *testing.T, h *rig.Host) *rig.Host {
	t.Helper()
	binary, err := buildLive()
	if err != nil {
		t.Fatal(err)
	}
	h.WriteFile(t, liveTests, 0o755, binary)
	return h
}

// tell has the account do something by internal/systemd in a login of its own, over when it returns.
// env is like "A=1 B=2".
func tell(t *testing.T, h *rig.Host, account, env, deed string) (stdout, stderr string) {
	t.Helper()
	verb, args, _ := strings.Cut(deed, " ")
	out, _, errs, err := h.SSH(t.Context(), account, "cd /; "+env+" LONGSTOP_DO="+verb+" "+liveTests+" -- "+args)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s%s", account, deed, err, out, errs)
	}
	return out, errs
}

// unit reads what a deed says of a unit.
func unit(t *testing.T, stdout, stderr string) (u longstop.Unit) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &u); err != nil {
		t.Fatalf("%v: %q %s", err, stdout, stderr)
	}
	return u
}

func look(t *testing.T, h *rig.Host, account string) (s systemd.Survey) {
	t.Helper()
	stdout, stderr := tell(t, h, account, "", "look "+account)
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatalf("%v: %q %s", err, stdout, stderr)
	}
	return s
}

type surveyed struct{ systemd.Survey }

func (s surveyed) String() string { return pretty(s.Survey) }

func lives(t *testing.T, h *rig.Host, u longstop.Unit) bool {
	t.Helper()
	return u.MainPID > 0 && h.Exists(t, fmt.Sprintf("/proc/%d", u.MainPID))
}

// loggedOut waits until logind has seen the end of an account's sessions.
func loggedOut(t *testing.T, h *rig.Host, account string) {
	t.Helper()
	eventually(t, 20*time.Second, account+" logged out", func() bool {
		sessions := h.Sh(t, "loginctl --no-legend list-sessions")
		for line := range strings.Lines(sessions) {
			if f := strings.Fields(line); len(f) > 2 && f[2] == account {
				return false
			}
		}
		return true
	})
}

func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	h := withLive(t, rig.Up(t, "h1"))
	h.Exec(t, "loginctl", "enable-linger", "other")
	t.Cleanup(func() { h.Try(context.Background(), "loginctl", "disable-linger", "other") })
	for _, c := range []struct{ name, account, env string }{
		{"system", "root", "LONGSTOP_LIVE=system"},
		{"user", "deploy", "LONGSTOP_LIVE=user"},
		{"lingering user without environment", "other", "env -i PATH=$PATH LONGSTOP_LIVE=user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status, errs, err := h.SSH(t.Context(), c.account, "cd /; "+c.env+" "+liveTests+" -test.v -test.timeout 55s -test.run Live")
			if err != nil || status != 0 || strings.Contains(out, "--- SKIP") {
				t.Errorf("exit %d, %v\n%s%s", status, err, out, errs)
			}
		})
	}
}

// Where logind kills what a login leaves, a unit of the system's manager and of a lingering user's
// stay; one of a user who does not linger goes with the last login, as the survey says beforehand.
func TestC058UnitsAndLogout(t *testing.T) {
	t.Parallel()
	h := withLive(t, rig.New(t, rig.KillUserProcesses()))
	h.Exec(t, "loginctl", "enable-linger", "deploy")

	other := look(t, h, "other")
	if o := other.Offers[0]; other.Linger == nil || *other.Linger || other.KillsAtLogout == nil || !*other.KillsAtLogout ||
		!o.Can || o.Outlives || o.Remedy != "loginctl enable-linger other" || other.Boundary(longstop.BoundarySystemd).Can {
		t.Errorf("a user who does not linger: %s", surveyed{other})
	}
	deploy := look(t, h, "deploy")
	if o := deploy.Offers[0]; deploy.Linger == nil || !*deploy.Linger || !*deploy.KillsAtLogout || o.Manager != systemd.User || !o.Outlives || !deploy.Boundary(longstop.BoundarySystemd).Can {
		t.Errorf("a user who lingers: %s", surveyed{deploy})
	}
	root := look(t, h, "root")
	if o := root.Offers[0]; root.KillsAtLogout == nil || *root.KillsAtLogout || o.Manager != systemd.System || !o.Outlives || !root.Boundary(longstop.BoundarySystemd).Can {
		t.Errorf("root, whom logind spares: %s", surveyed{root})
	}

	start := func(account string, manager systemd.Kind) longstop.Unit {
		stdout, stderr := tell(t, h, account, "", fmt.Sprintf("start %s %s /bin/sleep 600", manager, systemd.ServiceName(longstop.NewRunID())))
		u := unit(t, stdout, stderr)
		if u.ActiveState != "active" || !lives(t, h, u) {
			t.Fatalf("%s: %+v", account, u)
		}
		return u
	}
	dies, lingers, stays := start("other", systemd.User), start("deploy", systemd.User), start("root", systemd.System)
	left, _, _, err := h.SSH(t.Context(), "deploy", "setsid nohup sleep 601 >/dev/null 2>&1 & echo $!")
	if err != nil {
		t.Fatal(err)
	}
	loggedOut(t, h, "other")
	loggedOut(t, h, "deploy")
	eventually(t, 30*time.Second, "the end of the unit of a user who is gone", func() bool { return !lives(t, h, dies) })
	eventually(t, 30*time.Second, "the end of what a lingering user left in the session", func() bool { return !h.Exists(t, "/proc/"+strings.TrimSpace(left)) })
	if !lives(t, h, lingers) || !lives(t, h, stays) {
		t.Error("a unit that was to stay is gone")
	}
	stdout, stderr := tell(t, h, "other", "", "read user "+dies.Name)
	if stdout != "" || !strings.Contains(stderr, systemd.ErrNoUnit.Error()) {
		t.Errorf("a unit whose manager is gone: %q, %q", stdout, stderr)
	}
	stdout, stderr = tell(t, h, "deploy", "", "read user "+lingers.Name)
	if u := unit(t, stdout, stderr); u.InvocationID != lingers.InvocationID || u.ActiveState != "active" {
		t.Errorf("a unit of a lingering user, seen from another login: %+v", u)
	}
}

// A user's manager that is killed takes its units along; who followed them is told that nobody knows.
func TestC059UserManagerKilled(t *testing.T) {
	t.Parallel()
	h := withLive(t, rig.New(t))
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	stdout, stderr := tell(t, h, "deploy", "", "start user longstop-killed.service /bin/sleep 600")
	u := unit(t, stdout, stderr)
	following := make(chan [2]string, 1)
	go func() {
		out, _, errs, _ := h.SSH(t.Context(), "deploy", "LONGSTOP_DO=await "+liveTests+" -- user "+u.Name)
		following <- [2]string{out, errs}
	}()
	eventually(t, 20*time.Second, "the follower", func() bool {
		_, err := h.Try(t.Context(), "pgrep", "-f", "systemd.test -- user "+u.Name)
		return err == nil
	})
	h.Sh(t, "systemctl kill -s KILL user@$(id -u deploy).service")
	said := <-following
	t.Log(said[1])
	got := unit(t, said[0], said[1])
	if got.InvocationID != u.InvocationID || got.Ended() || got.MainStatus != nil {
		t.Errorf("an end that nobody saw: %+v", got)
	}
	switch { // a new manager knows nothing of it; or none has come
	case got.Forgotten && strings.Contains(said[1], systemd.ErrNoUnit.Error()):
	case !got.Forgotten && strings.Contains(said[1], systemd.ErrNoManager.Error()):
	default:
		t.Errorf("forgotten %v: %s", got.Forgotten, said[1])
	}
}

// What TERM means to a unit's main process: its unit is being stopped, the host goes down, or somebody
// sent it.
func TestSystemdSaysWhyItStops(t *testing.T) {
	t.Parallel()
	h := withLive(t, rig.New(t))
	h.Exec(t, "loginctl", "enable-linger", "deploy")
	witness := func(account string, manager systemd.Kind, name string) longstop.Unit {
		stdout, stderr := tell(t, h, account, "NOTIFY=1 LONGSTOP_DO=start", "start "+string(manager)+" "+name+" "+
			fmt.Sprintf("/usr/bin/env LONGSTOP_DO=witness %s -- %s %s /var/tmp/%s.said", liveTests, manager, name, name))
		return unit(t, stdout, stderr)
	}
	said := func(u longstop.Unit) string {
		path := "/var/tmp/" + u.Name + ".said"
		eventually(t, 20*time.Second, path, func() bool { return h.Exists(t, path) })
		return string(h.ReadFile(t, path))
	}
	stopped := witness("root", systemd.System, "longstop-stopped.service")
	h.Exec(t, "systemctl", "stop", stopped.Name)
	if got := said(stopped); got != `"manager false \u003cnil\u003e, unit true \u003cnil\u003e"` {
		t.Errorf("systemctl stop: %s", got)
	}
	termed := witness("deploy", systemd.User, "longstop-termed.service")
	h.Exec(t, "kill", fmt.Sprint(termed.MainPID))
	if got := said(termed); got != `"manager false \u003cnil\u003e, unit false \u003cnil\u003e"` {
		t.Errorf("kill: %s", got)
	}
	h.Exec(t, "shutdown", "-r", "+60")
	if s := look(t, h, "deploy"); s.Shutdown == nil || s.Shutdown.Kind != "reboot" || time.Until(s.Shutdown.At) < 30*time.Minute {
		t.Errorf("a planned shutdown: %s", surveyed{s})
	}
	h.Exec(t, "shutdown", "-c")
	if s := look(t, h, "deploy"); s.Shutdown != nil {
		t.Errorf("a shutdown that was called off: %s", surveyed{s})
	}
	down := []longstop.Unit{witness("root", systemd.System, "longstop-down.service"), witness("deploy", systemd.User, "longstop-down-user.service")}
	h.Reboot(t)
	for _, u := range down {
		if got := said(u); got != `"manager true \u003cnil\u003e, unit true \u003cnil\u003e"` {
			t.Errorf("%s at shutdown: %s", u.Manager, got)
		}
	}
}

// What cannot be had is said, with why and what would help.
func TestSystemdThatIsNotThere(t *testing.T) {
	t.Parallel()
	h := withLive(t, rig.New(t))
	if s := look(t, h, "deploy"); s.Offers[2].Can || !strings.Contains(s.Offers[2].Because, "polkit is not running") || len(s.Unasked) > 0 {
		t.Errorf("a survey starts nothing: %s", surveyed{s})
	}
	stdout, stderr := tell(t, h, "deploy", "", "start system longstop-x.service /bin/true")
	if stdout != "" || !strings.Contains(stderr, "Interactive authentication required") && !strings.Contains(stderr, "Access denied") {
		t.Errorf("polkit let a user: %q %q", stdout, stderr)
	}
	if s := look(t, h, "deploy"); s.Offers[2].Manager != systemd.System || s.Offers[2].Can || !strings.Contains(s.Offers[2].Because, "polkit") {
		t.Errorf("%s", surveyed{s})
	}
	h.WriteFile(t, "/etc/polkit-1/rules.d/50-test.rules", 0o644, []byte(
		`polkit.addRule(function(a, s) { if (a.id == "org.freedesktop.systemd1.manage-units" && s.user == "deploy") return polkit.Result.YES; });`))
	eventually(t, 20*time.Second, "polkit's new rule", func() bool { return look(t, h, "deploy").Offers[0].Manager == systemd.System })
	if o := look(t, h, "deploy").Offers[0]; !o.Can || !o.Outlives {
		t.Errorf("allowed by polkit: %+v", o)
	}
	stdout, stderr = tell(t, h, "deploy", "", "start system longstop-x.service /bin/sleep 600")
	if u := unit(t, stdout, stderr); u.ActiveState != "active" {
		t.Errorf("%+v", u)
	}
	if u := unit(t, h.Exec(t, "env", "LONGSTOP_DO=read", liveTests, "--", "system", "longstop-x.service"), ""); u.ActiveState != "active" {
		t.Errorf("as root sees it: %+v", u)
	}

	nobody := h.Exec(t, "runuser", "-u", "other", "--", "env", "-i", "LONGSTOP_DO=look", liveTests, "--", "other")
	if !strings.Contains(nobody, `"no service manager of other's is running","remedy":"loginctl enable-linger other"`) {
		t.Errorf("no user manager: %s", nobody)
	}
	none := h.Exec(t, "unshare", "-m", "sh", "-c", "mount -t tmpfs none /run && LONGSTOP_DO=look "+liveTests+" -- root")
	if want := `{"offers":[{"manager":"system","unit":"service","can":false,"because":"systemd does not run this host"},{"manager":"user","unit":"scope","can":false,"because":"systemd does not run this host"}]}`; strings.TrimSpace(none) != want {
		t.Errorf("no systemd: %s", none)
	}

	// Without a message bus the managers are spoken to directly; logind and polkit cannot be.
	h.Sh(t, "systemctl stop dbus.socket dbus.service")
	stdout, stderr = h.Exec(t, "env", "LONGSTOP_DO=start", liveTests, "--", "system", "longstop-direct.service", "/bin/sleep", "600"), ""
	if u := unit(t, stdout, stderr); u.ActiveState != "active" || !lives(t, h, u) {
		t.Errorf("without a bus: %+v", u)
	}
	var s systemd.Survey
	if err := json.Unmarshal([]byte(h.Exec(t, "env", "LONGSTOP_DO=look", liveTests, "--", "root")), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Offers) != 1 || !s.Offers[0].Can || s.Linger != nil || s.KillsAtLogout != nil || len(s.Unasked) != 1 {
		t.Errorf("without a bus: %s", surveyed{s})
	}
}
