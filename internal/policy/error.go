package policy

import (
	"fmt"
	"strings"

	"github.com/longstop/longstop"
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

// Shown are the errors as the API shows them.
func (e Errors) Shown() []longstop.PolicyProblem {
	shown := make([]longstop.PolicyProblem, len(e))
	for i, one := range e {
		shown[i] = longstop.PolicyProblem{Line: one.Line, Column: one.Column, Message: one.words()}
	}
	return shown
}
