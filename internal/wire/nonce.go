package wire

import (
	"crypto/rand"
	"encoding/hex"
)

// NewNonce makes a nonce of 128 random bits: 32 lower-case hexadecimal digits. Nothing that has not
// read the request can name it, so no text that happens to be printed is taken for the answer.
func NewNonce() string {
	var random [nonceLen / 2]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// ValidNonce reports whether s has the form of a nonce.
func ValidNonce(s string) bool {
	if len(s) != nonceLen {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
