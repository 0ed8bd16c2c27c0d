package record

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// What is said of a write that failed: the path that is meant, once, why, and what to type.
func TestWriteErrorWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err           error
		message, hint string
	}{
		{&os.PathError{Op: "mkdir", Path: "/home/x/.local", Err: unix.EACCES}, "/home/x/.local cannot be written: permission denied",
			"On the host: ls -ld /home/x. Or use another state folder: longstop host add --state-dir DIR"},
		{&os.PathError{Op: "write", Path: "/s/runs/r/request.1", Err: unix.ENOSPC},
			"/s/runs/r/request.1 cannot be written: the disk, its inodes or a quota are used up: no space left on device",
			"Free some on the host: df -h /s/runs/r; df -i /s/runs/r"},
		{&os.PathError{Op: "write", Path: "/s/runs/run_00000000000000000000000000000001/request.1", Err: unix.ENOSPC}, // which is gone by then
			"/s/runs/run_00000000000000000000000000000001/request.1 cannot be written: the disk, its inodes or a quota are used up: no space left on device",
			"Free some on the host: df -h /s/runs; df -i /s/runs"},
		{unix.EROFS, "/s/id cannot be written: the file system is read-only: read-only file system",
			"Use another state folder: longstop host add --state-dir DIR"},
	} {
		err := writeError("/s/id", c.err)
		var e *longstop.Error
		if !errors.As(err, &e) || e.Code != longstop.CodeStateFolder || err.Error() != c.message || e.Hint != c.hint {
			t.Errorf("%v: %q, %q", c.err, err, e.Hint)
		}
	}
}
