package wire

import (
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Strict reads one JSON value into the value that into points to, and refuses what another reader
// could understand otherwise: a name twice in one object at any depth, a name that differs from a
// field's only in case, unknown fields, null for what cannot be absent, anything after the value,
// invalid UTF-8, lone surrogates, base64 that is not canonical, control characters in names and
// ids, nesting deeper than a hundred. For requests and whatever this version alone writes.
//
// What is not in the JSON keeps its value in into. json.RawMessage fields alias data.
func Strict(data []byte, into any) error { return read(data, into, true) }

// Tolerant is Strict but for unknown fields, which it passes over (checked for all the rest): for
// answers and records, whose writer may be newer.
func Tolerant(data []byte, into any) error { return read(data, into, false) }

func read(data []byte, into any, strict bool) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("json: cannot read into %T", into)
	}
	fill, err := fillerOf(target.Type().Elem())
	if err != nil {
		return err
	}
	if !utf8.Valid(data) {
		return errors.New("json: invalid UTF-8")
	}
	d := decoder{data: data, strict: strict}
	d.space()
	if err := fill(&d, target.Elem(), false); err != nil {
		return fmt.Errorf("json: byte %d: %w", d.at, err)
	}
	d.space()
	if d.at != len(data) {
		return fmt.Errorf("json: byte %d: something stands after the value", d.at)
	}
	return nil
}

// decoder is a position in a JSON text of valid UTF-8. Its methods begin at the first byte of what
// they read, spaces before it passed, and end behind its last.
type decoder struct {
	data   []byte
	at     int
	depth  int
	strict bool
	names  [][]byte // of the objects being read, the innermost last, where no struct keeps count
}

const maxDepth = 100

var errEnds = errors.New("the text ends too soon")

func (d *decoder) space() {
	for d.at < len(d.data) {
		switch d.data[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (d *decoder) peek() byte {
	if d.at < len(d.data) {
		return d.data[d.at]
	}
	return 0
}

// wrong describes what stands where something else was wanted.
func (d *decoder) wrong(want string) error {
	if d.at >= len(d.data) {
		return errEnds
	}
	return fmt.Errorf("want %s, not %q", want, clip(d.data[d.at:min(d.at+16, len(d.data))]))
}

func (d *decoder) enter() error {
	if d.depth++; d.depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	d.at++
	d.space()
	return nil
}

// object calls member for each name, unescaped, at its value. Whether a name came before is for
// member to know.
func (d *decoder) object(member func(name []byte) error) error {
	if d.peek() != '{' {
		return d.wrong("an object")
	}
	if err := d.enter(); err != nil {
		return err
	}
	for first := true; d.peek() != '}'; first = false {
		if !first {
			if d.peek() != ',' {
				return d.wrong("a comma or the object's end")
			}
			d.at++
			d.space()
		}
		if d.peek() != '"' {
			return d.wrong("a name in quotes")
		}
		name, err := d.text(true)
		if err != nil {
			return fmt.Errorf("a name: %w", err)
		}
		d.space()
		if d.peek() != ':' {
			return d.wrong("a colon")
		}
		d.at++
		d.space()
		if err := member(name); err != nil {
			return err
		}
		d.space()
	}
	d.at++
	d.depth--
	return nil
}

// array calls element at each value.
func (d *decoder) array(element func(i int) error) error {
	if d.peek() != '[' {
		return d.wrong("an array")
	}
	if err := d.enter(); err != nil {
		return err
	}
	for i := 0; d.peek() != ']'; i++ {
		if i > 0 {
			if d.peek() != ',' {
				return d.wrong("a comma or the array's end")
			}
			d.at++
			d.space()
		}
		if err := element(i); err != nil {
			return err
		}
		d.space()
	}
	d.at++
	d.depth--
	return nil
}

// skip passes over any value and checks it. id says that strings in it are ids.
func (d *decoder) skip(id bool) error {
	switch c := d.peek(); {
	case c == '{':
		base := len(d.names)
		defer func() { d.names = d.names[:base] }()
		var index map[string]bool
		return d.object(func(name []byte) error {
			if err := d.once(name, base, &index); err != nil {
				return err
			}
			return d.skip(isID(string(name)))
		})
	case c == '[':
		return d.array(func(int) error { return d.skip(id) })
	case c == '"':
		_, err := d.text(id)
		return err
	case c == '-' || c >= '0' && c <= '9':
		_, err := d.number()
		return err
	}
	for _, word := range []string{"null", "true", "false"} {
		if d.literal(word) {
			return nil
		}
	}
	return d.wrong("a value")
}

// once enters a name of the object whose names begin at base. Short objects are searched, long
// ones indexed.
func (d *decoder) once(name []byte, base int, index *map[string]bool) error {
	const few = 16
	seen := false
	switch {
	case *index != nil:
		seen = (*index)[string(name)]
		(*index)[string(name)] = true
	default:
		for _, other := range d.names[base:] {
			seen = seen || string(other) == string(name)
		}
		d.names = append(d.names, name)
		if len(d.names)-base == few {
			*index = map[string]bool{}
			for _, other := range d.names[base:] {
				(*index)[string(other)] = true
			}
		}
	}
	if seen {
		return errTwice(name)
	}
	return nil
}

func errTwice(name []byte) error {
	return fmt.Errorf("the name %q stands twice in one object", clip(name))
}
