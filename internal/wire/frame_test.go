package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/longstop/longstop/internal/wire"
)

const (
	ours   = "0123456789abcdef0123456789abcdef"
	theirs = "fedcba9876543210fedcba9876543210"
)

func frame(nonce, body string) string {
	return fmt.Sprintf("LONGSTOP/1 %s %d\n%s\nEND %s\n", nonce, len(body), body, nonce)
}

// loaded is a frame that carries data.
func loaded(nonce, body, data string) string {
	return fmt.Sprintf("LONGSTOP/1 %s %d+%d\n%s%s\nEND %s\n", nonce, len(body), len(data), body, data, nonce)
}

func TestWriteFrameIsOneWrite(t *testing.T) {
	t.Parallel()
	var w writes
	if err := wire.WriteFrame(&w, ours, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if len(w) != 1 || w[0] != frame(ours, `{"a":1}`) {
		t.Errorf("wrote %q", w)
	}
	for nonce, body := range map[string]string{"": "{}", ours + "0": "{}", strings.ToUpper(ours): "{}", ours: ""} {
		if err := wire.WriteFrame(&w, nonce, []byte(body)); err == nil {
			t.Errorf("nonce %q, body %q: no error", nonce, body)
		}
	}
	if len(w) != 1 {
		t.Errorf("a refused frame was written: %q", w)
	}
}

// A frame that is begun is nothing before its end; one that is withdrawn never was.
func TestBegunFrames(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	for _, stands := range []bool{true, false, false, true} {
		if err := errors.Join(wire.BeginFrame(&w, ours, []byte(`{"a":1}`)), wire.EndFrame(&w, ours, stands)); err != nil {
			t.Fatal(err)
		}
	}
	whole := w.String()
	requests := wire.Options{MaxNoise: -1, Withdrawals: true}
	got, _, err := read(whole, requests)
	if want := []string{`01={"a":1}`, `01={"a":1}`}; err != io.EOF || !slices.Equal(got, want) {
		t.Errorf("read %q, %v", got, err)
	}
	if got, _, err := read(whole, wire.Options{MaxNoise: -1}); len(got) != 1 || !errors.As(err, new(*wire.BadFrame)) {
		t.Errorf("where none may be withdrawn: read %q, %v", got, err)
	}
	one := frame(ours, `{"a":1}`)
	for cut := 1; cut < len(one); cut++ {
		if got, _, err := read(one[:cut], requests); len(got) != 0 || err == nil {
			t.Errorf("after %d of %d bytes: read %q, %v", cut, len(one), got, err)
		}
	}
}

type writes []string

func (w *writes) Write(b []byte) (int, error) { *w = append(*w, string(b)); return len(b), nil }

// read returns what a reader makes of in: each frame as nonce=body, then its error.
func read(in string, options wire.Options) (got []string, r *wire.Reader, err error) {
	r = wire.NewReader(strings.NewReader(in), options)
	for {
		nonce, body, err := r.Next()
		if err != nil {
			return got, r, err
		}
		want, shown := frame(nonce, string(body)), string(body)
		if len(r.Data()) > 0 {
			want, shown = loaded(nonce, string(body), string(r.Data())), shown+"+"+string(r.Data())
		}
		if r.Raw() == nil || string(r.Raw()) != want {
			return got, r, fmt.Errorf("raw is %q", r.Raw())
		}
		got = append(got, nonce[:2]+"="+shown)
	}
}

func TestLaw8TheReaderTakesNothingForAFrameThatIsNone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		name    string
		in      string
		options wire.Options
		frames  string // joined by commas
		noise   string
		fails   string // empty: io.EOF
	}{
		{name: "nothing"},
		{name: "one", in: frame(ours, "{}"), frames: "01={}"},
		{name: "several", in: frame(ours, "1") + frame(theirs, "2") + frame(ours, "3"), frames: "01=1,fe=2,01=3"},
		{name: "a body that looks like a frame", in: frame(ours, frame(theirs, "{}")), frames: "01=" + frame(theirs, "{}")},
		{name: "a body that ends like a frame", in: frame(ours, "\nEND "+ours), frames: "01=\nEND " + ours},

		{name: "data", in: loaded(ours, "{}", "abc") + frame(ours, "{}"), options: wire.Options{Data: true}, frames: "01={}+abc,01={}"},
		{name: "data, each frame where the last one was", in: loaded(ours, "{}", long) + loaded(ours, "[]", "abc") + frame(ours, "1"),
			options: wire.Options{Data: true, Into: new([]byte)}, frames: "01={}+" + long + ",01=[]+abc,01=1"},
		{name: "data that looks like a frame", in: loaded(ours, "{}", "\nEND "+ours+"\n"+frame(ours, "1")), options: wire.Options{Data: true}, frames: "01={}+\nEND " + ours + "\n" + frame(ours, "1")},
		{name: "data where none may be", in: loaded(ours, "{}", "abc"), fails: "data where none may be"},
		{name: "data longer than said", in: strings.Replace(loaded(ours, "{}", "abc"), "+3", "+2", 1), options: wire.Options{Data: true}, fails: "END line"},
		{name: "data shorter than said", in: strings.Replace(loaded(ours, "{}", "abc"), "+3", "+4", 1), options: wire.Options{Data: true}, fails: "ended 1 bytes before"},
		{name: "data cut", in: loaded(ours, "{}", "abc")[:50], options: wire.Options{Data: true}, fails: "before the frame did"},
		{name: "something within data", in: strings.Replace(loaded(ours, "{}", "xyz"), "xy", "x!y", 1), options: wire.Options{Data: true}, fails: "END line"},
		{name: "data over the limit", in: loaded(ours, "{}", "abc"), options: wire.Options{Data: true, MaxBody: 4}, fails: "over the limit of 4"},
		{name: "data of no size", in: frame(ours, "1") + "LONGSTOP/1 " + ours + " 2+\n{}", options: wire.Options{Data: true}, frames: "01=1", fails: "usable length"},
		{name: "data of size 0", in: frame(ours, "1") + "LONGSTOP/1 " + ours + " 2+0\n{}", options: wire.Options{Data: true}, frames: "01=1", fails: "usable length"},
		{name: "data twice", in: frame(ours, "1") + "LONGSTOP/1 " + ours + " 2+1+1\n{}", options: wire.Options{Data: true}, frames: "01=1", fails: "usable length"},

		{name: "noise", in: "motd\r\n\x00\xff\n" + frame(ours, "{}"), frames: "01={}", noise: "motd\r\n\x00\xff\n"},
		{name: "noise alone", in: "This account is not available.\n", noise: "This account is not available.\n"},
		{name: "noise without a line feed, nonce known", in: "hello " + frame(ours, "{}"), options: wire.Options{Nonce: ours}, frames: "01={}", noise: "hello "},
		{name: "noise without a line feed, nonce not known", in: "hello " + frame(ours, "{}"), noise: "hello " + frame(ours, "{}")},
		{name: "noise of one long line", in: long + "\n" + frame(ours, "{}"), frames: "01={}", noise: long[:100], options: wire.Options{MaxNoise: 100}},
		{name: "noise of one long line without a line feed", in: long + frame(ours, "{}"), frames: "01={}", noise: long, options: wire.Options{Nonce: ours, MaxNoise: 1 << 20}},
		{name: "a header in the middle of a line longer than the buffer", in: long + frame(ours, "{}"), noise: long + frame(ours, "{}"), options: wire.Options{MaxNoise: 1 << 20}},
		{name: "a frame as noise (C029)", in: frame(theirs, `{"final":true}`) + frame(ours, "{}"), options: wire.Options{Nonce: ours}, frames: "01={}", noise: frame(theirs, `{"final":true}`)},
		{name: "a header as noise that claims what follows", in: "LONGSTOP/1 " + theirs + " 100\n" + frame(ours, "{}"), options: wire.Options{Nonce: ours}, frames: "01={}", noise: "LONGSTOP/1 " + theirs + " 100\n"},
		{name: "rubbish of our form as noise", in: "LONGSTOP/1 x\nLONGSTOP/1 \nLONGSTOP/1\n" + frame(ours, "{}"), options: wire.Options{Nonce: ours}, frames: "01={}", noise: "LONGSTOP/1 x\nLONGSTOP/1 \nLONGSTOP/1\n"},
		{name: "a broken header as noise, nonce not known", in: "LONGSTOP/1 " + theirs + " 0x10\n" + frame(ours, "{}"), frames: "01={}", noise: "LONGSTOP/1 " + theirs + " 0x10\n"},
		{name: "other frames after the expected one", in: frame(ours, "1") + frame(theirs, "2"), options: wire.Options{Nonce: ours}, frames: "01=1,fe=2"},

		{name: "noise where none may be", in: "x" + frame(ours, "{}"), options: wire.Options{MaxNoise: -1}, fails: "bytes between frames"},
		{name: "another nonce where no noise may be", in: frame(theirs, "{}"), options: wire.Options{MaxNoise: -1, Nonce: ours}, fails: "another nonce"},
		{name: "a line feed between frames", in: frame(ours, "{}") + "\n" + frame(ours, "{}"), frames: "01={}", fails: "bytes between frames"},
		{name: "a word after the last frame", in: frame(ours, "{}") + "logout\n", frames: "01={}", fails: "bytes between frames"},
		{name: "a byte after the last frame", in: frame(ours, "{}") + "L", frames: "01={}", fails: "ended inside a header"},
		{name: "a body shorter than said", in: strings.Replace(frame(ours, `{"a":1}`), " 7\n", " 8\n", 1), fails: "ended 1 bytes before"},
		{name: "a body shorter than said, frames following", in: strings.Replace(frame(ours, `{"a":1}`), " 7\n", " 8\n", 1) + frame(ours, "{}"), fails: "END line"},
		{name: "a body longer than said", in: strings.Replace(frame(ours, `{"a":1}`), " 7\n", " 6\n", 1), fails: "END line"},
		{name: "an END of another nonce", in: strings.Replace(frame(ours, "{}"), "END "+ours, "END "+theirs, 1), fails: "END line"},
		{name: "a frame cut in its body", in: frame(ours, "{}")[:46], fails: "before the frame did"},
		{name: "a frame cut in its END line", in: frame(ours, "{}")[:70], fails: "before the frame did"},
		{name: "a frame cut before its last line feed", in: strings.TrimSuffix(frame(ours, "{}"), "\n"), fails: "before the frame did"},
		{name: "a header cut", in: frame(ours, "{}")[:44], options: wire.Options{Nonce: ours}, fails: "ended inside a header"},
		{name: "a header cut after a frame", in: frame(ours, "{}") + frame(ours, "{}")[:30], frames: "01={}", fails: "ended inside a header"},
		{name: "carriage returns", in: strings.ReplaceAll(frame(ours, "{}"), "\n", "\r\n"), options: wire.Options{Nonce: ours}, fails: "rewrites line ends"},
		{name: "a carriage return in the END line", in: strings.TrimSuffix(frame(ours, "{}"), "\n") + "\r\n", fails: "END line"},
		{name: "a body over the limit", in: frame(ours, "123456"), options: wire.Options{MaxBody: 5}, fails: "over the limit of 5"},
		{name: "a huge body promised", in: "LONGSTOP/1 " + ours + " 999999999\n", options: wire.Options{MaxBody: 999_999_999}, fails: "before the frame did"},
		{name: "a length that overflows", in: "LONGSTOP/1 " + ours + " 18446744073709551618\n", options: wire.Options{Nonce: ours}, fails: "usable length"},
		{name: "a length of nothing", in: "LONGSTOP/1 " + ours + " 0\n\nEND " + ours + "\n", options: wire.Options{Nonce: ours}, fails: "usable length"},
		{name: "a length with a leading zero", in: "LONGSTOP/1 " + ours + " 02\n{}\nEND " + ours + "\n", options: wire.Options{Nonce: ours}, fails: "usable length"},
		{name: "a signed length", in: "LONGSTOP/1 " + ours + " +2\n{}\nEND " + ours + "\n", options: wire.Options{Nonce: ours}, fails: "usable length"},
		{name: "no length", in: "LONGSTOP/1 " + ours + "\n{}\nEND " + ours + "\n", options: wire.Options{Nonce: ours}, fails: "no nonce"},
		{name: "two spaces", in: "LONGSTOP/1 " + ours + "  2\n{}\nEND " + ours + "\n", options: wire.Options{Nonce: ours}, fails: "usable length"},
		{name: "a nonce in capitals", in: frame(ours, "1") + frame(strings.ToUpper(ours), "{}"), frames: "01=1", fails: "no nonce"},
		{name: "an endless header", in: frame(ours, "1") + "LONGSTOP/1 " + strings.Repeat("a", 1<<20), frames: "01=1", fails: "does not end"},
		{name: "another version", in: frame(ours, "1") + strings.Replace(frame(ours, "1"), "/1", "/2", 1), frames: "01=1", fails: "is no frame"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, r, err := read(c.in, c.options)
			if strings.Join(got, ",") != c.frames {
				t.Errorf("frames %.200q, want %.200q", got, c.frames)
			}
			if string(r.Noise()) != c.noise {
				t.Errorf("noise %.100q, want %.100q", r.Noise(), c.noise)
			}
			var bad *wire.BadFrame
			switch {
			case c.fails == "" && err != io.EOF:
				t.Errorf("ended with %v, want io.EOF", err)
			case c.fails != "" && (!errors.As(err, &bad) || !strings.Contains(bad.Why, c.fails)):
				t.Errorf("ended with %v, want a BadFrame with %q", err, c.fails)
			}
			if _, _, again := r.Next(); again != err {
				t.Errorf("after %v the reader went on: %v", err, again)
			}
		})
	}
}

func TestReaderTellsALostTransportFromABadFrame(t *testing.T) {
	t.Parallel()
	gone := errors.New("connection lost")
	between := wire.NewReader(io.MultiReader(strings.NewReader(frame(ours, "{}")), iotest.ErrReader(gone)), wire.Options{})
	if _, _, err := between.Next(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := between.Next(); err != gone {
		t.Errorf("between frames: %v", err)
	}
	inside := wire.NewReader(io.MultiReader(strings.NewReader(frame(ours, "{}")[:50]), iotest.ErrReader(gone)), wire.Options{})
	var bad *wire.BadFrame
	if _, _, err := inside.Next(); !errors.As(err, &bad) || !errors.Is(err, gone) {
		t.Errorf("inside a frame: %v", err)
	}
	if string(inside.Raw()) != frame(ours, "{}")[:50] {
		t.Errorf("raw is %q", inside.Raw())
	}
}

func TestReadOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, body, fails string }{
		{"the answer", "noise\n" + frame(ours, "{}"), "{}", ""},
		{"two frames for one nonce", frame(ours, "{}") + frame(ours, "{}"), "", "two frames for one nonce"},
		{"a second frame", frame(ours, "{}") + frame(theirs, "{}"), "", "a second frame"},
		{"words after it", frame(ours, "{}") + "bye\n", "", "bytes between frames"},
		{"another's answer", frame(theirs, "{}"), "", "no frame came"},
		{"nothing", "", "", "no frame came"},
		{"half of it", frame(ours, "{}")[:50], "", "before the frame did"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			body, r, err := wire.ReadOne(strings.NewReader(c.in), ours, wire.Options{})
			if string(body) != c.body || c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("body %q, error %v; want %q, %q", body, err, c.body, c.fails)
			}
			if !strings.Contains(c.in, string(r.Noise())+string(r.Raw())) {
				t.Errorf("noise %q, raw %q", r.Noise(), r.Raw())
			}
		})
	}
}

// FuzzReader: whatever comes and however it is cut, what the reader gives is a part of it, a frame
// is what WriteFrame would have written, and a reader that failed stays failed.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"", "noise", frame(ours, "{}"), frame(ours, "{}") + frame(ours, "{}"), frame(theirs, "{}") + frame(ours, "{}"),
		"x" + frame(ours, "{}"), frame(ours, "{}") + "\n", frame(ours, "{}")[:40], strings.ReplaceAll(frame(ours, "{}"), "\n", "\r\n"),
		"LONGSTOP/1 " + ours + " 999999999\n{}", "LONGSTOP/1 " + ours + " 99999999999999999999\n", "LONGSTOP/1 LONGSTOP/1 " + frame(ours, "1"),
		frame(ours, "\nEND "+ours+"\n"+frame(ours, "{}")), "\x00\xff\n" + frame(ours, "{\"a\":1,\"a\":2}"),
		loaded(ours, "{}", "abc") + loaded(ours, "[]", "\nEND "+ours+"\n"), loaded(ours, "{}", "abc")[:50],
	} {
		f.Add([]byte(seed), true, false)
		f.Add([]byte(seed), false, true)
	}
	f.Fuzz(func(t *testing.T, in []byte, known, data bool) {
		options := wire.Options{MaxBody: 1 << 20, MaxNoise: 1 << 20, Data: data}
		if data {
			options.Into = new([]byte)
		}
		if known {
			options.Nonce = ours
		}
		whole := drain(t, bytes.NewReader(in), options)
		bytewise := drain(t, iotest.OneByteReader(bytes.NewReader(in)), options)
		if whole != bytewise {
			t.Fatalf("read at once:\n%q\nbyte by byte:\n%q", whole, bytewise)
		}
		if !bytes.HasPrefix(in, []byte(whole)) {
			t.Fatalf("read %q, not a beginning of the input", whole)
		}
	})
}

// drain returns noise and raw frames as they came.
func drain(t *testing.T, in io.Reader, options wire.Options) string {
	var all strings.Builder
	r := wire.NewReader(in, options)
	for n := 0; ; n++ {
		nonce, body, err := r.Next()
		if n == 0 {
			all.Write(r.Noise())
			if err == nil && options.Nonce != "" && nonce != options.Nonce {
				t.Fatalf("the first frame bears %s", nonce)
			}
		}
		if err != nil {
			if _, _, again := r.Next(); again != err {
				t.Fatalf("went on after %v: %v", err, again)
			}
			return all.String()
		}
		var written bytes.Buffer
		if len(r.Data()) > 0 {
			written.WriteString(loaded(nonce, string(body), string(r.Data())))
		} else if err := wire.WriteFrame(&written, nonce, body); err != nil {
			t.Fatal(err)
		}
		if written.String() != string(r.Raw()) {
			t.Fatalf("raw %q, written %q", r.Raw(), written.String())
		}
		all.Write(r.Raw())
	}
}

// FuzzRequests reads as a serve channel does: what is withdrawn is passed over, what came before a frame's
// end is the same when that has come, and it does not matter how the bytes arrive.
func FuzzRequests(f *testing.F) {
	not := func(frame string) string { return strings.Replace(frame, "\nEND ", "\nNOT ", 1) }
	one, other := frame(ours, `{"a":1}`), frame(theirs, `{"b":2}`)
	for _, seed := range []string{
		"", one, not(one), not(one) + other, one + not(other) + one, not(one) + not(one)[:60], not(one) + "x", one[:len(one)-3] + other,
		not(loaded(ours, "{}", "abc")), frame(ours, "\nNOT "+ours+"\n") + not(other) + one,
		frame(ours, `"`+strings.Repeat("x", wire.MaxBegun)+`"`) + one,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := requests(t, bytes.NewReader(in), false)
		if bytewise := requests(t, iotest.OneByteReader(bytes.NewReader(in)), true); !slices.Equal(whole, bytewise) {
			t.Fatalf("read at once:\n%q\nbyte by byte:\n%q", whole, bytewise)
		}
		requests(t, iotest.HalfReader(bytes.NewReader(in)), false)
	})
}

// requests returns the frames that stand. Each that was told ahead was told as it stands; always says
// that all must have been, but for large ones.
func requests(t *testing.T, in io.Reader, always bool) (frames []string) {
	var aheadNonce string
	var ahead []byte
	r := wire.NewReader(in, wire.Options{MaxNoise: -1, MaxBody: 1 << 20, Withdrawals: true, Ahead: func(nonce string, body []byte) { aheadNonce, ahead = nonce, body }})
	for {
		aheadNonce, ahead = "", nil
		nonce, body, err := r.Next()
		if err != nil {
			return frames
		}
		switch told := aheadNonce == nonce && bytes.Equal(ahead, body); {
		case len(ahead) > wire.MaxBegun, always && !told && len(body) <= wire.MaxBegun:
			t.Fatalf("%s %q stands, told ahead was %s %q", nonce, body, aheadNonce, ahead)
		}
		if !bytes.HasSuffix(r.Raw(), []byte("\nEND "+nonce+"\n")) {
			t.Fatalf("%q stands", r.Raw())
		}
		frames = append(frames, nonce+"="+string(body))
	}
}

// A start-up file prints what looks like a whole answer of ours, in the words of our protocol, and
// the workload's output does too: neither is believed.
func TestLaw8C029TextThatLooksLikeOurProtocolIsNeverBelieved(t *testing.T) {
	t.Parallel()
	claim := func(nonce string) string { return `{"nonce":"` + nonce + `","final":true,"body":{"found":false}}` }
	answer := claim(ours)
	for name, noise := range map[string]string{
		"JSON":                      `{"ok":true,"job":"x"}` + "\n",
		"an answer without a frame": answer + "\n",
		"a frame of another nonce":  frame(theirs, claim(theirs)),
		"a frame of another nonce with our answer in it":     frame(theirs, answer),
		"the end of a frame":                                 "\nEND " + ours + "\n",
		"a header of another nonce that swallows the answer": "LONGSTOP/1 " + theirs + " 9999\n",
		"many of them": strings.Repeat(frame(theirs, claim(theirs)), 1000),
	} {
		body, r, err := wire.ReadOne(strings.NewReader(noise+frame(ours, answer)), ours, wire.Options{MaxNoise: 1 << 20})
		if err != nil || string(body) != answer || string(r.Noise()) != noise {
			t.Errorf("%s: body %q, %v", name, body, err)
		}
		if got, err := wire.DecodeAnswer(ours, body); err != nil || got.Nonce != ours {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
