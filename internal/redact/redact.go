// Package redact takes configured secrets out of what is kept, shown, exported or sent: literals, and
// what patterns match. It is pure. Text gets a mark; bytes whose offsets must stay true are masked in
// place, as many as there were.
//
// The bound it keeps: a match is at most MaxMatch bytes long. What a longer one would still have to see is
// not waited for.
package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxMatch is how many bytes of a stream are looked at for one match.
	MaxMatch = 8 << 10
	// Mark stands in text for what was taken out.
	Mark = "[redacted]"

	leastLiteral = 4
	maxPatterns  = 100
)

// Redactor knows what is secret. A nil one knows nothing, and changes nothing.
type Redactor struct {
	literals [][]byte // with the forms that they have inside JSON
	patterns []*pattern
}

// New makes a redactor of literals and of patterns of RE2. Of a pattern with groups only what the groups match
// is secret. Without any of both it is nil.
func New(literals, patterns []string) (*Redactor, error) {
	var r Redactor
	for i, literal := range literals {
		if len(literal) < leastLiteral {
			return nil, fmt.Errorf("literal %d has %d bytes: one of less than %d would be found everywhere", i+1, len(literal), leastLiteral)
		}
		if len(literal) > MaxMatch {
			return nil, fmt.Errorf("literal %d has %d bytes: at most %d", i+1, len(literal), MaxMatch)
		}
		r.literals = append(r.literals, formsOf(literal)...)
	}
	if len(patterns) > maxPatterns {
		return nil, fmt.Errorf("%d patterns: at most %d", len(patterns), maxPatterns)
	}
	for _, text := range patterns {
		p, err := newPattern(text)
		if err != nil {
			return nil, fmt.Errorf("the pattern %q: %w", text, err)
		}
		r.patterns = append(r.patterns, p)
	}
	if len(r.literals)+len(r.patterns) == 0 {
		return nil, nil
	}
	return &r, nil
}

// ReadLiterals reads a file of literals: one on each line; empty lines do not count.
func ReadLiterals(text string) (literals []string, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			literals = append(literals, line)
		}
	}
	if len(literals) == 0 {
		return nil, errors.New("there is no literal in it")
	}
	return literals, nil
}

// formsOf are a literal, and as it stands in JSON where that is otherwise.
func formsOf(literal string) [][]byte {
	forms := [][]byte{[]byte(literal)}
	for _, html := range []bool{true, false} {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(html)
		if e.Encode(literal) != nil {
			continue
		}
		form := bytes.TrimSpace(text.Bytes())
		form = form[1 : len(form)-1]
		if !slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
			forms = append(forms, form)
		}
	}
	return forms
}

// span is a part of some bytes: from up to and without to.
type span struct{ from, to int }

// spans are the secret parts of some bytes, in order, none touching another.
func (r *Redactor) spans(b []byte) []span {
	if r == nil {
		return nil
	}
	var all []span
	for _, literal := range r.literals {
		for at := 0; ; at++ {
			next := bytes.Index(b[at:], literal)
			if next < 0 {
				break
			}
			at += next
			all = append(all, span{at, at + len(literal)})
		}
	}
	for _, p := range r.patterns {
		all = p.spans(all, b)
	}
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	joined := all[:0]
	for _, s := range all {
		if last := len(joined) - 1; last >= 0 && s.from <= joined[last].to {
			joined[last].to = max(joined[last].to, s.to)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// Has reports whether something secret is in a text.
func (r *Redactor) Has(s string) bool { return len(r.spans([]byte(s))) > 0 }

// Text is a text with a mark for what is secret in it.
func (r *Redactor) Text(s string) string {
	if r == nil || s == "" {
		return s
	}
	found := r.spans([]byte(s))
	if len(found) == 0 {
		return s
	}
	var out strings.Builder
	at := 0
	for _, f := range found {
		out.WriteString(s[at:f.from])
		out.WriteString(Mark)
		at = f.to
	}
	out.WriteString(s[at:])
	return out.String()
}

// Bytes are bytes with what is secret in them masked, as many as there were. B is not changed.
func (r *Redactor) Bytes(b []byte) []byte {
	found := r.spans(b)
	if len(found) == 0 {
		return b
	}
	b = bytes.Clone(b)
	for _, f := range found {
		mask(b[f.from:f.to])
	}
	return b
}

func mask(b []byte) {
	for i := range b {
		b[i] = '*'
	}
}

// Stream masks a part of a stream, which begins with MaxMatch bytes of what lies before the part that is
// wanted, where there are as many. Sure is how many of its bytes are as they will be whatever follows: what
// may be the beginning of something secret is not, unless the part is the stream's last, but never more than
// MaxMatch bytes. B is not changed.
func (r *Redactor) Stream(b []byte, last bool) (masked []byte, sure int) {
	masked = r.Bytes(b)
	if r == nil || last {
		return masked, len(b)
	}
	sure = len(b)
	for _, literal := range r.literals {
		sure = min(sure, begun(b, literal))
	}
	for _, p := range r.patterns {
		sure = min(sure, p.begun(b))
	}
	return masked, sure
}

// begun is where a literal may begin that is not whole yet; len(b): nowhere.
func begun(b, literal []byte) int {
	for n := min(len(literal)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, literal[:n]) {
			return len(b) - n
		}
	}
	return len(b)
}

// JSON is a JSON text with a mark for what is secret in its strings, but for those below Exact members.
func (r *Redactor) JSON(text []byte) []byte {
	if r == nil || len(text) == 0 {
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return text
	}
	value, changed := r.value(value)
	if !changed {
		return text
	}
	out, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return out
}

func (r *Redactor) value(value any) (_ any, changed bool) {
	switch v := value.(type) {
	case string:
		text := r.Text(v)
		return text, text != v
	case []any:
		for i := range v {
			var one bool
			v[i], one = r.value(v[i])
			changed = changed || one
		}
	case map[string]any:
		for name, inner := range v {
			if slices.Contains(Exact, name) {
				continue
			}
			var one bool
			v[name], one = r.value(inner)
			changed = changed || one
		}
	}
	return value, changed
}

// pattern is a pattern, and itself as a program that tells whether a match has begun.
type pattern struct {
	re *regexp.Regexp
	program
}

func newPattern(text string) (*pattern, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	if re.MatchString("") {
		return nil, errors.New("it matches nothing at all, and so everywhere")
	}
	program, err := compile(text)
	return &pattern{re, program}, err
}

// spans adds what the pattern finds secret.
func (p *pattern) spans(all []span, b []byte) []span {
	for _, found := range p.re.FindAllSubmatchIndex(b, -1) {
		if len(found) == 2 {
			all = append(all, span{found[0], found[1]})
			continue
		}
		for i := 2; i < len(found); i += 2 {
			if found[i] >= 0 && found[i] < found[i+1] {
				all = append(all, span{found[i], found[i+1]})
			}
		}
	}
	return all
}
