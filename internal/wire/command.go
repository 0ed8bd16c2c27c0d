package wire

import (
	"errors"
	"path"
	"strings"
)

// Command is all that a gateway ever has a host's login shell, or forced command, run for a verb: the
// runner's absolute path and the verb, both plain words to every shell.
func Command(runner string, verb Verb) string { return runner + " " + string(verb) }

// ParseCommand reads what Command writes, and nothing else. The verb is a word; whether there is such a
// verb is for the caller to know.
func ParseCommand(command string) (runner string, verb Verb, err error) {
	runner, word, found := strings.Cut(command, " ")
	if !found || !PlainPath(runner) || word == "" || strings.ContainsFunc(word, func(c rune) bool { return c < 'a' || c > 'z' }) {
		return "", "", errors.New("not the path of a runner, one space and a verb")
	}
	return runner, Verb(word), nil
}

// PlainPath reports whether every login shell takes p, an absolute path, as one plain word.
func PlainPath(p string) bool {
	if !path.IsAbs(p) || path.Clean(p) != p {
		return false
	}
	for _, c := range []byte(p) {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '/', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ForcedRefusal begins what a runner that is a key's forced command says, on standard error, to a
// command that is none of the contract's. The gateway knows by it what it met.
const ForcedRefusal = "longstop-runner forced: refused "
