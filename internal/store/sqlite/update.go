package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fault"
	"github.com/longstop/longstop/internal/journal"
)

// maxGroup bounds how many updates wait for one commit.
const maxGroup = 64

// group is one transaction and the updates in it.
type group struct {
	updates int
	writes  bool
	before  journal.Tree // the log as it is on disk
	done    chan struct{}
	err     error // of the commit; set before done is closed
}

// Update runs fn in a transaction and returns once what it wrote is on the disk. An error, fn's or
// the commit's, means that nothing of it was written. ctx bounds the wait for the turn alone: what
// has begun is finished.
//
// Updates that wait at the same time share one commit, each in a savepoint of its own, so fn must
// be quick, must not call Update, and must not use tx afterwards.
func (s *Store) Update(ctx context.Context, fn func(tx *Tx) error) error {
	g, err := s.turn(ctx, fn)
	if err == nil {
		<-g.done
		err = g.err
	}
	if isFull(err) {
		return &longstop.Error{Code: longstop.CodeInternal, Message: "this machine's disk is full: nothing was written to " + s.path,
			Hint: "free some: df -h " + filepath.Dir(s.path), Err: err}
	}
	return err
}

// turn runs fn when it is this caller's turn. Whoever ends a turn with nobody waiting commits for
// all since the last commit, so a caller who is counted as waiting always takes its turn, even to
// do nothing.
func (s *Store) turn(ctx context.Context, fn func(tx *Tx) error) (*group, error) {
	s.waiting.Add(1)
	s.mu.Lock()
	s.waiting.Add(-1)
	defer s.mu.Unlock()
	defer s.endTurn()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	return s.run(fn)
}

func (s *Store) endTurn() {
	if s.group != nil && (s.waiting.Load() == 0 || s.group.updates >= maxGroup) {
		s.commit()
	}
}

// shut refuses further updates and returns the group that is still open, if any.
func (s *Store) shut() *group {
	s.waiting.Add(1)
	s.mu.Lock()
	s.waiting.Add(-1)
	defer s.mu.Unlock()
	s.refuse = ErrClosed
	g := s.group
	s.endTurn()
	return g
}

// run runs fn in the open group, or in a new one. The first of a group needs no savepoint: if it
// fails, the transaction is its own.
func (s *Store) run(fn func(tx *Tx) error) (_ *group, err error) {
	first := s.group == nil
	if first {
		err = s.begin()
	} else {
		err = s.exec(s.stmt.savepoint)
	}
	if err != nil {
		return nil, fmt.Errorf("begin an update: %w", err)
	}
	g, before := s.group, s.tree.Clone()
	kept := false
	defer func() { // also when fn panics
		if !kept {
			s.tree = before
			s.undo(first)
		}
	}()
	tx := &Tx{store: s}
	if err := fn(tx); err != nil {
		return nil, err
	}
	if !first {
		if err := s.exec(s.stmt.release); err != nil {
			return nil, fmt.Errorf("end an update: %w", err)
		}
	}
	kept = true
	g.updates++
	g.writes = g.writes || tx.wrote
	return g, nil
}

func (s *Store) begin() error {
	if err := s.exec(s.stmt.begin); err != nil {
		return err
	}
	s.group = &group{before: s.tree.Clone(), done: make(chan struct{})}
	return nil
}

// undo takes back one update. Where that cannot be done (SQLite itself rolls back the whole
// transaction on some errors, such as a full disk) the whole group fails.
func (s *Store) undo(first bool) {
	if first {
		s.end(s.exec(s.stmt.rollback))
		return
	}
	if err := s.exec(s.stmt.rollbackTo); err != nil {
		s.fail(fmt.Errorf("another update in the same transaction failed: %w", err))
	}
}

// commit ends the group on the disk.
func (s *Store) commit() {
	g := s.group
	if !g.writes {
		s.end(s.exec(s.stmt.rollback))
		return
	}
	fault.Flush("store.commit")
	s.flushes.Add(1)
	err := s.exec(s.stmt.commit)
	fault.At("store.committed")
	if err != nil {
		s.fail(fmt.Errorf("commit: %w", err))
		if !mayGoOn(err) {
			s.refuse = fmt.Errorf("the database could not be written, and what is on the disk is not certain: restart longstopd: %w", err)
		}
		return
	}
	s.end(nil)
}

// fail rolls the whole group back.
func (s *Store) fail(err error) {
	_ = s.exec(s.stmt.rollback) // an error here says that SQLite has rolled back already
	s.tree = s.group.before
	s.end(err)
}

func (s *Store) end(err error) {
	s.group.err = err
	close(s.group.done)
	s.group = nil
}
