package fastjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

// fill sets a value's fields by chance, often to what needs escapes or has no shortest form.
func fill(r *rand.Rand, v reflect.Value, given float64) {
	if v.Type() == reflect.TypeFor[longstop.Time]() {
		v.Set(reflect.ValueOf(longstop.At(time.UnixMicro(r.Int64N(4e15)))))
		return
	}
	if r.Float64() > given && v.Kind() != reflect.Struct {
		return
	}
	texts := []string{"plain", "web-1 (a/b)", "<&>", "ü\u2028", "\"\\\n\x01", "\xff", " "}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64() >> r.IntN(64) * (1 - 2*r.Int64N(2)))
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat([]float64{120, 0.001, -2.5, 1e300, 1 << 60, 3e-9}[r.IntN(6)])
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), given)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), given)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), given)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), given)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, text := range texts[:3] {
			v.SetMapIndex(reflect.ValueOf(text), reflect.ValueOf(text).Convert(v.Type().Elem()))
		}
	default:
		panic(fmt.Sprint("no example of ", v.Type()))
	}
}

// examples are values of T with none, some and all of their fields set.
func examples[T any](t *testing.T, check func(*T, []byte)) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 300 {
		v := new(T)
		fill(r, reflect.ValueOf(v).Elem(), []float64{0, 0.3, 0.9, 1}[i%4])
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if check(v, want); t.Failed() {
			t.Fatalf("seed %d, example %d", seed, i)
		}
	}
}

// What is written is what encoding/json writes.
func TestWritten(t *testing.T) {
	t.Parallel()
	same := func(got, want []byte) {
		if !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	examples(t, func(v *longstop.Action, want []byte) { same(AppendAction(nil, v), want) })
	examples(t, func(v *longstop.RunRequest, want []byte) { same(AppendRun(nil, v), want) })
	examples(t, func(v *longstop.Record, want []byte) { same(AppendRecord([]byte("x"), v)[1:], want) })
}

// What is read is what encoding/json reads, without its help for the whole.
func TestRead(t *testing.T) {
	t.Parallel()
	examples(t, func(_ *longstop.Action, data []byte) {
		var want longstop.Action
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		r, got := &reader{data: data}, new(longstop.Action)
		if readAction(r, got); !r.ended() {
			t.Errorf("lost at %d of %s", r.at, data)
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("got  %+v\nwant %+v", *got, want)
		}
	})
}

// What is not understood is as encoding/json takes it, or refuses it.
func TestLeftToTheLibrary(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `{`, `{}`, ` { } `, `null`, `[]`, `{"action_id":"a"`, `{"action_id":"a"}x`, `{"action_id":"a",}`, `{"Action_ID":"a"}`, `{"new":[1,{"a":2}],"action_id":"a"}`,
		`{"revision":01}`, `{"revision":1.5}`, `{"revision":1e2}`, `{"attempt":99999999999999999999}`, `{"action_id":7}`, `{"waits":[{}]}`, `{"waits":[,]}`, `{"waits":{}}`,
		`{"created_at":"2026-11-29T10:00:00+02:00"}`, `{"created_at":"x"}`, `{"created_at":"0000-01-01T00:00:00,+00000Z"}`, `{"created_at":"0000-01-01T00:00:00.-00000Z"}`, `{"request":{"argv":["a" "b"]}}`, `{"request":{"argv_b64":["!"]}}`, `{"cancel":null,"waits":null}`,
		`{"action_id":"\ud800"}`, "{\"action_id\":\"a\nb\"}", `{"request":{"lease_s":1e400}}`, `{"action_\u0069d":"a"}`, "{\"action_id\":\"a\x00\"}", "{} \x00",
	} {
		var want longstop.Action
		wantErr := json.Unmarshal([]byte(text), &want)
		got, err := ReadAction([]byte(text))
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v, %v", text, got, err, want, wantErr)
		}
	}
}

// FuzzRead: no text is more than encoding/json takes it for.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"action_id":"act_1","created_at":"2026-11-29T10:00:00.000000Z","workload":{"main":{"pid":1}},"waits":[{"by":"a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, got := &reader{data: data}, new(longstop.Action)
		if readAction(r, got); !r.ended() {
			return
		}
		if err := json.Unmarshal(data, new(longstop.Action)); err != nil {
			t.Errorf("%q is no JSON: %v", data, err)
		}
	})
}

func BenchmarkAction(b *testing.B) {
	a := new(longstop.Action)
	fill(rand.New(rand.NewPCG(1, 2)), reflect.ValueOf(a).Elem(), 0.5)
	data, _ := json.Marshal(a)
	for name, do := range map[string]func(){
		"write":         func() { AppendAction(nil, a) },
		"write/library": func() { json.Marshal(a) },
		"read":          func() { ReadAction(data) },
		"read/library":  func() { json.Unmarshal(data, new(longstop.Action)) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				do()
			}
		})
	}
}
