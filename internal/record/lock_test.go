package record

import (
	"bufio"
	"errors"
	"os"
	"testing"
)

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := claimed(t, f, "k")
	if held, err := run.Locked(); held || err != nil {
		t.Errorf("held %v, %v before anyone locked it", held, err)
	}
	_, err := run.Lock()
	must(t, err)
	other, err := f.Run(run.ID())
	must(t, err)
	defer other.Close()
	if _, err := other.Lock(); err != ErrHeld {
		t.Errorf("a second lock: %v, want ErrHeld", err)
	}
	if held, err := other.Locked(); !held || err != nil {
		t.Errorf("held %v, %v while it is", held, err)
	}
	// Looking at a lock, or opening and closing its file, lets go of nothing.
	if held, err := run.Locked(); !held || err != nil {
		t.Errorf("held %v, %v as its holder sees it", held, err)
	}
	run.Close()
	if _, err := other.Lock(); err != nil {
		t.Errorf("after the holder let go: %v", err)
	}
}

// C133: the lock of a dead process is free, with nothing to clean up.
func TestC133DeathLetsGo(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := claimed(t, f, "k")
	cmd := helper(t, "hold", f.Dir(), string(run.ID()))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the helper said %q", line)
	}
	if _, err := run.Lock(); err != ErrHeld {
		t.Errorf("lock: %v, want ErrHeld", err)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	if _, err := run.Lock(); err != nil {
		t.Errorf("lock after the holder's death: %v", err)
	}
}

// C134: a lock whose file was removed excludes nobody, and its holder can tell.
func TestC134TheLockedFileIsTheNamedOne(t *testing.T) {
	t.Parallel()
	f := folder(t)
	lock, err := f.Lock("keeper.lock")
	must(t, err)
	defer lock.Unlock()
	if !lock.Holds() {
		t.Error("the lock does not hold")
	}
	if _, err := f.Lock("keeper.lock"); err != ErrHeld {
		t.Errorf("a second lock: %v", err)
	}
	must(t, os.Remove(f.Path("keeper.lock")))
	if lock.Holds() {
		t.Error("the lock holds though its file is gone")
	}
	second, err := f.Lock("keeper.lock")
	must(t, err)
	defer second.Unlock()
	if !second.Holds() || lock.Holds() {
		t.Error("the lock is not on the file that has the name")
	}
	// A run's record file is the lock's: without it there is no run to be locked.
	run := locked(t, f, "k")
	must(t, os.Remove(f.Path("claims", string(run.ID()))))
	if _, err := f.Run(run.ID()); !errors.Is(err, ErrNoRun) {
		t.Errorf("run: %v", err)
	}
}
