package journal

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/longstop/longstop"
)

// makeLog makes a log of n entries.
func makeLog(n int) []Stored {
	var tree Tree
	log := make([]Stored, n)
	for i := range log {
		action := longstop.ActionID(fmt.Sprintf("act_%d", i))
		data, err := Encode(Entry{Index: int64(i), At: longstop.At(time.UnixMicro(int64(i))), Kind: Observed, ActionID: action})
		if err != nil {
			panic(err)
		}
		log[i] = Stored{Index: int64(i), Filed: Entry{ActionID: action, Kind: Observed}, Bytes: data, Hashes: tree.Append(data)}
	}
	return log
}

func stored(log []Stored) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, _ error) {
		for _, index := range indexes {
			entry, at := HashOwner(index)
			hashes = append(hashes, log[entry].Hashes[at])
		}
		return hashes, nil
	})
}

func inOrder(log []Stored) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for _, e := range log {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// TestTree holds Tree against tlog's own functions at every size.
func TestTree(t *testing.T) {
	t.Parallel()
	log := makeLog(300)
	var tree Tree
	for n := int64(0); n <= int64(len(log)); n++ {
		want, err := tlog.TreeHash(n, stored(log))
		if n == 0 {
			want = tlog.Hash{}
		}
		if head := tree.Head(); err != nil || head != (Head{n, want}) {
			t.Fatalf("size %d: head %v, want %v (%v)", n, head, want, err)
		}
		opened, err := OpenTree(n, stored(log))
		if err != nil || opened.Size() != n || !slices.Equal(opened.edge, tree.edge) {
			t.Fatalf("size %d: OpenTree gives another edge (%v)", n, err)
		}
		if n == int64(len(log)) {
			break
		}
		hashes, err := tlog.StoredHashes(n, log[n].Bytes, stored(log))
		if err != nil {
			t.Fatal(err)
		}
		before := tree.Clone()
		if got := tree.Append(log[n].Bytes); !slices.Equal(got, hashes) || !slices.Equal(got, log[n].Hashes) {
			t.Fatalf("entry %d: hashes %v, want %v", n, got, hashes)
		}
		if before.Size() != n || before.Head().Size != n {
			t.Fatalf("entry %d: appending changed a clone", n)
		}
	}
}

func TestCloneKeepsItsHead(t *testing.T) {
	t.Parallel()
	log := makeLog(64)
	var tree Tree
	for i := range log {
		clone, head := tree.Clone(), tree.Head()
		tree.Append(log[i].Bytes)
		if clone.Head() != head {
			t.Fatalf("appending entry %d changed the clone's head", i)
		}
	}
}

func TestProof(t *testing.T) {
	t.Parallel()
	log := makeLog(37)
	head, err := Verify(inOrder(log))
	if err != nil {
		t.Fatal(err)
	}
	for n, e := range log {
		proof, err := tlog.ProveRecord(head.Size, int64(n), stored(log))
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(proof, head.Size, head.Hash, int64(n), tlog.RecordHash(e.Bytes)); err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
	}
}

func TestVerifyNamesTheFirstBadPlace(t *testing.T) {
	t.Parallel()
	const n, bad = 40, 23 // entry 23 completes subtrees of 2, 4 and 8
	heads := make([]Head, n+1)
	var tree Tree
	for i, e := range makeLog(n) {
		tree.Append(e.Bytes)
		heads[i+1] = tree.Head()
	}
	for name, c := range map[string]struct {
		spoil func([]Stored) []Stored
		kept  []Head
		want  int64
		why   string
	}{
		"nothing":           {func(l []Stored) []Stored { return l }, heads, -1, ""},
		"a byte changed":    {func(l []Stored) []Stored { l[bad].Bytes[len(l[bad].Bytes)-2] ^= 1; return l }, nil, bad, "bytes do not have its hash"},
		"a leaf hash":       {func(l []Stored) []Stored { l[bad].Hashes[0][5] ^= 1; return l }, nil, bad, "bytes do not have its hash"},
		"a tree hash":       {func(l []Stored) []Stored { l[bad].Hashes[2][5] ^= 1; return l }, nil, bad, "of the 4 entries up to it"},
		"a hash too few":    {func(l []Stored) []Stored { l[bad].Hashes = l[bad].Hashes[:2]; return l }, nil, bad, "has 2 hashes, not 4"},
		"an entry removed":  {func(l []Stored) []Stored { return slices.Delete(l, bad, bad+1) }, nil, bad, "is missing"},
		"the first removed": {func(l []Stored) []Stored { return l[1:] }, nil, 0, "is missing"},
		"two swapped":       {func(l []Stored) []Stored { l[bad], l[bad+4] = l[bad+4], l[bad]; return l }, nil, bad, "is missing"},
		"two swapped and renumbered": {func(l []Stored) []Stored {
			l[bad], l[bad+4] = l[bad+4], l[bad]
			l[bad].Index, l[bad+4].Index = bad, bad+4
			return l
		}, nil, bad, "has 3 hashes, not 4"},
		"filed elsewhere":  {func(l []Stored) []Stored { l[bad].Filed.ActionID = "act_0"; return l }, nil, bad, "filed under"},
		"the last removed": {func(l []Stored) []Stored { return l[:n-1] }, heads[n:], n - 1, "is missing: an earlier look saw 40"},
		"rewritten whole": {func(l []Stored) []Stored {
			var tree Tree
			for i := range l {
				if i == bad {
					l[i].Bytes, _ = Encode(Entry{Index: bad, Kind: Observed, ActionID: l[i].Filed.ActionID, By: "forged"})
				}
				l[i].Hashes = tree.Append(l[i].Bytes)
			}
			return l
		}, heads[10:26], bad, "not what an earlier look saw"},
		"says another index": {func(l []Stored) []Stored {
			var tree Tree
			l[bad].Bytes = slices.Clone(l[3].Bytes)
			for i := range l {
				l[i].Hashes = tree.Append(l[i].Bytes)
			}
			return l
		}, nil, bad, "says that it is entry 3"},
		"not an entry": {func(l []Stored) []Stored {
			var tree Tree
			l[bad].Bytes = []byte("hello")
			for i := range l {
				l[i].Hashes = tree.Append(l[i].Bytes)
			}
			return l
		}, nil, bad, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, err := Verify(inOrder(c.spoil(makeLog(n))), c.kept...)
			var at *BadEntry
			switch {
			case c.want < 0 && (err != nil || head != heads[n]):
				t.Errorf("got %v, %v", head, err)
			case c.want < 0:
			case !errors.As(err, &at):
				t.Errorf("got %v, want a BadEntry", err)
			case at.Index != c.want || !strings.Contains(at.Why, c.why):
				t.Errorf("got %v, want entry %d and %q", err, c.want, c.why)
			}
		})
	}
}

func TestVerifyReturnsTheIterationsError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := Verify(func(yield func(Stored, error) bool) { yield(Stored{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
