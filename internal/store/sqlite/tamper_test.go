package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
)

// closedLog is a closed database of forty entries, every fourth with raw bytes, and the log's head
// after each: entry n is revision n/4+1 of one of four actions.
func closedLog(t *testing.T) (path string, heads []journal.Head) {
	path = filepath.Join(t.TempDir(), "home", "longstop.db")
	s := open(t, path)
	actions := []*longstop.Action{newAction("web-1"), newAction("web-1"), newAction("web-2"), newAction("web-2")}
	for n := range 40 {
		a := actions[n%4]
		a.Revision = int64(n/4 + 1)
		var raws []Raw
		if n%4 == 0 {
			raws = append(raws, Raw{"record", []byte("as it came")})
		}
		put(t, s, a, journal.Observed, raws...)
		head, err := s.Head(t.Context())
		must(t, err)
		heads = append(heads, head)
	}
	must(t, s.Close())
	return path, heads
}

func TestTampering(t *testing.T) {
	t.Parallel()
	const flip = `cast(replace(cast(bytes AS TEXT), 'anna', 'emma') AS BLOB)`
	for name, c := range map[string]struct {
		sql  string
		want int64
		why  string
	}{
		"nothing":                     {``, -1, ""},
		"an entry changed":            {`UPDATE entries SET bytes = ` + flip + ` WHERE idx = 17`, 17, "bytes do not have its hash"},
		"two entries changed":         {`UPDATE entries SET bytes = ` + flip + ` WHERE idx IN (29, 12)`, 12, "bytes do not have its hash"},
		"a leaf hash changed":         {`UPDATE entries SET hashes = cast(zeroblob(32) || substr(hashes, 33) AS BLOB) WHERE idx = 17`, 17, "bytes do not have its hash"},
		"a tree hash changed":         {`UPDATE entries SET hashes = cast(substr(hashes, 1, 32) || zeroblob(length(hashes) - 32) AS BLOB) WHERE idx = 15`, 15, "of the 2 entries"},
		"a tree hash removed":         {`UPDATE entries SET hashes = substr(hashes, 1, 64) WHERE idx = 15`, 15, "has 2 hashes, not 5"},
		"a hash cut short":            {`UPDATE entries SET hashes = substr(hashes, 1, 31) WHERE idx = 16`, 16, "bytes do not have its hash"},
		"an entry removed":            {`DELETE FROM entries WHERE idx = 17`, 17, "is missing"},
		"the first entry removed":     {`DELETE FROM entries WHERE idx = 0`, 0, "is missing"},
		"removed and renumbered":      {`DELETE FROM entries WHERE idx = 17; UPDATE entries SET idx = idx - 1 WHERE idx > 17`, 17, ""},
		"the last entry removed":      {`DELETE FROM entries WHERE idx = 39`, 39, "is not the one that changed act_"},
		"the last two removed":        {`DELETE FROM entries WHERE idx >= 38`, 38, "is not the one that changed act_"},
		"two reordered":               {`UPDATE entries SET idx = -1 WHERE idx = 12; UPDATE entries SET idx = 12 WHERE idx = 16; UPDATE entries SET idx = 16 WHERE idx = -1`, 12, ""},
		"all removed":                 {`DELETE FROM raws; DELETE FROM entries`, 0, "an earlier look saw 10"},
		"filed under another action":  {`UPDATE entries SET action_id = 'act_OTHER' WHERE idx = 17`, 17, "filed under"},
		"filed under another kind":    {`UPDATE entries SET kind = 'other' WHERE idx = 17`, 17, "filed under"},
		"filed under another session": {`UPDATE entries SET session_id = NULL WHERE idx = 17`, 17, "filed under"},
		"filed under another host":    {`UPDATE entries SET host = 'other' WHERE idx = 17`, 17, "filed under"},
		"truncated to a prefix":       {`DELETE FROM raws WHERE entry >= 5; DELETE FROM actions; DELETE FROM entries WHERE idx >= 5`, 5, "an earlier look saw 10"},
		"raw kind changed":            {`UPDATE raws SET kind = 'other' WHERE entry = 20`, 20, "filed as something else"},
		"raw size changed":            {`UPDATE raws SET size = 7 WHERE entry = 20`, 20, "filed as something else"},
		"raw time changed":            {`UPDATE raws SET at = 7 WHERE entry = 20`, 20, "filed as something else"},
		"raw of another action":       {`UPDATE raws SET action_id = NULL WHERE entry = 20`, 20, "filed as something else"},
		"raw place changed":           {`UPDATE raws SET place = 1 WHERE entry = 20`, 20, "raw bytes number 1 were changed"},
		"raw bytes changed":           {`UPDATE raws SET bytes = x'00' WHERE entry = 20`, 20, "raw bytes number 0 were changed"},
		"raw salt changed":            {`UPDATE raws SET salt = x'00' WHERE entry = 20`, 20, "raw bytes number 0 were changed"},
		"raw bytes moved":             {`UPDATE raws SET entry = 21 WHERE entry = 20`, 21, "raw bytes number 0 were changed"},
		"an edge hash removed":        {`UPDATE entries SET hashes = x'' WHERE idx = 31`, 31, "has 0 hashes, not 6"},
		"an earlier one too":          {`UPDATE entries SET hashes = x'' WHERE idx = 31; DELETE FROM entries WHERE idx = 5`, 5, "is missing"},
		"an edge hash's entry gone":   {`DELETE FROM entries WHERE idx = 31`, 31, "is missing"},
		"a projection points at less": {`UPDATE actions SET entry = 3 WHERE entry = 38`, 3, "is not the one that changed act_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, heads := closedLog(t)
			pool, err := openPool(path, 1)
			must(t, err)
			_, err = pool.ExecContext(t.Context(), `PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1; `+c.sql)
			must(t, errors.Join(err, pool.Close()))

			s, err := Open(path) // refuses by itself what cannot be added to
			if err == nil {
				defer s.Close()
				_, err = s.Verify(t.Context(), heads[9])
			}
			var bad *journal.BadEntry
			switch {
			case c.want < 0 && err != nil:
				t.Error(err)
			case c.want < 0:
			case !errors.As(err, &bad):
				t.Errorf("got %v, want a BadEntry", err)
			case bad.Index != c.want || !strings.Contains(bad.Why, c.why):
				t.Errorf("got %v, want entry %d and %q", err, c.want, c.why)
			}
		})
	}
}

// Whoever rewrites everything is found out by a head that was kept elsewhere.
func TestKeptHeads(t *testing.T) {
	t.Parallel()
	path, heads := closedLog(t)
	s := open(t, path)
	if head, err := s.Verify(t.Context(), heads...); err != nil || head != heads[39] {
		t.Fatalf("%v, %v", head, err)
	}
	other := openNew(t)
	put(t, other, newAction("web-1"), journal.Requested)
	var bad *journal.BadEntry
	if _, err := other.Verify(t.Context(), heads[0]); !errors.As(err, &bad) || bad.Index != 0 {
		t.Errorf("another log: %v", err)
	}
	if _, err := other.Verify(t.Context(), heads[1]); !errors.As(err, &bad) || bad.Index != 1 {
		t.Errorf("a shorter log: %v", err)
	}
}

// TestPointAnyByteOfAnEntry changes each byte of one entry and of its hashes in turn.
func TestPointAnyByteOfAnEntry(t *testing.T) {
	t.Parallel()
	path, heads := closedLog(t)
	s := open(t, path)
	var data, hashes []byte
	must(t, s.conn.QueryRowContext(t.Context(), `SELECT bytes, hashes FROM entries WHERE idx = 15`).Scan(&data, &hashes))
	set := func(column string, value []byte) {
		_, err := s.conn.ExecContext(t.Context(), `UPDATE entries SET `+column+` = ? WHERE idx = 15`, value)
		must(t, err)
	}
	for column, was := range map[string][]byte{"bytes": data, "hashes": hashes} {
		for i := range was {
			changed := bytes.Clone(was)
			changed[i] ^= 1
			set(column, changed)
			var bad *journal.BadEntry
			if _, err := s.Verify(t.Context(), heads[20]); !errors.As(err, &bad) || bad.Index != 15 {
				t.Fatalf("byte %d of %s: %v", i, column, err)
			}
		}
		set(column, was)
	}
	if _, err := s.Verify(t.Context(), heads...); err != nil {
		t.Error(err)
	}
}

// TestPointWhatOnlyACheckpointShows: a database put back to an older copy, and a log rewritten as a whole by who
// knows how, are whole in themselves. A head that was kept elsewhere tells, and names the first bad place; without
// one nothing does.
func TestPointWhatOnlyACheckpointShows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "home", "longstop.db")
	s, actions := someLog(t, path)
	must(t, s.Close())
	copied, err := os.ReadFile(path)
	must(t, err)
	s = open(t, path)
	newer := newAction("web-1")
	for revision := range int64(5) {
		newer.Revision = revision + 1
		put(t, s, newer, journal.Observed)
	}
	kept := verify(t, s)

	older := filepath.Join(dir, "older", "longstop.db")
	must(t, os.Mkdir(filepath.Dir(older), 0o700))
	must(t, os.WriteFile(older, copied, 0o600))
	back := open(t, older)
	size := verify(t, back).Size
	if _, err := back.CheckProjections(t.Context()); err != nil {
		t.Errorf("an older copy is not whole: %v", err)
	}
	var bad *journal.BadEntry
	if _, err := back.Verify(t.Context(), kept); !errors.As(err, &bad) || bad.Index != size || !strings.Contains(bad.Why, "is missing") {
		t.Errorf("an older copy: %v, want entry %d", err, size)
	}
	// It goes on, otherwise than before: as many entries, and more.
	for range 7 {
		other := newAction("web-2")
		put(t, back, other, journal.Requested)
	}
	verify(t, back)
	if _, err := back.Verify(t.Context(), kept); !errors.As(err, &bad) || bad.Index != kept.Size-1 || !strings.Contains(bad.Why, "this entry or one before it") {
		t.Errorf("an older copy that went on: %v, want entry %d", err, kept.Size-1)
	}
	// All of it written anew, with one word changed.
	forged := openNew(t)
	for _, a := range actions {
		lie := *a
		lie.Revision, lie.Request.Argv = 1, []string{"something", "else"}
		put(t, forged, &lie, journal.Requested)
	}
	verify(t, forged)
	if _, err := forged.CheckProjections(t.Context()); err != nil {
		t.Errorf("the forged log is not whole: %v", err)
	}
	if _, err := forged.Verify(t.Context(), kept); err == nil {
		t.Error("a forged log was taken for the one whose head was kept")
	}
}
