package runner

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/wire"
)

// anotherBinarys starts a keeper of another binary in the lab's folder: of a copy of this one.
func (l *lab) anotherBinarys() boundary.Identity {
	l.t.Helper()
	copied := filepath.Join(l.t.TempDir(), "longstop-runner")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(copied, self, 0700)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command(copied, "keeper", l.f.Dir())
	cmd.Env, cmd.ExtraFiles = servantEnv("keeper"), []*os.File{write}
	if err := cmd.Run(); err != nil {
		l.t.Fatal(err)
	}
	write.Close()
	if n, _ := io.ReadFull(read, make([]byte, 1)); n != 1 {
		l.t.Fatal("the other keeper did not come up")
	}
	others := otherKeepers(l.f)
	if len(others) != 1 {
		l.t.Fatalf("other keepers: %q", others)
	}
	other, known := listensAt(l.f.FD(), others[0])
	if !known || other.Identity == l.mustKeeper() {
		l.t.Fatalf("the other keeper: %+v", other)
	}
	l.t.Cleanup(func() {
		for _, s := range boundary.Descendants(other.PID) {
			boundary.Signal(s.Identity, unix.SIGKILL)
		}
		boundary.Signal(other.Identity, unix.SIGKILL)
	})
	return other.Identity
}

// Law 2, over an upgrade: of a run whose owner dies the keeper that started it testifies, though another
// binary's sees it end too. That one takes over only where the first is gone, and then cannot know.
func TestLaw2KeepersOfTwoBinaries(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var subs []wire.Submit
	for range 12 {
		sub := l.script("until [ -e go ]; do sleep .01; done; exit 7")
		l.submit(sub)
		subs = append(subs, sub)
	}
	last := l.script("sleep 600")
	l.submit(last)
	keeper := l.mustKeeper()
	other := l.anotherBinarys()
	for _, sub := range subs {
		boundary.Signal(l.mustOwner(sub.RunID), unix.SIGKILL)
	}
	for _, sub := range subs {
		if rec := l.state(sub.RunID, longstop.WorkloadOrphaned); rec.Writer.Kind != longstop.WriterKeeper || rec.Writer.PID != keeper.PID {
			t.Errorf("it is answered for by another: %s", show(rec))
		}
	}
	os.WriteFile(l.path("go"), nil, 0600)
	for _, sub := range subs {
		if rec := l.final(sub.RunID); !exited(rec, 7) || rec.Writer.PID != keeper.PID {
			t.Errorf("%s", show(rec))
		}
	}

	owner := l.mustOwner(last.RunID)
	boundary.Signal(keeper, unix.SIGKILL)
	boundary.Signal(owner, unix.SIGKILL)
	rec := l.state(last.RunID, longstop.WorkloadOrphaned)
	if rec.Writer.Kind != longstop.WriterSuccessor || rec.Writer.PID != other.PID {
		t.Errorf("both gone: %s", show(rec))
	}
	// Whoever asks by way of its own binary reaches the one that has the run.
	if _, rec := l.cancel(last.RunID, 0, 10*time.Second); rec.Writer.PID != other.PID {
		t.Errorf("cancelled: %s", show(rec))
	}
	l.nobody(last.RunID)
}
