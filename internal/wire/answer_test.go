package wire_test

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

func TestAnswersAreWrittenAsEncodingJSONWould(t *testing.T) {
	t.Parallel()
	for _, answer := range []wire.Answer{
		{Nonce: ours, Final: true},
		{Nonce: ours, Final: true, Body: json.RawMessage(`{"a":[1,2]}`)},
		{Nonce: ours, Number: 7, Body: json.RawMessage(`{}`)},
		{Nonce: ours, Final: true, Error: &longstop.Error{Code: longstop.CodeNotFound, Message: "no <run>"}},
	} {
		want, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		var framed bytes.Buffer
		if err := wire.WriteAnswer(&framed, answer); err != nil || framed.String() != frame(ours, string(want)) {
			t.Errorf("WriteAnswer: %s, %v", framed.String(), err)
		}
		back, err := wire.DecodeAnswer(ours, want)
		if err != nil || !reflect.DeepEqual(back, answer) {
			t.Errorf("DecodeAnswer: %+v, %v; want %+v", back, err, answer)
		}
	}
}

// TestAnswersCarryBytes as they are, whatever they look like, and however their frame is written.
func TestAnswersCarryBytes(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"\x00", "\nEND " + ours + "\n", frame(ours, "{}"), strings.Repeat("\xff", 3<<20)} {
		answer := wire.Answer{Nonce: ours, Number: 1, Body: json.RawMessage(`{"offset":3}`), Data: []byte(data)}
		var framed bytes.Buffer
		if err := wire.WriteAnswer(&framed, answer); err != nil {
			t.Fatal(err)
		}
		head, tail, err := wire.AroundData(answer, len(data))
		if err != nil || string(head)+data+string(tail) != framed.String() {
			t.Errorf("around the data: %q, %q, %v", head, tail, err)
		}
		again := framed.String() + framed.String()
		for _, into := range []*[]byte{nil, new([]byte)} {
			r := wire.NewReader(strings.NewReader(again), wire.Options{Data: true, Into: into})
			for range 2 {
				nonce, body, err := r.Next()
				if err != nil || string(r.Data()) != data || string(r.Raw()) != framed.String() {
					t.Fatalf("%.100q, %v", r.Data(), err)
				}
				got, err := wire.DecodeAnswer(nonce, body)
				got.Data = r.Data()
				if err != nil || !reflect.DeepEqual(got, answer) {
					t.Errorf("%.100v, %v", got, err)
				}
			}
			if _, _, err := r.Next(); err != io.EOF {
				t.Errorf("ended with %v", err)
			}
		}
	}
	for _, size := range []int{0, -1, 999_999_999} {
		if _, _, err := wire.AroundData(wire.Answer{Nonce: ours, Number: 1}, size); err == nil {
			t.Errorf("%d bytes of data: no error", size)
		}
	}
}

func TestRequestsComeBack(t *testing.T) {
	t.Parallel()
	request := wire.Request{Protocol: wire.Protocol, Nonce: ours, Verb: wire.VerbFind, Host: wire.Identity{MachineID: "m", UID: 1000, StateID: "s"},
		StateDir: "/s", WithinMS: 5000, Body: json.RawMessage(`{"key":"k"}`)}
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var framed bytes.Buffer
	if err := wire.WriteFrame(&framed, request.Nonce, text); err != nil {
		t.Fatal(err)
	}
	nonce, body, err := wire.NewReader(&framed, wire.Options{MaxNoise: -1}).Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeRequest(nonce, body)
	if err != nil || !reflect.DeepEqual(got, request) {
		t.Errorf("%+v, %v; want %+v", got, err, request)
	}
	for nonce, body := range map[string]string{
		theirs: string(body),
		ours:   strings.Replace(string(body), `"verb"`, `"verbs"`, 1),
	} {
		if _, err := wire.DecodeRequest(nonce, []byte(body)); err == nil {
			t.Errorf("DecodeRequest(%s, %s): no error", nonce, body)
		}
	}
}

func TestLaw8DecodeAnswerRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, fails string }{
		{"a request that was echoed", `{"protocol":1,"nonce":"` + ours + `","verb":"hello","host":{"uid":0}}`, "echoes"},
		{"an answer to another", `{"nonce":"` + theirs + `","final":true}`, "another nonce"},
		{"no nonce", `{"final":true}`, "another nonce"},
		{"a name twice", `{"nonce":"` + ours + `","final":true,"final":true}`, "twice"},
		{"a name in two cases", `{"nonce":"` + ours + `","final":true,"FINAL":false}`, `written "final"`},
		{"a name twice in the body", `{"nonce":"` + ours + `","final":true,"body":{"a":{"b":1,"b":2}}}`, "twice"},
		{"something after it", `{"nonce":"` + ours + `","final":true}{}`, "after the value"},
		{"invalid UTF-8", `{"nonce":"` + ours + `","final":true,"body":"` + "\xff" + `"}`, "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if answer, err := wire.DecodeAnswer(ours, []byte(c.body)); err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%+v, %v; want %q", answer, err, c.fails)
			}
		})
	}
	if _, err := wire.DecodeAnswer(ours, []byte(`{"nonce":"`+ours+`","final":true,"later":{"a":1},"body":{}}`)); err != nil {
		t.Errorf("a newer host's field: %v", err)
	}
}

// A megabyte of standard input on its way to the host: envelope, then the bytes in base64.
func BenchmarkDecodeSpool(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz \n\x00\xff\x80 "), 1<<20/42)
	spool, err := json.Marshal(wire.SpoolRequest{RunID: longstop.NewRunID(), Offset: 1 << 40, Data: data})
	if err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(wire.Request{Protocol: wire.Protocol, Nonce: ours, Verb: wire.VerbSpool, Body: spool})
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name   string
		decode func() error
	}{
		{"longstop", func() error {
			request, err := wire.DecodeRequest(ours, body)
			if err != nil {
				return err
			}
			return wire.Strict(request.Body, new(wire.SpoolRequest))
		}},
		{"envelope", func() error { _, err := wire.DecodeRequest(ours, body); return err }},
		{"encoding-json", func() error {
			var request wire.Request
			if err := json.Unmarshal(body, &request); err != nil {
				return err
			}
			return json.Unmarshal(request.Body, new(wire.SpoolRequest))
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := way.decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// output is what a frame of 256 KiB of output is made of.
func output() wire.Answer {
	return wire.Answer{Nonce: ours, Number: 1, Body: json.RawMessage(`{"offset":1099511627776,"total":2199023255552}`),
		Data: bytes.Repeat([]byte{1, 2, 3, 4}, 1<<16)}
}

func BenchmarkWriteOutput(b *testing.B) {
	answer := output()
	b.SetBytes(int64(len(answer.Data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := wire.WriteAnswer(discard{}, answer); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkReadOutput(b *testing.B) {
	var framed bytes.Buffer
	if err := wire.WriteAnswer(&framed, output()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(framed.Len()))
	b.ReportAllocs()
	r := wire.NewReader(&again{all: framed.Bytes()}, wire.Options{Data: true, Into: new([]byte)})
	for b.Loop() {
		nonce, body, err := r.Next()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.DecodeAnswer(nonce, body); err != nil {
			b.Fatal(err)
		}
	}
}

// again reads the same bytes for ever.
type again struct{ all, rest []byte }

func (a *again) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		a.rest = a.all
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// A record: the small, often read message.
func BenchmarkDecodeRecord(b *testing.B) {
	seven, two := 7, true
	record, err := json.Marshal(longstop.Record{Version: 1, RunID: longstop.NewRunID(), ActionID: "act_0123456789ABCDE", Sequence: 9,
		State: longstop.WorkloadFinished, Main: &longstop.Main{PID: 3, ExitCode: &seven}, Boundary: longstop.Boundary{Kind: "tree", Empty: &two},
		Result: &longstop.Result{ExitCode: &seven}, Writer: longstop.Writer{Kind: longstop.WriterOwner, Version: "1", MachineID: "m", BootID: "b"}})
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func([]byte, any) error{"longstop": wire.Strict, "encoding-json": json.Unmarshal} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(record, new(longstop.Record)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
