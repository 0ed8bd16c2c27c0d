package record

import (
	"bytes"
	"errors"
	"testing"

	"github.com/longstop/longstop"
)

func TestEnvelope(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", "a\nb\n", string(make([]byte, 5000))} {
		sealed := seal(kindRecord, 7, []byte(body))
		if len(sealed) > len(body)+envelopeLength {
			t.Errorf("the form adds %d bytes, more than %d", len(sealed)-len(body), envelopeLength)
		}
		for _, room := range [][]byte{nil, make([]byte, 100), []byte("rest of something longer")} {
			sequence, got, err := unseal(kindRecord, append(bytes.Clone(sealed), room...))
			if err != nil || sequence != 7 || string(got) != body {
				t.Errorf("%q: %d, %q, %v", body, sequence, got, err)
			}
		}
	}
}

func TestEnvelopeAlteredAnywhere(t *testing.T) {
	t.Parallel()
	sealed := seal(kindRecord, 7, []byte(`{"state":"running"}`))
	for i := range sealed {
		for _, bit := range []byte{1, 0x80, 0xff} {
			altered := bytes.Clone(sealed)
			altered[i] ^= bit
			if _, _, err := unseal(kindRecord, altered); err == nil {
				t.Errorf("byte %d altered by %#x is not noticed", i, bit)
			}
		}
		if _, _, err := unseal(kindRecord, sealed[:i]); !errors.Is(err, errTorn) {
			t.Errorf("cut after %d bytes: %v", i, err)
		}
	}
	if _, _, err := unseal(kindClaim, sealed); !errors.Is(err, errTorn) {
		t.Errorf("a record passes for a claim: %v", err)
	}
}

func FuzzUnseal(f *testing.F) {
	f.Add(seal(kindRecord, 1, []byte(`{"version":1}`)))
	f.Add([]byte("longstop-record 1 18446744073709551615 4294967295 "))
	f.Add([]byte("longstop-record 2 x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sequence, body, err := unseal(kindRecord, data)
		switch {
		case err == nil:
			if !bytes.HasPrefix(data, seal(kindRecord, sequence, body)) {
				t.Errorf("%q was read as something that would be written otherwise", data)
			}
		case !errors.Is(err, errTorn) && longstop.CodeOf(err) != longstop.CodeVersionMismatch:
			t.Errorf("%q: %v", data, err)
		}
	})
}
