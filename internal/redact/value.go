package redact

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
)

// Exact are the members whose strings are identities, digests, keys and proofs: with a mark in them they would
// not be what they are. Nothing that people or hosts write freely may be one.
var Exact = []string{
	"idempotency_key", "effect_token", "host", "env", "digest", "sha256", "stdin_sha256", "binds", "policy", "key", "host_key", "auth",
	"machine_id", "boot_id", "state_id", "key_hash", "mac", "channel", "next", "journal_key", "proof", "approver",
	"action_id", "session_id", "run_id", "retry_of", "retried_by",
}

var plainString = reflect.TypeFor[string]()

// Value returns a value with a mark for what is secret in its strings, and whether there was anything. What the
// value shares with others is not changed. Strings of named types (states, ids) are words of ours, and stay.
func Value[T any](r *Redactor, v T) (T, bool) {
	if r == nil {
		return v, false
	}
	out, changed := r.rewrite(reflect.ValueOf(&v).Elem())
	if !changed {
		return v, false
	}
	return out.Interface().(T), true
}

func (r *Redactor) rewrite(v reflect.Value) (reflect.Value, bool) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() != plainString {
			return v, false
		}
		text := r.Text(v.String())
		return reflect.ValueOf(text), text != v.String()
	case reflect.Pointer:
		if v.IsNil() {
			return v, false
		}
		inner, changed := r.rewrite(v.Elem())
		if !changed {
			return v, false
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(inner)
		return out, true
	case reflect.Struct:
		return r.rewriteStruct(v)
	case reflect.Slice, reflect.Array:
		return r.rewriteList(v)
	case reflect.Map:
		return r.rewriteMap(v)
	}
	return v, false
}

func (r *Redactor) rewriteStruct(v reflect.Value) (reflect.Value, bool) {
	out, changed := v, false
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || slices.Contains(Exact, name) {
			continue
		}
		inner, one := r.rewrite(v.Field(i))
		if !one {
			continue
		}
		if !changed {
			out, changed = reflect.New(v.Type()).Elem(), true
			out.Set(v)
		}
		out.Field(i).Set(inner)
	}
	return out, changed
}

func (r *Redactor) rewriteList(v reflect.Value) (reflect.Value, bool) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		masked := r.Bytes(v.Bytes())
		return reflect.ValueOf(masked).Convert(v.Type()), !bytes.Equal(masked, v.Bytes())
	}
	out, changed := v, false
	for i := range v.Len() {
		inner, one := r.rewrite(v.Index(i))
		if !one {
			continue
		}
		if !changed {
			changed = true
			if v.Kind() == reflect.Array {
				out = reflect.New(v.Type()).Elem()
				out.Set(v)
			} else {
				out = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
				reflect.Copy(out, v)
			}
		}
		out.Index(i).Set(inner)
	}
	return out, changed
}

func (r *Redactor) rewriteMap(v reflect.Value) (reflect.Value, bool) {
	out, changed := v, false
	for _, key := range v.MapKeys() {
		inner, one := r.rewrite(v.MapIndex(key))
		name, other := r.rewrite(key)
		if !one && !other {
			continue
		}
		if !changed {
			changed = true
			out = reflect.MakeMapWithSize(v.Type(), v.Len())
			for _, k := range v.MapKeys() {
				out.SetMapIndex(k, v.MapIndex(k))
			}
		}
		out.SetMapIndex(key, reflect.Value{})
		out.SetMapIndex(name, inner)
	}
	return out, changed
}
