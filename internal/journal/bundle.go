package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// BundleFormat is the version of the bundle's form that is written, and the only one that is read.
const BundleFormat = "longstop-bundle 1"

// MaxBundle is how many bytes a bundle has at most.
const MaxBundle = 1 << 30

// Bundle is some entries of a log with all that is needed to prove, offline and to whoever has the
// journal's public key, that they are in it: docs/journal.md.
type Bundle struct {
	Format      string        `json:"format"`
	Key         string        `json:"key"`         // the journal's public key
	Fingerprint string        `json:"fingerprint"` // of it
	Checkpoint  string        `json:"checkpoint"`
	Entries     []Proven      `json:"entries"`
	Consistency []Consistency `json:"consistency,omitempty"`
}

// Proven is an entry and its proof. One that may not leave is there by its hash alone.
type Proven struct {
	Index    int64       `json:"index"`
	Bytes    []byte      `json:"bytes,omitempty"`
	Withheld string      `json:"withheld,omitempty"` // why there are no bytes
	Hash     *tlog.Hash  `json:"hash,omitempty"`     // with withheld
	Proof    []tlog.Hash `json:"proof"`
}

// Consistency proves that the log of an earlier checkpoint is the beginning of the bundle's.
type Consistency struct {
	Head
	Proof []tlog.Hash `json:"proof"`
}

// ReadBundle reads a bundle's form. It believes nothing of it: see Verify.
func ReadBundle(from io.Reader) (*Bundle, error) {
	limited := &io.LimitedReader{R: from, N: MaxBundle + 1}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	var b Bundle
	err := d.Decode(&b)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows the bundle")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("a bundle has at most %d bytes", MaxBundle)
	case err != nil:
		return nil, fmt.Errorf("read the bundle: %w", err)
	case b.Format != BundleFormat:
		return nil, fmt.Errorf("the bundle's format is %.40q, and this program reads %q", b.Format, BundleFormat)
	}
	return &b, nil
}

// Verify proves the bundle with the journal's public key, or its fingerprint, had from somewhere else:
// that the checkpoint is signed with it, that each entry is in the log of that checkpoint at its place,
// and that each kept head is that of the same log's beginning. It returns the entries that have bytes,
// and the checkpoint, by which others also signed.
func (b *Bundle) Verify(key string, others []string, kept ...Head) ([]Entry, Checkpoint, error) {
	if key == Fingerprint(b.Key) {
		key = b.Key
	}
	if key != b.Key {
		return nil, Checkpoint{}, fmt.Errorf("the bundle is of the journal with key %s, not %.60s", Fingerprint(b.Key), key)
	}
	c, err := OpenCheckpoint([]byte(b.Checkpoint), key, others...)
	if err != nil {
		return nil, c, err
	}
	var entries []Entry
	before := int64(-1)
	for _, p := range b.Entries {
		if p.Index <= before {
			return nil, c, &BadEntry{p.Index, "it is not behind the one before it"}
		}
		before = p.Index
		e, err := p.verify(c.Head)
		if err != nil {
			return nil, c, &BadEntry{p.Index, err.Error()}
		}
		if p.Withheld == "" {
			entries = append(entries, e)
		}
	}
	for _, head := range kept {
		if err := b.follows(head, c.Head); err != nil {
			return nil, c, err
		}
	}
	return entries, c, nil
}

func (p *Proven) verify(head Head) (e Entry, err error) {
	if p.Index >= head.Size || p.Index < 0 {
		return e, errors.New("it is not in the log of the checkpoint, which has " + strconv.FormatInt(head.Size, 10) + " entries")
	}
	if (p.Withheld != "") != (p.Hash != nil) || p.Withheld != "" && p.Bytes != nil {
		return e, errors.New("it has neither its bytes nor, withheld, its hash alone")
	}
	hash := tlog.RecordHash(p.Bytes)
	if p.Hash != nil {
		hash = *p.Hash
	}
	if err := tlog.CheckRecord(p.Proof, head.Size, head.Hash, p.Index, hash); err != nil {
		return e, errors.New("its bytes or its place are not those in the log of the checkpoint")
	}
	if p.Withheld != "" {
		return e, nil
	}
	if e, err = Decode(p.Bytes); err == nil && e.Index != p.Index {
		err = fmt.Errorf("it says that it is entry %d", e.Index)
	}
	return e, err
}

// follows proves that a log's head is of the beginning of another's.
func (b *Bundle) follows(kept, head Head) error {
	if kept == head {
		return nil
	}
	if kept.Size > head.Size {
		return &BadEntry{head.Size, fmt.Sprintf("is missing: an earlier look saw %d entries", kept.Size)}
	}
	for _, c := range b.Consistency {
		if c.Size != kept.Size {
			continue
		}
		if c.Size < 1 || tlog.CheckTree(c.Proof, head.Size, head.Hash, kept.Size, kept.Hash) != nil {
			return &BadEntry{kept.Size - 1, "this entry or one before it is not what an earlier look saw"}
		}
		return nil
	}
	return fmt.Errorf("the bundle has no proof that it goes on from the checkpoint of %d entries: export it with that checkpoint", kept.Size)
}

// Write writes a bundle.
func (b *Bundle) Write(to io.Writer) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(b); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	_, err := text.WriteTo(to)
	return err
}
