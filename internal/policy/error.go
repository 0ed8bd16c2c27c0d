package policy

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong with a policy file, and where.
type Error struct {
	Line, Column int // from 1; the column in characters
	Message      string
	Expected     string // what would be right there; empty where the message says it
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.words())
}

func (e *Error) words() string {
	if e.Expected == "" {
		return e.Message
	}
	return e.Message + "; expected " + e.Expected
}

// Errors are all that is wrong with a policy file, in its order; never empty as an error.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// In renders the errors as "FILE:LINE:COLUMN: what", one a line.
func (e Errors) In(file string) string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", file, one.Line, one.Column, one.words())
	}
	return strings.Join(lines, "\n")
}
