package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/fastjson"
)

// macLead is what stands between a record's other fields and its MAC. MAC is the last field of
// longstop.Record, so a signed record is the unsigned one with this, 64 digits and `"}` for `}`.
const macLead = `,"mac":"`

const macLength = len(macLead) + 2*sha256.Size + len(`"}`)

// Sign returns rec as JSON. With a secret its mac field is the hex HMAC-SHA-256, under that secret,
// of the same JSON without the field; without one it has none.
func Sign(rec longstop.Record, secret []byte) []byte {
	rec.MAC = ""
	body := fastjson.AppendRecord(nil, &rec)
	if len(secret) == 0 {
		return body
	}
	signed := append(body[:len(body)-1:len(body)-1], macLead...)
	signed = hex.AppendEncode(signed, sum(body, secret))
	return append(signed, `"}`...)
}

// Verify reads a record as its writer left it. Signed says that it bears a MAC and that the MAC is
// the secret's; a MAC that is another's is an error, longstop.CodeUnreadable: somebody altered the
// record. A record with no MAC at all was written by a successor, or by whoever could write the
// file: it is returned with signed false. Fields that a newer runner added are covered by the MAC
// and otherwise ignored.
func Verify(raw, secret []byte) (rec longstop.Record, signed bool, err error) {
	if err := Tolerant(raw, &rec); err != nil {
		return longstop.Record{}, false, &longstop.Error{Code: longstop.CodeUnreadable, Message: "the record is not a record's JSON", Err: err}
	}
	if rec.MAC == "" {
		return rec, false, nil
	}
	unsigned, mac, ok := cutMAC(raw)
	if !ok || len(secret) == 0 || !hmac.Equal(mac, sum(unsigned, secret)) {
		return longstop.Record{}, false, &longstop.Error{
			Code:    longstop.CodeUnreadable,
			Message: "the record's MAC is not that of its run: it was altered after its owner wrote it",
			Hint:    "look at the raw answer: longstop show --raw",
		}
	}
	return rec, true, nil
}

// cutMAC takes the mac field off the end of a signed record. Any other place for it is refused.
func cutMAC(raw []byte) (unsigned, mac []byte, ok bool) {
	at := len(raw) - macLength
	if at < 1 || !bytes.HasPrefix(raw[at:], []byte(macLead)) || !bytes.HasSuffix(raw, []byte(`"}`)) {
		return nil, nil, false
	}
	digits := raw[at+len(macLead) : len(raw)-2]
	mac, err := hex.AppendDecode(nil, digits)
	if err != nil || !bytes.Equal(digits, bytes.ToLower(digits)) {
		return nil, nil, false
	}
	return append(raw[:at:at], '}'), mac, true
}

func sum(body, secret []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(body)
	return h.Sum(nil)
}
