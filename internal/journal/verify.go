package journal

import (
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"
)

// Stored is an entry as a store keeps it.
type Stored struct {
	Index  int64
	Filed  Entry // what the store looks it up by: ActionID, SessionID, Host and Kind
	Bytes  []byte
	Hashes []tlog.Hash // as Tree.Append gave them
}

// BadEntry is the first place where a log is not what was appended.
type BadEntry struct {
	Index int64
	Why   string
}

func (b *BadEntry) Error() string { return fmt.Sprintf("journal entry %d: %s", b.Index, b.Why) }

// Verify reads a whole log in order and returns its head. Kept heads of the same log, in any
// order, must be prefixes of it. A log that is not what was appended is a *BadEntry that names the
// first place; an error of the iteration is returned as it is.
//
// Without a kept head, Verify proves that the log is consistent in itself: whoever can rewrite all
// entries and all hashes can make another consistent one.
func Verify(entries iter.Seq2[Stored, error], kept ...Head) (Head, error) {
	var tree Tree
	for entry, err := range entries {
		if err != nil {
			return Head{}, err
		}
		if err := tree.verifyNext(entry); err != nil {
			return Head{}, err
		}
		if err := tree.verifyKept(kept); err != nil {
			return Head{}, err
		}
	}
	head := tree.Head()
	for _, k := range kept {
		if k.Size > head.Size {
			return Head{}, &BadEntry{head.Size, fmt.Sprintf("is missing: an earlier look saw %d entries", k.Size)}
		}
	}
	return head, nil
}

func (t *Tree) verifyNext(entry Stored) error {
	index := t.Size()
	bad := func(format string, args ...any) error { return &BadEntry{index, fmt.Sprintf(format, args...)} }
	if entry.Index != index {
		return bad("is missing: the next entry is %d", entry.Index)
	}
	// The hashes first: bytes that do not parse are more likely to have been changed since than
	// written so, and the leaf hash tells.
	hashes := t.Append(entry.Bytes)
	if len(entry.Hashes) != len(hashes) {
		return bad("has %d hashes, not %d", len(entry.Hashes), len(hashes))
	}
	for level, hash := range hashes {
		switch {
		case hash == entry.Hashes[level]:
		case level == 0:
			return bad("its bytes do not have its hash: one of them was changed")
		default:
			return bad("the stored hash of the %d entries up to it is not theirs", int64(1)<<level)
		}
	}
	decoded, err := Decode(entry.Bytes)
	if err != nil {
		return bad("%v", err)
	}
	switch {
	case decoded.Index != index:
		return bad("it says that it is entry %d", decoded.Index)
	}
	filed := entry.Filed
	for _, field := range [][3]string{
		{"action", string(filed.ActionID), string(decoded.ActionID)}, {"session", string(filed.SessionID), string(decoded.SessionID)},
		{"host", filed.Host, decoded.Host}, {"kind", string(filed.Kind), string(decoded.Kind)}} {
		if field[1] != field[2] {
			return bad("it is filed under %s %q and is about %q", field[0], field[1], field[2])
		}
	}
	return nil
}

func (t *Tree) verifyKept(kept []Head) error {
	for _, k := range kept {
		if k.Size == t.Size() && k.Hash != t.Head().Hash {
			return &BadEntry{k.Size - 1, fmt.Sprintf("this entry or one before it is not what an earlier look saw: the first %d have hash %v, had %v",
				k.Size, t.Head().Hash, k.Hash)}
		}
	}
	return nil
}
