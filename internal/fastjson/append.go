package fastjson

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/longstop/longstop"
)

// end closes an object whose members were appended from start on, each with a comma before it.
func end(b []byte, start int) []byte {
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{'
	return append(b, '}')
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

// appendString appends a string that needs no escapes; the others are rare, and encoding/json's.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(s) // a string always has a form
			return append(b, escaped...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// timeLayout is the one spelling of a longstop.Time, quotes included.
const timeLayout = `"2006-01-02T15:04:05.000000Z"`

func appendTime(b []byte, t longstop.Time) []byte {
	return t.UTC().AppendFormat(b, timeLayout)
}

func appendBase64(b, data []byte) []byte {
	if data == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// appendFloat appends a whole number; the others are encoding/json's.
func appendFloat(b []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 && !(f == 0 && math.Signbit(f)) {
		return strconv.AppendInt(b, int64(f), 10)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return append(b, "null"...) // not a number, for which JSON has no word
	}
	return append(b, text...)
}
