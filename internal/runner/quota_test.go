package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// newLabUnderQuota is newLab with its state folder in a subvolume that may take so many MiB.
func newLabUnderQuota(t *testing.T, mib string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	top := t.TempDir()
	run := func(words ...string) string {
		t.Helper()
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Skipf("skipped: no quota can be made here: %q: %v\n%s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("truncate", "-s", "256M", image)
	run("mkfs.btrfs", "-q", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() }) // when its last user has gone
	if err := unix.Mount(device, top, "btrfs", 0, ""); err != nil {
		t.Skipf("skipped: no btrfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	run("btrfs", "quota", "enable", top)
	run("btrfs", "subvolume", "create", top+"/limited")
	run("btrfs", "qgroup", "limit", mib+"M", top+"/limited")
	return newLabFrom(t, device, "btrfs", "subvol=limited")
}

// C121: a quota that is used up loses output, and says so, but no result; what is new is refused.
func TestC121AQuotaLosesNoResult(t *testing.T) {
	t.Parallel()
	l := newLabUnderQuota(t, "8")
	s := &site{lab: l, id: identityOf(l.f)}
	s.runner, _ = shipped()
	var hello wire.HelloAnswer
	s.must(wire.VerbHello, wire.HelloRequest{}, &hello)
	if notes := strings.Join(hello.Notes, "\n"); hello.StateFS != "btrfs" || !strings.Contains(notes, "is on btrfs, which keeps no room") {
		t.Errorf("hello says of %s: %s", hello.StateFS, notes)
	}
	before := l.script(waitForGo + "echo late; exit 6")
	l.submit(before)
	l.has("up", 1)

	much := l.script("head -c 30000000 /dev/zero; exit 5")
	l.submit(much)
	rec := l.told(much.RunID)
	if out := rec.Output; !exited(rec, 5) || out.StdoutBytes != 30000000 || out.DroppedBytes == 0 || out.DropReason != "EDQUOT" {
		t.Errorf("%s", show(rec))
	}

	// What is left of it, for whoever would write there.
	for n, failed := 0, error(nil); failed == nil && n < 1000; n++ {
		failed = os.WriteFile(l.f.Path("fill"+itoa(n)), make([]byte, 64<<10), 0600)
	}
	l.touch("go")
	rec = l.told(before.RunID)
	if !exited(rec, 6) {
		t.Errorf("%s", show(rec))
	}
	t.Logf("the quota used up: %s", show(rec))
	if _, err := l.trySubmit(l.script("touch ran")); longstop.CodeOf(err) != longstop.CodeStateFolder || !strings.Contains(err.Error(), "quota") || l.exists("ran") {
		t.Errorf("a new run: %v", err)
	}

	s.must(wire.VerbHello, wire.HelloRequest{}, &hello)
	if notes := strings.Join(hello.Notes, "\n"); !strings.Contains(notes, "no run can be started: ") || !strings.Contains(notes, "quota are used up") {
		t.Errorf("hello says: %s", notes)
	}
	fills, _ := filepath.Glob(l.f.Path("fill*"))
	for _, name := range fills {
		os.Remove(name)
	}
	os.Remove(l.f.Path("runs", string(much.RunID), "stdout"))
	for _, sub := range []wire.Submit{before, much} {
		if kept := l.final(sub.RunID); kept.Result == nil {
			t.Errorf("on the disk: %s", show(kept))
		}
	}
	again := l.script("exit 3")
	eventually(t, "room for a new run", func() bool { _, err := l.trySubmit(again); return err == nil })
	if rec := l.final(again.RunID); !exited(rec, 3) {
		t.Errorf("%s", show(rec))
	}
}

// told is how a run ended as whoever answers for it tells, whether or not a disk took that.
func (l *lab) told(id longstop.RunID) longstop.Record {
	l.t.Helper()
	s := &site{lab: l, id: identityOf(l.f)}
	s.runner, _ = shipped()
	var rec longstop.Record
	eventually(l.t, "its end to be told", func() bool {
		var answer wire.StatusAnswer
		s.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{id}}, &answer)
		if len(answer.Runs) != 1 || answer.Runs[0].Error != nil {
			l.t.Fatalf("%+v", answer)
		}
		rec = l.verify(id, answer.Runs[0].Record)
		return rec.State.Final()
	}, func() string { return show(rec) })
	return rec
}
