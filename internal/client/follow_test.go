package client

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/longstop/longstop"
)

func TestDecoder(t *testing.T) {
	t.Parallel()
	in := "stdout 0 5\nhello" + "beat 0 0\n" + "stdout 5 3\n\n\x00\xff" + "action 0 2\n{}"
	want := []Event{
		{longstop.FollowStdout, 0, []byte("hello")},
		{longstop.FollowBeat, 0, nil},
		{longstop.FollowStdout, 5, []byte("\n\x00\xff")},
		{longstop.FollowAction, 0, []byte("{}")},
	}
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in))} {
		d := NewDecoder(r)
		for i, w := range want {
			e, err := d.Next()
			if err != nil || e.Kind != w.Kind || e.Offset != w.Offset || !bytes.Equal(e.Data, w.Data) {
				t.Errorf("%s: event %d: %+v, %v", name, i, e, err)
			}
		}
		if _, err := d.Next(); err != io.EOF {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"a length with a sign":      "stdout 0 +5\nhello",
		"a negative offset":         "stdout -1 5\nhello",
		"a leading zero":            "stdout 0 05\nhello",
		"a length in hex":           "stdout 0 0x5\nhello",
		"two spaces":                "stdout  0 5\nhello",
		"a field too many":          "stdout 0 5 6\nhello",
		"a field too few":           "stdout 5\nhello",
		"a kind with capitals":      "Stdout 0 5\nhello",
		"no kind":                   " 0 5\nhello",
		"CR LF":                     "stdout 0 5\r\nhello",
		"an event that is too long": "stdout 0 99999999999\n",
		"a number that overflows":   "stdout 0 99999999999999999999\n",
		"half a line":               "stdout 0",
		"half an event":             "stdout 0 5\nhel",
		"no line at all":            strings.Repeat("x", 100_000),
	} {
		d := NewDecoder(strings.NewReader(in))
		_, err := d.Next()
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := d.Next(); again != err {
			t.Errorf("%s: alive after an error: %v", name, again)
		}
	}
}

// FuzzDecoder checks that whatever is read could have been written: events encoded again are the bytes they
// came from.
func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{"", "stdout 0 5\nhello", "beat 0 0\naction 0 2\n{}", "x 9 1\n\n", "stdout 0 5\nhel", "a 0 0", "note 1 1\nxnote 2 0\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(bytes.NewReader(in))
		var again []byte
		for {
			e, err := d.Next()
			if err != nil {
				if !bytes.HasPrefix(in, again) {
					t.Fatalf("%q is not how %q begins", again, in)
				}
				if err == io.EOF && len(again) != len(in) {
					t.Fatalf("an end at %d of %d bytes", len(again), len(in))
				}
				return
			}
			again = append(again, encode(e)...)
		}
	})
}

// FuzzResponse checks that an answer's reader ends, bounded, with a body or an error.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := readResponse(bytes.NewReader(in))
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, r.body)
		if n > int64(len(in)) {
			t.Fatalf("%d bytes out of %d", n, len(in))
		}
	})
}

func TestResponses(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nlongstop-api: 1\r\n"
	for name, c := range map[string]struct {
		in, body string
		err      error // of the body; errAny of the head
	}{
		"a length":                  {head + "Content-Length: 5\r\n\r\nhello", "hello", nil},
		"bytes after it":            {head + "Content-Length: 5\r\n\r\nhello!!", "hello", nil},
		"a body cut short":          {head + "Content-Length: 6\r\n\r\nhello", "hello", io.ErrUnexpectedEOF},
		"chunks":                    {head + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", "hello", nil},
		"chunks with trailers":      {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n", "hello", nil},
		"chunks cut between":        {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "hello", io.ErrUnexpectedEOF},
		"chunks cut inside":         {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhe", "he", io.ErrUnexpectedEOF},
		"chunks without their last": {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "hello", io.ErrUnexpectedEOF},
		"a chunk that is longer":    {head + "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", "hell", errAny},
		"a chunk of -1":             {head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "", errAny},
		"no length":                 {head + "\r\nhello", "", errHead},
		"a length of -1":            {head + "Content-Length: -1\r\n\r\n", "", errHead},
		"another protocol":          {"SSH-2.0-OpenSSH_9.2\r\n", "", errHead},
		"nothing":                   {"", "", errHead},
		"a gzipped one":             {head + "Transfer-Encoding: gzip\r\n\r\n", "", errHead},
		"endless headers":           {head + strings.Repeat("A: b\r\n", 20_000) + "Content-Length: 0\r\n\r\n", "", errHead},
	} {
		r, err := readResponse(iotest.OneByteReader(strings.NewReader(c.in)))
		if (err != nil) != (c.err == errHead) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil || c.err == errHead {
			continue
		}
		body, err := io.ReadAll(r.body)
		if string(body) != c.body || r.kind != "application/json" || r.api != "1" {
			t.Errorf("%s: %q of %s", name, body, r.kind)
		}
		if (c.err == nil) != (err == nil) || c.err != errAny && !errors.Is(err, c.err) {
			t.Errorf("%s: the body ends with %v, want %v", name, err, c.err)
		}
	}
}

var errAny, errHead = errors.New("any"), errors.New("in the head")

func BenchmarkDecoder(b *testing.B) {
	event := encode(Event{Kind: longstop.FollowStdout, Data: make([]byte, 1<<20)})
	stream := bytes.Repeat(event, 16)
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		d := NewDecoder(bytes.NewReader(stream))
		for {
			if _, err := d.Next(); err != nil {
				break
			}
		}
	}
}

// encode is how an event is written.
func encode(e Event) []byte {
	head := append(append([]byte(nil), e.Kind...), ' ')
	head = append(strconv.AppendInt(head, e.Offset, 10), ' ')
	head = append(strconv.AppendInt(head, int64(len(e.Data)), 10), '\n')
	return append(head, e.Data...)
}
