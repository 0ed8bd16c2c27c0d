package runner

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// State folders on disks that fail, and on those that others have too (cases of kind K12).

// newLabOnExt4 is newLab with its state folder on an ext4 of its own, which fail has turn read-only as a disk with
// an error does.
func newLabOnExt4(t *testing.T) (l *lab, fail func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be made here: %v\n%s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v\n%s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() }) // when its last user has gone
	l = newLabFrom(t, device, "ext4", "errors=remount-ro")
	return l, func() {
		trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
		if err := os.WriteFile(trigger, []byte("a test"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// C122: the disk fails under a run. The work goes on, and how it ended is told to whoever asks while its owner lives,
// with the word that no disk took it; what is new is refused.
func TestC122TheDiskTurnsReadOnly(t *testing.T) {
	t.Parallel()
	l, fail := newLabOnExt4(t)
	s := &site{lab: l, id: identityOf(l.f)}
	s.runner, _ = shipped()
	sub := l.script(waitForGo + "echo late; exit 4")
	l.submit(sub)
	l.has("up", 1)
	fail()
	l.touch("go")
	var rec longstop.Record
	eventually(t, "its end to be told", func() bool {
		var answer wire.StatusAnswer
		s.must(wire.VerbStatus, wire.RunRequest{RunIDs: []longstop.RunID{sub.RunID}}, &answer)
		if len(answer.Runs) != 1 || answer.Runs[0].Error != nil || answer.Runs[0].Orphaned {
			t.Fatalf("%+v", answer)
		}
		rec = l.verify(sub.RunID, answer.Runs[0].Record)
		return rec.State.Final()
	}, func() string { return show(rec) })
	if !exited(rec, 4) || !strings.Contains(strings.Join(rec.Anomalies, " "), "the final record could not be written") {
		t.Errorf("%s", show(rec))
	}
	if kept := l.record(sub.RunID); kept.State != longstop.WorkloadRunning {
		t.Errorf("on the disk: %s", show(kept))
	}
	l.nobody(sub.RunID)
	if _, err := l.trySubmit(l.script("touch ran")); longstop.CodeOf(err) != longstop.CodeStateFolder || l.exists("ran") {
		t.Errorf("a new run on a failed disk: %v", err)
	}
}

// C124: of two machines that share a home, the second is told how to have a folder of its own.
func TestC124HelloToTheFolderOfAnotherMachine(t *testing.T) {
	t.Parallel()
	if boundary.MachineID() == "" {
		t.Skip("this machine has no machine-id")
	}
	s := newSite(t)
	if err := os.WriteFile(s.f.Path("machine"), []byte(strings.Repeat("0", 32)+"\n"), 0600); err != nil {
		t.Fatal(err)
	}
	request := wire.Request{Protocol: wire.Protocol, Nonce: wire.NewNonce(), Verb: wire.VerbHello, StateDir: s.f.Dir(), Body: json.RawMessage(`{"create":true}`)}
	if err := s.call(request, nil); err == nil || err.Code != longstop.CodeHostMismatch || !strings.Contains(err.Hint, "--state-dir") {
		t.Errorf("%v", err)
	}
}
