package policy

import (
	"fmt"
	"strings"
)

// pattern is a name in which * stands for any characters and ? for one.
type pattern string

// parsePattern refuses what looks like more than it is.
func parsePattern(text string) (pattern, error) {
	switch i := strings.IndexAny(text, `[]{}\`); {
	case text == "":
		return "", fmt.Errorf("an empty pattern matches nothing")
	case i >= 0:
		return "", fmt.Errorf("the pattern %q has %q, which means nothing here: * stands for any characters, ? for one", text, text[i:i+1])
	case strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0:
		return "", fmt.Errorf("the pattern %q has characters that no name has", text)
	}
	return pattern(text), nil
}

// matches goes through text once, and back to the last * where it must.
func (p pattern) matches(text string) bool {
	pat, name := []rune(p), []rune(text)
	i, j, star, from := 0, 0, -1, 0
	for j < len(name) {
		switch {
		case i < len(pat) && pat[i] == '*':
			star, from = i, j
			i++
		case i < len(pat) && (pat[i] == '?' || pat[i] == name[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(pat) && pat[i] == '*' {
		i++
	}
	return i == len(pat)
}

func anyMatches(patterns []pattern, text string) bool {
	for _, p := range patterns {
		if p.matches(text) {
			return true
		}
	}
	return false
}
