package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// Tests that want another place to be in run themselves there, as a child of this process.

const elsewhere = "LONGSTOP_TEST_ELSEWHERE"

// here reports whether this is the child.
func here(t *testing.T) bool { return os.Getenv(elsewhere) == t.Name() }

// inNamespaces runs the calling test in a PID and a mount namespace of its own, under an init that
// reaps. The test does its work where here says so.
func inNamespaces(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces of its own need root")
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "bash", "-c", `"$0" "$@"; exit $?`,
		self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), elsewhere+"="+t.Name())
	runChild(t, cmd)
}

func runChild(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "unshare failed") {
		t.Skipf("no namespaces here: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// takePID starts a program that gets that process number.
func takePID(t *testing.T, pid int, argv ...string) *exec.Cmd {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if cmd.Process.Pid == pid {
			return cmd
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Fatalf("the number %d could not be had again", pid)
	return nil
}

// C034, C040: the recorded number belongs to somebody else by now. He lives; the run is over; asked
// again, the same.
func TestC034C040PIDReuse(t *testing.T) {
	if !here(t) {
		inNamespaces(t)
		return
	}
	l := newLab(t)
	sub := l.argv("sleep", "75")
	main := l.submit(sub).Main
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID))
	unix.Kill(main.PID, unix.SIGKILL)
	eventually(t, "its number is free", func() bool { _, err := boundary.Look(main.PID); return err != nil })
	victim := takePID(t, main.PID, "sleep", "77")
	defer victim.Process.Kill()
	for range 2 {
		answer, rec := l.cancel(sub.RunID, 0, 5*time.Second)
		if rec.State != longstop.WorkloadLost || rec.LostBecause != longstop.OwnerLost || len(answer.Survivors) > 0 {
			t.Errorf("%s", show(rec))
		}
	}
	if s, err := boundary.Look(victim.Process.Pid); err != nil || s.Dead() {
		t.Error("the victim was signalled")
	}
}

// The same while an owner is there: a descendant of the workload's ends, and a stranger has its
// number; and a workload that takes numbers in a hurry.
func TestC034ReuseUnderALivingOwner(t *testing.T) {
	if !here(t) {
		inNamespaces(t)
		return
	}
	l := newLab(t)
	sub := l.script("trap '' TERM; sleep 300 & echo $! > pid; wait; while :; do sleep 0.05; done")
	l.submit(sub)
	pid, _ := strconv.Atoi(l.has("pid", 1)[0])
	unix.Kill(pid, unix.SIGKILL)
	eventually(t, "its number is free", func() bool { _, err := boundary.Look(pid); return err != nil })
	victim := takePID(t, pid, "sleep", "77")
	defer victim.Process.Kill()
	if _, rec := l.cancel(sub.RunID, 100*time.Millisecond, 10*time.Second); !cancelled(rec, longstop.CauseRequest) {
		t.Errorf("%s", show(rec))
	}
	if s, err := boundary.Look(victim.Process.Pid); err != nil || s.Dead() {
		t.Error("the victim was signalled")
	}
}

// otherBoot makes this mount namespace see another boot id.
func otherBoot(t *testing.T) {
	t.Helper()
	id := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(id, []byte("01234567-89ab-4def-8123-456789abcdef\n"), 0444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(id, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no bind mount here: %v", err)
	}
}

// C035, C119: after another boot a run is lost, for certain nothing of it is left, and nobody is
// signalled, whoever has the number now. What never began then is said to have never begun.
func TestC035AnotherBoot(t *testing.T) {
	if !here(t) {
		inNamespaces(t)
		return
	}
	l := newLab(t)
	sub := l.argv("sleep", "75")
	main := l.submit(sub).Main
	l.kill(l.mustKeeper())
	l.kill(l.mustOwner(sub.RunID)) // the work itself goes on: it stands for whoever has the number
	never := l.script("echo ran >> ran")
	l.accept(never)
	otherBoot(t)
	_, rec := l.cancel(sub.RunID, 0, 5*time.Second)
	if rec.State != longstop.WorkloadLost || rec.LostBecause != longstop.Rebooted || !rec.EmptyProven || rec.Result != nil {
		t.Errorf("%s", show(rec))
	}
	if !boundary.Is(boundary.Identity{PID: main.PID, Start: main.StartTime}) {
		t.Error("the process with that number was signalled")
	}
	rec = l.final(never.RunID)
	if rec.State != longstop.WorkloadLaunchFailed || len(l.lines("ran")) != 0 {
		t.Errorf("never begun: %s", show(rec))
	}
	if _, err := l.trySubmit(never); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if len(l.lines("ran")) != 0 {
		t.Error("it began after all")
	}
}

// accept does what a keeper does before it dies between accepting a run and beginning it.
func (l *lab) accept(sub wire.Submit) {
	l.t.Helper()
	run, err := l.f.Build(sub)
	if err != nil {
		l.t.Fatal(err)
	}
	defer run.Close()
	if _, err := l.f.Claim(run, sub.Key); err != nil {
		l.t.Fatal(err)
	}
}

// A run that was accepted and not begun is begun by its own submitter, in time, and by nobody else.
func TestLaw5AcceptedAndNotBegun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sub := l.script("echo ran >> ran; exit 7")
	l.accept(sub)
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	if rec := l.record(sub.RunID); rec.State != "" {
		t.Errorf("%s", show(rec))
	}
	l.submit(sub)
	if rec := l.final(sub.RunID); !exited(rec, 7) || len(l.lines("ran")) != 1 {
		t.Errorf("%s", show(rec))
	}
	// Nobody asks again in time.
	late := l.script("echo ran >> late")
	late.NotAfter = boundary.BootNow().Add(300 * time.Millisecond)
	l.accept(late)
	if err := Heal(context.Background(), l.f); err != nil {
		t.Fatal(err)
	}
	if rec := l.final(late.RunID); rec.State != longstop.WorkloadLaunchFailed || rec.Writer.Kind != longstop.WriterSuccessor || boundary.BootNow() < late.NotAfter {
		t.Errorf("%s", show(rec))
	}
	// It is cancelled before anybody begins it: over at once.
	gone := l.script("echo ran >> late")
	l.accept(gone)
	if _, rec := l.cancel(gone.RunID, 0, 5*time.Second); rec.State != longstop.WorkloadLaunchFailed {
		t.Errorf("%s", show(rec))
	}
	if _, err := l.trySubmit(gone); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if len(l.lines("late")) != 0 {
		t.Error("it began after all")
	}
}

// C037: a record that holds no process's number is damaged: nobody is signalled.
func TestC037GarbageForANumber(t *testing.T) {
	if !here(t) {
		inNamespaces(t) // a wrong answer here kills the caller, or everything
		return
	}
	l := newLab(t)
	for _, pid := range []int{0, -1, 1, 99999999999999999, os.Getpid()} {
		sub := l.argv("sleep", "75")
		rec := l.submit(sub)
		was := *rec.Main
		if k, ok := l.keeper(); ok {
			l.kill(k)
		}
		l.kill(l.mustOwner(sub.RunID))
		unix.Kill(was.PID, unix.SIGKILL)
		rec.Sequence = 1000
		rec.Main.PID, rec.Main.PGID, rec.Main.SID = pid, pid, pid
		l.forge(rec)
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
		answer, err := Cancel(ctx, l.f, wire.CancelRequest{RunID: sub.RunID, WaitMS: 2000})
		stop()
		if pid == os.Getpid() { // a number like any other, but for its start time
			if err != nil || l.verify(sub.RunID, answer.Record).State != longstop.WorkloadLost {
				t.Errorf("%d: %s, %v", pid, answer.Record, err)
			}
		} else if longstop.CodeOf(err) != longstop.CodeUnreadable {
			t.Errorf("%d: %s, %v", pid, answer.Record, err)
		}
	}
}

// asUser runs the named tests as a user without any right.
func asUser(t *testing.T, tests string, beside func(*exec.Cmd)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir, err := os.MkdirTemp("", "longstop-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0777)
	copyFile(t, "/proc/self/exe", filepath.Join(dir, "runner.test"), 0755)
	cmd := exec.Command(filepath.Join(dir, "runner.test"), "-test.run="+tests, "-test.v", "-test.parallel=4")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), elsewhere+"="+t.Name(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	if beside != nil {
		beside(cmd)
	}
	runChild(t, cmd)
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	os.Chmod(to, mode)
}

// A user without rights cannot look into the processes that hold secrets, his own though they are:
// all the rest works for him as for root.
func TestAsAPlainUser(t *testing.T) {
	if os.Getenv(elsewhere) != "" {
		t.Skip("it is there already")
	}
	t.Parallel()
	asUser(t, "^(TestC032.*|TestC092.*|TestWorkload.*|TestCancelReaches.*|TestC013.*|TestLaw2.*|TestLaw3.*|TestLaw6Storm.*|TestLaw10.*|TestTwoOwners.*|TestLeftover.*|TestC010.*|TestOutputIs.*|TestOutputSurvives.*)$", nil)
}

// Secrets are held where a workload of the same user cannot read them.
func TestSecretsCannotBeRead(t *testing.T) {
	if os.Getenv(elsewhere) == "" {
		t.Parallel()
		asUser(t, "^TestSecretsCannotBeRead$", nil)
		return
	}
	l := newLab(t)
	sub := l.script("echo up > up; sleep 60")
	l.submit(sub)
	l.has("up", 1)
	for who, id := range map[string]boundary.Identity{"keeper": l.mustKeeper(), "owner": l.mustOwner(sub.RunID)} {
		for _, name := range []string{"mem", "environ", "fd/3"} {
			if f, err := os.Open(fmt.Sprintf("/proc/%d/%s", id.PID, name)); err == nil {
				f.Close()
				t.Errorf("%s of the %s can be read", name, who)
			}
		}
	}
}

// C019, C038: what may not be signalled keeps the run cancelling, with its name and the reason; once
// it is gone the run is cancelled.
func TestC019C038ForeignSurvivor(t *testing.T) {
	if os.Getenv(elsewhere) == "" {
		t.Parallel()
		asUser(t, "^TestC019C038ForeignSurvivor$", func(cmd *exec.Cmd) {
			setpriv, err := exec.LookPath("setpriv")
			if err != nil {
				t.Skip("no setpriv")
			}
			copyFile(t, setpriv, filepath.Join(cmd.Dir, "become-root"), 0755|os.ModeSetuid)
			go func() { // what only root can do
				for range 1000 {
					time.Sleep(20 * time.Millisecond)
					if data, err := os.ReadFile(filepath.Join(cmd.Dir, "end")); err == nil {
						pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
						if s, err := boundary.Look(pid); err == nil && pid > 1 {
							boundary.Signal(s.Identity, unix.SIGKILL)
							return
						}
					}
				}
			}()
		})
		return
	}
	l := newLab(t)
	home := os.Getenv("HOME")
	sub := l.script(home + "/become-root --reuid=0 --regid=0 --clear-groups sleep 94 & echo up > up; wait")
	l.submit(sub)
	l.has("up", 1)
	eventually(t, "a root process in the run", func() bool { return len(l.foreign(sub.RunID)) == 1 })
	answer, rec := l.cancel(sub.RunID, 200*time.Millisecond, 2*time.Second)
	if rec.State != longstop.WorkloadCancelling || len(answer.Survivors) != 1 {
		t.Fatalf("%s, survivors %+v", show(rec), answer.Survivors)
	}
	p := answer.Survivors[0]
	if p.UID != 0 || !strings.Contains(p.Why, "user 0") || !strings.Contains(p.Command, "sleep 94") {
		t.Errorf("survivor %+v", p)
	}
	if rec := l.until(sub.RunID, "survivors on record", func(r longstop.Record) bool { return len(r.Survivors) == 1 }); rec.Boundary.Empty != nil && *rec.Boundary.Empty {
		t.Errorf("%s", show(rec))
	}
	os.WriteFile(home+"/end", []byte(strconv.Itoa(p.PID)), 0644)
	if rec := l.final(sub.RunID); !cancelled(rec, longstop.CauseRequest) || len(rec.Survivors) > 0 {
		t.Errorf("%s", show(rec))
	}
}

// foreign are the processes of a run that are another user's.
func (l *lab) foreign(id longstop.RunID) []longstop.Process {
	var all []longstop.Process
	for _, s := range boundary.Descendants(l.mustOwner(id).PID) {
		if p := boundary.Describe(s); p.UID != os.Geteuid() && s.Name == "sleep" {
			all = append(all, p)
		}
	}
	return all
}
