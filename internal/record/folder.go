// Package record is a user's state folder on a host: which key has which run, what the owner of
// each run (or its heir) wrote about it, and the room in which the last word is sure to fit.
//
// It owns the names, the order of writes and flushes, and who may read what. It starts, signals
// and watches nothing. Its rules: a claim and a final record are created once and never replaced;
// what is there is whole or is said to be damaged; damaged files are kept; no link is followed, and
// nothing of another user's is read.
//
//	id                   the folder's own random name, fixed by enrolment
//	machine              whose it is (machine-id(5)): of machines that share a home, each has its own
//	claims/<key hash>    what a key has: the record file of its run (a hard link), or a void
//	claims/<run>         the same record file under its run's name, until the run is collected
//	runs/<run>/          request, stdin, stdout, stderr, evidence, progress, sockets …
//	runs/<run>/final     the final record; until then final.reserved and final.spare name its room
//	unresolved/<run>     a link for each run without a final record: an index, rebuilt after a boot
//	resolved.log         runs in the order of their final records, for listing by cursor
//	tombs/<run>          the final record of a run that was removed after its retention
//	spool/<run>          standard input laid down before submit
//	name-<hash>          the lock of a name that one run holds at a time
//
// A record file is its claim, then slots written in turn. Both names of it are in one folder, so
// that one flush of that folder makes key and run durable together.
//
// What a power failure may leave half there is told from what is damaged by when the work may run:
// only once a record of it is durable, and with that its claim and all names (leaveUnbegun).
package record

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
)

// Folder is an open state folder. Its methods may be called from several goroutines.
type Folder struct {
	dir    string
	id     string
	bootID string

	root, claims, runs, unresolved, tombs, spool *os.File

	roomMu sync.Mutex
	room   string // in spool, made ahead for the next run

	flushes atomic.Int64
	// flushing, in tests, is told of every file and folder just before and just after its flush.
	flushing func(file *os.File, done bool)
}

// DefaultDir is where the state folder is unless enrolled elsewhere: $XDG_STATE_HOME/longstop, or
// ~/.local/state/longstop.
func DefaultDir() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "longstop"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", folderError("the default state folder", "cannot be named: $HOME is not an absolute path",
			"Name one: longstop host add --state-dir DIR", err)
	}
	return filepath.Join(home, ".local", "state", "longstop"), nil
}

// Create makes the state folder at dir, an absolute path, and its id, unless they are there, and
// opens it. A folder that holds other things is refused.
func Create(dir string) (*Folder, error) {
	if err := checkPath(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0700); err != nil {
		return nil, writeError(filepath.Dir(dir), err)
	}
	if err := os.Mkdir(dir, 0700); err == nil {
		if err := os.Chmod(dir, 0700); err != nil {
			return nil, writeError(dir, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, writeError(dir, err)
	}
	root, err := openDir(nil, dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := refuseForeign(root); err != nil {
		return nil, err
	}
	for _, name := range subfolders {
		if err := makeDir(root, name); err != nil {
			return nil, err
		}
	}
	if !exists(root, "id") {
		if err := makeOnce(root, "id", randomName()); err != nil {
			return nil, err
		}
		// Its name in the folder above; a power failure that takes it makes a host_mismatch, no more.
		if parent, err := os.Open(filepath.Dir(dir)); err == nil {
			parent.Sync()
			parent.Close()
		}
	}
	if id := longstop.MachineID(os.ReadFile); id != "" && !exists(root, "machine") {
		if err := makeOnce(root, "machine", id); err != nil {
			return nil, err
		}
	}
	return Open(dir)
}

var subfolders = []string{"claims", "runs", "unresolved", "tombs", "spool"}

// refuseForeign refuses a folder that is neither empty nor one of ours, whole or half made.
func refuseForeign(root *os.File) error {
	if exists(root, "id") {
		return nil
	}
	entries, err := names(root)
	if err != nil {
		return err
	}
	ours := " id " + strings.Join(subfolders, " ") + " "
	for _, name := range entries {
		if !strings.Contains(ours, " "+name+" ") && !strings.HasPrefix(name, "id.") {
			return folderError(root.Name(), "is not empty and is no state folder of Longstop's (it has "+quote(name)+")",
				"Name a folder that does not exist yet: longstop host add --state-dir DIR", nil)
		}
	}
	return nil
}

// makeOnce makes a file of one line, complete before it has its name, so that of two who create it at
// once both read the same one.
func makeOnce(root *os.File, name, line string) error {
	temporary := "id." + randomName()
	f, err := openAt(root, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return writeError(root.Name()+"/"+name, err)
	}
	defer f.Close()
	defer unlink(root, temporary)
	if _, err := f.WriteString(line + "\n"); err != nil {
		return writeError(f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return writeError(f.Name(), err)
	}
	if err := link(root, temporary, root, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Sync(); err != nil {
		return writeError(root.Name(), err)
	}
	return nil
}

// Open opens the state folder at dir, an absolute path. That it is not there, or is only half made,
// is fs.ErrNotExist; a wrong owner or mode, or a link in its place, longstop.CodeStateFolder; another
// machine's, longstop.CodeHostMismatch.
func Open(dir string) (*Folder, error) { return open(dir, bootID()) }

func open(dir, bootID string) (*Folder, error) {
	if err := checkPath(dir); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, bootID: bootID}
	var err error
	if f.root, err = openDir(nil, dir); err != nil {
		return nil, err
	}
	id, err := readAll(f.root, "id", 256)
	if err == nil && !validID(strings.TrimSuffix(string(id), "\n")) {
		err = folderError(dir+"/id", "does not hold 32 hexadecimal digits: it was damaged",
			"Restore it from the gateway's word for this host (longstop host list --json), or enrol the host again.", nil)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	f.id = strings.TrimSuffix(string(id), "\n")
	if err := f.checkMachine(); err != nil {
		f.Close()
		return nil, err
	}
	for i, sub := range []**os.File{&f.claims, &f.runs, &f.unresolved, &f.tombs, &f.spool} {
		if *sub, err = openDir(f.root, subfolders[i]); err != nil {
			f.Close()
			return nil, err
		}
	}
	if err := f.reindex(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkMachine refuses the folder of another machine: to put in order what the last boot left would spoil what is
// running there, and not every shared file system has locks that hold on both.
func (f *Folder) checkMachine() error {
	here := longstop.MachineID(os.ReadFile)
	there, err := readAll(f.root, "machine", 256)
	if errors.Is(err, fs.ErrNotExist) || here == "" {
		return nil
	}
	if id := longstop.ParseMachineID(there); err == nil && id != "" && id != here {
		folder := quote(f.dir)
		return &longstop.Error{Code: longstop.CodeHostMismatch,
			Message: "the state folder " + f.dir + " is of another machine (" + id + "; this is " + here + "): nothing was done",
			Hint: "Machines that share a home have a folder each, best on a local disk: longstop host add --state-dir DIR. " +
				"If this one was reinstalled: mv " + folder + " " + folder + ".old, and enrol it again."}
	}
	return err
}

// Close lets go of the folder.
func (f *Folder) Close() error {
	for _, d := range []*os.File{f.root, f.claims, f.runs, f.unresolved, f.tombs, f.spool} {
		if d != nil {
			d.Close()
		}
	}
	return nil
}

// Check reports whether the folder that was opened is still the one at its path, with its owner,
// mode and id: whoever keeps it open asks before each use, since it may have been wiped or moved.
func (f *Folder) Check() error {
	now, err := openDir(nil, f.dir)
	if err != nil {
		return err
	}
	defer now.Close()
	if !sameFile(now, f.root) || !exists(f.root, "id") {
		return &os.PathError{Op: "check", Path: f.dir, Err: fs.ErrNotExist}
	}
	return nil
}

// Dir is the folder's absolute path.
func (f *Folder) Dir() string { return f.dir }

// StateID is the folder's own random name: 32 hexadecimal digits.
func (f *Folder) StateID() string { return f.id }

// BootID is the boot that the folder was opened in.
func (f *Folder) BootID() string { return f.bootID }

// Path is the path of a name in the folder, for sockets and watches. Files are opened with File.
func (f *Folder) Path(name ...string) string {
	return filepath.Join(append([]string{f.dir}, name...)...)
}

// FD is the folder's descriptor, good until Close: a socket in a folder with a long path is reached
// by way of /proc/self/fd.
func (f *Folder) FD() int { return int(f.root.Fd()) }

// Flushes counts the flushes that this process asked of this folder.
func (f *Folder) Flushes() int64 { return f.flushes.Load() }

// flush makes a folder's names durable, or a file with all of its metadata.
func (f *Folder) flush(file *os.File, point string) error {
	return f.flushBy(file, point, (*os.File).Sync)
}

// flushData makes a file's bytes durable, and of its metadata what is needed to read them.
func (f *Folder) flushData(file *os.File, point string) error {
	return f.flushBy(file, point, func(file *os.File) error {
		_, err := retry(func() (int, error) { return 0, unix.Fdatasync(int(file.Fd())) })
		return err
	})
}

// beside flushes a folder, where that is wanted, while it does another flush. Disks take both at once.
func (f *Folder) beside(wanted bool, dir *os.File, point string, other func() error) error {
	if !wanted {
		return other()
	}
	done := make(chan error, 1)
	go func() { done <- f.flush(dir, point) }()
	err := other()
	return errors.Join(err, <-done)
}

func (f *Folder) flushBy(file *os.File, point string, sync func(*os.File) error) error {
	failed := fault.Flush(point)
	f.flushes.Add(1)
	if f.flushing != nil {
		f.flushing(file, false)
		defer f.flushing(file, true)
	}
	if failed == nil {
		failed = sync(file)
	}
	if failed != nil {
		return writeError(file.Name(), failed)
	}
	return nil
}

func checkPath(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" || strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return folderError("the state folder "+quote(dir), "is not a plain absolute path",
			"Write it from / on, without . or .. or a slash at its end: longstop host add --state-dir DIR", nil)
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	return unix.Fstat(int(a.Fd()), &x) == nil && unix.Fstat(int(b.Fd()), &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

func randomName() string {
	var random [16]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

func validID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// bootID names the running kernel's boot: random(4). Without /proc it is empty, and each open
// rebuilds the index.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
