package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

func TestOnlyItsOwnerCanReadIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "longstop.db")
	s := open(t, path)
	put(t, s, newAction("web-1"), journal.Requested) // so that the WAL and its index are there
	for file, mode := range map[string]fs.FileMode{path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
		filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want %v (%v)", file, info.Mode().Perm(), mode, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		code  longstop.Code
		says  string
	}{
		"an open folder": {func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o750)) },
			longstop.CodeStateFolder, "others could read it"},
		"an open file": {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o640)) },
			longstop.CodeStateFolder, "others could read it"},
		"a link": {func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".moved"))
			must(t, os.Symlink(path+".moved", path))
		}, longstop.CodeStateFolder, "symbolic link"},
		"a folder in its place": {func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		}, longstop.CodeStateFolder, "directory"},
		"another's file": {func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(path, 12345, -1))
		}, longstop.CodeStateFolder, "belongs to user 12345"},
		"not a database": {func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("hello, world. ", 1000)), 0o600))
		}, longstop.CodeInternal, "not a database"},
		"a newer schema": {func(t *testing.T, path string) {
			s := open(t, path)
			_, err := s.conn.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (4711, 1)`)
			must(t, errors.Join(err, s.Close()))
		}, longstop.CodeVersionMismatch, "schema 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "home", "longstop.db")
			must(t, open(t, path).Close())
			c.spoil(t, path)
			s, err := Open(path)
			if err == nil {
				s.Close()
			}
			var shown *longstop.Error
			if !errors.As(err, &shown) || shown.Code != c.code || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %s and %q", err, c.code, c.says)
			}
			if shown.Code != longstop.CodeInternal && shown.Hint == "" {
				t.Error("no hint")
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A refused database is left as it was.
func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "longstop.db")
	must(t, os.Chmod(filepath.Dir(path), 0o700))
	s := open(t, path)
	_, err := s.conn.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, 1); ALTER TABLE actions ADD COLUMN new TEXT`)
	must(t, errors.Join(err, s.Close()))
	before, err := os.ReadFile(path)
	must(t, err)
	if _, err := Open(path); longstop.CodeOf(err) != longstop.CodeVersionMismatch {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if string(after) != string(before) {
		t.Error("the file was changed")
	}
}

// migrate counts the files to know the newest version.
func TestMigrationsAreNumberedWithoutAGap(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	for i, file := range files {
		if want := fmt.Sprintf("migrations/%05d_", i+1); !strings.HasPrefix(file, want) {
			t.Errorf("%s: want %s…", file, want)
		}
	}
}

func TestFlushesAreDurable(t *testing.T) {
	t.Parallel()
	s := openNew(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		must(t, s.conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
	if _, err := s.reads.ExecContext(t.Context(), `DELETE FROM actions`); err == nil {
		t.Error("a reading connection can write")
	}
}
