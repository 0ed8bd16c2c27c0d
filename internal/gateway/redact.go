package gateway

import (
	"bytes"
	"encoding/base64"

	"github.com/longstop/longstop/internal/wire"
)

// A request on a channel of its own is read by whatever the login shell has become, and that may repeat
// it: as a whole, or word by word in a complaint that there is no such command. What it prints is kept,
// so what must never be kept is taken out first.

// secretsOf are the words of a request that only its runner may know, as they stand in its JSON.
func secretsOf(body any) []string {
	s, ok := body.(wire.Submit)
	if !ok {
		return nil
	}
	words := []string{base64.StdEncoding.EncodeToString(s.Secret)}
	for _, value := range s.EnvValues {
		words = append(words, base64.StdEncoding.EncodeToString(value))
	}
	return words
}

const redacted = "[redacted]"

// leastTail is how much of a secret's beginning, at the end of what was kept, is taken for one.
const leastTail = 4

// withoutWords returns b without those words, and without the beginning of one that b was cut off in.
func withoutWords(b []byte, words []string) []byte {
	for _, word := range words {
		if word == "" {
			continue
		}
		b = bytes.ReplaceAll(b, []byte(word), []byte(redacted))
		for n := min(len(word)-1, len(b)); n >= leastTail; n-- {
			if bytes.HasSuffix(b, []byte(word[:n])) {
				b = append(b[:len(b)-n:len(b)-n], redacted...)
				break
			}
		}
	}
	return b
}
