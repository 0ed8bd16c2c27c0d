package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// every has a field of each kind that messages are made of.
type every struct {
	Nonce   string             `json:"nonce"`
	RunIDs  []longstop.RunID   `json:"run_ids"`
	Text    string             `json:"text"`
	Bytes   []byte             `json:"bytes"`
	Lists   [][]byte           `json:"lists"`
	Map     map[string][]byte  `json:"map"`
	Words   map[string]string  `json:"words"`
	Raw     json.RawMessage    `json:"raw"`
	Time    longstop.Time      `json:"time"`
	Pointer *int               `json:"pointer"`
	Int     int64              `json:"int"`
	Small   int8               `json:"small"`
	Uint    uint64             `json:"uint"`
	Float   float64            `json:"float"`
	Bool    bool               `json:"bool"`
	Array   [3]string          `json:"array"`
	Any     any                `json:"any"`
	Self    *every             `json:"self"`
	Process []longstop.Process `json:"process"`
	Hidden  string             `json:"-"`
}

func TestLaw8StrictRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"a name twice", `{"text":"a","text":"b"}`, "twice"},
		{"a name twice, one escaped", `{"text":"a","te\u0078t":"b"}`, "twice"},
		{"a name twice in a map", `{"map":{"A":"","A":""}}`, "twice"},
		{"a name twice deep in raw JSON", `{"raw":[{"x":{"a":1,"b":2,"\u0061":3}}]}`, "twice"},
		{"a name twice in any", `{"any":{"a":1,"a":1}}`, "twice"},
		{"a name twice among many", `{"raw":{` + manyNames(40) + `,"n7":0}}`, "twice"},
		{"another case", `{"Text":"a"}`, "unknown field"},
		{"an unknown field", `{"texts":"a"}`, "unknown field"},
		{"an unknown field deep", `{"process":[{"pidd":1}]}`, "unknown field"},
		{"something after", `{} {}`, "after the value"},
		{"an end too soon", `{"text":"a`, "too soon"},
		{"nothing", ``, "too soon"},
		{"a byte order mark", "\xef\xbb\xbf{}", "want an object"},
		{"null for a message", `null`, "want an object"},
		{"null for a string", `{"text":null}`, "want a string"},
		{"null for a number", `{"int":null}`, "want a number"},
		{"an array for a message", `[]`, "want an object"},
		{"invalid UTF-8", "{\"text\":\"\xff\"}", "invalid UTF-8"},
		{"invalid UTF-8 in a name", "{\"te\xc0xt\":\"\"}", "invalid UTF-8"},
		{"an encoded surrogate", "{\"text\":\"\xed\xa0\x80\"}", "invalid UTF-8"},
		{"half a surrogate pair", `{"text":"\ud800"}`, "surrogate"},
		{"two first halves", `{"text":"\ud800\ud800"}`, "surrogate"},
		{"the second half alone", `{"text":"\udc00"}`, "surrogate"},
		{"a control character", "{\"text\":\"a\nb\"}", "control character"},
		{"a control character in the last bytes", "{\"text\":\"12345678901\x00\"}", "control character"},
		{"a control character in an id", `{"nonce":"a\u0000"}`, "name or id"},
		{"a delete in an id", "{\"nonce\":\"a\x7f\"}", "name or id"},
		{"a C1 control in an id", `{"nonce":"\u0085"}`, "name or id"},
		{"a direction override in an id", `{"nonce":"\u202e"}`, "name or id"},
		{"a control character in a listed id", `{"run_ids":["run_1","a\n"]}`, "name or id"},
		{"a control character in an unknown id", `{"raw":{"action_id":"a\n"}}`, "name or id"},
		{"a control character in a name", `{"map":{"a\u0007":""}}`, "name or id"},
		{"an unknown escape", `{"text":"\x41"}`, "no escape"},
		{"a short escape", `{"text":"\u00"}`, "no escape"},
		{"a lone backslash", `{"text":"\`, "too soon"},
		{"a leading zero", `{"int":01}`, "leading zero"},
		{"a plus", `{"int":+1}`, "want a number"},
		{"a fraction for a count", `{"int":1.0}`, "invalid syntax"},
		{"an exponent for a count", `{"int":1e3}`, "invalid syntax"},
		{"a count too large", `{"int":9223372036854775808}`, "out of range"},
		{"a small count too large", `{"small":128}`, "out of range"},
		{"a negative count", `{"uint":-1}`, "invalid syntax"},
		{"a float too large", `{"float":1e999}`, "out of range"},
		{"no digits after the point", `{"float":1.}`, "want a digit"},
		{"no exponent", `{"float":1e+}`, "want a digit"},
		{"not a number", `{"float":NaN}`, "want a number"},
		{"not JSON in raw", `{"raw":NaN}`, "want a value"},
		{"a trailing comma", `{"text":"a",}`, "want a name"},
		{"a trailing comma in an array", `{"run_ids":["a",]}`, "want a string"},
		{"a missing comma", `{"text":"a" "int":1}`, "want a comma"},
		{"a missing colon", `{"text" "a"}`, "want a colon"},
		{"single quotes", `{'text':1}`, "want a name"},
		{"a comment", `{/**/}`, "want a name"},
		{"bad base64", `{"bytes":"a"}`, "illegal base64"},
		{"base64 of the other alphabet", `{"bytes":"__8="}`, "illegal base64"},
		{"base64 with a line end", `{"bytes":"AAAA\nAAAA"}`, "line ends"},
		{"base64 that is not canonical", `{"bytes":"AB=="}`, "illegal base64"},
		{"a number for bytes", `{"bytes":[1,2]}`, "want base64"},
		{"more elements than fit", `{"array":["","","",""]}`, "more than 3"},
		{"a time in words", `{"time":"now"}`, "RFC 3339"},
		{"no time", `{"time":null}`, "RFC 3339"},
		{"too deep", `{"raw":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "nested deeper"},
		{"a word for a flag", `{"bool":"true"}`, "true or false"},
		{"two values in one", `{"bool":truefalse}`, "want a comma"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var into every
			err := wire.Strict([]byte(c.in), &into)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Strict(%.60q) = %v, want an error with %q", c.in, err, c.want)
			}
		})
	}
}

func manyNames(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"n%d":0`, i))
	}
	return strings.Join(names, ",")
}

func TestStrictReadsWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	seven := 7
	want := every{
		Nonce: "n", RunIDs: []longstop.RunID{"run_1", "run_2"}, Text: "line\nquote\" back\\ <tag> \u2028 é 𝄞 \x00\x1f",
		Bytes: []byte("\xff\x00bytes"), Lists: [][]byte{{}, {1, 2}}, Map: map[string][]byte{"path": []byte("a"), "PATH": {}},
		Words: map[string]string{"a": "b"}, Raw: json.RawMessage(`{"a":[1,2.5e-3,true,null,"x"]}`),
		Time: longstop.At(longstop.Time{}.Time.AddDate(2025, 1, 1)), Pointer: &seven, Int: -1 << 63, Small: -128, Uint: 1<<64 - 1,
		Float: 0.1, Bool: true, Array: [3]string{"a", "", "c"}, Any: map[string]any{"k": []any{1.5, "v"}},
		Self: &every{Text: "inner", Raw: json.RawMessage(`0`), Any: "x"}, Process: []longstop.Process{{PID: 3, StartTime: 9, Files: [3]string{"/dev/null"}}},
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range []func([]byte, any) error{wire.Strict, wire.Tolerant} {
		var got every
		if err := read(data, &got); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read\n%+v, want\n%+v", got, want)
		}
	}
}

func TestTolerantPassesOverTheUnknownAlone(t *testing.T) {
	t.Parallel()
	var into every
	if err := wire.Tolerant([]byte(`{"later":{"a":[null]},"text":"a","more":1}`), &into); err != nil || into.Text != "a" {
		t.Errorf("%v, text %q", err, into.Text)
	}
	for in, want := range map[string]string{
		`{"later":1,"later":2}`:        "twice",
		`{"later":{"a":1,"a":2}}`:      "twice",
		`{"TEXT":"a"}`:                 `written "text"`,
		`{"run_ID\u017f":[]}`:          `written "run_ids"`, // ſ folds to s
		`{"later":"\ud800"}`:           "surrogate",
		`{"later_id":"\u0000"}`:        "name or id",
		`{"text":"a"}x`:                "after the value",
		`{"text":1}`:                   "text: want a string",
		`{"process":[{"pid":"1"}]}`:    "process.pid: want a number",
		`{"self":{"self":{"int":""}}}`: "self.self.int: want a number",
	} {
		if err := wire.Tolerant([]byte(in), new(every)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Tolerant(%s) = %v, want an error with %q", in, err, want)
		}
	}
}

// Every message and word must be of types that the reader knows.
func TestStrictKnowsEveryMessage(t *testing.T) {
	t.Parallel()
	for _, message := range []any{
		&wire.Request{}, &wire.Answer{}, &wire.HelloRequest{}, &wire.HelloAnswer{}, &wire.SpoolRequest{}, &wire.SpoolAnswer{},
		&wire.Submit{}, &wire.SubmitAnswer{}, &wire.FindRequest{}, &wire.FindAnswer{}, &wire.VoidRequest{}, &wire.RunRequest{},
		&wire.StatusAnswer{}, &wire.ListRequest{}, &wire.ListAnswer{}, &wire.InspectAnswer{}, &wire.OutputRequest{},
		&wire.OutputAnswer{}, &wire.CancelRequest{}, &wire.CancelAnswer{}, &wire.RenewRequest{}, &wire.RenewAnswer{},
		&wire.CollectAnswer{}, &wire.GCRequest{}, &wire.GCAnswer{}, &wire.WatchRequest{}, &wire.Pushed{},
		&longstop.Action{}, &longstop.Record{}, &longstop.RunRequest{}, &longstop.EnrolRequest{}, &longstop.Host{},
		&longstop.DaemonStatus{}, &longstop.JournalEntry{}, &longstop.Stdin{}, &longstop.Error{}, &[]longstop.Action{},
	} {
		data, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		// Zero RawMessages are not sent: null stands for what must not be absent there.
		if err := wire.Strict(bytes.ReplaceAll(data, []byte(`"record":null`), []byte(`"record":{}`)), message); err != nil {
			t.Errorf("%T: %v in %s", message, err, data)
		}
	}
}

func TestStrictIntoNothing(t *testing.T) {
	t.Parallel()
	for _, into := range []any{nil, every{}, (*every)(nil), new(chan int), new(struct{ A int })} {
		if err := wire.Strict([]byte(`{}`), into); err == nil {
			t.Errorf("Strict into %T: no error", into)
		}
	}
}

// FuzzStrict: what Strict takes, encoding/json reads to the same value.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"nonce":"a","run_ids":["x"],"text":"\ud834\udd1e\n","bytes":"AAE="}`, `{"text":"a","text":"b"}`,
		`{"Text":"a"}`, `{"raw":{"a":1,"\u0061":2}}`, `{"int":-0,"uint":18446744073709551615,"float":-0.0e-5}`,
		`{"time":"2026-01-02T03:04:05.6Z","pointer":null,"self":{"self":{}},"map":null,"lists":[null,""]}`,
		`{"array":["a"],"any":{"x":[1]},"words":{"A":"","a":""}}`, "{\"text\":\"\xff\"}", `{"text":"\ud800"}`, `{"bytes":"AB=="}`,
		`{"a":1}{}`, `{"int":1e3}`, `nul`, `"`, `{"text":"\\\"`, strings.Repeat(`{"self":`, 120),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want every
		if wire.Strict(data, &got) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json refuses what Strict takes: %v", err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Strict read %+v, encoding/json %+v", got, want)
		}
		if wire.Tolerant(data, &want) != nil {
			t.Fatal("Tolerant refuses what Strict takes")
		}
	})
}
