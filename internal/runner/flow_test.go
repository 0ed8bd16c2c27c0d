package runner

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/wire"
)

// flowed is a call of output whose answers follow each other.
type flowed struct {
	s      *site
	cmd    *exec.Cmd
	frames *wire.Reader
	ledger *wire.Ledger
	offset int64
}

func (s *site) flow(request wire.OutputRequest) *flowed {
	s.t.Helper()
	request.Flow = true
	ask := s.ask(wire.VerbOutput, request)
	ask.WithinMS = 0
	cmd := exec.Command(s.runner, "output")
	cmd.Stdin = bytes.NewReader(s.encode(ask))
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	f := &flowed{s: s, cmd: cmd, ledger: wire.NewLedger(), offset: request.Offset,
		frames: wire.NewReader(out, wire.Options{MaxNoise: -1, Nonce: ask.Nonce, Data: true})}
	if err := f.ledger.Expect(ask.Nonce, true); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// next is one answer: bytes that follow the last ones, or the final one.
func (f *flowed) next() (answer wire.OutputAnswer, final bool) {
	f.s.t.Helper()
	nonce, body, err := f.frames.Next()
	if err != nil {
		f.s.t.Fatal(err)
	}
	got, err := wire.DecodeAnswer(nonce, body)
	if err == nil {
		err = f.ledger.Accept(got)
	}
	if err != nil || got.Error != nil {
		f.s.t.Fatal(err, got.Error)
	}
	got.Data = f.frames.Data()
	f.s.read(got, &answer)
	if err := answer.Follows(f.offset); err != nil || got.Final != (len(answer.Data) == 0) || answer.Total < answer.Offset+int64(len(answer.Data)) {
		f.s.t.Fatalf("at %d: final %v, %d bytes from %d of %d (%v)", f.offset, got.Final, len(answer.Data), answer.Offset, answer.Total, err)
	}
	f.offset = answer.Offset + int64(len(answer.Data))
	return answer, got.Final
}

// TestFlow: what is there and what is written meanwhile, byte for byte, to the stream's end.
func TestFlow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const size = 5<<20 + 7
	sub := s.script(fmt.Sprintf("head -c %d /dev/urandom | tee copy; while ! [ -e go ]; do sleep 0.01; done; echo end", size))
	s.must(wire.VerbSubmit, sub, nil)
	f := s.flow(wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 20_000})
	hash := sha256.New()
	for f.offset < size {
		answer, final := f.next()
		if final {
			t.Fatalf("ended at %d", f.offset)
		}
		hash.Write(answer.Data)
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	last, _ := f.next()
	end, final := f.next()
	if string(last.Data) != "end\n" || !final || !end.End || end.Total != f.offset {
		t.Errorf("at the end: %q, then final %v %+v", last.Data, final, end)
	}
	if err := f.cmd.Wait(); err != nil {
		t.Error(err)
	}
	copied, err := os.ReadFile(s.path("copy"))
	if err != nil || sha256.Sum256(copied) != [32]byte(hash.Sum(nil)) {
		t.Errorf("what arrived is not what was written (%v)", err)
	}
	again := s.flow(wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", Offset: size + 1})
	rest, _ := again.next()
	if end, final := again.next(); string(rest.Data) != "nd\n" || !final || !end.End {
		t.Errorf("of the finished run: %q, then final %v %+v", rest.Data, final, end)
	}
	none := s.flow(wire.OutputRequest{RunID: sub.RunID, Stream: "stderr"})
	if end, final := none.next(); !final || !end.End {
		t.Errorf("of a stream with nothing: final %v %+v", final, end)
	}
}

// TestFlowEndsWhenNothingComes while the run goes on.
func TestFlowEndsWhenNothingComes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("echo begun; exec sleep 60")
	s.must(wire.VerbSubmit, sub, nil)
	f := s.flow(wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 500})
	if first, _ := f.next(); string(first.Data) != "begun\n" {
		t.Errorf("first %q", first.Data)
	}
	if end, final := f.next(); !final || end.End || end.Offset != 6 {
		t.Errorf("then final %v %+v", final, end)
	}
}

// TestFlowRefuses where answers in between would have no place, and where a deadline could cut one.
func TestFlowRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sub := s.script("echo hello")
	s.submit(sub)
	request := wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", Flow: true}
	unbounded := s.ask(wire.VerbOutput, request)
	unbounded.WithinMS = 0
	if err := s.serve().call(unbounded, nil); err == nil || err.Code != longstop.CodeUsage {
		t.Errorf("on a serve channel: %v", err)
	}
	if err := s.call(s.ask(wire.VerbOutput, request), nil); err == nil || err.Code != longstop.CodeUsage {
		t.Errorf("with a deadline: %v", err)
	}
}

// broken takes a few bytes and fails from then on.
type broken struct{ got bytes.Buffer }

func (b *broken) Write(p []byte) (int, error) {
	if b.got.Len() > 0 {
		return 0, os.ErrClosed
	}
	return b.got.Write(p)
}

// TestOutletSaysNothingBehindHalfAFrame, whether the file ends early or a write fails.
func TestOutletSaysNothingBehindHalfAFrame(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("short"); err != nil {
		t.Fatal(err)
	}
	answer := wire.Answer{Nonce: wire.NewNonce(), Number: 1}
	var out bytes.Buffer
	o := &outlet{to: &out}
	pass := func(size int) func() error { return func() error { return o.pass(file, 0, size) } }
	if err := o.answer(answer, 100, pass(100)); err == nil {
		t.Error("a file that is shorter: no error")
	}
	half := out.Len()
	if err := wire.WriteAnswer(o, failed(answer.Nonce, os.ErrClosed)); err == nil || out.Len() != half {
		t.Errorf("after half a frame: %v, %d bytes more", err, out.Len()-half)
	}
	var stuck broken
	o = &outlet{to: &stuck}
	if err := o.answer(answer, 5, pass(5)); err == nil {
		t.Error("a write that fails: no error")
	}
}
