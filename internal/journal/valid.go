package journal

import "bytes"

// valid is json.Valid, several times as fast: each entry of the log is looked through before it is appended. It
// nests as deep as encoding/json does.
func valid(text []byte) bool {
	v := validator{text: text}
	return v.value(0) && v.peek() == 0 && v.at == len(text)
}

const maxDepth = 10_000

type validator struct {
	text []byte
	at   int
}

// peek goes on to what is not a space, and returns it; 0 at the end.
func (v *validator) peek() byte {
	for ; v.at < len(v.text); v.at++ {
		switch c := v.text[v.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (v *validator) value(depth int) bool {
	switch v.peek() {
	case '{':
		return v.list(depth+1, '}', func() bool { return v.peek() == '"' && v.str() && v.take(':') })
	case '[':
		return v.list(depth+1, ']', func() bool { return true })
	case '"':
		return v.str()
	case 't':
		return v.word("true")
	case 'f':
		return v.word("false")
	case 'n':
		return v.word("null")
	}
	return v.number()
}

func (v *validator) take(c byte) bool {
	if v.peek() != c {
		return false
	}
	v.at++
	return true
}

// list reads an object or an array; name is what stands before each of its values.
func (v *validator) list(depth int, closes byte, name func() bool) bool {
	if v.at++; depth > maxDepth {
		return false
	}
	if v.take(closes) {
		return true
	}
	for name() && v.value(depth) {
		if v.take(closes) {
			return true
		}
		if !v.take(',') {
			return false
		}
	}
	return false
}

func (v *validator) str() bool {
	for v.at++; v.at < len(v.text); v.at++ {
		switch c := v.text[v.at]; {
		case c == '"':
			v.at++
			return true
		case c < ' ':
			return false
		case c == '\\':
			if v.at++; !v.escape() {
				return false
			}
		}
	}
	return false
}

// escape reads what follows a backslash, and stays on its last byte.
func (v *validator) escape() bool {
	rest := v.text[min(v.at, len(v.text)):]
	switch {
	case len(rest) == 0:
		return false
	case rest[0] != 'u':
		return bytes.IndexByte([]byte(`"\/bfnrt`), rest[0]) >= 0
	case len(rest) < 5:
		return false
	}
	v.at += 4
	return len(bytes.Trim(rest[1:5], "0123456789abcdefABCDEF")) == 0
}

func (v *validator) word(word string) bool {
	if !bytes.HasPrefix(v.text[v.at:], []byte(word)) {
		return false
	}
	v.at += len(word)
	return true
}

func (v *validator) number() bool {
	v.has("-")
	whole := v.at
	if n := v.digits(); n == 0 || n > 1 && v.text[whole] == '0' {
		return false
	}
	if v.has(".") && v.digits() == 0 {
		return false
	}
	if v.has("eE") {
		v.has("+-")
		return v.digits() > 0
	}
	return true
}

// has goes past one of these bytes, if it stands here.
func (v *validator) has(any string) bool {
	if v.at == len(v.text) || bytes.IndexByte([]byte(any), v.text[v.at]) < 0 {
		return false
	}
	v.at++
	return true
}

func (v *validator) digits() int {
	start := v.at
	for v.at < len(v.text) && v.text[v.at] >= '0' && v.text[v.at] <= '9' {
		v.at++
	}
	return v.at - start
}
