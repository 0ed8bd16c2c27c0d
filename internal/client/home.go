package client

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/longstop/longstop"
)

// longestRuntime is the longest runtime folder whose sockets still fit sockaddr_un (108 bytes,
// unix(7)): ssh adds a name and a random suffix of seventeen characters to a control socket while
// it makes it.
const longestRuntime = 60

// Home is the folder of one gateway and the names in it. There is one gateway per Home, whatever
// path leads there: its lock is a file inside.
type Home struct {
	Dir     string // absolute, links resolved as far as it exists
	Runtime string // short folder for sockets: Dir/run, or one under /tmp where that is too long
}

// FindHome names the folder: $LONGSTOP_HOME, else $XDG_STATE_HOME/longstopd, else
// ~/.local/state/longstopd. It makes nothing. The runtime folder follows from the folder and the
// user alone, never from an environment that a login has and a cron job lacks, so that all
// commands of a user find the same gateway.
func FindHome(getenv func(string) string) (Home, error) {
	dir := getenv("LONGSTOP_HOME")
	if dir == "" {
		state := getenv("XDG_STATE_HOME")
		if !filepath.IsAbs(state) { // the XDG base directory specification: ignore relative ones
			home := getenv("HOME")
			if !filepath.IsAbs(home) {
				return Home{}, &longstop.Error{Code: longstop.CodeUsage,
					Message: "neither LONGSTOP_HOME nor HOME is set: no folder for the gateway's state",
					Hint:    "set LONGSTOP_HOME to a folder of yours"}
			}
			state = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(state, "longstopd")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Home{}, fmt.Errorf("find the gateway's folder: %w", err)
	}
	dir = resolve(dir)
	h := Home{Dir: dir, Runtime: filepath.Join(dir, "run")}
	if len(h.Runtime) > longestRuntime {
		sum := sha256.Sum256([]byte(dir))
		h.Runtime = "/tmp/longstop-" + strconv.Itoa(os.Getuid()) + "-" + hex.EncodeToString(sum[:8])
	}
	return h, nil
}

// resolve follows links as far as the path exists: the last folders may still have to be made.
func resolve(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}

// Socket is where the gateway listens.
func (h Home) Socket() string { return filepath.Join(h.Runtime, "longstopd.sock") }

// Lock is held exclusively by the gateway as long as its process lives.
func (h Home) Lock() string { return filepath.Join(h.Dir, "longstopd.lock") }

// StartLock is held exclusively while a gateway starts, until it listens.
func (h Home) StartLock() string { return filepath.Join(h.Dir, "longstopd.start") }

// Log is where the gateway writes what it has to say.
func (h Home) Log() string { return filepath.Join(h.Dir, "longstopd.log") }

// Database is the gateway's store.
func (h Home) Database() string { return filepath.Join(h.Dir, "longstop.db") }

// Make makes both folders, for their owner alone, and refuses ones that others could change.
func (h Home) Make() error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return folderError(h.Dir, err)
	}
	if err := checkFolder(h.Dir, 0o022); err != nil {
		return err
	}
	if err := os.Mkdir(h.Runtime, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return folderError(h.Runtime, err)
	}
	return checkFolder(h.Runtime, 0o077)
}

func folderError(dir string, err error) error {
	return &longstop.Error{Code: longstop.CodeUsage, Err: err,
		Message: "cannot make the gateway's folder",
		Hint:    "set LONGSTOP_HOME to a folder you may write (now " + dir + ")"}
}

// checkFolder refuses a folder that is a link, another user's, or has one of the forbidden bits.
func checkFolder(dir string, forbidden fs.FileMode) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return folderError(dir, err)
	}
	refuse := func(why, hint string) error {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "the gateway's folder " + dir + " " + why, Hint: hint}
	}
	if !info.IsDir() {
		return refuse("is not a folder", "move it away, or set LONGSTOP_HOME to another place")
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return refuse(fmt.Sprintf("belongs to uid %d, you are uid %d", stat.Uid, os.Getuid()), "set LONGSTOP_HOME to a folder of your own")
	}
	if info.Mode().Perm()&forbidden != 0 {
		return refuse(fmt.Sprintf("is open to others (mode %04o)", info.Mode().Perm()), "chmod 700 "+dir)
	}
	return nil
}
