//go:build hosts

package rig

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func bootID(t *testing.T, h *Host) string {
	t.Helper()
	return h.Exec(t, "cat", "/proc/sys/kernel/random/boot_id")
}

func TestHostIsSystemdAndSSHD(t *testing.T) {
	h := Up(t, "h1")
	if got := strings.TrimSpace(h.Exec(t, "cat", "/proc/1/comm")); got != "systemd" {
		t.Errorf("PID 1 is %q", got)
	}
	out, status, stderr, err := h.SSH(t.Context(), "", "id -un; exit 7")
	if err != nil || status != 7 || out != "deploy\n" {
		t.Errorf("ssh: %q, status %d, %q, %v", out, status, stderr, err)
	}
	if Up(t, "h1") != h {
		t.Error("a second Up of one name made another host")
	}
	if routes := h.Exec(t, "ip", "route"); strings.Contains(routes, "default") {
		t.Errorf("the host has a way out:\n%s", routes)
	}
}

func TestAccounts(t *testing.T) {
	h := Up(t, "h1")
	for account, want := range map[string]struct {
		stdout string
		status int
	}{
		"root": {"root\n", 0}, "other": {"other\n", 0}, "zsh": {"zsh\n", 0}, "fish": {"fish\n", 0}, "tcsh": {"tcsh\n", 0},
		"ash": {"ash\n", 0}, "rbash": {"rbash\n", 0}, "noisy": {"welcome to h1\nnoisy\n", 0},
		"leaving": {"go away\n", 3}, "forced": {"only this\n", 0}, "nologin": {"This account is currently not available.\n", 1},
	} {
		out, status, stderr, err := h.SSH(t.Context(), account, "id -un")
		if err != nil || out != want.stdout || status != want.status {
			t.Errorf("%s: %q, status %d, %q, %v; want %q, status %d", account, out, status, stderr, err, want.stdout, want.status)
		}
	}
}

// A marker that traps TERM says which way the host went: an orderly reboot sends it, a crash does not.
const marker = `setsid bash -c 'trap "" HUP; trap "echo TERM >~/signals; exit" TERM; echo >~/ready; while :; do sleep 0.1; done' >/dev/null 2>&1 </dev/null &`

func startMarker(t *testing.T, h *Host) {
	t.Helper()
	h.Exec(t, "rm", "-f", "/home/deploy/signals", "/home/deploy/ready")
	if _, status, stderr, err := h.SSH(t.Context(), "", marker); err != nil || status != 0 {
		t.Fatalf("ssh: %d %q %v", status, stderr, err)
	}
	for deadline := time.Now().Add(10 * time.Second); !h.Exists(t, "/home/deploy/ready"); {
		if time.Now().After(deadline) {
			t.Fatal("the marker did not start")
		}
	}
}

func TestRebootIsOrderly(t *testing.T) {
	h := Up(t, "h1")
	before, machineID := bootID(t, h), h.Exec(t, "cat", "/etc/machine-id")
	startMarker(t, h)
	h.Reboot(t)
	if bootID(t, h) == before {
		t.Error("the boot id stayed")
	}
	if h.Exec(t, "cat", "/etc/machine-id") != machineID {
		t.Error("the machine id changed")
	}
	if got := string(h.ReadFile(t, "/home/deploy/signals")); got != "TERM\n" {
		t.Errorf("signals: %q", got)
	}
}

func TestCrashIsNot(t *testing.T) {
	h := Up(t, "h1")
	before := bootID(t, h)
	startMarker(t, h)
	h.WriteFile(t, "/tmp/gone", 0o644, nil)
	h.Crash(t)
	if bootID(t, h) == before {
		t.Error("the boot id stayed")
	}
	if h.Exists(t, "/home/deploy/signals") || h.Exists(t, "/tmp/gone") {
		t.Error("a process was told, or /tmp was kept")
	}
	if !h.Exists(t, "/home/deploy/ready") {
		t.Error("a file on disk is gone")
	}
}

func TestCutAndHeal(t *testing.T) {
	h := Up(t, "h1")
	h.Cut(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, status, _, err := h.SSH(ctx, "", "true"); err == nil && status == 0 {
		t.Error("ssh works over a cut link")
	}
	if got := h.Exec(t, "echo", "inside"); got != "inside\n" {
		t.Errorf("exec: %q", got)
	}
	h.Heal(t)
	if _, status, stderr, err := h.SSH(t.Context(), "", "true"); err != nil || status != 0 {
		t.Errorf("ssh after heal: %d %q %v", status, stderr, err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	h := Up(t, "h1")
	h.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, status, _, err := h.SSH(ctx, "", "true"); err == nil && status == 0 {
		t.Error("ssh works on a frozen host")
	}
	h.Thaw(t)
	if _, status, stderr, err := h.SSH(t.Context(), "", "true"); err != nil || status != 0 {
		t.Errorf("ssh after thaw: %d %q %v", status, stderr, err)
	}
}

// TestHostsComeAndGo: what is said to a host goes on while others join the bridge, whatever their addresses.
func TestHostsComeAndGo(t *testing.T) {
	bridge := "lsr" + strings.Split(Up(t, "h1").Addr, ".")[2]
	address := func() string {
		content, err := os.ReadFile("/sys/class/net/" + bridge + "/address")
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	before, other := address(), bridge+"low"
	t.Cleanup(func() { exec.Command("ip", "link", "del", other).Run() })
	if out, err := exec.Command("sh", "-c", "ip link add "+other+" address 02:00:00:00:00:01 type veth peer name "+other+"2 && ip link set "+other+" master "+bridge).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := address(); after != before {
		t.Errorf("every host on %s talks to %swhich was its address until one with a lower came: %s", bridge, before, after)
	}
}

func TestOffAndOn(t *testing.T) {
	h := Up(t, "h1")
	h.Off(t)
	if _, err := h.Try(t.Context(), "true"); err == nil {
		t.Error("exec works on a host that is off")
	}
	h.On(t)
	h.Exec(t, "true")
}

func TestOptions(t *testing.T) {
	h := Up(t, "h2", MaxSessions(1), KillUserProcesses(), SmallDisk("1m", 40))
	if got := h.Sh(t, "sshd -T 2>/dev/null | grep maxsessions"); got != "maxsessions 1\n" {
		t.Errorf("sshd: %q", got)
	}
	if got := h.Sh(t, "df -k --output=size,itotal /srv/small | tail -1"); strings.Join(strings.Fields(got), " ") != "1024 40" {
		t.Errorf("small disk: %q", got)
	}
	h.Exec(t, "touch", "/srv/small/kept")
	h.SSH(t.Context(), "", "setsid sleep 4242 >/dev/null 2>&1 </dev/null &")
	for deadline := time.Now().Add(20 * time.Second); ; {
		if _, err := h.Try(t.Context(), "pgrep", "-f", "sleep 4242"); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("KillUserProcesses left a process alive")
		}
	}
	h.Crash(t)
	if !h.Exists(t, "/srv/small/kept") {
		t.Error("the small disk lost its files")
	}
	h.Down(t)
	again := Up(t, "h2")
	if again.Exists(t, "/srv/small/kept") {
		t.Error("a host that was taken down came back with its files")
	}
}

// TestSecondRig has another rig beside this one, whose owner dies without a word: the next rig to
// come up takes it down.
func TestSecondRig(t *testing.T) {
	h := Up(t, "h1")
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("/var/tmp/longstop-rig", filepath.Base(t.TempDir())+"-second")
	second := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(machine.dir, "rig"), args...)
		cmd.Env = append(os.Environ(), "RIG_DIR="+dir, "RIG_OWNER="+strconv.Itoa(sleeper.Process.Pid))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := second("up", "h1"); err != nil {
		t.Fatalf("second rig: %v\n%s", err, out)
	}
	out, _ := second("list")
	fields := strings.Fields(out)
	if len(fields) != 3 || fields[1] == h.Addr || fields[2] != "up" {
		t.Errorf("second rig: %q beside %s", out, h.Addr)
	}
	bridge := strings.Split(fields[1], ".")[2]
	sleeper.Process.Kill()
	sleeper.Wait()
	if out, err := run(t.Context(), "up", "h1"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if err := exec.Command("ip", "link", "show", "lsr"+bridge).Run(); err == nil {
		t.Errorf("bridge lsr%s is still there", bridge)
	}
	h.Exec(t, "true")
}
