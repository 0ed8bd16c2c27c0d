package policy

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/longstop/longstop"
)

// shell reads the words of a shell: a script, a file, or what comes on its standard input.
func (s *scripts) shell(args []word, redirects []*syntax.Redirect) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.known:
			s.unknown(s.textOf(args))
			return
		case strings.HasPrefix(a.text, "--rcfile") || strings.HasPrefix(a.text, "--init-file"):
			s.unknown(s.textOf(args))
			return
		case a.text == "-" || a.text == "--":
			s.shellFile(args[i+1:], redirects)
			return
		case strings.HasPrefix(a.text, "--"):
		case len(a.text) > 1 && (a.text[0] == '-' || a.text[0] == '+'):
			if strings.Contains(a.text, "c") && a.text[0] == '-' {
				if strings.ContainsAny(a.text, "oO") {
					s.unknown(s.textOf(args)) // the option's name comes first
					return
				}
				s.shellScript(args[i+1:])
				return
			}
			if strings.Contains(a.text, "s") {
				s.fromInput(redirects)
				return
			}
			i += strings.Count(a.text, "o") + strings.Count(a.text, "O") // each takes a word
		default:
			s.shellFile(args[i:], redirects)
			return
		}
	}
	s.fromInput(redirects)
}

// shellScript is the script after -c: the first word that is no option.
func (s *scripts) shellScript(args []word) {
	for len(args) > 0 && args[0].known && len(args[0].text) > 1 && (args[0].text[0] == '-' || args[0].text[0] == '+') {
		if strings.ContainsAny(args[0].text, "oO") {
			s.unknown(s.textOf(args))
			return
		}
		args = args[1:]
	}
	if len(args) > 0 {
		s.joined(args[:1])
	}
}

func (s *scripts) shellFile(args []word, redirects []*syntax.Redirect) {
	if len(args) == 0 {
		s.fromInput(redirects)
		return
	}
	s.sourced(args)
}

// sourced is a file of commands: its name counts, what stands in it nobody knows.
func (s *scripts) sourced(args []word) {
	switch {
	case len(args) == 0:
	case !args[0].known:
		s.unknown(s.textOf(args))
	case device(args[0].text):
		s.unknown(s.textOf(args))
	default:
		s.out.Beyond = true
		s.name(args[0].text)
		s.file(args[0].text)
	}
}

// device reports whether a path is of what a process has open, or may be: it is no file, and may be its input.
func device(name string) bool {
	clean := path.Clean("/" + name)
	return strings.HasPrefix(clean, "/dev/") || strings.HasPrefix(clean, "/proc/") || strings.Contains(name, "..") && (strings.Contains(name, "dev") || strings.Contains(name, "proc"))
}

// fromInput is for programs that read commands from standard input: those of a here-document are known.
func (s *scripts) fromInput(redirects []*syntax.Redirect) {
	var input []*syntax.Redirect
	for _, r := range redirects {
		switch r.Op {
		case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			input = append(input, r)
		default:
			if r.N != nil && r.N.Value == "0" {
				input = append(input, r)
			}
		}
	}
	if len(input) == 1 && (input[0].N == nil || input[0].N.Value == "0") {
		switch r := input[0]; r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if body, ok := hereDocument(r); ok {
				s.fed(body)
				return
			}
		case syntax.WordHdoc:
			if w := readWord(r.Word); w.known {
				s.fed(w.text)
				return
			}
		}
	}
	s.dynamic("commands come on standard input, known only when it runs" + s.place())
	s.find(longstop.FindingDynamic, "", "commands are read from standard input: which they are is known only when it runs")
}

// fed reads a script that a shell takes from its input. What it starts has the same input: who reads a part of that
// has the shell go on elsewhere in it.
func (s *scripts) fed(text string) {
	defer func(was bool) { s.at.fed = was }(s.at.fed)
	s.at.fed = true
	s.nested(text)
}

// partial are programs that can read a part of their input.
var partial = set("head dd read mapfile readarray line sed gsed grep egrep fgrep")

// hereDocument is the body of a here-document that no shell expands.
func hereDocument(r *syntax.Redirect) (body string, ok bool) {
	if r.Hdoc == nil {
		return "", true
	}
	var b strings.Builder
	for _, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		if r.Word.Lit() == "" { // the delimiter has quotes
			b.WriteString(lit.Value)
			continue
		}
		unescape(&b, lit.Value, "\\$`\n")
	}
	return b.String(), true
}
