package record

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// small mounts a small tmpfs and makes a state folder on it.
func small(t *testing.T, options string) *Folder {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	f, err := Create(dir + "/state")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// fill uses up the file system of a folder: its bytes with one file, or its inodes with many.
func fill(t *testing.T, f *Folder, inodes bool) {
	t.Helper()
	for i := range 1 << 20 {
		file, err := os.OpenFile(fmt.Sprint(f.Dir(), ".fill", i), os.O_WRONLY|os.O_CREATE, 0600)
		for err == nil && !inodes {
			_, err = file.Write(make([]byte, 4096))
		}
		file.Close()
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		must(t, err)
	}
}

// C121, C125: a full disk, or one without inodes, loses no result: the run goes on to its final
// record, the list shows it, and it can be collected. What is new is refused, and says why.
func TestC121AFullDiskLosesNoResult(t *testing.T) {
	t.Parallel()
	for name, inodes := range map[string]bool{"bytes": false, "inodes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := "size=2m"
			if inodes {
				options = "nr_inodes=100"
			}
			f := small(t, options)
			run := locked(t, f, "k")
			_, err := run.Write(&longstop.Record{State: longstop.WorkloadStarting}, []byte("secret"), true)
			must(t, err)
			for i := range 8 { // what goes with the run makes room for another
				must(t, os.WriteFile(run.Path(fmt.Sprint("file", i)), make([]byte, 100<<10), 0600))
			}
			fill(t, f, inodes)
			for range 4 {
				_, err = run.Write(&longstop.Record{State: longstop.WorkloadRunning, Main: main24182()}, []byte("secret"), true)
				must(t, err)
			}
			checkFull(t, f)
			if !f.Short() {
				t.Error("it is not short of room")
			}
			finish(t, run)
			if rec := readAs(t, f, run.ID(), []byte("secret")); rec.State != longstop.WorkloadFinished {
				t.Errorf("the final record: %+v", rec)
			}
			if ids, _ := all(t, f, "0.", 0); len(ids) != 1 || ids[0] != run.ID() {
				t.Errorf("the list: %v", ids)
			}
			if ids, _ := f.Unresolved(); len(ids) != 0 {
				t.Errorf("unresolved: %v", ids)
			}
			must(t, run.Collect())
			again, err := open(f.Dir(), "another boot")
			must(t, err)
			defer again.Close()
			if rec := readAs(t, again, run.ID(), []byte("secret")); rec.State != longstop.WorkloadFinished {
				t.Errorf("after a boot: %+v", rec)
			}
			checkFreed(t, again, run.ID(), inodes)
		})
	}
}

// checkFull checks that nothing new begins on a full disk, and that nothing of it is left.
func checkFull(t *testing.T, f *Folder) {
	t.Helper()
	if run, err := f.Build(submission("new")); longstop.CodeOf(err) != longstop.CodeStateFolder || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("build: %v, %v", run, err)
	}
	if claim, err := f.Find("new"); err != nil || claim.Found {
		t.Errorf("find: %+v, %v", claim, err)
	}
	if runs, _ := names(f.runs); len(runs) != 1 {
		t.Errorf("runs: %v", runs)
	}
	if claim, err := f.Void("new", ""); longstop.CodeOf(err) != longstop.CodeStateFolder {
		t.Errorf("void: %+v, %v", claim, err)
	}
}

// checkFreed removes a run on a full disk, after which there is room for another.
func checkFreed(t *testing.T, f *Folder, id longstop.RunID, inodes bool) {
	t.Helper()
	gone, _, err := f.GC(Retention{Runs: []longstop.RunID{id}, Now: time.Now()})
	if err != nil || len(gone) != 1 {
		t.Fatalf("gc: %v, %v", gone, err)
	}
	if rec := readAs(t, f, id, []byte("secret")); rec.State != longstop.WorkloadFinished {
		t.Errorf("the tombstone: %+v", rec)
	}
	if f.Short() != inodes { // a hundred inodes are few
		t.Errorf("short of room: %v", f.Short())
	}
	run, err := f.Build(submission("another"))
	must(t, err)
	run.Close()
}

// C125: many short runs on a file system with few inodes go on for as long as they are collected and
// removed, and none that was collected stands in the way.
func TestC125RunsThatWentLeaveTheirInodes(t *testing.T) {
	t.Parallel()
	f := small(t, "nr_inodes=60")
	var done []longstop.RunID
	for i := range 12 {
		run := locked(t, f, fmt.Sprint("k", i))
		finish(t, run)
		must(t, run.Collect())
		done = append(done, run.ID())
		run.Close()
		gone, _, err := f.GC(Retention{Runs: done[i:], Now: time.Now()})
		if err != nil || len(gone) != 1 {
			t.Fatalf("gc: %v, %v", gone, err)
		}
	}
	for i, id := range done {
		if claim, err := f.Find(fmt.Sprint("k", i)); err != nil || !claim.Expired || claim.RunID != id {
			t.Errorf("key %d: %+v, %v", i, claim, err)
		}
	}
}

// C122: a read-only file system is named as one.
func TestC122AReadOnlyFileSystemIsNamed(t *testing.T) {
	t.Parallel()
	f := small(t, "size=1m")
	done := claimed(t, f, "old")
	parent := f.Dir()[:len(f.Dir())-len("/state")]
	if err := unix.Mount("", parent, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot remount read-only here: %v", err)
	}
	if _, err := f.Build(submission("k")); longstop.CodeOf(err) != longstop.CodeStateFolder || !errors.Is(err, unix.EROFS) {
		t.Errorf("build: %v", err)
	}
	if _, err := Create(parent + "/other"); longstop.CodeOf(err) != longstop.CodeStateFolder || !errors.Is(err, unix.EROFS) {
		t.Errorf("create: %v", err)
	}
	again, err := open(f.Dir(), "another boot")
	must(t, err)
	defer again.Close()
	if _, _, err := done.Read(); err != ErrNoRecord {
		t.Errorf("read: %v", err)
	}
}
