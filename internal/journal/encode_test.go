package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/longstop/longstop"
)

var full = Entry{
	Index: 12, At: longstop.At(time.Date(2026, 11, 29, 14, 2, 11, 5000, time.UTC)), Kind: LaunchAnswered,
	ActionID: "act_1K4W2Y0AAAAAAAA", SessionID: "ses_1K4W2Y0BBBBBBBB", RunID: "run_00112233445566778899aabbccddeeff",
	Host: "anna@web-1", By: "agent 100%\nkind observed",
	Raw: []RawDigest{
		{"submit_answer", 812, "sha256:" + strings.Repeat("0a", 32)},
		{"noise", 0, "sha256:" + strings.Repeat("ff", 32)},
	},
	Body: json.RawMessage("{\"launch\":\"accepted\"\n\n}"),
}

// The bytes of format 1. They never change: other programs verify them.
const fullBytes = `longstop-entry 1
index 12
at 2026-11-29T14:02:11.000005Z
kind launch_answered
action act_1K4W2Y0AAAAAAAA
session ses_1K4W2Y0BBBBBBBB
run run_00112233445566778899aabbccddeeff
host anna@web-1
by agent 100%25%0Akind observed
raw submit_answer 812 sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
raw noise 0 sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff

{"launch":"accepted"

}`

func TestBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry Entry
		bytes string
	}{
		{full, fullBytes},
		{Entry{At: full.At, Kind: GatewayStarted}, "longstop-entry 1\nindex 0\nat 2026-11-29T14:02:11.000005Z\nkind gateway_started\n\n"},
	} {
		data, err := Encode(c.entry)
		if err != nil || string(data) != c.bytes {
			t.Fatalf("Encode: %v\n%s\nwant\n%s", err, data, c.bytes)
		}
		back, err := Decode(data)
		if err != nil || !reflect.DeepEqual(back, c.entry) {
			t.Errorf("Decode: %v\n%+v\nwant\n%+v", err, back, c.entry)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Entry){
		"negative index":   func(e *Entry) { e.Index = -1 },
		"year 10000":       func(e *Entry) { e.At = longstop.At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) },
		"no kind":          func(e *Entry) { e.Kind = "" },
		"kind with space":  func(e *Entry) { e.Kind = "a b" },
		"kind too long":    func(e *Entry) { e.Kind = Kind(strings.Repeat("a", 65)) },
		"body not JSON":    func(e *Entry) { e.Body = json.RawMessage("{") },
		"two bodies":       func(e *Entry) { e.Body = json.RawMessage("{}{}") },
		"raw kind":         func(e *Entry) { e.Raw = []RawDigest{{"a b", 1, full.Raw[0].Digest}} },
		"raw length":       func(e *Entry) { e.Raw = []RawDigest{{"a", -1, full.Raw[0].Digest}} },
		"raw digest":       func(e *Entry) { e.Raw = []RawDigest{{"a", 1, "sha256:00"}} },
		"raw digest upper": func(e *Entry) { e.Raw = []RawDigest{{"a", 1, "sha256:" + strings.Repeat("0A", 32)}} },
	} {
		e := full
		spoil(&e)
		if data, err := Encode(e); err == nil {
			t.Errorf("%s: encoded as %q", name, data)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		if !strings.Contains(fullBytes, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(fullBytes, old, new, 1)
	}
	for name, data := range map[string]string{
		"empty":               "",
		"no empty line":       strings.ReplaceAll(fullBytes, "\n\n", "\n"),
		"other format":        replace("longstop-entry 1", "longstop-entry 0"),
		"CR":                  replace("\nindex", "\r\nindex"),
		"leading zero":        replace("index 12", "index 012"),
		"sign":                replace("index 12", "index +12"),
		"fewer digits":        replace("11.000005Z", "11.00005Z"),
		"other zone":          replace("11.000005Z", "11.000005+00:00"),
		"no such day":         replace("2026-11-29", "2026-11-31"),
		"no kind":             replace("kind launch_answered\n", ""),
		"order":               replace("host anna@web-1\nby agent", "by anna@web-1\nhost agent"),
		"twice":               replace("host anna@web-1\n", "host a\nhost b\n"),
		"empty value":         replace("host anna@web-1", "host "),
		"unknown line":        replace("host anna@web-1\n", "host a\nguest b\n"),
		"needless escape":     replace("100%25", "100%41"),
		"lower-case escape":   replace("%0A", "%0a"),
		"short escape":        replace("%0Akind observed", "%0"),
		"bare percent":        replace("100%25", "100%"),
		"control character":   replace("anna", "an\x01na"),
		"raw digest":          replace("sha256:0a", "sha256:0"),
		"raw extra word":      replace("noise 0 ", "noise 0 0 "),
		"body not JSON":       replace("{\"launch\"", "{launch"),
		"bytes after body":    fullBytes + "\n{}",
		"field after raw":     replace("raw noise 0", "by b\nraw noise 0"),
		"negative raw length": replace("noise 0", "noise -0"),
	} {
		if e, err := Decode([]byte(data)); err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		}
	}
}

func TestDecodeNewerFormat(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte("longstop-entry 2\nwhatever\n\n"))
	if !errors.Is(err, ErrNewerFormat) {
		t.Errorf("got %v, want ErrNewerFormat", err)
	}
}

// FuzzDecode: whatever is accepted is exactly what Encode gives for it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(fullBytes))
	f.Add([]byte("longstop-entry 1\nindex 0\nat 2026-11-29T14:02:11.000005Z\nkind gateway_started\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(e)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("Decode accepts %q, which Encode gives as %q (%v)", data, again, err)
		}
	})
}

// FuzzRoundTrip: whatever Encode accepts, Decode reads back.
func FuzzRoundTrip(f *testing.F) {
	f.Add(int64(0), int64(0), "requested", "act_1", "ses_1", "run_1", "web-1", "by\x00\n%", "raw", int64(1), []byte(`{}`))
	f.Fuzz(func(t *testing.T, index, micros int64, kind, action, session, run, host, by, raw string, size int64, body []byte) {
		e := Entry{Index: index, At: longstop.At(time.UnixMicro(micros)), Kind: Kind(kind), ActionID: longstop.ActionID(action),
			SessionID: longstop.SessionID(session), RunID: longstop.RunID(run), Host: host, By: by}
		if len(body) > 0 {
			e.Body = body
		}
		if raw != "" {
			e.Raw = []RawDigest{{raw, size, full.Raw[0].Digest}}
		}
		data, err := Encode(e)
		if err != nil {
			return
		}
		back, err := Decode(data)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%+v\nencoded as %q\ncame back as %+v (%v)", e, data, back, err)
		}
	})
}
