package runner

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longstop/longstop"
	"github.com/longstop/longstop/internal/boundary"
	"github.com/longstop/longstop/internal/record"
	"github.com/longstop/longstop/internal/wire"
)

// numbered is a script that writes so many lines of 16 bytes, each with its own number, so that every
// piece of its output shows where it belongs; numberedBytes are the same bytes.
func numbered(lines int) string { return fmt.Sprintf("seq -f %%015.0f 0 %d", lines-1) }

func numberedBytes(from, to int64) []byte {
	var all bytes.Buffer
	for line := from / 16; line*16 < to; line++ {
		fmt.Fprintf(&all, "%015d\n", line)
	}
	return all.Bytes()[from%16 : from%16+to-from]
}

// outputReading is a stream as somebody reads it who asks again until its end, or until nothing comes.
type outputReading struct {
	data    bytes.Buffer // what was kept
	dropped []longstop.Dropped
	offset  int64
	end     bool
}

func (r *outputReading) take(t testing.TB, answer wire.OutputAnswer, asked int64) {
	t.Helper()
	if err := answer.Follows(asked); err != nil {
		t.Fatal(err)
	}
	r.dropped = append(r.dropped, answer.Dropped...)
	r.data.Write(answer.Data)
	r.offset, r.end = answer.Offset+int64(len(answer.Data)), answer.End
}

func (l *lab) read(id longstop.RunID, stream string, offset int64) *outputReading {
	l.t.Helper()
	run, err := l.f.Run(id)
	if err != nil {
		l.t.Fatal(err)
	}
	defer run.Close()
	r := &outputReading{offset: offset}
	for {
		asked := r.offset
		answer, err := readOutput(run, wire.OutputRequest{RunID: id, Stream: stream, Offset: asked, Max: maxOutput})
		if err != nil {
			l.t.Fatal(err)
		}
		r.take(l.t, answer, asked)
		if r.end || len(answer.Data) == 0 {
			return r
		}
	}
}

// kept is what can be read of a stream.
func (l *lab) kept(id longstop.RunID, stream string) []byte {
	return l.read(id, stream, 0).data.Bytes()
}

// disk is what a run's file takes.
func (l *lab) disk(id longstop.RunID, stream string) int64 {
	l.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(l.f.Path("runs", string(id), stream), &st); err != nil {
		l.t.Fatal(err)
	}
	return st.Blocks * 512
}

func (l *lab) bounded(script string, most int64) wire.Submit {
	return l.request(longstop.Request{Script: script, OutputMax: &most})
}

// checkBounded looks at a stream of numbered lines that was to be bounded: head and tail are there, what
// lies between is named, and nothing else is missing.
func (l *lab) checkBounded(rec longstop.Record, stream string, total, most int64) {
	l.t.Helper()
	r := l.read(rec.RunID, stream, 0)
	dropped := rec.Output.DroppedOf(stream)
	if len(dropped) != 1 || len(r.dropped) != 1 || r.dropped[0] != dropped[0] || rec.Output.BytesOf(stream) != total || !r.end || r.offset != total {
		l.t.Fatalf("%d bytes, read to %d (end %v) without %v: %s", total, r.offset, r.end, r.dropped, show(rec))
	}
	gap := dropped[0]
	if gap.From != most/2 || gap.To < total-most/2-block || gap.To > total-most/2 || gap.Reason != longstop.DroppedOverMax {
		l.t.Errorf("dropped %+v of %d, bound %d", gap, total, most)
	}
	want := append(numberedBytes(0, gap.From), numberedBytes(gap.To, total)...)
	if sha256.Sum256(r.data.Bytes()) != sha256.Sum256(want) {
		l.t.Errorf("what was kept is not what was written (%d bytes)", r.data.Len())
	}
	if used := l.disk(rec.RunID, stream); used > most+2*block {
		l.t.Errorf("the file takes %d bytes, bound %d", used, most)
	}
	// Somebody who asks for bytes of the middle, or goes on from there, is told of the next that exist.
	middle := l.read(rec.RunID, stream, gap.From+5)
	if len(middle.dropped) != 1 || middle.dropped[0].From != gap.From+5 || middle.dropped[0].To != gap.To || !bytes.Equal(middle.data.Bytes(), numberedBytes(gap.To, total)) {
		l.t.Errorf("from within the gap: %v, %d bytes", middle.dropped, middle.data.Len())
	}
}

// Over its bound a stream keeps its head and its tail at their own offsets; the other stream is its own.
func TestOutputOverItsBound(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const lines, most = 2_000_000, 1 << 20
	sub := l.bounded(numbered(lines)+"; echo few >&2; exit 3", most)
	l.submit(sub)
	rec := l.final(sub.RunID)
	if !exited(rec, 3) || rec.Output.Stream != longstop.StreamCut || rec.Output.DropReason != longstop.DroppedOverMax || rec.Output.MaxBytes != most ||
		rec.Output.StderrBytes != 4 || len(rec.Output.StderrDropped) != 0 || rec.Output.DroppedBytes != rec.Output.StdoutDropped[0].To-rec.Output.StdoutDropped[0].From {
		t.Errorf("%s", show(rec))
	}
	l.checkBounded(rec, "stdout", lines*16, most)
}

// What is just within the bound, and what is not bounded at all, is kept whole.
func TestOutputWithinItsBound(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for most, lines := range map[int64]int{longstop.MinOutputMax: longstop.MinOutputMax / 16, 0: 300_000} {
		sub := l.bounded(numbered(lines), most)
		l.submit(sub)
		rec := l.final(sub.RunID)
		if rec.Output.Stream != longstop.StreamComplete || !bytes.Equal(l.kept(sub.RunID, "stdout"), numberedBytes(0, int64(lines)*16)) {
			t.Errorf("bound %d: %s", most, show(rec))
		}
	}
}

// The owner is killed again and again while the middle is cut out: its heir goes on exactly.
func TestBoundedOutputSurvivesItsOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const lines, most = 4_000_000, 256 << 10
	for range 4 {
		sub := l.bounded(numbered(lines)+"; exit 2", most)
		l.submit(sub)
		eventually(t, "a cut", func() bool { return len(l.declared(sub.RunID)) > 0 })
		if owner, ok := l.owner(sub.RunID); ok {
			boundary.Signal(owner, unix.SIGKILL)
		}
		rec := l.final(sub.RunID)
		if !exited(rec, 2) {
			t.Errorf("%s", show(rec))
		}
		l.checkBounded(rec, "stdout", lines*16, most)
	}
}

func (l *lab) declared(id longstop.RunID) []longstop.Dropped {
	l.t.Helper()
	run, err := l.f.Run(id)
	if err != nil {
		l.t.Fatal(err)
	}
	defer run.Close()
	list, err := run.Declared("stdout")
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// Whoever follows while the middle is cut out reads what was written or is told that it is gone, and
// never a hole: pulled and flowing.
func TestFollowersNeverReadAHole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const lines, most = 6_000_000, 64 << 10
	bound := int64(most)
	sub := s.request(longstop.Request{Script: numbered(lines), OutputMax: &bound})
	s.must(wire.VerbSubmit, sub, nil)
	flowing := s.flow(wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", WaitMS: 20_000})
	check := func(who string, answer wire.OutputAnswer) {
		t.Helper()
		if !bytes.Equal(answer.Data, numberedBytes(answer.Offset, answer.Offset+int64(len(answer.Data)))) {
			t.Fatalf("%s: bytes from %d are not those that were written", who, answer.Offset)
		}
	}
	pulled := &outputReading{}
	for final := false; !final || !pulled.end; {
		if !final {
			var answer wire.OutputAnswer
			answer, final = flowing.next()
			check("flowing", answer)
		}
		if !pulled.end {
			asked, answer := pulled.offset, wire.OutputAnswer{}
			s.must(wire.VerbOutput, wire.OutputRequest{RunID: sub.RunID, Stream: "stdout", Offset: asked, WaitMS: 5000}, &answer)
			check("pulled", answer)
			pulled.take(t, answer, asked)
		}
	}
	if flowing.offset != lines*16 || pulled.offset != lines*16 || len(pulled.dropped) == 0 {
		t.Errorf("followed to %d and %d of %d, without %v", flowing.offset, pulled.offset, lines*16, pulled.dropped)
	}
}

// Where there can be no holes, the head is kept and the rest is named.
func TestOutputOverItsBoundWithoutHoles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a ramfs needs root")
	}
	t.Parallel()
	l := newLabOn(t, "ramfs", "")
	const lines, most = 500_000, 1 << 20
	sub := l.bounded(numbered(lines), most)
	l.submit(sub)
	rec := l.final(sub.RunID)
	r := l.read(sub.RunID, "stdout", 0)
	if len(r.dropped) != 1 || r.dropped[0].To != lines*16 || r.dropped[0].From < most || r.dropped[0].From > 3*most ||
		!bytes.Equal(r.data.Bytes(), numberedBytes(0, r.dropped[0].From)) || rec.Output.DropReason != longstop.DroppedOverMax {
		t.Errorf("%d bytes without %v: %s", r.data.Len(), r.dropped, show(rec))
	}
}

// What a full disk did not take is named by its offsets, also where there was room again behind it.
func TestC121RoomAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	t.Parallel()
	l := newLabOn(t, "tmpfs", "size=2m")
	ballast := filepath.Join(filepath.Dir(l.f.Dir()), "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0600); err != nil {
		t.Fatal(err)
	}
	const lines = 500_000
	sub := l.script(numbered(lines) + "; touch full; while ! [ -e go ]; do sleep 0.01; done; echo room again")
	l.submit(sub)
	eventually(t, "a full disk", func() bool { return l.exists("full") })
	// What the work has written may still be in its pipe: there must be no room for that either.
	eventually(t, "an empty pipe", func() bool { return l.inPipe(sub.RunID) == 0 })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path("go"), nil, 0600); err != nil {
		t.Fatal(err)
	}
	rec := l.final(sub.RunID)
	r := l.read(sub.RunID, "stdout", 0)
	if len(r.dropped) != 1 || r.dropped[0].Reason != "ENOSPC" || r.dropped[0].To != lines*16 || r.offset != lines*16+11 || rec.Output.StdoutBytes != r.offset {
		t.Fatalf("read to %d without %v: %s", r.offset, r.dropped, show(rec))
	}
	if want := append(numberedBytes(0, r.dropped[0].From), "room again\n"...); !bytes.Equal(r.data.Bytes(), want) {
		t.Errorf("%d bytes, not the %d that there was room for", r.data.Len(), len(want))
	}
}

// inPipe is how many bytes of a main process's standard output its owner has yet to take.
func (l *lab) inPipe(id longstop.RunID) int {
	l.t.Helper()
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", l.record(id).Main.PID), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer pipe.Close()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *lab) exists(name string) bool {
	_, err := os.Stat(l.path(name))
	return err == nil
}

func TestCover(t *testing.T) {
	t.Parallel()
	type d = longstop.Dropped
	gap := func(from, to int64, reason string) d { return d{From: from, To: to, Reason: reason} }
	for _, c := range []struct {
		list []d
		add  d
		want []d
	}{
		{nil, gap(5, 9, "a"), []d{gap(5, 9, "a")}},
		{[]d{gap(5, 9, "a")}, gap(9, 12, "a"), []d{gap(5, 12, "a")}},
		{[]d{gap(5, 9, "a")}, gap(9, 12, "b"), []d{gap(5, 9, "a"), gap(9, 12, "b")}},
		{[]d{gap(5, 9, "a")}, gap(7, 12, "b"), []d{gap(5, 7, "a"), gap(7, 12, "b")}},
		{[]d{gap(5, 19, "a")}, gap(7, 12, "b"), []d{gap(5, 7, "a"), gap(7, 12, "b"), gap(12, 19, "a")}},
		{[]d{gap(5, 9, "a"), gap(10, 11, "b"), gap(20, 30, "c")}, gap(4, 25, "x"), []d{gap(4, 25, "x"), gap(25, 30, "c")}},
		{[]d{gap(5, 9, "a")}, gap(3, 3, "b"), []d{gap(5, 9, "a")}},
	} {
		if got := record.Cover(c.list, c.add); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v with %v: %v, want %v", c.list, c.add, got, c.want)
		}
	}
	var many []d
	for i := range int64(100) {
		many = record.Cover(many, gap(10*i, 10*i+5, "a"))
	}
	if n := len(many); n > 16 || many[0] != gap(0, 5, "a") || many[n-1].To != 995 {
		t.Errorf("a hundred ranges: %v", many)
	}
}

// C125: where the inodes are used up just when the output's files are to be made, the work goes on, its code is
// kept, and all of its output is named as missing.
func TestC125NoInodeForTheOutput(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	t.Parallel()
	met := false
	for inodes := 10; inodes < 60 && !met; inodes++ {
		l := newLabOn(t, "tmpfs", fmt.Sprintf("size=4m,nr_inodes=%d", inodes))
		sub := l.script("echo lost; exit 5")
		if rec, err := l.trySubmit(sub); err != nil || rec.State == longstop.WorkloadLaunchFailed {
			continue // refused, or not begun: there was no room for the record either
		}
		rec := l.final(sub.RunID)
		if !exited(rec, 5) {
			t.Errorf("with %d inodes: %s", inodes, show(rec))
		}
		r := l.read(sub.RunID, "stdout", 0)
		if r.offset != 5 || !r.end || r.data.Len()+int(rec.Output.DroppedBytes) != 5 {
			t.Errorf("with %d inodes: read to %d, %q without %v: %s", inodes, r.offset, r.data.String(), r.dropped, show(rec))
		}
		met = rec.Output.DroppedBytes == 5 && rec.Output.DropReason == "ENOSPC"
		t.Logf("%d inodes: %v", inodes, rec.Output.DroppedBytes)
	}
	if !met {
		t.Error("no number of inodes was just too small for the output")
	}
}
