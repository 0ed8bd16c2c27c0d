package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longstop/longstop"
)

// Format is the version of the entry's bytes that Encode writes.
const Format = 1

// The bytes of an entry are lines, each ended by one LF, and then the body. Every line is a name,
// one space and a value, in this order; those in brackets are left out when empty:
//
//	longstop-entry 1
//	index    decimal, from 0
//	at       2006-01-02T15:04:05.000000Z, UTC, six digits of fraction
//	kind     1 to 64 of a-z and _
//	[action  ActionID]
//	[session SessionID]
//	[run     RunID]
//	[host    Host]
//	[by      By]
//	[raw     Kind, space, Bytes in decimal, space, Digest]   once for each, in their order
//
// then an empty line, and Body to the end: nothing, or one JSON value.
//
// In the values of action, session, run, host and by, each byte below 0x20, 0x7f and % is written
// as % and two upper-case hexadecimal digits; every other byte stands for itself. Decimals have no
// sign and no leading zero. Decode accepts nothing else, so two different byte strings are never
// the same entry.
const (
	formatLine = "longstop-entry 1"
	timeLayout = "2006-01-02T15:04:05.000000Z"
)

// ErrNewerFormat is wrapped by Decode's error for bytes that a later version of the format begins.
var ErrNewerFormat = errors.New("entry is of a newer format than this program reads")

// Encode returns the entry's bytes. It fails on what has no such form: a negative index, a year
// outside 0 to 9999, a kind or digest of another shape, a body that is not JSON.
func Encode(e Entry) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("encode journal entry: %w", err)
	}
	b := make([]byte, 0, 256+len(e.Body))
	b = append(b, formatLine...)
	b = append(b, "\nindex "...)
	b = strconv.AppendInt(b, e.Index, 10)
	b = append(b, "\nat "...)
	b = e.At.UTC().AppendFormat(b, timeLayout)
	b = append(b, "\nkind "...)
	b = append(b, e.Kind...)
	b = append(b, '\n')
	b = appendLine(b, "action", string(e.ActionID))
	b = appendLine(b, "session", string(e.SessionID))
	b = appendLine(b, "run", string(e.RunID))
	b = appendLine(b, "host", e.Host)
	b = appendLine(b, "by", e.By)
	for _, raw := range e.Raw {
		b = fmt.Appendf(b, "raw %s %d %s\n", raw.Kind, raw.Bytes, raw.Digest)
	}
	b = append(b, '\n')
	return append(b, e.Body...), nil
}

func (e *Entry) check() error {
	switch year := e.At.UTC().Year(); {
	case e.Index < 0:
		return fmt.Errorf("index %d is negative", e.Index)
	case year < 0 || year > 9999:
		return fmt.Errorf("time %v is out of range", e.At)
	case !isWord(string(e.Kind)):
		return fmt.Errorf("kind %q: want 1 to 64 of a-z and _", e.Kind)
	case len(e.Body) > 0 && !json.Valid(e.Body):
		return errors.New("body is not JSON")
	}
	for _, raw := range e.Raw {
		if err := raw.check(); err != nil {
			return err
		}
	}
	return nil
}

func (r RawDigest) check() error {
	digits, ok := strings.CutPrefix(r.Digest, "sha256:")
	switch {
	case !isWord(r.Kind):
		return fmt.Errorf("raw kind %q: want 1 to 64 of a-z and _", r.Kind)
	case r.Bytes < 0:
		return fmt.Errorf("raw %s: negative length %d", r.Kind, r.Bytes)
	case !ok || len(digits) != 64 || strings.Trim(digits, "0123456789abcdef") != "":
		return fmt.Errorf("raw %s: digest %q: want sha256: and 64 hexadecimal digits", r.Kind, r.Digest)
	}
	return nil
}

// isWord reports whether s is 1 to 64 of a-z and _.
func isWord(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

func appendLine(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	b = append(b, ' ')
	for i := 0; i < len(value); i++ {
		if c := value[i]; mustEscape(c) {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return append(b, '\n')
}

const upperHex = "0123456789ABCDEF"

func mustEscape(c byte) bool { return c < 0x20 || c == 0x7f || c == '%' }

// Decode reads an entry from exactly the bytes that Encode gives for it.
func Decode(data []byte) (Entry, error) {
	e, err := decode(data)
	if err != nil {
		return Entry{}, fmt.Errorf("decode journal entry: %w", err)
	}
	return e, nil
}

func decode(data []byte) (Entry, error) {
	var e Entry
	head, body, ok := bytes.Cut(data, []byte("\n\n"))
	if !ok {
		return e, errors.New("no empty line after the fields")
	}
	lines := reader(strings.Split(string(head), "\n"))
	if first := lines[0]; first != formatLine {
		if version, ok := strings.CutPrefix(first, "longstop-entry "); ok {
			if n, err := decimal(version); err == nil && n > Format {
				return e, fmt.Errorf("%w: %d, not %d", ErrNewerFormat, n, Format)
			}
		}
		return e, fmt.Errorf("first line is not %q", formatLine)
	}
	lines = lines[1:]
	if len(body) > 0 {
		e.Body = json.RawMessage(bytes.Clone(body))
	}
	if err := lines.fields(&e); err != nil {
		return e, err
	}
	return e, e.check()
}

// reader is the lines not read yet.
type reader []string

// take returns the value of the next line if it has that name.
func (r *reader) take(name string) (string, bool) {
	if len(*r) == 0 {
		return "", false
	}
	value, ok := strings.CutPrefix((*r)[0], name+" ")
	if ok {
		*r = (*r)[1:]
	}
	return value, ok
}

func (r *reader) fields(e *Entry) error {
	var err error
	index, _ := r.take("index")
	if e.Index, err = decimal(index); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	at, _ := r.take("at")
	parsed, err := time.Parse(timeLayout, at)
	if err != nil || parsed.Format(timeLayout) != at {
		return fmt.Errorf("at %q: want the form %s", at, timeLayout)
	}
	e.At = longstop.At(parsed)
	kind, _ := r.take("kind")
	e.Kind = Kind(kind)
	for _, field := range []struct {
		name string
		into *string
	}{
		{"action", (*string)(&e.ActionID)},
		{"session", (*string)(&e.SessionID)},
		{"run", (*string)(&e.RunID)},
		{"host", &e.Host},
		{"by", &e.By},
	} {
		value, ok := r.take(field.name)
		if !ok {
			continue
		}
		if *field.into, err = unescape(value); err != nil {
			return fmt.Errorf("%s: %w", field.name, err)
		}
	}
	for value, ok := r.take("raw"); ok; value, ok = r.take("raw") {
		raw, err := parseRaw(value)
		if err != nil {
			return err
		}
		e.Raw = append(e.Raw, raw)
	}
	if len(*r) > 0 {
		return fmt.Errorf("line %q is not one of an entry's, or not in its place", (*r)[0])
	}
	return nil
}

func parseRaw(value string) (RawDigest, error) {
	words := strings.Split(value, " ")
	if len(words) != 3 {
		return RawDigest{}, fmt.Errorf("raw %q: want kind, length and digest", value)
	}
	n, err := decimal(words[1])
	if err != nil {
		return RawDigest{}, fmt.Errorf("raw %q: %w", value, err)
	}
	return RawDigest{Kind: words[0], Bytes: n, Digest: words[2]}, nil
}

// decimal reads digits alone, without sign or leading zero.
func decimal(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s || n < 0 {
		return 0, fmt.Errorf("%q is not a decimal number", s)
	}
	return n, nil
}

// unescape undoes appendLine and refuses what it would not have written.
func unescape(value string) (string, error) {
	if value == "" {
		return "", errors.New("empty value")
	}
	b := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c != '%' && mustEscape(c):
			return "", fmt.Errorf("control character %#02x", c)
		case c != '%':
			b = append(b, c)
			continue
		case i+2 >= len(value):
			return "", errors.New("cut short after %")
		}
		high, low := strings.IndexByte(upperHex, value[i+1]), strings.IndexByte(upperHex, value[i+2])
		if high < 0 || low < 0 || !mustEscape(byte(high<<4|low)) {
			return "", fmt.Errorf("%q should not be escaped so", value[i:i+3])
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	return string(b), nil
}
