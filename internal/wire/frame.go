package wire

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// A frame is
//
//	LONGSTOP/1 <nonce> <length>\n<length bytes of JSON>\nEND <nonce>\n
//	LONGSTOP/1 <nonce> <length>+<size>\n<length bytes of JSON><size bytes>\nEND <nonce>\n
//
// with a nonce of 32 lower-case hexadecimal digits and decimal numbers without sign or leading zero.
// The second form carries output: bytes as they are, which JSON would have to encode. A request may
// end in NOT in place of END: it is withdrawn, and as if it had never come (BeginFrame).
const (
	frameMagic  = "LONGSTOP/1 "
	frameEnd    = "\nEND "
	frameNot    = "\nNOT "
	nonceLen    = 32
	maxDigits   = 9 // of a length: MaxBody is below 10^9
	maxHeader   = len(frameMagic) + nonceLen + 1 + maxDigits + 1 + maxDigits + 1
	trailerLen  = len(frameEnd) + nonceLen + 1
	limitOfBody = 999_999_999
)

// WriteFrame writes one frame in a single Write call, so that frames of several goroutines under
// one lock, or of a pipe's one writer, are never interleaved and a small one is never sent in parts.
func WriteFrame(w io.Writer, nonce string, body []byte) error {
	frame, err := frameHead(nonce, body)
	if err == nil {
		_, err = w.Write(appendTrailer(frame, frameEnd, nonce))
	}
	return err
}

// MaxBegun bounds, in bytes, the bodies that are of use before their END: larger ones take long to write.
const MaxBegun = 32 << 10

// BeginFrame writes a frame but for its last line. To its reader it is nothing before EndFrame; no
// other frame may be written meanwhile.
func BeginFrame(w io.Writer, nonce string, body []byte) error {
	frame, err := frameHead(nonce, body)
	if err == nil {
		_, err = w.Write(frame)
	}
	return err
}

// EndFrame writes the last line of a frame that was begun: it stands, or it is withdrawn.
func EndFrame(w io.Writer, nonce string, stands bool) error {
	end := frameEnd
	if !stands {
		end = frameNot
	}
	_, err := w.Write(appendTrailer(nil, end, nonce))
	return err
}

// frameHead is a frame without its last line, with room for it.
func frameHead(nonce string, body []byte) ([]byte, error) {
	if !ValidNonce(nonce) {
		return nil, fmt.Errorf("write frame: nonce %q is not 32 hexadecimal digits", nonce)
	}
	if len(body) == 0 || len(body) > limitOfBody {
		return nil, fmt.Errorf("write frame: a body of %d bytes", len(body))
	}
	frame := make([]byte, 0, maxHeader+len(body)+trailerLen)
	frame = appendHeader(frame, nonce, len(body), 0)
	return append(frame, body...), nil
}

func appendHeader(b []byte, nonce string, length, size int) []byte {
	b = append(append(b, frameMagic...), nonce...)
	b = strconv.AppendInt(append(b, ' '), int64(length), 10)
	if size > 0 {
		b = strconv.AppendInt(append(b, '+'), int64(size), 10)
	}
	return append(b, '\n')
}

func appendTrailer(b []byte, end, nonce string) []byte {
	return append(append(append(b, end...), nonce...), '\n')
}

// header is what a header line says.
type header struct {
	nonce  string
	length int // of the JSON
	size   int // of the data behind it; 0: none
}

// parseHeader reads a header line, its line feed included, and says what is wrong with it otherwise.
func parseHeader(line []byte) (h header, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(frameMagic))
	if !ok {
		return h, fmt.Errorf("%q is no frame", clip(line))
	}
	rest, ok = bytes.CutSuffix(rest, []byte("\n"))
	if !ok {
		return h, fmt.Errorf("the header %q does not end", clip(line))
	}
	if bytes.HasSuffix(rest, []byte("\r")) {
		return h, fmt.Errorf("the header ends in a carriage return: something on the way rewrites line ends (a terminal?)")
	}
	name, lengths, ok := bytes.Cut(rest, []byte(" "))
	if !ok || !ValidNonce(string(name)) {
		return h, fmt.Errorf("the header %q has no nonce of 32 hexadecimal digits", clip(line))
	}
	h.nonce = string(name)
	length, size, data := bytes.Cut(lengths, []byte("+"))
	h.length, ok = parseLength(length)
	if ok && data {
		h.size, ok = parseLength(size)
	}
	if !ok {
		return h, fmt.Errorf("the header %q has no usable length", clip(line))
	}
	return h, nil
}

// parseLength reads a positive decimal number in its one spelling.
func parseLength(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > maxDigits || digits[0] == '0' {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func clip(b []byte) []byte {
	if len(b) > 80 {
		return b[:80]
	}
	return b
}
