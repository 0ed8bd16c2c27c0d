package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// filler reads the value that stands next into v. It is made once for each type: knowing the type
// is what lets one pass check names exactly, where encoding/json takes a field's name in any case
// and the last of two.
type filler func(d *decoder, v reflect.Value, id bool) error

var fillers sync.Map // reflect.Type → filler

// fillerOf returns the filler of a type made of what messages are made of; others are an error.
func fillerOf(t reflect.Type) (filler, error) {
	if f, ok := fillers.Load(t); ok {
		return f.(filler), nil
	}
	c := compiler{}
	f, err := c.filler(t)
	if err != nil {
		return nil, err
	}
	fillers.Store(t, f)
	return f, nil
}

// compiler makes the fillers of one type and the types within; those under way are found again by
// types that contain themselves.
type compiler map[reflect.Type]*filler

var (
	rawMessage  = reflect.TypeFor[json.RawMessage]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

func (c compiler) filler(t reflect.Type) (filler, error) {
	if under := c[t]; under != nil {
		return func(d *decoder, v reflect.Value, id bool) error { return (*under)(d, v, id) }, nil
	}
	made := new(filler)
	c[t] = made
	f, err := c.compile(t)
	*made = f
	return f, err
}

func (c compiler) compile(t reflect.Type) (filler, error) {
	switch {
	case t == rawMessage:
		return fillRaw, nil
	case reflect.PointerTo(t).Implements(unmarshaler):
		return fillOwn, nil
	case t.Kind() == reflect.Interface && t.NumMethod() == 0:
		return fillAny, nil
	}
	switch t.Kind() {
	case reflect.String:
		return fillString, nil
	case reflect.Bool:
		return fillBool, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fillInt, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fillUint, nil
	case reflect.Float32, reflect.Float64:
		return fillFloat, nil
	case reflect.Struct:
		return c.structure(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return fillBytes, nil
		}
		return c.slice(t)
	case reflect.Array:
		return c.fixed(t)
	case reflect.Map:
		return c.mapping(t)
	case reflect.Pointer:
		return c.pointer(t)
	}
	return nil, fmt.Errorf("json: no message is made of %s", t)
}

// field is one field of a struct.
type field struct {
	index int
	id    bool
	fill  filler
}

func (c compiler) structure(t reflect.Type) (filler, error) {
	fields := map[string]int{} // name → number of its bit
	var all []field
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous || name == "" || strings.Contains(options, "string") {
			return nil, fmt.Errorf("json: field %s of %s: embedded, unnamed or quoted fields are not read", f.Name, t)
		}
		fill, err := c.filler(f.Type)
		if err != nil {
			return nil, err
		}
		fields[name] = len(all)
		names = append(names, name)
		all = append(all, field{i, isID(name), fill})
	}
	if len(all) > 64 {
		return nil, fmt.Errorf("json: %s has more than 64 fields", t)
	}
	return func(d *decoder, v reflect.Value, _ bool) error {
		var seen uint64 // one bit for each field
		base := len(d.names)
		defer func() { d.names = d.names[:base] }()
		var index map[string]bool
		return d.object(func(name []byte) error {
			n, known := fields[string(name)]
			if !known {
				return d.stranger(name, names, base, &index)
			}
			if seen&(1<<n) != 0 {
				return errTwice(name)
			}
			seen |= 1 << n
			f := &all[n]
			if err := f.fill(d, v.Field(f.index), f.id); err != nil {
				return within(names[n], err)
			}
			return nil
		})
	}, nil
}

// stranger passes over a field that the struct does not have, if that may be.
func (d *decoder) stranger(name []byte, known []string, base int, index *map[string]bool) error {
	if d.strict {
		return fmt.Errorf("unknown field %q", clip(name))
	}
	for _, k := range known {
		if strings.EqualFold(k, string(name)) {
			return fmt.Errorf("the name %q is written %q", clip(name), k)
		}
	}
	if err := d.once(name, base, index); err != nil {
		return err
	}
	return d.skip(isID(string(name)))
}

func (c compiler) slice(t reflect.Type) (filler, error) {
	fill, err := c.filler(t.Elem())
	return func(d *decoder, v reflect.Value, id bool) error {
		if d.literal("null") {
			v.SetZero()
			return nil
		}
		v.Set(reflect.MakeSlice(t, 0, 0)) // [] is not null
		return d.array(func(i int) error {
			v.Grow(1)
			v.SetLen(i + 1)
			return fill(d, v.Index(i), id)
		})
	}, err
}

func (c compiler) fixed(t reflect.Type) (filler, error) {
	fill, err := c.filler(t.Elem())
	return func(d *decoder, v reflect.Value, id bool) error {
		v.SetZero()
		return d.array(func(i int) error {
			if i == t.Len() {
				return fmt.Errorf("more than %d elements", t.Len())
			}
			return fill(d, v.Index(i), id)
		})
	}, err
}

func (c compiler) mapping(t reflect.Type) (filler, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("json: %s: names are strings", t)
	}
	fill, err := c.filler(t.Elem())
	return func(d *decoder, v reflect.Value, id bool) error {
		if d.literal("null") {
			v.SetZero()
			return nil
		}
		v.Set(reflect.MakeMap(t))
		return d.object(func(name []byte) error {
			key := reflect.New(t.Key()).Elem()
			key.SetString(string(name))
			if v.MapIndex(key).IsValid() {
				return errTwice(name)
			}
			value := reflect.New(t.Elem()).Elem()
			if err := fill(d, value, id); err != nil {
				return within(string(name), err)
			}
			v.SetMapIndex(key, value)
			return nil
		})
	}, err
}

func (c compiler) pointer(t reflect.Type) (filler, error) {
	fill, err := c.filler(t.Elem())
	return func(d *decoder, v reflect.Value, id bool) error {
		if d.literal("null") {
			v.SetZero()
			return nil
		}
		v.Set(reflect.New(t.Elem()))
		return fill(d, v.Elem(), id)
	}, err
}

func fillRaw(d *decoder, v reflect.Value, id bool) error {
	start := d.at
	if err := d.skip(id); err != nil {
		return err
	}
	v.SetBytes(d.data[start:d.at:d.at])
	return nil
}

// fillOwn reads a type with a reading of its own, once the text has been checked.
func fillOwn(d *decoder, v reflect.Value, id bool) error {
	start := d.at
	if err := d.skip(id); err != nil {
		return err
	}
	return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(d.data[start:d.at])
}

func fillAny(d *decoder, v reflect.Value, id bool) error {
	start := d.at
	if err := d.skip(id); err != nil {
		return err
	}
	return json.Unmarshal(d.data[start:d.at], v.Addr().Interface())
}

func fillString(d *decoder, v reflect.Value, id bool) error {
	if d.peek() != '"' {
		return d.wrong("a string")
	}
	content, err := d.text(id)
	v.SetString(string(content))
	return err
}

// fillBytes reads base64 (RFC 4648 §4) as encoding/json writes it: padded, nothing between, no
// bits set that carry nothing.
func fillBytes(d *decoder, v reflect.Value, _ bool) error {
	if d.literal("null") {
		v.SetZero()
		return nil
	}
	if d.peek() != '"' {
		return d.wrong("base64 in quotes")
	}
	content, err := d.text(false)
	if err != nil {
		return err
	}
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(content)))
	n, err := canonical.Decode(decoded, content)
	if err != nil {
		return err
	}
	if base64.StdEncoding.EncodedLen(n) != len(content) {
		return errors.New("base64 with line ends")
	}
	v.SetBytes(decoded[:n])
	return nil
}

var canonical = base64.StdEncoding.Strict()

func fillBool(d *decoder, v reflect.Value, _ bool) error {
	switch {
	case d.literal("true"):
		v.SetBool(true)
	case d.literal("false"):
		v.SetBool(false)
	default:
		return d.wrong("true or false")
	}
	return nil
}

func fillInt(d *decoder, v reflect.Value, _ bool) error {
	digits, err := d.number()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(digits), 10, v.Type().Bits())
	v.SetInt(n)
	return err
}

func fillUint(d *decoder, v reflect.Value, _ bool) error {
	digits, err := d.number()
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(digits), 10, v.Type().Bits())
	v.SetUint(n)
	return err
}

func fillFloat(d *decoder, v reflect.Value, _ bool) error {
	digits, err := d.number()
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(string(digits), v.Type().Bits())
	v.SetFloat(n)
	return err
}

// within names the field in which something is wrong, outermost first.
func within(name string, err error) error {
	var inner *fieldError
	if errors.As(err, &inner) {
		return &fieldError{name + "." + inner.path, inner.err}
	}
	return &fieldError{name, err}
}

type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return e.path + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }
