package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/gateway"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// backup copies what a gateway needs to go on: the database, and what it is worth nothing without. The small
// files never change once they are there but for the configuration; the database is copied last, so that nothing
// in it is younger than they are.
func (t *journalTool) backup(ctx context.Context, store *sqlite.Store) error {
	folder := t.task.Folder
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return usable("make the folder for the backup", err)
	}
	if there, err := os.ReadDir(folder); err != nil || len(there) > 0 {
		return usable("the folder for a backup must be empty: "+folder, err)
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		return usable("close the folder for others", err)
	}
	config, err := readConfig(t.home)
	if err != nil {
		return err
	}
	for _, name := range []string{"salt", gateway.KeyFile, configName, config.Redact.LiteralsFile} {
		if name == "" || filepath.IsAbs(name) {
			continue
		}
		switch err := copyFile(filepath.Join(t.home.Dir, name), filepath.Join(folder, filepath.Base(name))); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return usable("copy "+name, err)
		default:
			t.answer.Copied = append(t.answer.Copied, filepath.Base(name))
		}
	}
	name := filepath.Base(t.home.Database())
	if err := store.Backup(ctx, filepath.Join(folder, name)); err != nil {
		return err
	}
	t.answer.Copied = append(t.answer.Copied, name)
	return nil
}

func usable(act string, err error) error {
	return &longstop.Error{Code: longstop.CodeUsage, Message: act, Err: err, Hint: "longstop daemon backup DIR, with a folder that is not there yet"}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}
