package fastjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/longstop/longstop"
)

// reader walks through a JSON text. At the first thing that it does not understand it is lost, and
// from then on gives zeros and no further members.
type reader struct {
	data []byte
	at   int
	lost bool
}

// peek is the next byte that is no white space; 0 at the end.
func (r *reader) peek() byte {
	for !r.lost && r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// ended reports whether the text was understood, and is over.
func (r *reader) ended() bool { return r.peek() == 0 && !r.lost && r.at == len(r.data) }

// member goes to the next member of an object, the first if begun is false, and reports whether there
// is one. Null has none.
func (r *reader) member(begun *bool) bool { return r.next(begun, '{', '}') }

// element does the same for an array.
func (r *reader) element(begun *bool) bool { return r.next(begun, '[', ']') }

func (r *reader) next(begun *bool, opens, closes byte) bool {
	if !*begun {
		*begun = true
		if r.null() {
			return false
		}
		if !r.take(opens) {
			r.lost = true
		}
		return !r.take(closes) && !r.lost
	}
	if r.take(closes) {
		return false
	}
	if !r.take(',') {
		r.lost = true
	}
	return !r.lost
}

// name reads a member's name.
func (r *reader) name() []byte {
	name, plain := r.quoted()
	if !plain || !r.take(':') {
		r.lost = true
	}
	return name
}

// quoted reads a string as it stands between its quotes; plain says that it stands for itself.
func (r *reader) quoted() (text []byte, plain bool) {
	if !r.take('"') {
		r.lost = true
		return nil, false
	}
	start := r.at
	for plain = true; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c == '"':
			r.at++
			return r.data[start : r.at-1], plain
		case c == '\\':
			plain = false
			r.at++
		case c < ' ' || c >= utf8.RuneSelf:
			plain = false
		}
	}
	r.lost = true
	return nil, false
}

// text reads a string. One with escapes or beyond ASCII is encoding/json's.
func (r *reader) text() (s string) {
	if r.null() {
		return ""
	}
	text, plain := r.quoted()
	if plain || r.lost {
		return string(text)
	}
	if json.Unmarshal(r.data[r.at-len(text)-2:r.at], &s) != nil {
		r.lost = true
	}
	return s
}

// key reads a member's name in a map, where any may be.
func (r *reader) key() string {
	key := r.text()
	if !r.take(':') {
		r.lost = true
	}
	return key
}

func (r *reader) base64() []byte {
	if r.null() {
		return nil
	}
	text, plain := r.quoted()
	data, err := base64.StdEncoding.AppendDecode([]byte{}, text)
	if !plain || err != nil || bytes.ContainsAny(text, "\r\n") {
		r.lost = true
	}
	return data
}

// time reads the one spelling in which longstop.Time is written.
func (r *reader) time() longstop.Time {
	text, _ := r.quoted()
	t, err := time.Parse(timeLayout, `"`+string(text)+`"`)
	if err != nil || !spelt(text, timeLayout[1:len(timeLayout)-1]) {
		r.lost = true
	}
	return longstop.Time{Time: t}
}

// spelt reports whether text has digits where layout has them, and else the same bytes. time.Parse takes a comma for
// a point, and a sign for a digit of the fraction.
func spelt(text []byte, layout string) bool {
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	for i := range text {
		if i == len(layout) || digit(text[i]) != digit(layout[i]) || !digit(text[i]) && text[i] != layout[i] {
			return false
		}
	}
	return len(text) == len(layout)
}

func (r *reader) null() bool { return r.word("null") }

func (r *reader) bool() bool {
	if r.word("true") {
		return true
	}
	if !r.word("false") && !r.null() {
		r.lost = true
	}
	return false
}

func (r *reader) word(word string) bool {
	if r.peek() != word[0] || !bytes.HasPrefix(r.data[r.at:], []byte(word)) {
		return false
	}
	r.at += len(word)
	return true
}

// number reads a number as it is written.
func (r *reader) number() string {
	if r.null() {
		return "0"
	}
	r.peek()
	start := r.at
	for !r.lost && r.at < len(r.data) && bytes.IndexByte([]byte("0123456789+-.eE"), r.data[r.at]) >= 0 {
		r.at++
	}
	return string(r.data[start:r.at])
}

func (r *reader) int() int64 {
	text := r.number()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		r.lost = true
	}
	return n
}

func (r *reader) uint() uint64 {
	text := r.number()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		r.lost = true
	}
	return n
}

// float reads a number. One that is not whole is encoding/json's.
func (r *reader) float() (f float64) {
	text := r.number()
	if n, err := strconv.ParseInt(text, 10, 53); err == nil && strconv.FormatInt(n, 10) == text {
		return float64(n)
	}
	if json.Unmarshal([]byte(text), &f) != nil {
		r.lost = true
	}
	return f
}
