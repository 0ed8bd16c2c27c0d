// Package sqlite keeps the gateway's journal and what is read from it, the projections, in one
// SQLite file. It owns durability: what Update returned nil for survives a crash, entries and the
// projections that they change together. It refuses to change an action that someone else changed
// meanwhile, to give a secret through anything but Secret and Unresolved, and to open a file that
// a newer version wrote. It decides no state and no entry.
//
// One process writes a file at a time; the daemon's lock sees to that.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/redact"
)

// Store is an open database. Its methods may be called from several goroutines.
type Store struct {
	path  string
	reads *sql.DB // several connections, none of which can write
	write *sql.DB // exactly one connection: conn
	conn  *sql.Conn
	stmt  statements

	tells Tells // see Tell

	flushes atomic.Int64
	waiting atomic.Int64 // callers of Update that have not had their turn
	secrets *redact.Redactor

	mu     sync.Mutex // the turn to write; guards what follows
	tree   journal.Tree
	group  *group // open transaction, nil between commits
	refuse error  // why no update is taken any more
}

// ErrStale says that an action has another revision than the one its update leaves.
var ErrStale = errors.New("the action was changed meanwhile")

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("the store is closed")

// OpenToRead opens a database that is there, as it is, to look at and to verify. Whoever writes it may go on.
// What writes fails.
func OpenToRead(path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, &longstop.Error{Code: longstop.CodeNotFound, Message: "there is no journal at " + path, Err: err,
			Hint: "set LONGSTOP_HOME to a gateway's folder"}
	}
	reads, err := openPoolAs("ro", path, readConnections, "query_only(1)")
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{path: path, reads: reads, refuse: errors.New("the database was opened to be read")}
	if _, err := schemaVersion(context.Background(), reads); err != nil {
		s.closePools()
		return nil, openError(path, err)
	}
	return s, nil
}

// Open opens the database at path, or makes it: the file 0600, its folder 0700. A database of a
// newer schema is refused with longstop.CodeVersionMismatch, and a file or folder that others may
// read with longstop.CodeStateFolder.
func Open(path string) (*Store, error) {
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	write, err := openPool(path, 1)
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{path: path, write: write}
	if err := s.open(path); err != nil {
		s.closePools()
		return nil, openError(path, err)
	}
	return s, nil
}

func (s *Store) open(path string) error {
	ctx := context.Background()
	if err := migrate(ctx, s.write); err != nil {
		return err
	}
	var err error
	if s.conn, err = s.write.Conn(ctx); err != nil {
		return err
	}
	if err := s.stmt.prepare(ctx, s.conn); err != nil {
		return err
	}
	if s.reads, err = openPool(path, readConnections, "query_only(1)"); err != nil {
		return err
	}
	s.tree, err = openTree(ctx, s.conn)
	if bad := (*journal.BadEntry)(nil); errors.As(err, &bad) {
		err = s.damaged(ctx, bad)
	}
	return err
}

// damaged is why a log that can take no further entry is not opened, with its first bad place.
func (s *Store) damaged(ctx context.Context, bad *journal.BadEntry) error {
	if _, err := s.Verify(ctx); err != nil {
		errors.As(err, &bad)
	}
	return &longstop.Error{Code: longstop.CodeInternal, Message: "the journal was changed from outside or damaged, and cannot be added to",
		Hint: "keep the file as evidence, and put a backup in its place", Err: bad}
}

// Redact has what is secret taken out of all that is written from now on: entries, raw bytes, actions. It must
// be called before the first update.
func (s *Store) Redact(r *redact.Redactor) { s.secrets = r }

// Close waits for updates that have begun and closes the database.
func (s *Store) Close() error {
	if g := s.shut(); g != nil {
		<-g.done
	}
	return s.closePools()
}

func (s *Store) closePools() error {
	var errs []error
	s.stmt.close()
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.reads, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Flushes counts the commits that waited for the disk, since Open.
func (s *Store) Flushes() int64 { return s.flushes.Load() }
