package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is an argument as far as it is known before it runs.
type word struct {
	text    string // its value; of a word that is not known, what it begins with
	known   bool
	single  bool // it is one argument, whatever its value
	expands bool // not known, and not for a glob alone: it may be any arguments
	node    *syntax.Word
}

// knownWords are the arguments of a command that no shell reads.
func knownWords(argv []string) []word {
	words := make([]word, len(argv))
	for i, arg := range argv {
		words[i] = word{text: arg, known: true, single: true}
	}
	return words
}

func readWords(args []*syntax.Word) []word {
	words := make([]word, len(args))
	for i, arg := range args {
		words[i] = readWord(arg)
	}
	return words
}

// readWord takes the quotes off a word. One that a shell would expand is not known.
func readWord(w *syntax.Word) word {
	var b strings.Builder
	out := word{known: true, single: true, node: w}
	for _, part := range w.Parts {
		known, single, expands := readPart(&b, part, out.known)
		out.known, out.single, out.expands = out.known && known, out.single && single, out.expands || expands
	}
	out.text = b.String()
	if bare := unquoted(w); strings.Contains(bare, "{") && (strings.Contains(bare, ",") || strings.Contains(bare, "..")) {
		out.known, out.single, out.expands = false, false, true // a brace expansion, in those shells that have it
	}
	return out
}

// unquoted is what of a word no quotes are around.
func unquoted(w *syntax.Word) string {
	var text strings.Builder
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			text.WriteString(lit.Value)
		}
	}
	return text.String()
}

// readPart appends what is known of a part, if all before it was.
func readPart(b *strings.Builder, part syntax.WordPart, write bool) (known, single, expands bool) {
	var text strings.Builder
	known, single = true, true
	switch p := part.(type) {
	case *syntax.Lit:
		known = unescape(&text, p.Value, "")
		single = known
	case *syntax.SglQuoted:
		known = !p.Dollar
		text.WriteString(p.Value)
	case *syntax.DblQuoted:
		known, single = quoted(&text, p)
	default:
		known, single = false, false
	}
	if _, glob := part.(*syntax.Lit); !known && !glob {
		expands = !single
	}
	if write {
		b.WriteString(text.String())
	}
	return known, single, expands
}

// quoted reads what stands between double quotes.
func quoted(b *strings.Builder, q *syntax.DblQuoted) (known, single bool) {
	known, single = !q.Dollar, true
	for _, part := range q.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if known {
				unescape(b, p.Value, "\"\\$`\n")
			}
			continue
		case *syntax.ParamExp:
			if p.Param == nil || p.Param.Value == "@" || p.Index != nil || p.Excl {
				single = false
			}
		case *syntax.CmdSubst, *syntax.ArithmExp:
		default:
			single = false
		}
		known = false
	}
	return known, single
}

// unescape appends a literal without its backslashes. Between quotes they escape the given characters
// alone; without quotes they escape any, and characters of a glob that are not escaped are reported.
func unescape(b *strings.Builder, text, only string) (plain bool) {
	plain = true
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && (only == "" || strings.IndexByte(only, text[i+1]) >= 0):
			i++
			if text[i] != '\n' {
				b.WriteByte(text[i])
			}
			continue
		case only == "" && strings.IndexByte("*?[", c) >= 0:
			plain = plain && (text == "[" || text == "[[") // the programs
		}
		b.WriteByte(c)
	}
	return plain
}
