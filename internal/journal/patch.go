package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// What an entry changed in a projection is a JSON merge patch (RFC 7386) in its body, under "patch" and
// the projection's name:
//
//	{"launch":"accepted","patch":{"action":{"revision":2,"launch":{"state":"accepted"}}}}
//
// The patches of one row, applied in order, give the row. A projection's JSON has no null among its
// members, which a merge patch could not say.

// ErrNotObject is wrapped by the errors of Diff, Merge and PatchOf: the text is no JSON object of the
// form that json.Marshal gives.
var ErrNotObject = errors.New("not a compact JSON object")

// member is one of an object's, as it stands in the text: the name with its quotes.
type member struct{ name, value []byte }

// members splits an object of compact JSON. It looks at no more than it needs to find the ends.
func members(object []byte) ([]member, error) {
	n := len(object)
	if n < 2 || object[0] != '{' || object[n-1] != '}' {
		return nil, ErrNotObject
	}
	var all []member
	for at := 1; at < n-1; at++ {
		colon := skip(object, at)
		if colon < 0 || colon >= n || object[at] != '"' || object[colon] != ':' {
			return nil, ErrNotObject
		}
		end := skip(object, colon+1)
		if end < 0 || end >= n || object[end] != ',' && end != n-1 {
			return nil, ErrNotObject
		}
		all = append(all, member{object[at:colon], object[colon+1 : end]})
		if at = end; end == n-2 {
			return nil, ErrNotObject // ends with a comma
		}
	}
	return all, nil
}

// skip returns where the value that begins at an offset ends; -1: nowhere.
func skip(text []byte, at int) int {
	start, depth := at, 0
	for at < len(text) {
		switch text[at] {
		case '"':
			if at = endOfString(text, at); at < 0 {
				return -1
			}
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
		if depth < 0 || depth == 0 && (text[at] == ',' || text[at] == ':') {
			break
		}
		at++
	}
	if at == start || depth > 0 {
		return -1
	}
	return at
}

// endOfString returns the offset behind the closing quote of the string that begins at an offset.
func endOfString(text []byte, at int) int {
	for at++; ; at++ {
		next := bytes.IndexByte(text[at:], '"')
		if next < 0 {
			return -1
		}
		escapes := 0
		for at += next; text[at-1-escapes] == '\\'; {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

func find(all []member, name []byte) []byte {
	for _, m := range all {
		if bytes.Equal(m.name, name) {
			return m.value
		}
	}
	return nil
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// Diff returns the merge patch that makes one object of compact JSON out of another; before may be nil.
func Diff(before, after []byte) ([]byte, error) {
	if before == nil {
		before = []byte("{}")
	}
	return appendDiff(nil, before, after)
}

func appendDiff(patch, before, after []byte) ([]byte, error) {
	old, err := members(before)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	now, err := members(after)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	patch = append(patch, '{')
	for _, m := range now {
		was := find(old, m.name)
		if bytes.Equal(was, m.value) || sameValue(was, m.value) {
			continue
		}
		patch = begin(patch, m.name)
		if isObject(was) && isObject(m.value) {
			if patch, err = appendDiff(patch, was, m.value); err != nil {
				return nil, err
			}
			continue
		}
		patch = append(patch, m.value...)
	}
	for _, m := range old {
		if find(now, m.name) == nil {
			patch = append(begin(patch, m.name), "null"...)
		}
	}
	return append(patch, '}'), nil
}

// sameValue reports whether two values that are spelled differently say the same. What somebody wrote into a
// store in another spelling is no change that the log should tell of: it would then be the log's own word.
func sameValue(a, b []byte) bool {
	digits := func(v []byte) bool { return len(bytes.Trim(v, "-0123456789")) == 0 }
	if len(a) == 0 || isObject(a) && isObject(b) || digits(a) && digits(b) {
		return false
	}
	var is, was any
	return json.Unmarshal(a, &was) == nil && json.Unmarshal(b, &is) == nil && reflect.DeepEqual(is, was)
}

// begin appends a member's name to an object that is being written.
func begin(object, name []byte) []byte {
	if object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	object = append(object, name...)
	return append(object, ':')
}

// Merge applies a merge patch of compact JSON to an object, nil for none.
func Merge(target, patch []byte) ([]byte, error) {
	if target == nil {
		target = []byte("{}")
	}
	return appendMerge(nil, target, patch)
}

func appendMerge(merged, target, patch []byte) ([]byte, error) {
	old, err := members(target)
	if err != nil {
		return nil, fmt.Errorf("apply a patch: %w", err)
	}
	changes, err := members(patch)
	if err != nil {
		return nil, fmt.Errorf("apply a patch: %w", err)
	}
	merged = append(merged, '{')
	for _, m := range old {
		if merged, err = appendMember(merged, m.name, m.value, find(changes, m.name)); err != nil {
			return nil, err
		}
	}
	for _, m := range changes {
		if find(old, m.name) != nil {
			continue
		}
		if merged, err = appendMember(merged, m.name, nil, m.value); err != nil {
			return nil, err
		}
	}
	return append(merged, '}'), nil
}

// appendMember appends a member as a change leaves it; nil: there is no change.
func appendMember(merged, name, value, change []byte) ([]byte, error) {
	switch {
	case change == nil:
		return append(begin(merged, name), value...), nil
	case string(change) == "null":
		return merged, nil
	case !isObject(change):
		return append(begin(merged, name), change...), nil
	case !isObject(value):
		value = []byte("{}")
	}
	return appendMerge(begin(merged, name), value, change)
}

// WithPatch adds a patch of a projection to a body, which is nil or an object.
func WithPatch(body []byte, projection string, patch []byte) ([]byte, error) {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if !isObject(body) || body[len(body)-1] != '}' {
		return nil, fmt.Errorf("add a patch to a body: %w", ErrNotObject)
	}
	whole := make([]byte, 0, len(body)+len(patch)+len(projection)+16)
	whole = begin(append(whole, body[:len(body)-1]...), []byte(`"patch"`))
	whole = begin(append(whole, '{'), []byte(`"`+projection+`"`))
	whole = append(whole, patch...)
	return append(whole, "}}"...), nil
}

// PatchOf returns the patch of a projection in a body, nil if there is none.
func PatchOf(body []byte, projection string) ([]byte, error) {
	if !isObject(body) {
		return nil, nil
	}
	all, err := members(body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	patches := find(all, []byte(`"patch"`))
	if !isObject(patches) {
		return nil, nil
	}
	if all, err = members(patches); err != nil {
		return nil, fmt.Errorf("read the body's patch: %w", err)
	}
	return find(all, []byte(`"`+projection+`"`)), nil
}

// FirstDifference names the first member, with those that it lies in, by which two objects of compact
// JSON differ; empty: by none.
func FirstDifference(a, b []byte) (string, error) {
	patch, err := Diff(a, b)
	if err != nil {
		return "", err
	}
	name := ""
	for isObject(patch) {
		changes, err := members(patch)
		if err != nil || len(changes) == 0 {
			return name, err
		}
		if name != "" {
			name += "."
		}
		name += strings.Trim(string(changes[0].name), `"`)
		patch = changes[0].value
	}
	return name, nil
}
