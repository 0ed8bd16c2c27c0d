package redact

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

// TestValue: every string of an action that somebody writes freely loses what is secret, whatever field it
// stands in, and what the action shares with its maker stays as it was.
func TestValue(t *testing.T) {
	t.Parallel()
	const secret = "hunter2!"
	r := made(t, []string{secret}, nil)
	fill := func() (a longstop.Action) {
		fillStrings(reflect.ValueOf(&a).Elem(), "a "+secret+" b")
		return a
	}
	a := fill()
	before, _ := json.Marshal(a)
	out, changed := Value(r, a)
	if after, _ := json.Marshal(a); !changed || string(before) != string(after) {
		t.Errorf("changed: %v; what was given became\n%s", changed, after)
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var members any
	json.Unmarshal(text, &members)
	if name := leaks(members, secret, ""); name != "" {
		t.Errorf("%s has it still: %s", name, text)
	}
	if same, changed := Value(r, longstop.Action{Host: "web-1"}); changed || same.Host != "web-1" {
		t.Error("an action without a secret is another")
	}
}

// fillStrings gives every string a text, and every pointer, list and map one value.
func fillStrings(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == plainString {
			v.SetString(text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillStrings(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillStrings(v.Field(i), text)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(text))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillStrings(v.Index(0), text)
	case reflect.Array:
		for i := range v.Len() {
			fillStrings(v.Index(i), text)
		}
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fillStrings(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text), value)
	}
}

// leaks names a member that has the secret and may not.
func leaks(value any, secret, name string) string {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, secret) {
			return name
		}
	case []any:
		for _, one := range v {
			if found := leaks(one, secret, name); found != "" {
				return found
			}
		}
	case map[string]any:
		for member, one := range v {
			if exact(member) {
				continue
			}
			if found := leaks(one, secret, name+"."+member); found != "" {
				return found
			}
			if strings.Contains(member, secret) {
				return name
			}
		}
	}
	return ""
}

func exact(name string) bool {
	for _, one := range Exact {
		if one == name {
			return true
		}
	}
	return false
}
