package journal

import (
	"encoding/json"
	"reflect"
	"testing"
)

// rfc7386 is the RFC's own pseudocode.
func rfc7386(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged, ok := target.(map[string]any)
	if !ok {
		merged = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(merged, name)
		} else {
			merged[name] = rfc7386(merged[name], value)
		}
	}
	return merged
}

func TestDiffAndMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, patch string }{
		{``, `{"a":1,"b":{"c":[]}}`, `{"a":1,"b":{"c":[]}}`},
		{`{"a":1}`, `{"a":1}`, `{}`},
		{`{"a":1,"b":2}`, `{"b":3}`, `{"b":3,"a":null}`},
		{`{"a":{"b":1,"c":{"d":"x"}}}`, `{"a":{"c":{"d":"y"}}}`, `{"a":{"c":{"d":"y"},"b":null}}`},
		{`{"a":{"b":1}}`, `{"a":"}"}`, `{"a":"}"}`},
		{`{"a":"\\"}`, `{"a":{"b":"\",\\\"{["}}`, `{"a":{"b":"\",\\\"{["}}`},
		{`{"a":[{"b":1},{"c":2}]}`, `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`},
		{`{"a":"x > y","b":["<"],"c":1.5}`, `{"a":"x \u003e y","b":["\u003c"],"c":15e-1}`, `{}`}, // another spelling is no change
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `{"a":9007199254740992}`},
		{`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":null}}`},
		{`{"a":true}`, `{"a":false,"z":-1.5e3}`, `{"a":false,"z":-1.5e3}`},
	} {
		before := []byte(c.before)
		if c.before == "" {
			before = nil
		}
		patch, err := Diff(before, []byte(c.after))
		if err != nil || string(patch) != c.patch {
			t.Errorf("from %s to %s: %s, %v; want %s", c.before, c.after, patch, err, c.patch)
		}
		merged, err := Merge(before, patch)
		if err != nil || !sameJSON(merged, []byte(c.after)) {
			t.Errorf("%s with %s: %s, %v; want %s", c.before, patch, merged, err, c.after)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func TestPatchInABody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                    `{"patch":{"action":{"a":1}}}`,
		`{}`:                  `{"patch":{"action":{"a":1}}}`,
		`{"x":{"patch":"}"}}`: `{"x":{"patch":"}"},"patch":{"action":{"a":1}}}`,
	} {
		whole, err := WithPatch([]byte(body), "action", []byte(`{"a":1}`))
		if err != nil || string(whole) != want {
			t.Errorf("%s: %s, %v", body, whole, err)
		}
		if patch, err := PatchOf(whole, "action"); err != nil || string(patch) != `{"a":1}` {
			t.Errorf("%s: read %s, %v", whole, patch, err)
		}
		if patch, err := PatchOf(whole, "session"); err != nil || patch != nil {
			t.Errorf("%s: read %s, %v", whole, patch, err)
		}
	}
	for _, body := range []string{``, `{}`, `3`, `{"patch":3}`, `{"patch":{}}`} {
		if patch, err := PatchOf([]byte(body), "action"); err != nil || patch != nil {
			t.Errorf("%s: %s, %v", body, patch, err)
		}
	}
	if _, err := WithPatch([]byte(`[1]`), "action", []byte(`{}`)); err == nil {
		t.Error("a patch was added to a list")
	}
}

// FuzzPatch: whatever two objects are compared, the patch leads from one to the other, by Merge as by
// the RFC's own rules; and no text makes any of them panic.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":"\"}"}}`), []byte(`{"b":{"c":[1,{"x":"y"}]}}`))
	f.Add([]byte(`{"a":{"b":{"c":{}}}}`), []byte(`{}`))
	f.Add([]byte(`{"a"`), []byte(`{"a":,}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		Diff(before, after)
		Merge(before, after)
		PatchOf(before, "action")
		old, now := compacted(before), compacted(after)
		if old == nil || now == nil {
			return
		}
		patch, err := Diff(old, now)
		if err != nil {
			t.Fatalf("from %s to %s: %v", old, now, err)
		}
		merged, err := Merge(old, patch)
		if err != nil || !sameJSON(merged, now) {
			t.Fatalf("%s with %s: %s, %v; want %s", old, patch, merged, err, now)
		}
		var x, p any
		json.Unmarshal(old, &x)
		json.Unmarshal(patch, &p)
		if text, _ := json.Marshal(rfc7386(x, p)); !sameJSON(text, now) {
			t.Fatalf("%s with %s by the RFC: %s; want %s", old, patch, text, now)
		}
	})
}

// compacted is an object as json.Marshal writes it, without nulls; nil for anything else.
func compacted(text []byte) []byte {
	var object map[string]any
	if json.Unmarshal(text, &object) != nil || object == nil {
		return nil
	}
	out, err := json.Marshal(rfc7386(nil, object))
	if err != nil || hasNull(object) {
		return nil
	}
	return out
}

func hasNull(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, one := range v {
			if hasNull(one) {
				return true
			}
		}
	}
	return false
}
