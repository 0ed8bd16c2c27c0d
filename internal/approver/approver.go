// Package approver is how a person proves who they are: a key that a passphrase unlocks, and the
// statements that it signs. It is pure. The passphrase and the key stay in the process in which the
// person typed; whoever verifies has the public half, the salt and the parameters.
//
// The rule it keeps: what was signed is the statement's exact bytes, and a statement has one fact a line.
package approver

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"

	"golang.org/x/crypto/argon2"

	"github.com/longstop/longstop"
)

const (
	// MinPassphrase is the least length of a passphrase, in bytes. Whoever reads the gateway's folder can
	// try passphrases for as long as they like.
	MinPassphrase = 12
	// minVariety is how many different bytes a passphrase has at least.
	minVariety = 5
	// SaltBytes is the length of a salt.
	SaltBytes = 16
)

// Parameters are those of new keys: the second recommendation of RFC 9106, section 4.
var Parameters = longstop.Argon2{Time: 3, MemoryKiB: 64 << 10, Threads: 4}

// The bounds of parameters that come from outside. Below the lower ones a signature would tell whoever
// chose them more of the passphrase than they could have found out by themselves; above the upper ones
// they would only stop this machine.
var (
	least = Parameters
	most  = longstop.Argon2{Time: 16, MemoryKiB: 1 << 20, Threads: 16}
)

// names of approvers are read aloud, typed and put into statements.
var names = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`) })

// Name refuses what cannot be an approver's name.
func Name(name string) error {
	if !names().MatchString(name) {
		return fmt.Errorf("%.80q cannot be an approver's name: want up to 64 letters, digits and . _ @ -", name)
	}
	return nil
}

// Passphrase refuses one that is too easily guessed for a new key.
func Passphrase(passphrase []byte) error {
	if len(passphrase) < MinPassphrase {
		return fmt.Errorf("the passphrase has %d bytes: want at least %d (a few words that nobody would put together)", len(passphrase), MinPassphrase)
	}
	different := map[byte]bool{}
	for _, b := range passphrase {
		different[b] = true
	}
	if len(different) < minVariety {
		return fmt.Errorf("the passphrase has %d different letters: want at least %d", len(different), minVariety)
	}
	return nil
}

// Check refuses an approver that came from outside and is not one of ours: its bounds are those of what
// is computed and shown.
func Check(a longstop.Approver) error {
	if err := Name(a.Name); err != nil {
		return err
	}
	switch p := a.Argon2; {
	case a.Kind != longstop.ProofPassphrase:
		return fmt.Errorf("a proof of the kind %.40q is not known", a.Kind)
	case len(a.PublicKey) != ed25519.PublicKeySize:
		return fmt.Errorf("the public key has %d bytes, not %d", len(a.PublicKey), ed25519.PublicKeySize)
	case len(a.Salt) != SaltBytes:
		return fmt.Errorf("the salt has %d bytes, not %d", len(a.Salt), SaltBytes)
	case p == nil:
		return fmt.Errorf("there are no parameters of argon2id")
	case p.Time < least.Time || p.MemoryKiB < least.MemoryKiB || p.Threads < 1:
		return fmt.Errorf("argon2id with time %d, %d KiB and %d threads is too weak", p.Time, p.MemoryKiB, p.Threads)
	case p.Time > most.Time || p.MemoryKiB > most.MemoryKiB || p.Threads > most.Threads:
		return fmt.Errorf("argon2id with time %d, %d KiB and %d threads is more than is computed here", p.Time, p.MemoryKiB, p.Threads)
	}
	return nil
}

// Key is a person's key, unlocked. It is not to leave the process.
type Key struct{ private ed25519.PrivateKey }

// New makes the approver whom a passphrase stands for. The salt is random, SaltBytes long and new.
func New(name string, passphrase, salt []byte) (longstop.Approver, error) {
	if err := Passphrase(passphrase); err != nil {
		return longstop.Approver{}, err
	}
	parameters := Parameters
	a := longstop.Approver{Name: name, Kind: longstop.ProofPassphrase, Salt: salt, Argon2: &parameters}
	a.PublicKey = derive(a, passphrase).private.Public().(ed25519.PublicKey)
	return a, Check(a)
}

// Unlock derives the key of an approver. Whether the passphrase was the right one is for whoever
// verifies its proof to say, so that a wrong one is counted and journalled.
func Unlock(a longstop.Approver, passphrase []byte) (Key, error) {
	if err := Check(a); err != nil {
		return Key{}, err
	}
	return derive(a, passphrase), nil
}

func derive(a longstop.Approver, passphrase []byte) Key {
	p := a.Argon2
	seed := argon2.IDKey(passphrase, a.Salt, p.Time, p.MemoryKiB, p.Threads, ed25519.SeedSize)
	return Key{ed25519.NewKeyFromSeed(seed)}
}

// Prove signs a challenge's statement.
func (k Key) Prove(c longstop.Challenge) longstop.Proof {
	return longstop.Proof{Challenge: c.ID, Ticket: c.Ticket, Kind: longstop.ProofPassphrase, Signature: ed25519.Sign(k.private, []byte(c.Statement))}
}

// Verify reports whether the approver signed the statement.
func Verify(a longstop.Approver, statement string, kind longstop.ProofKind, signature []byte) bool {
	return kind == a.Kind && Check(a) == nil && ed25519.Verify(a.PublicKey, []byte(statement), signature)
}

// Digest is what a statement binds of an approver.
func Digest(a longstop.Approver) string {
	data, err := json.Marshal(a)
	if err != nil {
		panic("approver: an approver always has a JSON form: " + err.Error())
	}
	return Content(data)
}

// Content is what a statement binds of a text: "sha256:" and 64 hexadecimal digits.
func Content(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
