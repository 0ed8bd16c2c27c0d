package wire_test

import (
	"bytes"
	"encoding/json"
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
		got, err := wire.EncodeAnswer(answer)
		if err != nil || string(got) != string(want) {
			t.Errorf("EncodeAnswer: %s, %v; want %s", got, err, want)
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

func TestRequestsComeBack(t *testing.T) {
	t.Parallel()
	request := wire.Request{Protocol: wire.Protocol, Nonce: ours, Verb: wire.VerbFind, Host: wire.Identity{MachineID: "m", UID: 1000, StateID: "s"},
		StateDir: "/s", WithinMS: 5000, Body: json.RawMessage(`{"key":"k"}`)}
	var framed bytes.Buffer
	if err := wire.WriteRequest(&framed, request); err != nil {
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

// A megabyte of output on its way through the gateway: envelope, then the bytes.
func megabyte(tb testing.TB) (body []byte) {
	tb.Helper()
	data := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz \n\x00\xff\x80 "), 1<<20/42)
	out, err := json.Marshal(wire.OutputAnswer{Offset: 1 << 40, Data: data, Total: 1 << 41})
	if err != nil {
		tb.Fatal(err)
	}
	body, err = wire.EncodeAnswer(wire.Answer{Nonce: ours, Final: true, Body: out})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

func BenchmarkDecodeOutput(b *testing.B) {
	body := megabyte(b)
	for _, way := range []struct {
		name   string
		decode func() error
	}{
		{"longstop", func() error {
			answer, err := wire.DecodeAnswer(ours, body)
			if err != nil {
				return err
			}
			return wire.Tolerant(answer.Body, new(wire.OutputAnswer))
		}},
		{"envelope", func() error { _, err := wire.DecodeAnswer(ours, body); return err }},
		{"encoding-json", func() error {
			var answer wire.Answer
			if err := json.Unmarshal(body, &answer); err != nil {
				return err
			}
			return json.Unmarshal(answer.Body, new(wire.OutputAnswer))
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

func BenchmarkEncodeOutput(b *testing.B) {
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<18)
	b.SetBytes(int64(len(data)) * 4 / 3)
	b.ReportAllocs()
	for b.Loop() {
		out, err := json.Marshal(wire.OutputAnswer{Data: data})
		if err != nil {
			b.Fatal(err)
		}
		if err := wire.WriteAnswer(discard{}, wire.Answer{Nonce: ours, Final: true, Body: out}); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkReadFrame(b *testing.B) {
	framed := []byte(frame(ours, string(megabyte(b))))
	b.SetBytes(int64(len(framed)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := wire.NewReader(bytes.NewReader(framed), wire.Options{}).Next(); err != nil {
			b.Fatal(err)
		}
	}
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
