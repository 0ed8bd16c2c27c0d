package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// isID reports whether the string under this name is an identity, by which something is looked up,
// compared or named in a log.
func isID(name string) bool {
	switch name {
	case "nonce", "verb", "key", "cursor":
		return true
	}
	return strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_ids")
}

var (
	errControl   = errors.New("a control character")
	errIDControl = errors.New("a control or format character in a name or id")
	errSurrogate = errors.New("half a surrogate pair")
)

// text returns a string's content: of data itself where it has no escapes, else unescaped.
func (d *decoder) text(id bool) ([]byte, error) {
	body := d.data[d.at+1:]
	end := bytes.IndexByte(body, '"')
	if end < 0 {
		return nil, errEnds
	}
	escape := bytes.IndexByte(body[:end], '\\')
	if escape >= 0 {
		if end = closing(body, escape); end < 0 {
			return nil, errEnds
		}
	}
	content := body[:end]
	if hasControl(content) {
		return nil, errControl
	}
	if escape >= 0 {
		var err error
		if content, err = unescape(content, escape); err != nil {
			return nil, err
		}
	}
	if id && bytes.ContainsFunc(content, invisible) {
		return nil, errIDControl
	}
	d.at += 1 + end + 1
	return content, nil
}

// closing finds the quote that ends a string whose first backslash is at from.
func closing(body []byte, from int) int {
	for i := from; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// hasControl reports whether a byte is below 0x20, eight bytes at a time: a byte borrows from its
// high bit when 0x20 is taken from it, and had none before.
func hasControl(b []byte) bool {
	const low, high = 0x2020202020202020, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		if (x-low)&^x&high != 0 {
			return true
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}

// invisible reports control and format characters: what a person reading an id does not see, or
// sees moved.
func invisible(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// unescape resolves the escapes of content, the first of which is at from.
func unescape(content []byte, from int) ([]byte, error) {
	plain := append(make([]byte, 0, len(content)), content[:from]...)
	for rest := content[from:]; len(rest) > 0; {
		if rest[0] != '\\' {
			n := bytes.IndexByte(rest, '\\')
			if n < 0 {
				n = len(rest)
			}
			plain, rest = append(plain, rest[:n]...), rest[n:]
			continue
		}
		if at := strings.IndexByte(`"\/bfnrt`, rest[1]); at >= 0 {
			plain, rest = append(plain, "\"\\/\b\f\n\r\t"[at]), rest[2:]
			continue
		}
		r, n, err := unicodeEscape(rest)
		if err != nil {
			return nil, err
		}
		plain, rest = utf8.AppendRune(plain, r), rest[n:]
	}
	return plain, nil
}

// unicodeEscape reads \uXXXX, or two of them that make a pair, and returns how long it is.
func unicodeEscape(b []byte) (rune, int, error) {
	high, ok := hex4(b)
	if !ok {
		return 0, 0, fmt.Errorf("no escape: %q", clip(b[:min(len(b), 6)]))
	}
	if !utf16.IsSurrogate(high) {
		return high, 6, nil
	}
	low, ok := hex4(b[6:])
	if pair := utf16.DecodeRune(high, low); ok && pair != unicode.ReplacementChar {
		return pair, 12, nil
	}
	return 0, 0, errSurrogate
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number returns the number's text, checked against the grammar (RFC 8259 §6).
func (d *decoder) number() ([]byte, error) {
	start := d.at
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else if !d.digits() {
		return nil, d.wrong("a number")
	}
	if d.peek() == '.' {
		d.at++
		if !d.digits() {
			return nil, d.wrong("a digit")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if !d.digits() {
			return nil, d.wrong("a digit")
		}
	}
	if c := d.peek(); c >= '0' && c <= '9' {
		return nil, errors.New("a number with a leading zero")
	}
	return d.data[start:d.at], nil
}

func (d *decoder) digits() bool {
	start := d.at
	for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
		d.at++
	}
	return d.at > start
}

// literal passes over the word if it stands next.
func (d *decoder) literal(word string) bool {
	if len(d.data)-d.at < len(word) || string(d.data[d.at:d.at+len(word)]) != word {
		return false
	}
	d.at += len(word)
	return true
}
