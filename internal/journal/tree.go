package journal

import (
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Head is the log at one size: whoever kept one can tell later that nothing before it was changed.
type Head struct {
	Size int64     `json:"size"`
	Hash tlog.Hash `json:"hash"` // base64 in JSON
}

// Tree is the right edge of the log's Merkle tree: all that appending needs. The zero Tree is the
// empty log's.
type Tree struct {
	size int64
	edge []tlog.Hash // the complete subtrees that make up the log, largest first
}

// OpenTree reads the right edge of a log of the given size.
func OpenTree(size int64, stored tlog.HashReader) (Tree, error) {
	var indexes []int64
	var done int64
	for rest := uint64(size); rest != 0; {
		level := bits.Len64(rest) - 1
		indexes = append(indexes, tlog.StoredHashIndex(level, done>>level))
		done += 1 << level
		rest &^= 1 << level
	}
	if len(indexes) == 0 {
		return Tree{}, nil
	}
	edge, err := stored.ReadHashes(indexes)
	if err != nil {
		return Tree{}, fmt.Errorf("read the log's right edge: %w", err)
	}
	return Tree{size: size, edge: edge}, nil
}

// Size is the number of entries.
func (t *Tree) Size() int64 { return t.size }

// Clone returns a Tree that appends to this one do not change.
func (t *Tree) Clone() Tree { return Tree{size: t.size, edge: slices.Clone(t.edge)} }

// Append adds an entry's bytes and returns the hashes that the log stores for it: its leaf's, then
// those of the subtrees it completes, rising. They are what tlog.StoredHashes gives.
func (t *Tree) Append(entry []byte) []tlog.Hash {
	hash := tlog.RecordHash(entry)
	hashes := make([]tlog.Hash, 1, bits.TrailingZeros64(^uint64(t.size))+1)
	hashes[0] = hash
	for n := t.size; n&1 == 1; n >>= 1 {
		last := len(t.edge) - 1
		hash = tlog.NodeHash(t.edge[last], hash)
		t.edge = t.edge[:last]
		hashes = append(hashes, hash)
	}
	t.edge = append(t.edge, hash)
	t.size++
	return hashes
}

// Head is the log as it is now. The empty log's hash is zero.
func (t *Tree) Head() Head {
	head := Head{Size: t.size}
	if len(t.edge) == 0 {
		return head
	}
	head.Hash = t.edge[len(t.edge)-1]
	for i := len(t.edge) - 2; i >= 0; i-- {
		head.Hash = tlog.NodeHash(t.edge[i], head.Hash)
	}
	return head
}

// HashOwner says which entry's hashes, as Append gave them, hold the stored hash of that index,
// and where among them: a store keeps each entry's hashes beside it.
func HashOwner(stored int64) (entry int64, at int) {
	level, n := tlog.SplitStoredHashIndex(stored)
	return (n+1)<<level - 1, level
}
