package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"github.com/longstop/longstop"
)

//go:embed migrations/*.sql
var migrations embed.FS

const readConnections = 4

// prepareFile makes folder and file where they are not, so that SQLite never makes one that others
// can read; its WAL and its index take the file's mode.
func prepareFile(path string) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return unusable("make the state folder", err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		return unusable("look at the state folder", err)
	}
	if err := private(folder, info, "700"); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return stateFolder(path+" is a symbolic link", "put the file itself there, or set LONGSTOP_HOME to where it is")
	}
	if err != nil {
		return unusable("open the database", err)
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return unusable("look at the database", err)
	}
	if !info.Mode().IsRegular() {
		return stateFolder(path+" is not a plain file", "move it away")
	}
	return private(path, info, "600")
}

func private(path string, info fs.FileInfo, mode string) error {
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return stateFolder(fmt.Sprintf("%s belongs to user %d, not to %d who runs this", path, owner, os.Geteuid()),
			"run as that user, or set LONGSTOP_HOME to a folder of your own")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return stateFolder(fmt.Sprintf("%s has mode %04o: others could read it", path, info.Mode().Perm()),
			"chmod "+mode+" "+path)
	}
	return nil
}

func stateFolder(message, hint string) error {
	return &longstop.Error{Code: longstop.CodeStateFolder, Message: message, Hint: hint}
}

func unusable(act string, err error) error {
	return &longstop.Error{Code: longstop.CodeStateFolder, Message: act, Err: err,
		Hint: "set LONGSTOP_HOME to a folder that you can write to"}
}

func openError(path string, err error) error {
	var shown *longstop.Error
	if errors.As(err, &shown) {
		return err
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: "open the database " + path, Err: err}
}

// useFdatasync halves what a commit waits for on a journalling file system, at the same durability:
// SQLite's own choice where it is built for Linux.
var useFdatasync = sync.OnceValue(func() error {
	_, err := sqlite.Fdatasync(true)
	return err
})

func openPool(path string, connections int, pragmas ...string) (*sql.DB, error) {
	return openPoolAs("rwc", path, connections, pragmas...)
}

// openPoolAs opens a pool in a mode of SQLite's: "ro", "rw" or "rwc".
func openPoolAs(mode, path string, connections int, pragmas ...string) (*sql.DB, error) {
	if err := useFdatasync(); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	pragmas = append([]string{"busy_timeout(10000)", "synchronous(FULL)", "foreign_keys(1)", "temp_store(MEMORY)"}, pragmas...)
	if mode != "ro" {
		pragmas = append(pragmas, "journal_mode(WAL)")
	}
	dsn := url.URL{Scheme: "file", Path: absolute, RawQuery: url.Values{"_pragma": pragmas, "mode": {mode}}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// migrate brings the schema up to this program's, or refuses a newer one untouched.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	known, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	newest := int64(len(known)) // they are numbered from 1, without a gap: a test holds it
	have, err := schemaVersion(ctx, db)
	switch {
	case err != nil:
		return fmt.Errorf("read the schema's version: %w", err)
	case have > newest:
		return &longstop.Error{Code: longstop.CodeVersionMismatch,
			Message: fmt.Sprintf("the database has schema %d and this program knows %d at most: a newer longstopd wrote it", have, newest),
			Hint:    "longstop version; then run the newer longstopd, or set LONGSTOP_HOME to another folder"}
	case have == newest:
		return nil
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// schemaVersion is 0 for an empty database.
func schemaVersion(ctx context.Context, db querier) (version int64, err error) {
	var tables int
	const there = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'goose_db_version'`
	if err := db.QueryRowContext(ctx, there).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	const newest = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
	err = db.QueryRowContext(ctx, newest).Scan(&version)
	return version, err
}
