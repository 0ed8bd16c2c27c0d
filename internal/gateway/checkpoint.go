package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/journal"
	"github.com/longstop/longstop/internal/store/sqlite"
)

// checkpointEvery is how often the log's head is signed and kept while entries come, beside at the stop and
// whenever it is asked for. No entry says so: a checkpoint is about the log, not in it.
const checkpointEvery = time.Hour

// KeyFile is the name, in a gateway's home, of the key that signs its journal.
const KeyFile = "journal.key"

// signing is the journal's key, and those whose cosignatures count.
type signing struct {
	signer    note.Signer
	key       string // the public one
	witnesses []string
}

// JournalKey reads the journal's key of a home: the signer's, which stays here, and the public one.
func JournalKey(home string) (signer, verifier string, err error) {
	path := filepath.Join(home, KeyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", fmt.Errorf("the journal's key: %w", err)
	}
	signer = strings.TrimSuffix(string(text), "\n")
	if verifier, err = journal.VerifierKey(signer); err != nil {
		return "", "", &longstop.Error{Code: longstop.CodeInternal, Message: path + " cannot be read: with another key no earlier checkpoint is recognised",
			Err: err, Hint: "restore it from a backup"}
	}
	return signer, verifier, nil
}

// makeJournalKey makes the journal's key of a home, once.
func makeJournalKey(home, name string) error {
	path := filepath.Join(home, KeyFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, _, err := note.GenerateKey(rand.Reader, "longstop/"+keyName(name))
	if err == nil {
		err = writeNew(path, []byte(made+"\n"))
	}
	if err != nil {
		return fmt.Errorf("make the journal's key: %w", err)
	}
	return nil
}

// keyName is a gateway's name as a note's key may have it.
func keyName(name string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' || c == '+' {
			return '-'
		}
		return c
	}, name)
}

func newSigning(home, name string, witnesses []string) (s signing, err error) {
	if err := makeJournalKey(home, name); err != nil {
		return s, err
	}
	private, public, err := JournalKey(home)
	if err != nil {
		return s, err
	}
	s.key = public
	if s.signer, err = note.NewSigner(private); err != nil {
		return s, fmt.Errorf("the journal's key: %w", err)
	}
	for _, w := range witnesses {
		if _, err := note.NewVerifier(w); err != nil {
			return s, &longstop.Error{Code: longstop.CodeUsage, Message: fmt.Sprintf("the witness key %.80q is none", w), Err: err,
				Hint: "a line as NAME+HASH+KEY, as the witness gives it"}
		}
	}
	s.witnesses = witnesses
	return s, nil
}

// Checkpoint signs the log's head as it is on the disk, and keeps that.
func (g *Gateway) Checkpoint(ctx context.Context) (longstop.Checkpoint, error) {
	head, err := g.store.Head(ctx)
	if err != nil {
		return longstop.Checkpoint{}, err
	}
	signed, err := journal.Sign(head, g.signing.signer)
	if err != nil {
		return longstop.Checkpoint{}, err
	}
	return g.keepCheckpoint(ctx, signed)
}

// KeepCosigned keeps a checkpoint of this journal that a witness has signed too. It must be one of this very
// log, as it now is.
func (g *Gateway) KeepCosigned(ctx context.Context, signed []byte) (longstop.Checkpoint, error) {
	refuse := func(message string, err error) error {
		return &longstop.Error{Code: longstop.CodeUsage, Message: message, Err: err, Hint: "longstop journal checkpoint --help"}
	}
	c, err := journal.OpenCheckpoint(signed, g.signing.key, g.signing.witnesses...)
	switch {
	case err != nil:
		return longstop.Checkpoint{}, refuse("it is no checkpoint of this journal", err)
	case len(c.By) < 2:
		return longstop.Checkpoint{}, refuse("no witness that longstopd.json names has signed it", nil)
	}
	head, err := g.store.Head(ctx)
	if err == nil && c.Size > 0 && c.Size <= head.Size {
		head, err = g.store.HeadAt(ctx, c.Size)
	}
	if err != nil {
		return longstop.Checkpoint{}, err
	}
	if head != c.Head {
		return longstop.Checkpoint{}, &longstop.Error{Code: longstop.CodeJournalChanged,
			Message: fmt.Sprintf("the journal is not the one that was signed: its first %d entries are others, or missing", c.Size),
			Hint:    "keep both as evidence; longstop journal verify --checkpoint FILE names the first bad place it can"}
	}
	return g.keepCheckpoint(ctx, signed)
}

// keepCheckpoint keeps a checkpoint of this log.
func (g *Gateway) keepCheckpoint(ctx context.Context, signed []byte) (longstop.Checkpoint, error) {
	c, err := journal.OpenCheckpoint(signed, g.signing.key, g.signing.witnesses...)
	if err != nil {
		return longstop.Checkpoint{}, err
	}
	shown := longstop.Checkpoint{Size: c.Size, Hash: c.Hash.String(), At: g.now(), Note: string(c.Note), Key: g.signing.key,
		Fingerprint: journal.Fingerprint(g.signing.key)}
	for _, by := range c.By[1:] {
		name, _, _ := strings.Cut(by, "+")
		shown.Witnesses = append(shown.Witnesses, name)
	}
	err = g.store.Update(ctx, func(tx *sqlite.Tx) error {
		return tx.KeepCheckpoint(sqlite.Checkpoint{Size: c.Size, At: shown.At, Cosigned: len(c.By) > 1, Note: bytes.Clone(signed)})
	})
	return shown, err
}

// checkpointHourly signs the log's head from time to time, if anything came.
func (g *Gateway) checkpointHourly() {
	ticker := time.NewTicker(checkpointEvery)
	defer ticker.Stop()
	for last := int64(-1); ; {
		select {
		case <-g.ctx.Done():
			return
		case <-ticker.C:
		}
		if head, err := g.store.Head(g.ctx); err == nil && head.Size != last {
			g.Checkpoint(g.ctx)
			last = head.Size
		}
	}
}
