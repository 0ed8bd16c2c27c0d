package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/longstop/longstop"
)

// Everything of ours that must not be read half is kept in an envelope:
//
//	longstop-record 1 <sequence> <length> <sha256>\n<body>\n
//
// The checksum covers kind, version, sequence, length and body. Sequence and length have a fixed
// width; what follows the last newline is room and means nothing. A reader knows a version newer
// than its own by the first two words.
const (
	kindRecord = "longstop-record"
	kindClaim  = "longstop-claim"

	// envelopeVersion is the version of this form and of what is in it.
	envelopeVersion = 1

	// envelopeLength is the most that the form adds to a body.
	envelopeLength = len(kindRecord) + len(" 1 ") + 20 + len(" ") + 10 + len(" ") + 2*sha256.Size + len("\n\n")
)

// errTorn says that bytes are not a whole envelope: half written, altered, or something else.
var errTorn = errors.New("torn or altered: its checksum does not match")

// seal returns body in an envelope.
func seal(kind string, sequence uint64, body []byte) []byte {
	lead := envelopeLead(kind, sequence, len(body))
	sealed := make([]byte, 0, len(lead)+1+2*sha256.Size+1+len(body)+1)
	sealed = append(sealed, lead...)
	sealed = append(sealed, ' ')
	sealed = hex.AppendEncode(sealed, envelopeSum(lead, body))
	sealed = append(sealed, '\n')
	sealed = append(sealed, body...)
	return append(sealed, '\n')
}

// unseal returns what seal was given. The body aliases data. Errors are errTorn and, for a newer
// version's envelope, longstop.CodeVersionMismatch.
func unseal(kind string, data []byte) (sequence uint64, body []byte, err error) {
	line, _, ok := bytes.Cut(data[:min(len(data), envelopeLength)], []byte{'\n'})
	words := bytes.Split(line, []byte{' '})
	if !ok || len(words) < 2 || string(words[0]) != kind {
		return 0, nil, errTorn
	}
	version, err := strconv.ParseUint(string(words[1]), 10, 16)
	if err != nil {
		return 0, nil, errTorn
	}
	if version > envelopeVersion {
		return 0, nil, newerVersion(int(version))
	}
	if version != envelopeVersion || len(words) != 5 {
		return 0, nil, errTorn
	}
	sequence, errSequence := strconv.ParseUint(string(words[2]), 10, 64)
	length, errLength := strconv.ParseUint(string(words[3]), 10, 31)
	rest := data[len(line)+1:]
	if errSequence != nil || errLength != nil || uint64(len(rest)) < length+1 || rest[length] != '\n' {
		return 0, nil, errTorn
	}
	body = rest[:length:length]
	lead := envelopeLead(kind, sequence, len(body))
	if !bytes.Equal(line[:len(line)-len(words[4])-1], lead) || string(words[4]) != hex.EncodeToString(envelopeSum(lead, body)) {
		return 0, nil, errTorn
	}
	return sequence, body, nil
}

func envelopeLead(kind string, sequence uint64, length int) []byte {
	lead := append([]byte(kind), ' ')
	lead = strconv.AppendInt(lead, envelopeVersion, 10)
	lead = append(lead, ' ')
	lead = appendPadded(lead, sequence, 20)
	lead = append(lead, ' ')
	return appendPadded(lead, uint64(length), 10)
}

func appendPadded(b []byte, n uint64, width int) []byte {
	digits := strconv.FormatUint(n, 10)
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

func envelopeSum(lead, body []byte) []byte {
	h := sha256.New()
	h.Write(lead)
	h.Write([]byte{'\n'})
	h.Write(body)
	return h.Sum(nil)
}

func newerVersion(version int) error {
	return &longstop.Error{
		Code: longstop.CodeVersionMismatch,
		Message: "written in version " + strconv.Itoa(version) + " of its format by a newer longstop-runner; this one (" +
			longstop.Version + ") reads version " + strconv.Itoa(envelopeVersion),
		Hint: "use the newer runner: longstop host check",
	}
}
