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
//
// with a nonce of 32 lower-case hexadecimal digits and a decimal length without sign or leading zero.
const (
	frameMagic  = "LONGSTOP/1 "
	frameEnd    = "\nEND "
	nonceLen    = 32
	maxDigits   = 9 // of a length: MaxBody is below 10^9
	maxHeader   = len(frameMagic) + nonceLen + 1 + maxDigits + 1
	trailerLen  = len(frameEnd) + nonceLen + 1
	limitOfBody = 999_999_999
)

// WriteFrame writes one frame in a single Write call, so that frames of several goroutines under
// one lock, or of a pipe's one writer, are never interleaved and a small one is never sent in parts.
func WriteFrame(w io.Writer, nonce string, body []byte) error {
	if !ValidNonce(nonce) {
		return fmt.Errorf("write frame: nonce %q is not 32 hexadecimal digits", nonce)
	}
	if len(body) == 0 || len(body) > limitOfBody {
		return fmt.Errorf("write frame: a body of %d bytes", len(body))
	}
	frame := make([]byte, 0, maxHeader+len(body)+trailerLen)
	frame = appendHeader(frame, nonce, len(body))
	frame = append(frame, body...)
	frame = appendTrailer(frame, nonce)
	_, err := w.Write(frame)
	return err
}

func appendHeader(b []byte, nonce string, length int) []byte {
	b = append(append(b, frameMagic...), nonce...)
	return append(strconv.AppendInt(append(b, ' '), int64(length), 10), '\n')
}

func appendTrailer(b []byte, nonce string) []byte {
	return append(append(append(b, frameEnd...), nonce...), '\n')
}

// parseHeader reads a header line, its line feed included, and says what is wrong with it otherwise.
func parseHeader(line []byte) (nonce string, length int, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(frameMagic))
	if !ok {
		return "", 0, fmt.Errorf("%q is no frame", clip(line))
	}
	rest, ok = bytes.CutSuffix(rest, []byte("\n"))
	if !ok {
		return "", 0, fmt.Errorf("the header %q does not end", clip(line))
	}
	if bytes.HasSuffix(rest, []byte("\r")) {
		return "", 0, fmt.Errorf("the header ends in a carriage return: something on the way rewrites line ends (a terminal?)")
	}
	name, digits, ok := bytes.Cut(rest, []byte(" "))
	if !ok || !ValidNonce(string(name)) {
		return "", 0, fmt.Errorf("the header %q has no nonce of 32 hexadecimal digits", clip(line))
	}
	if len(digits) == 0 || len(digits) > maxDigits || digits[0] == '0' {
		return "", 0, fmt.Errorf("the header %q has no usable length", clip(line))
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return "", 0, fmt.Errorf("the header %q has no usable length", clip(line))
		}
		length = length*10 + int(c-'0')
	}
	return string(name), length, nil
}

func clip(b []byte) []byte {
	if len(b) > 80 {
		return b[:80]
	}
	return b
}
