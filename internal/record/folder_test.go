package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

func TestCreateAndOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/a/b/state"
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open before create: %v, want fs.ErrNotExist", err)
	}
	f, err := Create(dir)
	must(t, err)
	defer f.Close()
	again, err := Create(dir)
	must(t, err)
	defer again.Close()
	if f.StateID() != again.StateID() || len(f.StateID()) != 32 {
		t.Errorf("ids %q and %q of one folder", f.StateID(), again.StateID())
	}
	other := folder(t)
	if other.StateID() == f.StateID() {
		t.Error("two folders have one id")
	}
	must(t, f.Check())
	must(t, os.Rename(dir, dir+".moved"))
	if err := f.Check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check of a folder that was moved: %v", err)
	}
	_, err = Create(dir)
	must(t, err)
	if err := f.Check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check of a folder that was replaced: %v", err)
	}
}

func TestManyCreateOneFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/state"
	ids := make(chan string, 16)
	for range cap(ids) {
		go func() {
			f, err := Create(dir)
			if err != nil {
				ids <- err.Error()
				return
			}
			defer f.Close()
			ids <- f.StateID()
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("ids %s and %s", first, id)
		}
	}
}

// C124: two machines that share a home never touch each other's runs, whatever locks its file system has: the
// folder is of the one that made it, and the other is told how to have its own.
func TestC124TheFolderOfAnotherMachine(t *testing.T) {
	t.Parallel()
	if longstop.MachineID(os.ReadFile) == "" {
		t.Skip("this machine has no machine-id")
	}
	f := folder(t)
	run := locked(t, f, "k")
	index, err := names(f.unresolved)
	must(t, err)
	must(t, os.WriteFile(f.Path("machine"), []byte("0123456789abcdef0123456789abcdef\n"), 0600))
	for name, open := range map[string]func(string) (*Folder, error){"open": Open, "create": Create,
		"open in another boot": func(dir string) (*Folder, error) { return open(dir, "another boot") }} {
		_, err := open(f.Dir())
		var e *longstop.Error
		if !errors.As(err, &e) || e.Code != longstop.CodeHostMismatch || !strings.Contains(e.Message, "0123456789abcdef") || !strings.Contains(e.Hint, "--state-dir") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, _ := names(f.unresolved); len(after) != len(index) || !exists(f.claims, string(run.ID())) {
		t.Errorf("it was changed: %v, %v", index, after)
	}
	for _, none := range []string{"", "uninitialized\n", "\x00\x00"} { // a first boot's, or what a power failure left
		must(t, os.WriteFile(f.Path("machine"), []byte(none), 0600))
		again, err := Open(f.Dir())
		if err != nil {
			t.Fatalf("with %q for a machine: %v", none, err)
		}
		again.Close()
	}
	must(t, os.Remove(f.Path("machine"))) // one made before there was that file
	again, err := Create(f.Dir())
	must(t, err)
	again.Close()
	if id, err := os.ReadFile(f.Path("machine")); err != nil || string(id) != longstop.MachineID(os.ReadFile)+"\n" {
		t.Errorf("%q, %v", id, err)
	}
}

// C124: a file system without usable locks is named as one.
func TestC124NoLocks(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.ENOLCK, unix.EBADF, unix.EOPNOTSUPP} {
		err := noLock("/home/a/state/keeper.lock", errno)
		if longstop.CodeOf(err) != longstop.CodeStateFolder || !errors.Is(err, errno) || !strings.Contains(err.Error(), "no usable locks") {
			t.Errorf("%v", err)
		}
	}
	// What is locked is open for writing, as NFS wants it.
	f := folder(t)
	lock, err := f.Lock("keeper.lock")
	must(t, err)
	defer lock.Unlock()
	if flags, err := unix.FcntlInt(lock.File().Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		t.Errorf("opened with %#x, %v", flags, err)
	}
}

// wrongFolders are state folders in which something is wrong, and what is said of each.
var wrongFolders = []struct {
	name, says, hint string
	make             func(t *testing.T, dir string) (path string)
}{
	{"open to the group", "has mode 0750, not 0700", "chmod 0700 ", func(t *testing.T, dir string) string {
		must(t, os.Chmod(dir, 0750))
		return dir
	}},
	{"open to all, sticky", "has mode 01777, not 0700", "chmod 0700 ", func(t *testing.T, dir string) string {
		must(t, unix.Chmod(dir, 01777))
		return dir
	}},
	{"not writable", "has mode 0500, not 0700", "chmod 0700 ", func(t *testing.T, dir string) string {
		must(t, os.Chmod(dir, 0500))
		return dir
	}},
	{"a link", "is a symbolic link", "--state-dir", func(t *testing.T, dir string) string {
		must(t, os.Rename(dir, dir+".real"))
		must(t, os.Symlink(dir+".real", dir))
		return dir
	}},
	{"a link to nowhere", "is a symbolic link", "--state-dir", func(t *testing.T, dir string) string {
		must(t, os.RemoveAll(dir))
		must(t, os.Symlink("/nowhere/at/all", dir))
		return dir
	}},
	{"a file", "is not a folder", "--state-dir", func(t *testing.T, dir string) string {
		must(t, os.RemoveAll(dir))
		must(t, os.WriteFile(dir, nil, 0600))
		return dir
	}},
	{"a subfolder open to the group", "has mode 0770, not 0700", "chmod 0700 ", func(t *testing.T, dir string) string {
		must(t, os.Chmod(dir+"/claims", 0770))
		return dir + "/claims"
	}},
	{"a subfolder that is a link", "is a symbolic link", "--state-dir", func(t *testing.T, dir string) string {
		must(t, os.Rename(dir+"/runs", dir+".runs"))
		must(t, os.Symlink(dir+".runs", dir+"/runs"))
		return dir + "/runs"
	}},
	{"a damaged id", "does not hold 32 hexadecimal digits", "enrol", func(t *testing.T, dir string) string {
		must(t, os.WriteFile(dir+"/id", []byte("x\n"), 0600))
		return dir + "/id"
	}},
	{"an id that is a link", "is a symbolic link", "Remove the link", func(t *testing.T, dir string) string {
		must(t, os.Rename(dir+"/id", dir+".id"))
		must(t, os.Symlink(dir+".id", dir+"/id"))
		return dir + "/id"
	}},
	{"another user's", "belongs to user 1, not to 0", "--state-dir", func(t *testing.T, dir string) string {
		needRoot(t)
		must(t, os.Chown(dir, 1, 1))
		return dir
	}},
	{"another user's subfolder", "belongs to user 1, not to 0", "--state-dir", func(t *testing.T, dir string) string {
		needRoot(t)
		must(t, os.Chown(dir+"/runs", 1, 1))
		return dir + "/runs"
	}},
}

// Each refusal names the path, what is wrong with it and what to do.
func TestFoldersThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, wrong := range wrongFolders {
		t.Run(wrong.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			f, err := Create(dir)
			must(t, err)
			defer f.Close()
			path := wrong.make(t, dir)
			for name, open := range map[string]func(string) (*Folder, error){"Open": Open, "Create": Create} {
				_, err := open(dir)
				var e *longstop.Error
				if !errors.As(err, &e) || e.Code != longstop.CodeStateFolder {
					t.Fatalf("%s: %v, want %s", name, err, longstop.CodeStateFolder)
				}
				if !strings.HasPrefix(e.Message, path+" ") || !strings.Contains(e.Message, wrong.says) || !strings.Contains(e.Hint, wrong.hint) {
					t.Errorf("%s: %q, hint %q; want %s %s", name, e.Message, e.Hint, path, wrong.says)
				}
			}
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "state", "./state", "/", "/tmp/../state", "/tmp//state", "/tmp/state/", "/tmp/st\nate"} {
		for _, open := range []func(string) (*Folder, error){Open, Create} {
			if _, err := open(dir); longstop.CodeOf(err) != longstop.CodeStateFolder {
				t.Errorf("%q: %v", dir, err)
			}
		}
	}
}

// A folder that has other things in it is not taken over, whatever its mode.
func TestAForeignFolderIsNotTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/home"
	must(t, os.Mkdir(dir, 0700))
	must(t, os.WriteFile(dir+"/.bashrc", nil, 0600))
	if _, err := Create(dir); longstop.CodeOf(err) != longstop.CodeStateFolder {
		t.Errorf("create: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder was changed: %v", entries)
	}
	half := t.TempDir() + "/half" // as a Create leaves it that is killed
	must(t, os.MkdirAll(half+"/claims", 0700))
	must(t, os.Chmod(half, 0700))
	f, err := Create(half)
	must(t, err)
	f.Close()
}

// C094: whatever the umask, folders are 0700 and files 0600.
func TestC094ModesDoNotFollowTheUmask(t *testing.T) {
	// Not parallel: the umask is the process's. The runner sets its own to 0077.
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, umask := range []int{0, 0022, 0077} {
		unix.Umask(umask)
		f := folder(t)
		run := locked(t, f, "k")
		must(t, f.writeVoid("void.x", Claim{Version: 1}))
		_, err := f.Spool(longstop.NewRunID(), 0, []byte("x"))
		must(t, err)
		file, err := run.File("stdout", unix.O_WRONLY|unix.O_CREAT)
		must(t, err)
		file.Close()
		finish(t, run)
		must(t, filepath.WalkDir(f.Dir(), func(path string, entry fs.DirEntry, err error) error {
			must(t, err)
			info, err := entry.Info()
			must(t, err)
			want := fs.FileMode(0600)
			if entry.IsDir() {
				want = 0700
			}
			if info.Mode().Perm() != want {
				t.Errorf("umask %03o: %s has mode %04o", umask, path, info.Mode().Perm())
			}
			return nil
		}))
	}
}

func TestRunFilesFollowNoLinks(t *testing.T) {
	t.Parallel()
	f := folder(t)
	run := claimed(t, f, "k")
	must(t, os.Symlink("/etc/passwd", run.Path("evidence")))
	if _, err := run.File("evidence", unix.O_RDONLY); longstop.CodeOf(err) != longstop.CodeStateFolder {
		t.Errorf("a link: %v", err)
	}
	must(t, unix.Mkfifo(run.Path("progress"), 0600))
	if _, err := run.File("progress", unix.O_RDONLY); longstop.CodeOf(err) != longstop.CodeStateFolder {
		t.Errorf("a FIFO: %v", err)
	}
	stream := run.Stream("stdout")
	defer stream.Close()
	if err := stream.Look(nil); err != nil || stream.Total != 0 {
		t.Errorf("output that is not there yet: %d, %v", stream.Total, err)
	}
	must(t, os.WriteFile(run.Path("stdout"), []byte("hello"), 0600))
	buffer := make([]byte, 3)
	must(t, stream.Look(nil))
	if n, err := stream.Read(buffer, 1); n != 3 || stream.Total != 5 || err != nil || string(buffer) != "ell" {
		t.Errorf("output: %q of %d, %v", buffer[:n], stream.Total, err)
	}
	if stdout, stderr := run.Sizes(); stdout != 5 || stderr != 0 {
		t.Errorf("sizes %d, %d", stdout, stderr)
	}
}
