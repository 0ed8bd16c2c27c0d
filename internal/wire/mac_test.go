package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/longstop/longstop"
)

func macRecord() longstop.Record {
	return longstop.Record{Version: 1, RunID: "run_0123456789abcdef0123456789abcdef", Sequence: 3, State: longstop.WorkloadRunning,
		Main: &longstop.Main{PID: 24182, PGID: 24182, SID: 24182, StartTime: 8123}, Anomalies: []string{`a "mac":"00"} <&> é \u2028`}}
}

func TestSignAndVerify(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	raw := Sign(macRecord(), secret)
	rec, signed, err := Verify(raw, secret)
	if err != nil || !signed || rec.Main.PID != 24182 || len(rec.MAC) != 64 {
		t.Fatalf("%+v, %v, %v", rec, signed, err)
	}
	// A record goes through answers as a json.RawMessage, which must leave its bytes alone.
	carried, err := json.Marshal(struct{ Record json.RawMessage }{raw})
	if err != nil || !bytes.Contains(carried, raw) {
		t.Errorf("carried in an answer the record is %s, %v", carried, err)
	}
	// Signing what was verified gives the same bytes.
	if again := Sign(rec, secret); !bytes.Equal(again, raw) {
		t.Errorf("signed again: %s\nwas %s", again, raw)
	}
}

func TestVerifyNoticesEveryChange(t *testing.T) {
	t.Parallel()
	secret := []byte("secret")
	raw := Sign(macRecord(), secret)
	for i := range raw {
		altered := bytes.Clone(raw)
		altered[i] ^= 1
		if _, signed, err := Verify(altered, secret); signed && err == nil {
			t.Errorf("byte %d altered: %s passes", i, altered)
		}
	}
	text := string(raw)
	mac := text[strings.LastIndex(text, `,"mac"`) : len(text)-1]
	for name, altered := range map[string]string{
		"another secret":   string(Sign(macRecord(), []byte("other"))),
		"no secret's":      text,
		"upper-case MAC":   strings.Replace(text, mac, strings.ToUpper(mac), 1),
		"the MAC in front": `{` + mac[1:] + `,` + text[1:len(text)-1-len(mac)] + `}`,
		"a field after":    text[:len(text)-1] + `,"later":1}`,
		"a space after":    text[:len(text)-1] + ` }`,
		"a field twice":    strings.Replace(text, `{"version":1`, `{"version":1,"version":1`, 1),
		"two MACs":         text[:len(text)-1] + mac + `}`,
		"short MAC":        text[:len(text)-3] + `"}`,
	} {
		with := secret
		if name == "no secret's" {
			with = nil
		}
		if _, signed, err := Verify([]byte(altered), with); err == nil {
			t.Errorf("%s passes (signed %v): %s", name, signed, altered)
		} else if longstop.CodeOf(err) != longstop.CodeUnreadable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARecordWithoutMAC(t *testing.T) {
	t.Parallel()
	raw := Sign(macRecord(), nil)
	if rec, signed, err := Verify(raw, []byte("secret")); err != nil || signed || rec.State != longstop.WorkloadRunning {
		t.Errorf("%+v, %v, %v", rec, signed, err)
	}
	if _, _, err := Verify([]byte("{"), nil); longstop.CodeOf(err) != longstop.CodeUnreadable {
		t.Errorf("half a record: %v", err)
	}
}

// A newer runner's record has fields that we do not know; they are signed too.
func TestUnknownFieldsAreSigned(t *testing.T) {
	t.Parallel()
	secret := []byte("secret")
	body := strings.TrimSuffix(string(Sign(macRecord(), nil)), "}") + `,"weather":"fine"`
	mac := bytes.NewBufferString(body + "}")
	raw := body + macLead + hexOf(sum(mac.Bytes(), secret)) + `"}`
	if _, signed, err := Verify([]byte(raw), secret); err != nil || !signed {
		t.Errorf("%v, %v", signed, err)
	}
	if _, _, err := Verify([]byte(strings.Replace(raw, "fine", "foul", 1)), secret); err == nil {
		t.Error("an unknown field was altered and passes")
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, c := range b {
		text.WriteByte(digits[c>>4])
		text.WriteByte(digits[c&15])
	}
	return text.String()
}
