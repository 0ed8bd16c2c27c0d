package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/longstop/longstop"
)

// Backup writes a copy of the database as it stands at one moment, whole, into a file that is not there yet.
// Whoever writes the database goes on meanwhile.
func (s *Store) Backup(ctx context.Context, path string) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // SQLite takes an empty file, and its mode
	if err != nil {
		return &longstop.Error{Code: longstop.CodeUsage, Message: "a backup needs a file that is not there yet", Err: err, Hint: "name another folder"}
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			os.Remove(path)
		}
	}()
	from, err := openPoolAs("ro", s.path, 1) // the reading connections' pragma forbids this
	if err != nil {
		return openError(s.path, err)
	}
	defer from.Close()
	if _, err := from.ExecContext(ctx, `VACUUM INTO ?`, path); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("flush the copy: %w", err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("flush the copy's folder: %w", err)
	}
	defer folder.Close()
	return folder.Sync()
}
