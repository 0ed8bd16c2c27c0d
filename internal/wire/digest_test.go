package wire_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// Every field of a request changes its digest, but those that say nothing about the work.
func TestLaw5DigestCoversTheRequest(t *testing.T) {
	t.Parallel()
	silent := map[string]bool{"Reason": true, "Digest": true, "Redacted": true}
	base := wire.CanonicalDigest("h", "k", longstop.Request{}, nil)
	if !strings.HasPrefix(base, "sha256:") || len(base) != len("sha256:")+64 {
		t.Fatalf("digest %q", base)
	}
	seen := map[string]string{base: "nothing"}
	check := func(name string, req longstop.Request) {
		digest := wire.CanonicalDigest("h", "k", req, nil)
		if silent[name] {
			if digest != base {
				t.Errorf("%s changes the digest", name)
			}
			return
		}
		if other, taken := seen[digest]; taken {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[digest] = name
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[longstop.Request]()) {
		var req longstop.Request
		set(t, reflect.ValueOf(&req).Elem().Field(i))
		if f.Name != "Limits" {
			check(f.Name, req)
		}
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[longstop.Limits]()) {
		var limits longstop.Limits
		set(t, reflect.ValueOf(&limits).Elem().Field(i))
		check("Limits."+f.Name, longstop.Request{Limits: &limits})
	}
}

func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		switch s := v.Addr().Interface().(type) {
		case *[]string:
			*s = []string{"y"}
		case *[][]byte:
			*s = [][]byte{[]byte("z")}
		default:
			t.Fatalf("a slice of %s", v.Type())
		}
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

func TestLaw5DigestHasNoTwoReadings(t *testing.T) {
	t.Parallel()
	type request struct {
		host, key string
		req       longstop.Request
		env       map[string][]byte
	}
	distinct := []request{
		{host: "ab", key: "c"},
		{host: "a", key: "bc"},
		{req: longstop.Request{Argv: []string{"a", "b"}}},
		{req: longstop.Request{Argv: []string{"a b"}}},
		{req: longstop.Request{Argv: []string{"ab"}}},
		{req: longstop.Request{Argv: []string{"a", "b", ""}}},
		{req: longstop.Request{Argv: []string{"", "a", "b"}}},
		{req: longstop.Request{Script: "a b"}},
		{req: longstop.Request{Argv: []string{"x"}, Script: "a"}},
		{env: map[string][]byte{"A": []byte("1")}},
		{env: map[string][]byte{"A": []byte("2")}},
		{env: map[string][]byte{"A1": nil}},
		{env: map[string][]byte{"A": nil, "B": nil}},
		{req: longstop.Request{Env: []string{"A"}}},
		{req: longstop.Request{Env: []string{"A", "B"}}},
	}
	seen := map[string]int{}
	for i, r := range distinct {
		digest := wire.CanonicalDigest(r.host, r.key, r.req, r.env)
		if other, taken := seen[digest]; taken {
			t.Errorf("requests %d and %d have one digest", i, other)
		}
		seen[digest] = i
	}

	same := func(a, b request) {
		t.Helper()
		if wire.CanonicalDigest(a.host, a.key, a.req, a.env) != wire.CanonicalDigest(b.host, b.key, b.req, b.env) {
			t.Errorf("%+v and %+v have two digests", a, b)
		}
	}
	same(request{req: longstop.Request{Argv: []string{"é"}}}, request{req: longstop.Request{ArgvB64: [][]byte{[]byte("é")}}})
	same(request{req: longstop.Request{Env: []string{"B", "A"}}, env: map[string][]byte{"A": {1}, "B": {2}}},
		request{env: map[string][]byte{"B": {2}, "A": {1}}})
	same(request{req: longstop.Request{Limits: &longstop.Limits{}}}, request{})
}

// The digest is compared with what another release made: it never changes.
func TestDigestIsFixed(t *testing.T) {
	t.Parallel()
	got := wire.CanonicalDigest("web-1", "SHA256:2Y0d", longstop.Request{
		Argv: []string{"./migrate.sh", "--to", "42"}, Cwd: "/srv/app", Lifetime: longstop.Leased, Owner: longstop.OwnerAuto,
		Leftover: longstop.LeftoverWait, Effect: longstop.EffectOnce, LeaseS: 120, GraceS: 10, Limits: &longstop.Limits{OpenFiles: 64},
	}, map[string][]byte{"RELEASE": []byte("42")})
	if want := "sha256:cc0878f74ee31b3cb0a1b9911d51c24b1966a426381e01a442ba1cba56a54417"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
