package approver

import (
	"strconv"
	"strings"
)

// Statement is what a person signs: facts, each with a name and a value.
type Statement []Fact

// Fact is one line of a statement.
type Fact struct{ Name, Value string }

// preamble begins every statement, so that no signature of one is taken for that of anything else.
const preamble = "longstop statement 1\n"

// Add adds a fact; one without a value is left out.
func (s *Statement) Add(name, value string) {
	if value != "" {
		*s = append(*s, Fact{name, value})
	}
}

// String is the text that is signed: one fact a line, "name: value". A value that would not be one
// plain line is quoted as in Go, and so is one that begins with a quote: no two statements have one text.
func (s Statement) String() string {
	var b strings.Builder
	b.WriteString(preamble)
	for _, f := range s {
		b.WriteString(f.Name + ": " + plain(f.Value) + "\n")
	}
	return b.String()
}

// Value is the first fact of that name.
func (s Statement) Value(name string) string {
	for _, f := range s {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Contains reports whether the text has the fact as a line of its own: what a person was shown is what
// they sign.
func (f Fact) In(text string) bool {
	return strings.HasPrefix(text, preamble) && strings.Contains(text[len(preamble)-1:], "\n"+f.Name+": "+plain(f.Value)+"\n")
}

func plain(value string) string {
	quoted := strconv.QuoteToGraphic(value)
	if quoted == `"`+value+`"` {
		return value
	}
	return quoted
}
