package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// pattern is a name in which * stands for any characters and ? for one.
type pattern string

// maxName is how long the name of a file can be (NAME_MAX), and so that of a program.
const maxName = 255

// parsePattern refuses what looks like more than it is.
func parsePattern(text string) (pattern, error) {
	switch i := strings.IndexAny(text, `[]{}\`); {
	case text == "":
		return "", fmt.Errorf("an empty pattern matches nothing")
	case len(text) > maxName:
		return "", fmt.Errorf("the pattern has %d bytes, and no name has more than %d", len(text), maxName)
	case i >= 0:
		return "", fmt.Errorf("the pattern %q has %q, which means nothing here: * stands for any characters, ? for one", text, text[i:i+1])
	case strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0:
		return "", fmt.Errorf("the pattern %q has characters that no name has", text)
	}
	return pattern(text), nil
}

// matches goes through text once, and back to the last * where it must.
func (p pattern) matches(text string) bool {
	i, j, star, from := 0, 0, -1, 0
	for j < len(text) {
		switch _, size := utf8.DecodeRuneInString(text[j:]); {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && p[i] == '?':
			i++
			j += size
		case i < len(p) && p[i] == text[j]:
			i++
			j++
		case star >= 0:
			_, size := utf8.DecodeRuneInString(text[from:])
			from += size
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func anyMatches(patterns []pattern, text string) bool {
	for _, p := range patterns {
		if p.matches(text) {
			return true
		}
	}
	return false
}
