package record

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
)

// Spool lays down bytes of a run's standard input at an offset, before its submit, and returns how
// many bytes there are. Bytes are laid down in order: a gap is refused, a repeat overwrites.
func (f *Folder) Spool(id longstop.RunID, offset int64, data []byte) (int64, error) {
	if _, err := longstop.ParseRunID(string(id)); err != nil {
		return 0, &longstop.Error{Code: longstop.CodeUsage, Message: err.Error()}
	}
	file, err := openAt(f.spool, string(id), unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset > info.Size() {
		return info.Size(), &longstop.Error{Code: longstop.CodeUsage,
			Message: "standard input has " + strconv.FormatInt(info.Size(), 10) + " bytes on the host, not " + strconv.FormatInt(offset, 10) + ": some were lost",
			Hint:    "Go on where the host is, or start again."}
	}
	if _, err := file.WriteAt(data, offset); err != nil {
		return info.Size(), writeError(file.Name(), err)
	}
	return max(info.Size(), offset+int64(len(data))), nil
}
