package journal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A checkpoint is a head of the log, signed: a note (golang.org/x/mod/sumdb/note) whose text is
// tlog.FormatTree's. Others may sign the same text: that is a cosignature.

// MaxCheckpoint is how many bytes a checkpoint has at most.
const MaxCheckpoint = 16 << 10

// Checkpoint is a signed head that was read.
type Checkpoint struct {
	Head
	Note []byte   // as it was signed
	By   []string // verifier keys whose signatures are good, in the order in which they were asked about
}

// Sign signs a head.
func Sign(h Head, key note.Signer) ([]byte, error) {
	text := tlog.FormatTree(tlog.Tree{N: h.Size, Hash: h.Hash})
	signed, err := note.Sign(&note.Note{Text: string(text)}, key)
	if err != nil {
		return nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	return signed, nil
}

// OpenCheckpoint reads a checkpoint that the first key must have signed, and says which of the others
// did. Signatures of keys that are not among them say nothing.
func OpenCheckpoint(signed []byte, key string, others ...string) (Checkpoint, error) {
	c := Checkpoint{Note: signed}
	if len(signed) > MaxCheckpoint {
		return c, fmt.Errorf("a checkpoint has at most %d bytes", MaxCheckpoint)
	}
	var text string
	for i, one := range append([]string{key}, others...) {
		verifier, err := note.NewVerifier(one)
		if err != nil {
			return c, fmt.Errorf("the key %.80q: %w", one, err)
		}
		switch opened, err := note.Open(signed, note.VerifierList(verifier)); {
		case err == nil:
			text = opened.Text
			c.By = append(c.By, one)
		case i == 0:
			return c, fmt.Errorf("no checkpoint signed by %s: %w", Fingerprint(key), err)
		case !isUnverified(err):
			return c, fmt.Errorf("the signature of %s: %w", verifier.Name(), err)
		}
	}
	tree, err := tlog.ParseTree([]byte(text))
	if err != nil {
		return c, fmt.Errorf("what is signed is not a checkpoint: %w", err)
	}
	c.Head = Head{Size: tree.N, Hash: tree.Hash}
	return c, nil
}

// isUnverified reports whether a note has no signature by the key that it was opened with.
func isUnverified(err error) bool {
	var none *note.UnverifiedNoteError
	return errors.As(err, &none)
}

// VerifierKey is the public half of a signer's key, in the form that note.NewVerifier takes.
func VerifierKey(signer string) (string, error) {
	bad := errors.New("not a signer's key of Ed25519")
	fields := strings.SplitN(strings.TrimPrefix(signer, "PRIVATE+KEY+"), "+", 3)
	if len(fields) != 3 || !strings.HasPrefix(signer, "PRIVATE+KEY+") {
		return "", bad
	}
	seed, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil || len(seed) != 1+ed25519.SeedSize || seed[0] != 1 { // 1: Ed25519
		return "", bad
	}
	return note.NewEd25519VerifierKey(fields[0], ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
}

// Fingerprint is a short name for a verifier key that nobody can make another key for.
func Fingerprint(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}
